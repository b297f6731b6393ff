// SPDX-License-Identifier: GPL-2.0
/*
 * Names: SCIF_BIND_NAME and SCIF_CONNECT_NAME.
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/scif_services.h>

#include "../harness/suite.h"

/*
 * Names belong to a node, and the peers of a case may end after it. So each case has classes of its
 * own, this one and the next. Peers get their class as an argument.
 */
#define CLASS	(SCIF_NAME_CLASS_USER + 2 * (__u32)getpgrp())
#define NAME	0x01020304

static int bind_name(int endpoint, __u32 class, __u32 name)
{
	struct scif_bind_name bind = {
		.size = sizeof(bind), .name_class = class, .name = name,
	};

	return ioctl(scif_get_fd(endpoint), SCIF_BIND_NAME, &bind);
}

/* Binds to a free name of the class, and returns it. */
static __u32 bind_any_name(int endpoint, __u32 class)
{
	struct scif_bind_name bind = {
		.size = sizeof(bind), .flags = SCIF_NAME_ANY, .name_class = class,
	};

	expect_value(ioctl(scif_get_fd(endpoint), SCIF_BIND_NAME, &bind), 0);
	return bind.name;
}

static struct scif_connect_name to_name(__u16 node, __u32 class, __u32 name)
{
	return (struct scif_connect_name) {
		.size = sizeof(struct scif_connect_name),
		.name_class = class, .name = name, .node = node,
	};
}

static int connect_with(int endpoint, struct scif_connect_name *to)
{
	return ioctl(scif_get_fd(endpoint), SCIF_CONNECT_NAME, to);
}

static int connect_name(int endpoint, __u16 node, __u32 class, __u32 name)
{
	struct scif_connect_name to = to_name(node, class, name);

	return connect_with(endpoint, &to);
}

static int bound(void)
{
	int endpoint = expect_ok(scif_open());

	expect_ok(scif_bind(endpoint, 0));
	return endpoint;
}

/* Runs in a peer: makes a listener with a name. Returns the name. */
static __s64 listen_there(const __s64 *argument)
{
	__u16 port = 0;
	int endpoint = listening(&port, argument[2]);

	return bind_name(endpoint, argument[0], argument[1]) ? -1 : endpoint;
}

static void name_connects(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_RUN, CLASS, NAME, 1));
	struct scif_connect_name to = to_name(peer_node(peer), CLASS, NAME);
	int endpoint = expect_ok(scif_open());
	__s64 memory = ask(peer, DO_PAGES, 1), there;
	__u16 own_port;

	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_value(connect_with(endpoint, &to), 0);
	there = expect_ok(end(peer));
	own_port = answer(peer, 1);
	expect(answer(peer, 0) == own_node() && to.own_port == own_port);
	expect(to.peer_port >= SCIF_PORT_RSVD);
	/* The connection is like any other. */
	expect_value(scif_send(endpoint, "hello", 6, SCIF_SEND_BLOCK), 6);
	expect_value(ask(peer, DO_RECV, there, memory, 6, SCIF_RECV_BLOCK), 6);
	expect_error(connect_with(endpoint, &to), EISCONN);
	/* The returned port is that of the listener. */
	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(expect_ok(scif_open()), peer_node(peer), to.peer_port));
	expect_ok(end(peer));
}

static void name_nobody(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open());

	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME), ENOENT);
	/* Another class and another name do not lead to the listener. */
	expect_ok(ask(peer, DO_RUN, CLASS, NAME, 1));
	expect_error(connect_name(endpoint, peer_node(peer), CLASS + 1, NAME), ENOENT);
	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME + 1), ENOENT);
	/* With O_NONBLOCK a later call returns the error, as for a port without a listener. */
	set_nonblock(endpoint, true);
	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME + 1), EINPROGRESS);
	expect_value(poll_for(endpoint, POLLOUT, -1), POLLOUT | POLLERR | POLLHUP);
	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME + 1), ENOENT);
	/* The endpoint is bound, and can connect again. */
	expect_error(scif_bind(endpoint, 0), EINVAL);
	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME), EINPROGRESS);
}

static void name_absent_node(void)
{
	int endpoint = expect_ok(scif_open());

	expect_error(connect_name(endpoint, absent_node(), CLASS, NAME), ENODEV);
	expect_error(connect_name(endpoint, 0xffff, CLASS, NAME), ENODEV);
}

static void name_not_listening(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open()), named = bound();

	expect_value(bind_name(named, CLASS, NAME), 0);
	expect_error(connect_name(endpoint, own_node(), CLASS, NAME), ECONNREFUSED);
	expect_error(scif_bind(endpoint, 0), EINVAL);
	/* Names belong to a node, so this one is known only on the other node. */
	if (peer_node(peer) != own_node())
		expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME), ENOENT);
	expect_value(scif_listen(named, 1), 0);
	set_nonblock(endpoint, true);
	expect_error(connect_name(endpoint, own_node(), CLASS, NAME), EINPROGRESS);
	expect_value(poll_for(named, POLLIN, -1), POLLIN);
}

static void name_taken(void)
{
	int first = bound(), second = bound(), third = bound();

	expect_value(bind_name(first, CLASS, NAME), 0);
	expect_error(bind_name(second, CLASS, NAME), EADDRINUSE);
	/* The failed calls have changed nothing. */
	expect_value(bind_name(second, CLASS + 1, NAME), 0);
	expect_value(bind_name(third, CLASS, NAME + 1), 0);
	/* Each endpoint can have one name. */
	expect_error(bind_name(first, CLASS, NAME), EINVAL);
	expect_error(bind_name(first, CLASS, NAME + 2), EINVAL);
}

static void name_freed(void)
{
	int i, endpoint;

	for (i = 0; i < 100; i++) {
		endpoint = bound();
		expect_value(bind_name(endpoint, CLASS, NAME), 0);
		if (i % 2)
			expect_value(scif_listen(endpoint, 1), 0);
		expect_value(scif_close(endpoint), 0);
	}
	endpoint = expect_ok(scif_open());
	expect_error(connect_name(endpoint, own_node(), CLASS, NAME), ENOENT);
}

static void name_killed(void)
{
	struct peer *peer = new_peer(), *other = new_peer();
	int endpoint = expect_ok(scif_open());

	expect_ok(ask(peer, DO_RUN, CLASS, NAME, 1));
	expect_error(ask(other, DO_RUN, CLASS, NAME, 1), EADDRINUSE);
	begin(peer, DO_DIE);
	wait_for_death(peer);
	wait_until(connect_name(endpoint, peer_node(other), CLASS, NAME) && errno == ENOENT);
	expect_ok(ask(other, DO_RUN, CLASS, NAME, 1));
}

/* The name belongs to the listener. Accepted endpoints do not keep it. */
static void name_of_listener(void)
{
	__u16 port = 0;
	int listener = listening(&port, 1), endpoint = expect_ok(scif_open()), accepted;
	struct scif_port_id from;

	expect_value(bind_name(listener, CLASS, NAME), 0);
	set_nonblock(endpoint, true);
	expect_error(connect_name(endpoint, own_node(), CLASS, NAME), EINPROGRESS);
	expect_value(scif_accept(listener, &from, &accepted, SCIF_ACCEPT_SYNC), 0);
	expect_error(bind_name(accepted, CLASS, NAME + 1), EISCONN);
	expect_value(scif_close(listener), 0);
	expect_value(bind_name(bound(), CLASS, NAME), 0);
}

static void name_states(void)
{
	struct pair pair = connected();
	int endpoint = expect_ok(scif_open());
	__u16 port = 0;

	expect_error(bind_name(endpoint, CLASS, NAME), EINVAL);
	expect_error(bind_name(pair.here, CLASS, NAME), EISCONN);
	expect_error(connect_name(pair.here, own_node(), CLASS, NAME), EISCONN);
	expect_error(connect_name(listening(&port, 1), own_node(), CLASS, NAME), EOPNOTSUPP);
}

static void name_any(void)
{
	__u32 first, name;
	int i, endpoint = bound();

	first = bind_any_name(endpoint, CLASS);
	expect(first);
	expect_error(bind_name(bound(), CLASS, first), EADDRINUSE);
	expect_value(scif_close(endpoint), 0);
	/* Names that were just released are reused late. */
	for (i = 0; i < 100; i++) {
		endpoint = bound();
		name = bind_any_name(endpoint, CLASS);
		expect(name != first);
		expect_value(scif_close(endpoint), 0);
	}
}

static void name_nonblock(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_RUN, CLASS, NAME, 1));
	struct scif_connect_name to = to_name(peer_node(peer), CLASS, NAME);
	int endpoint = expect_ok(scif_open());

	set_nonblock(endpoint, true);
	expect_error(connect_with(endpoint, &to), EINPROGRESS);
	expect(!to.own_port && !to.peer_port);
	expect(ask(peer, DO_POLL, listener, POLLIN, -1) == POLLIN);
	expect_error(connect_with(endpoint, &to), EINPROGRESS);
	expect_ok(ask(peer, DO_ACCEPT, listener, 0));
	expect_value(poll_for(endpoint, POLLOUT, -1), POLLOUT);
	expect_value(connect_with(endpoint, &to), 0);
	expect(to.own_port == answer(peer, 1) && to.peer_port);
	expect_error(ask(peer, DO_ACCEPT, listener, 0), EAGAIN);
}

static void name_interrupted(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_RUN, CLASS, NAME, 1));
	int endpoint = expect_ok(scif_open());

	interrupt_repeatedly(false);
	expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME), EINTR);
	stop_interrupting();
	wait_until(!ask(peer, DO_POLL, listener, POLLIN, 0));
	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_value(connect_name(endpoint, peer_node(peer), CLASS, NAME), 0);
	expect_ok(end(peer));
}

#define THREADS	8
#define LOOKUPS	200

static void *look_up(void *data)
{
	const struct peer *peer = data;
	int i, endpoint = expect_ok(scif_open());

	for (i = 0; i < LOOKUPS; i++)
		expect_error(connect_name(endpoint, peer_node(peer), CLASS, NAME + 1), ENOENT);
	return NULL;
}

static void name_many(void)
{
	struct peer *peer = new_peer();
	pthread_t thread[THREADS];
	int i;

	for (i = 0; i < THREADS; i++)
		thread[i] = in_thread(look_up, peer);
	for (i = 0; i < THREADS; i++)
		thread_result(thread[i]);
}

static void name_arguments(void)
{
	struct scif_bind_name *bind = pages(2), good = {
		.size = sizeof(good), .name_class = CLASS, .name = NAME,
	};
	struct scif_connect_name to = to_name(own_node(), CLASS, NAME);
	int endpoint = bound(), fd = scif_get_fd(endpoint);

	expect_error(bind_name(endpoint, 0, NAME), EINVAL);
	expect_error(connect_name(endpoint, own_node(), 0, NAME), EINVAL);
	*bind = good;
	bind->flags = 2;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EINVAL);
	*bind = good;
	bind->reserved = 1;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EINVAL);
	*bind = good;
	bind->size--;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EINVAL);
	bind->size = 0;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EINVAL);
	bind->size = UINT32_MAX;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EINVAL);
	/* The structure of a later version: unknown bytes have to be zero. */
	bind->size = sizeof(good) + 8;
	((char *)bind)[sizeof(good) + 7] = 1;
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), E2BIG);
	expect_error(ioctl(fd, SCIF_BIND_NAME, NULL), EFAULT);
	expect_error(ioctl(fd, SCIF_BIND_NAME, (char *)bind + 2 * PAGE - 8), EINVAL);
	to.flags = 1;
	expect_error(connect_with(endpoint, &to), EINVAL);
	to.flags = 0;
	to.reserved = 1;
	expect_error(connect_with(endpoint, &to), EINVAL);
	to.reserved = 0;
	to.reserved2 = 1;
	expect_error(connect_with(endpoint, &to), EINVAL);
	to.reserved2 = 0;
	to.size--;
	expect_error(connect_with(endpoint, &to), EINVAL);
	expect_error(ioctl(fd, SCIF_CONNECT_NAME, NULL), EFAULT);
	/* If the result can't be written, nothing has changed. */
	*bind = good;
	mprotect(bind, PAGE, PROT_READ);
	expect_error(ioctl(fd, SCIF_BIND_NAME, bind), EFAULT);
	mprotect(bind, PAGE, PROT_READ | PROT_WRITE);
	((char *)bind)[sizeof(good) + 7] = 0;
	bind->size = sizeof(good) + 8;
	expect_value(ioctl(fd, SCIF_BIND_NAME, bind), 0);
}

static void open_and_drop(void *data)
{
	/*
	 * Only root may open the device, so the case opens endpoints before it becomes another
	 * user.
	 */
	int listener = bound(), endpoint = expect_ok(scif_open());
	__u16 node = own_node();

	drop_privileges(0);
	expect_value(scif_listen(listener, 1), 0);
	expect_value(bind_name(listener, CLASS, NAME), 0);
	set_nonblock(endpoint, true);
	expect_error(connect_name(endpoint, node, CLASS, NAME), EINPROGRESS);
}

static void name_unprivileged(void)
{
	child_passed(in_child(open_and_drop, NULL));
}

const struct test_case names_cases[] = {
	PAIR_WITH(name_connects, listen_there, "name.connects name.connected"),
	PAIR_WITH(name_nobody, listen_there, "name.nobody name.classes"),
	ALONE(name_absent_node, "name.absent-node"),
	PAIR(name_not_listening, "name.not-listening name.of-node"),
	ALONE(name_taken, "name.taken name.classes name.one"),
	ALONE(name_freed, "name.freed"),
	PAIR_WITH(name_killed, listen_there, "name.freed name.taken"),
	ALONE(name_of_listener, "name.of-listener name.connected"),
	PAIR(name_states, "name.unbound name.connected name.listening"),
	ALONE(name_any, "name.any"),
	PAIR_WITH(name_nonblock, listen_there, "name.nonblock"),
	PAIR_WITH(name_interrupted, listen_there, "name.interrupted"),
	PAIR(name_many, "name.nobody"),
	ALONE(name_arguments, "name.arguments services.size services.reserved"),
	ALONE(name_unprivileged, "name.unprivileged"),
	{ }
};
