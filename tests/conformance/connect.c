// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of connect, waiting and not.
 */
#include <signal.h>
#include <sys/wait.h>

#include "../harness/suite.h"

/* A listener of a new peer, with its node and port. */
struct destination {
	struct peer *peer;
	int listener;
	__u16 node;
	__u16 port;
};

static struct destination new_destination(int backlog)
{
	struct destination to = { .peer = new_peer() };

	to.listener = expect_ok(ask(to.peer, DO_LISTENER, backlog));
	to.node = peer_node(to.peer);
	to.port = answer(to.peer, 0);
	return to;
}

static int begin_connect(const struct destination *to)
{
	int endpoint = expect_ok(scif_open());

	set_nonblock(endpoint, true);
	expect_error(connect_to(endpoint, to->node, to->port), EINPROGRESS);
	return endpoint;
}

static void connect_returns_own_port(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open()), other = expect_ok(scif_open());
	long port;

	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	port = expect_ok(connect_to(endpoint, to.node, to.port));
	expect_ok(end(to.peer));
	expect(port >= SCIF_PORT_RSVD);
	expect(answer(to.peer, 0) == own_node() && answer(to.peer, 1) == port);
	/* The port is in use now. */
	expect_error(scif_bind(other, port), EINVAL);
}

static void connect_bound_keeps_port(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open());

	expect_value(scif_bind(endpoint, 3004), 3004);
	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	expect_value(connect_to(endpoint, to.node, to.port), 3004);
	expect_ok(end(to.peer));
	expect(answer(to.peer, 1) == 3004);
}

static void connect_absent_node(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open());
	__u16 absent = absent_node();

	expect_error(connect_to(endpoint, absent, to.port), ENODEV);
	expect_error(connect_to(endpoint, 0xffff, to.port), ENODEV);
	set_nonblock(endpoint, true);
	expect_error(connect_to(endpoint, absent, to.port), ENODEV);
	set_nonblock(endpoint, false);
	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(endpoint, to.node, to.port));
	expect_ok(end(to.peer));
}

static void connect_port_zero(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open());

	expect_error(connect_to(endpoint, peer_node(peer), 0), EINVAL);
	expect_error(connect_to(endpoint, own_node(), 0), EINVAL);
	/* The endpoint is unchanged. */
	expect_ok(scif_bind(endpoint, 0));
	expect_error(connect_to(endpoint, peer_node(peer), 0), EINVAL);
}

static void connect_listening(void)
{
	struct destination to = new_destination(1);
	__u16 port = 0;
	int endpoint = listening(&port, 1);

	expect_error(connect_to(endpoint, to.node, to.port), EOPNOTSUPP);
	/* An endpoint can't connect to itself either. */
	expect_error(connect_to(endpoint, own_node(), port), EOPNOTSUPP);
}

static void connect_connected(void)
{
	struct destination to = new_destination(1);
	struct pair pair = connected_to(to.peer);

	expect_error(connect_to(pair.here, to.node, to.port), EISCONN);
	expect_error(ask(pair.peer, DO_CONNECT, pair.there, to.node, to.port), EISCONN);
	/* The listener got no request. */
	expect_error(ask(to.peer, DO_ACCEPT, to.listener, 0), EAGAIN);
}

static void connect_no_listener(void)
{
	struct peer *peer = new_peer();
	int bound = expect_ok(ask(peer, DO_OPEN));
	long port = expect_ok(ask(peer, DO_BIND, bound, 0));
	int endpoint = expect_ok(scif_open());

	expect_error(connect_to(endpoint, peer_node(peer), port), ECONNREFUSED);
	expect_ok(ask(peer, DO_CLOSE, bound));
	expect_error(connect_to(endpoint, peer_node(peer), port), ECONNREFUSED);
}

static void connect_refused_stays_bound(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open()), other = expect_ok(scif_open());
	int third = expect_ok(scif_open());

	expect_value(scif_bind(endpoint, 3005), 3005);
	expect_error(connect_to(endpoint, peer_node(peer), 3006), ECONNREFUSED);
	expect_error(scif_bind(endpoint, 0), EINVAL);
	expect_error(scif_bind(other, 3005), EINVAL);
	/* An endpoint that connect itself has bound is bound, too, and can even listen. */
	expect_error(connect_to(third, peer_node(peer), 3006), ECONNREFUSED);
	expect_error(scif_bind(third, 0), EINVAL);
	expect_value(scif_listen(third, 1), 0);
}

static void *open_listener_later(void *data)
{
	struct peer *peer = data;
	int endpoint = expect_ok(ask(peer, DO_OPEN));

	expect_ok(ask(peer, DO_BIND, endpoint, 3007));
	expect_ok(ask(peer, DO_LISTEN, endpoint, 1));
	return (void *)expect_ok(ask(peer, DO_ACCEPT, endpoint, SCIF_ACCEPT_SYNC));
}

static void connect_retry_succeeds(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open());
	pthread_t thread;
	long port;

	expect_error(connect_to(endpoint, peer_node(peer), 3007), ECONNREFUSED);
	thread = in_thread(open_listener_later, peer);
	do {
		port = connect_to(endpoint, peer_node(peer), 3007);
	} while (port < 0 && errno == ECONNREFUSED);
	expect(port > 0);
	expect((long)thread_result(thread) >= 0);
	expect_error(scif_bind(endpoint, 0), EISCONN);
}

static void *accept_later(void *data)
{
	struct destination *to = data;

	poll(NULL, 0, A_MOMENT);
	begin(to->peer, DO_ACCEPT, to->listener, SCIF_ACCEPT_SYNC);
	return NULL;
}

static void connect_waits_for_accept(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open());
	__u64 started = now();
	pthread_t thread = in_thread(accept_later, &to);

	expect_ok(connect_to(endpoint, to.node, to.port));
	expect(now() - started >= A_MOMENT - 2);
	thread_result(thread);
	expect_ok(end(to.peer));
}

static void connect_interrupted(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open());

	/* SA_RESTART makes no difference, because a repeated call would be another request. */
	interrupt_repeatedly(false);
	expect_error(connect_to(endpoint, to.node, to.port), EINTR);
	interrupt_repeatedly(true);
	expect_error(connect_to(endpoint, to.node, to.port), EINTR);
	stop_interrupting();
	/* No request stays in the queue, so there is room for the next one: the backlog is 1. */
	wait_until(!ask(to.peer, DO_POLL, to.listener, POLLIN, 0));
	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(endpoint, to.node, to.port));
	expect_ok(end(to.peer));
	expect_error(ask(to.peer, DO_ACCEPT, to.listener, 0), EAGAIN);
}

static void connect_and_wait(void *data)
{
	const struct destination *to = data;
	int endpoint = expect_ok(scif_open());

	connect_to(endpoint, to->node, to->port);
}

static void accept_if_any(const struct destination *to)
{
	long accepted = ask(to->peer, DO_ACCEPT, to->listener, 0);

	if (accepted < 0 && errno != EAGAIN)
		fail("accept: %s", strerror(errno));
}

static void connect_gives_up(void)
{
	struct destination to = new_destination(4);
	int i, endpoint;
	pid_t child;

	for (i = 0; i < 3; i++) {
		child = in_child(connect_and_wait, &to);
		expect(ask(to.peer, DO_POLL, to.listener, POLLIN, -1) == POLLIN);
		kill(child, SIGKILL);
		expect_value(child_signal(child), SIGKILL);
	}
	/* The living endpoint is accepted, whatever happened to the dead ones. */
	endpoint = begin_connect(&to);
	while (!(poll_for(endpoint, POLLOUT, 10) & POLLOUT)) {
		expect_ok(ask(to.peer, DO_POLL, to.listener, POLLIN, 10));
		accept_if_any(&to);
	}
	expect_ok(connect_to(endpoint, to.node, to.port));
}

static void connect_withdrawn(void)
{
	struct destination to = new_destination(4);
	int endpoint = begin_connect(&to);

	expect(ask(to.peer, DO_POLL, to.listener, POLLIN, -1) == POLLIN);
	expect_value(scif_close(endpoint), 0);
	/* Events reach the peer in order, and this one comes after the close. */
	wait_until(!(ask(to.peer, DO_POLL, to.listener, POLLIN, 0) & POLLIN));
	expect_error(ask(to.peer, DO_ACCEPT, to.listener, 0), EAGAIN);
}

static void connect_own_node(void)
{
	struct pair pair = connected_here();
	char text[6] = "", other[6] = "";

	expect_value(scif_send(pair.here, "hello", 6, SCIF_SEND_BLOCK), 6);
	expect_value(scif_recv(pair.there, text, 6, SCIF_RECV_BLOCK), 6);
	expect_value(scif_send(pair.there, "thank", 6, SCIF_SEND_BLOCK), 6);
	expect_value(scif_recv(pair.here, other, 6, SCIF_RECV_BLOCK), 6);
	expect(!strcmp(text, "hello") && !strcmp(other, "thank"));
	expect(pair.own_port != pair.peer_port);
}

static void connect_same_destination(void)
{
	struct destination to = new_destination(16);
	int here[32], there[32], i;
	__s64 memory = ask(to.peer, DO_PAGES, 1);
	__u32 number;

	for (i = 0; i < 32; i++) {
		here[i] = begin_connect(&to);
		there[i] = expect_ok(ask(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC));
		expect(poll_for(here[i], POLLOUT, -1) & POLLOUT);
		expect(connect_to(here[i], to.node, to.port) == answer(to.peer, 1));
	}
	/* Each connection leads to the endpoint that was accepted for it. */
	for (i = 0; i < 32; i++) {
		number = 1000 + i;
		expect_value(scif_send(here[i], &number, 4, SCIF_SEND_BLOCK), 4);
	}
	for (i = 31; i >= 0; i--) {
		expect_value(ask(to.peer, DO_RECV, there[i], memory, 4, SCIF_RECV_BLOCK), 4);
		expect_ok(ask(to.peer, DO_PEEK, memory));
		expect((__u32)answer(to.peer, 0) == 1000U + i);
	}
}

/* Both ends connect at the same time, each from the port to which the other end connects. */
static void connect_crossing(void)
{
	struct destination to = new_destination(4);
	__s64 memory = ask(to.peer, DO_PAGES, 1);
	struct scif_port_id from;
	__u16 port = 0;
	int listener = listening(&port, 4), here, accepted, there_accepted;
	long there = expect_ok(ask(to.peer, DO_OPEN));
	char text[4];

	expect_ok(ask(to.peer, DO_SET_NONBLOCK, there, true));
	begin(to.peer, DO_CONNECT, there, own_node(), port);
	here = begin_connect(&to);
	expect_error(end(to.peer), EINPROGRESS);
	expect_value(scif_accept(listener, &from, &accepted, SCIF_ACCEPT_SYNC), 0);
	there_accepted = expect_ok(ask(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC));
	expect(ask(to.peer, DO_POLL, there, POLLOUT, -1) == POLLOUT);
	expect_ok(ask(to.peer, DO_CONNECT, there, own_node(), port));
	expect_value(poll_for(here, POLLOUT, -1), POLLOUT);
	expect_ok(connect_to(here, to.node, to.port));
	/* There are two connections, each with its own bytes. */
	expect_value(scif_send(here, "one", 4, SCIF_SEND_BLOCK), 4);
	expect_value(ask(to.peer, DO_RECV, there_accepted, memory, 4, SCIF_RECV_BLOCK), 4);
	expect_value(ask(to.peer, DO_SEND, there, memory, 4, SCIF_SEND_BLOCK), 4);
	expect_value(scif_recv(accepted, text, 4, SCIF_RECV_BLOCK), 4);
	expect(!strcmp(text, "one"));
}

static void nonblock_in_progress(void)
{
	struct destination to = new_destination(1);
	int endpoint = begin_connect(&to);

	expect(ask(to.peer, DO_POLL, to.listener, POLLIN, -1) == POLLIN);
	expect_error(connect_to(endpoint, to.node, to.port), EINPROGRESS);
	expect_value(poll_for(endpoint, POLLIN | POLLOUT, 0), 0);
	expect_ok(ask(to.peer, DO_ACCEPT, to.listener, 0));
	expect_value(poll_for(endpoint, POLLIN | POLLOUT, -1), POLLOUT);
	expect_ok(connect_to(endpoint, to.node, to.port));
	/* There was only one request. */
	expect_error(ask(to.peer, DO_ACCEPT, to.listener, 0), EAGAIN);
}

static void nonblock_collect(void)
{
	struct destination to = new_destination(1);
	int endpoint = expect_ok(scif_open());
	long port = expect_ok(scif_bind(endpoint, 0));

	set_nonblock(endpoint, true);
	expect_error(connect_to(endpoint, to.node, to.port), EINPROGRESS);
	expect_ok(ask(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC));
	expect_value(poll_for(endpoint, POLLOUT, -1), POLLOUT);
	expect_value(connect_to(endpoint, to.node, to.port), port);
	expect_error(connect_to(endpoint, to.node, to.port), EISCONN);
}

static void nonblock_refused(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open()), listener;
	__u16 port;

	set_nonblock(endpoint, true);
	expect_error(connect_to(endpoint, peer_node(peer), 3008), EINPROGRESS);
	expect(poll_for(endpoint, POLLOUT, -1) & POLLOUT);
	expect_error(connect_to(endpoint, peer_node(peer), 3008), ECONNREFUSED);
	expect_value(poll_for(endpoint, POLLOUT, 0), POLLERR);
	/* Connects the same endpoint again, now to a listener. */
	listener = expect_ok(ask(peer, DO_LISTENER, 1));
	port = answer(peer, 0);
	expect_error(connect_to(endpoint, peer_node(peer), port), EINPROGRESS);
	expect_ok(ask(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC));
	expect_value(poll_for(endpoint, POLLOUT, -1), POLLOUT);
	expect_ok(connect_to(endpoint, peer_node(peer), port));
}

static void nonblock_blocking_collects(void)
{
	struct destination to = new_destination(1);
	int endpoint = begin_connect(&to);

	/* The connect began without waiting, and its result is collected with waiting. */
	set_nonblock(endpoint, false);
	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(endpoint, to.node, to.port));
	expect_ok(end(to.peer));
	expect_error(ask(to.peer, DO_ACCEPT, to.listener, 0), EAGAIN);
}

static void nonblock_only_connect(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	char byte = 1;

	/* The flag of the call counts, not that of the descriptor. */
	expect_ok(ask(pair.peer, DO_SET_NONBLOCK, pair.there, true));
	begin(pair.peer, DO_RECV, pair.there, memory, 1, SCIF_RECV_BLOCK);
	expect_blocked(pair.peer);
	expect_value(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK), 1);
	expect_value(end(pair.peer), 1);
}

static void nonblock_accept_waits(void)
{
	struct destination to = new_destination(1);

	expect_ok(ask(to.peer, DO_SET_NONBLOCK, to.listener, true));
	begin(to.peer, DO_ACCEPT, to.listener, SCIF_ACCEPT_SYNC);
	expect_blocked(to.peer);
	begin_connect(&to);
	expect_ok(end(to.peer));
}

const struct test_case connect_cases[] = {
	PAIR(connect_returns_own_port, "connect.returns-own-port connect.auto-bind"),
	PAIR(connect_bound_keeps_port, "connect.bound-keeps-port"),
	PAIR(connect_absent_node, "connect.absent-node"),
	PAIR(connect_port_zero, "connect.port-zero"),
	PAIR(connect_listening, "connect.listening"),
	PAIR(connect_connected, "connect.connected"),
	PAIR(connect_no_listener, "connect.no-listener"),
	PAIR(connect_refused_stays_bound, "connect.refused-stays-bound"),
	PAIR(connect_retry_succeeds, "connect.retry-succeeds connect.refused-stays-bound"),
	PAIR(connect_waits_for_accept, "connect.waits-for-accept"),
	PAIR(connect_interrupted, "connect.interrupted"),
	PAIR(connect_gives_up, "connect.gives-up"),
	PAIR(connect_withdrawn, "accept.withdrawn"),
	ALONE(connect_own_node, "connect.own-node"),
	PAIR(connect_same_destination, "connect.same-destination"),
	PAIR(connect_crossing, "connect.crossing"),
	PAIR(nonblock_in_progress, "connect.nonblock-in-progress connect.nonblock-pollout"),
	PAIR(nonblock_collect, "connect.nonblock-collect"),
	PAIR(nonblock_refused, "connect.nonblock-refused poll.after-refusal"),
	PAIR(nonblock_blocking_collects, "connect.nonblock-collect"),
	PAIR(nonblock_only_connect, "connect.nonblock-only"),
	PAIR(nonblock_accept_waits, "connect.nonblock-only accept.sync-waits"),
	{ }
};
