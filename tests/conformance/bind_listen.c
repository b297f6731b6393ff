// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of bind and listen.
 */
#include <fcntl.h>
#include <sys/resource.h>

#include "../harness/suite.h"

static void bind_returns_port(void)
{
	int endpoint = expect_ok(scif_open());

	expect_value(scif_bind(endpoint, 3001), 3001);
}

static void bind_port_zero(void)
{
	int endpoint, i;
	long port;

	for (i = 0; i < 100; i++) {
		endpoint = expect_ok(scif_open());
		port = expect_ok(scif_bind(endpoint, 0));
		expect(port >= SCIF_PORT_RSVD && port <= 65535);
		expect_value(scif_close(endpoint), 0);
	}
}

static void bind_port_zero_distinct(void)
{
	static bool taken[65536];
	int endpoint, i;
	long port;

	for (i = 0; i < 200; i++) {
		endpoint = expect_ok(scif_open());
		port = expect_ok(scif_bind(endpoint, 0));
		expect(!taken[port]);
		taken[port] = true;
	}
}

static void bind_privileged(void)
{
	int endpoint = expect_ok(scif_open());

	drop_privileges(0);
	expect_error(scif_bind(endpoint, 1), EACCES);
	expect_error(scif_bind(endpoint, 1023), EACCES);
	/* The endpoint is still unbound. */
	expect_error(scif_listen(endpoint, 1), EINVAL);
	expect_ok(scif_bind(endpoint, 0));
}

static void bind_privileged_allowed(void)
{
	int first = expect_ok(scif_open()), second = expect_ok(scif_open());

	expect_value(scif_bind(first, 1), 1);
	expect_value(scif_bind(second, 1023), 1023);
}

static void bind_reserved_for_anybody(void)
{
	int first = expect_ok(scif_open()), second = expect_ok(scif_open());

	drop_privileges(0);
	expect_value(scif_bind(first, 1024), 1024);
	expect_value(scif_bind(second, 1087), 1087);
}

static void bind_highest_port(void)
{
	int endpoint = expect_ok(scif_open());

	expect_value(scif_bind(endpoint, 65535), 65535);
	expect_value(scif_listen(endpoint, 1), 0);
}

static void bind_already_bound(void)
{
	int endpoint = expect_ok(scif_open()), other = expect_ok(scif_open());
	long port = expect_ok(scif_bind(endpoint, 0));

	expect_error(scif_bind(endpoint, 0), EINVAL);
	expect_error(scif_bind(endpoint, port), EINVAL);
	expect_error(scif_bind(endpoint, 3002), EINVAL);
	/* The endpoint still has the first port, and did not get the others. */
	expect_error(scif_bind(other, port), EINVAL);
	expect_value(scif_bind(other, 3002), 3002);
}

static void bind_port_taken(void)
{
	int first = expect_ok(scif_open()), second = expect_ok(scif_open());
	long port = expect_ok(scif_bind(first, 0));

	expect_error(scif_bind(second, port), EINVAL);
	expect_value(scif_listen(first, 1), 0);
	expect_error(scif_bind(second, port), EINVAL);
	expect_error(scif_listen(second, 1), EINVAL);
	expect_ok(scif_bind(second, 0));
}

static void bind_listening(void)
{
	__u16 port = 0;
	int endpoint = listening(&port, 1);

	expect_error(scif_bind(endpoint, 0), EISCONN);
	expect_error(scif_bind(endpoint, port), EISCONN);
}

static void bind_connected(void)
{
	struct pair pair = connected();

	expect_error(scif_bind(pair.here, 0), EISCONN);
	expect_error(scif_bind(pair.here, pair.own_port), EISCONN);
	expect_error(ask(pair.peer, DO_BIND, pair.there, 0), EISCONN);
}

static void bind_free_after_close(void)
{
	int endpoint = expect_ok(scif_open());
	long port = expect_ok(scif_bind(endpoint, 0));
	__u16 again = port;
	int i;

	expect_value(scif_close(endpoint), 0);
	/* The port of a listener is free after each close, too. */
	for (i = 0; i < 20; i++)
		expect_value(scif_close(listening(&again, 1)), 0);
	expect(again == port);
}

static void bind_ports_exhausted(void)
{
	struct rlimit limit = { .rlim_cur = 70000, .rlim_max = 70000 };
	static int endpoint[65536];
	int count = 0, last;
	long port = 0;

	expect_value(setrlimit(RLIMIT_NOFILE, &limit), 0);
	last = expect_ok(scif_open());
	do {
		endpoint[count] = expect_ok(scif_open());
		port = scif_bind(endpoint[count], 0);
		count += port > 0;
	} while (port > 0);
	expect_error(scif_bind(endpoint[count], 0), ENOSPC);
	/* All ports were bound, except some that other endpoints have. */
	expect(count > 64000 - 1000 && count <= 65536 - SCIF_PORT_RSVD);
	/* connect needs a free port, too. */
	expect_error(connect_to(last, own_node(), run.agent[0].port), ENOSPC);
	expect_value(scif_close(endpoint[0]), 0);
	expect_ok(scif_bind(last, 0));
}

/* Checks that every call refuses a descriptor that is not an endpoint. */
static void expect_refused(int fd, int error)
{
	struct scif_port_id to = { .node = 0, .port = 3003 };
	int mark, accepted;
	char byte = 0;

	expect_error(scif_bind(fd, 0), error);
	expect_error(scif_listen(fd, 1), error);
	expect_error(scif_connect(fd, &to), error);
	expect_error(scif_accept(fd, &to, &accepted, 0), error);
	expect_error(scif_send(fd, &byte, 1, 0), error);
	expect_error(scif_recv(fd, &byte, 1, 0), error);
	expect_error(scif_register(fd, pages(1), PAGE, 0, READ_WRITE, 0), error);
	expect_error(scif_unregister(fd, 0, PAGE), error);
	expect_error(scif_readfrom(fd, 0, PAGE, 0, 0), error);
	expect_error(scif_writeto(fd, 0, PAGE, 0, 0), error);
	expect_error(scif_vreadfrom(fd, pages(1), PAGE, 0, 0), error);
	expect_error(scif_vwriteto(fd, pages(1), PAGE, 0, 0), error);
	expect_error(scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark), error);
	expect_error(scif_fence_wait(fd, 1), error);
	expect_error(scif_fence_signal(fd, 0, 0, 0, 0, SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL),
		     error);
}

static void bad_descriptor(void)
{
	expect_refused(-1, EBADF);
	expect_refused(expect_ok(open("/dev/null", O_RDWR)), ENOTTY);
	expect(scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, -1, 0) == SCIF_MMAP_FAILED &&
	       errno == EBADF);
}

static void listen_unbound(void)
{
	int endpoint = expect_ok(scif_open());

	expect_error(scif_listen(endpoint, 1), EINVAL);
	expect_ok(scif_bind(endpoint, 0));
	expect_value(scif_listen(endpoint, 1), 0);
}

static void listen_listening(void)
{
	__u16 port = 0;
	int endpoint = listening(&port, 1);

	expect_error(scif_listen(endpoint, 1), EISCONN);
	expect_error(scif_listen(endpoint, 100), EISCONN);
}

static void listen_connected(void)
{
	struct pair pair = connected();

	expect_error(scif_listen(pair.here, 1), EISCONN);
	expect_error(ask(pair.peer, DO_LISTEN, pair.there, 1), EISCONN);
}

static void listen_backlog_invalid(void)
{
	int endpoint = expect_ok(scif_open());

	expect_ok(scif_bind(endpoint, 0));
	expect_error(scif_listen(endpoint, 0), EINVAL);
	expect_error(scif_listen(endpoint, -1), EINVAL);
	expect_error(scif_listen(endpoint, INT32_MIN), EINVAL);
	expect_value(scif_listen(endpoint, 1), 0);
}

static void listen_backlog_clamped(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, INT32_MAX));
	int endpoint = expect_ok(scif_open());
	__u16 port = answer(peer, 0);

	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(endpoint, peer_node(peer), port));
	expect_ok(end(peer));
}

static void listen_backlog_limits(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, 3));
	__u16 port = answer(peer, 0);
	int endpoint[3], more, i;

	for (i = 0; i < 3; i++) {
		endpoint[i] = expect_ok(scif_open());
		set_nonblock(endpoint[i], true);
		expect_error(connect_to(endpoint[i], peer_node(peer), port), EINPROGRESS);
	}
	more = expect_ok(scif_open());
	expect_error(connect_to(more, peer_node(peer), port), ECONNREFUSED);
	/*
	 * Requests in the queue stay. When there is room, the refused endpoint can connect again.
	 */
	for (i = 0; i < 3; i++) {
		expect_ok(ask(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC));
		expect(poll_for(endpoint[i], POLLOUT, -1) == POLLOUT);
		expect_ok(connect_to(endpoint[i], peer_node(peer), port));
	}
	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_ok(connect_to(more, peer_node(peer), port));
	expect_ok(end(peer));
}

static void listen_not_a_connection(void)
{
	__u16 port = 0;
	int endpoint = listening(&port, 1);
	int mark;
	char byte = 0;

	expect_error(scif_send(endpoint, &byte, 1, 0), ENOTCONN);
	expect_error(scif_recv(endpoint, &byte, 1, 0), ENOTCONN);
	expect_error(scif_register(endpoint, pages(1), PAGE, 0, READ_WRITE, 0), ENOTCONN);
	expect_error(scif_fence_mark(endpoint, SCIF_FENCE_INIT_SELF, &mark), ENOTCONN);
}

const struct test_case bind_listen_cases[] = {
	ALONE(bind_returns_port, "bind.returns-port"),
	ALONE(bind_port_zero, "bind.port-zero"),
	ALONE(bind_port_zero_distinct, "bind.port-zero-distinct"),
	ALONE(bind_privileged, "bind.privileged"),
	ALONE(bind_privileged_allowed, "bind.privileged-allowed"),
	ALONE(bind_reserved_for_anybody, "bind.reserved-for-anybody"),
	ALONE(bind_highest_port, "bind.highest-port"),
	ALONE(bind_already_bound, "bind.already-bound"),
	ALONE(bind_port_taken, "bind.port-taken"),
	ALONE(bind_listening, "bind.listening"),
	PAIR(bind_connected, "bind.connected"),
	ALONE(bind_free_after_close, "bind.free-after-close"),
	ALONE_LONG(bind_ports_exhausted, "bind.ports-exhausted connect.ports-exhausted"),
	ALONE(bad_descriptor, "bind.bad-descriptor"),
	ALONE(listen_unbound, "listen.unbound"),
	ALONE(listen_listening, "listen.listening"),
	PAIR(listen_connected, "listen.connected"),
	ALONE(listen_backlog_invalid, "listen.backlog-invalid"),
	PAIR(listen_backlog_clamped, "listen.backlog-clamped"),
	PAIR(listen_backlog_limits, "listen.backlog-limits connect.no-listener"),
	ALONE(listen_not_a_connection, "listen.not-a-connection"),
	{ }
};
