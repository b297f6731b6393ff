// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of accept.
 */
#include "../harness/suite.h"

struct listener {
	int endpoint;
	__u16 port;
};

static struct listener new_listener(int backlog)
{
	struct listener listener = { 0 };

	listener.endpoint = listening(&listener.port, backlog);
	return listener;
}

/* Lets the peer request a connection without waiting. */
static long ask_for_connection(struct peer *peer, __u16 port)
{
	long endpoint = expect_ok(ask(peer, DO_OPEN));

	expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
	expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), port), EINPROGRESS);
	return endpoint;
}

static void accept_flags(void)
{
	struct listener listener = new_listener(1);
	struct scif_port_id from;
	int accepted;

	expect_error(scif_accept(listener.endpoint, &from, &accepted, 2), EINVAL);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC | 4),
		     EINVAL);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, -1), EINVAL);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, INT32_MIN), EINVAL);
}

static void accept_null(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(1);
	struct scif_port_id from;
	int accepted;

	ask_for_connection(peer, listener.port);
	expect_value(poll_for(listener.endpoint, POLLIN, -1), POLLIN);
	expect_error(scif_accept(listener.endpoint, NULL, &accepted, 0), EINVAL);
	expect_error(scif_accept(listener.endpoint, &from, NULL, 0), EINVAL);
	/* The request is still in the queue. */
	expect_ok(scif_accept(listener.endpoint, &from, &accepted, 0));
}

static void accept_not_listening(void)
{
	struct pair pair = connected();
	int endpoint = expect_ok(scif_open()), accepted;
	struct scif_port_id from;

	expect_error(scif_accept(endpoint, &from, &accepted, 0), EINVAL);
	expect_error(scif_accept(endpoint, &from, &accepted, SCIF_ACCEPT_SYNC), EINVAL);
	expect_ok(scif_bind(endpoint, 0));
	expect_error(scif_accept(endpoint, &from, &accepted, 0), EINVAL);
	expect_error(scif_accept(pair.here, &from, &accepted, 0), EINVAL);
	expect_error(ask(pair.peer, DO_ACCEPT, pair.there, SCIF_ACCEPT_SYNC), EINVAL);
}

static void accept_empty(void)
{
	struct listener listener = new_listener(1);
	struct scif_port_id from;
	int accepted;

	expect_error(scif_accept(listener.endpoint, &from, &accepted, 0), EAGAIN);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, 0), EAGAIN);
}

static void accept_sync_waits(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, 1));
	__u16 port = answer(peer, 0);
	int endpoint = expect_ok(scif_open());

	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_blocked(peer);
	expect_ok(connect_to(endpoint, peer_node(peer), port));
	expect_ok(end(peer));
}

static void accept_tells_peer(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(4);
	struct scif_port_id from;
	long endpoint, port;
	int accepted, i;

	for (i = 0; i < 3; i++) {
		endpoint = expect_ok(ask(peer, DO_OPEN));
		port = expect_ok(ask(peer, DO_BIND, endpoint, 0));
		expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
		expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), listener.port),
			     EINPROGRESS);
		expect_ok(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC));
		expect(from.node == peer_node(peer) && from.port == port);
	}
}

static void accept_order(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(16);
	struct scif_port_id from;
	long port[12], endpoint;
	int accepted, i;

	for (i = 0; i < 12; i++) {
		endpoint = expect_ok(ask(peer, DO_OPEN));
		port[i] = expect_ok(ask(peer, DO_BIND, endpoint, 0));
		expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
		expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), listener.port),
			     EINPROGRESS);
	}
	for (i = 0; i < 12; i++) {
		expect_ok(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC));
		expect(from.port == port[i]);
	}
	expect_error(scif_accept(listener.endpoint, &from, &accepted, 0), EAGAIN);
}

static void accept_same_port(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(1);
	int other = expect_ok(scif_open()), accepted;
	struct scif_port_id from;
	long endpoint = ask_for_connection(peer, listener.port);

	expect_ok(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC));
	expect_ok(ask(peer, DO_POLL, endpoint, POLLOUT, -1));
	/* A connected endpoint keeps its port in use, although no call returns the port. */
	expect_value(scif_close(listener.endpoint), 0);
	expect_error(scif_bind(other, listener.port), EINVAL);
	expect_value(scif_close(accepted), 0);
	wait_until(scif_bind(other, listener.port) == listener.port);
}

static void accept_listener_unaffected(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(1);
	struct scif_port_id from;
	int accepted, i;

	for (i = 0; i < 3; i++) {
		ask_for_connection(peer, listener.port);
		expect_ok(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC));
		expect_error(scif_listen(listener.endpoint, 1), EISCONN);
		expect_error(scif_accept(listener.endpoint, &from, &accepted, 0), EAGAIN);
		expect_value(poll_for(listener.endpoint, POLLIN | POLLOUT, 0), 0);
	}
}

static void accept_interrupted(void)
{
	struct listener listener = new_listener(1);
	struct scif_port_id from;
	int accepted;

	interrupt_repeatedly(false);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC), EINTR);
	/* SA_RESTART makes no difference. */
	interrupt_repeatedly(true);
	expect_error(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC), EINTR);
	stop_interrupting();
	expect_error(scif_accept(listener.endpoint, &from, &accepted, 0), EAGAIN);
}

/* Accepts in a thread. Returns the endpoint, or the negative errno. */
static void *accept_one(void *data)
{
	struct listener *listener = data;
	struct scif_port_id from;
	int accepted;

	if (scif_accept(listener->endpoint, &from, &accepted, SCIF_ACCEPT_SYNC))
		return (void *)(long)-errno;
	return (void *)(long)accepted;
}

static void accept_closed_meanwhile(void)
{
	struct listener listener = new_listener(1);
	pthread_t thread[3];
	int i;

	for (i = 0; i < 3; i++)
		thread[i] = in_thread(accept_one, &listener);
	/* Calls that wait and calls that find the listener closed both return. */
	poll(NULL, 0, A_MOMENT);
	expect_value(scif_close(listener.endpoint), 0);
	for (i = 0; i < 3; i++) {
		long result = (long)thread_result(thread[i]);

		expect(result == -EINTR || result == -EBADF);
	}
}

static void accept_several_threads(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(8);
	long endpoint[4], result[4];
	pthread_t thread[4];
	int i, j;

	for (i = 0; i < 4; i++)
		thread[i] = in_thread(accept_one, &listener);
	for (i = 0; i < 4; i++)
		endpoint[i] = ask_for_connection(peer, listener.port);
	for (i = 0; i < 4; i++) {
		result[i] = (long)thread_result(thread[i]);
		expect_ok(result[i]);
		for (j = 0; j < i; j++)
			expect(result[i] != result[j]);
	}
	for (i = 0; i < 4; i++)
		expect(ask(peer, DO_POLL, endpoint[i], POLLOUT, -1) == POLLOUT);
}

static void accept_outlives_listener(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(1);
	long endpoint = ask_for_connection(peer, listener.port);
	__s64 memory = ask(peer, DO_PAGES, 1);
	struct scif_port_id from;
	char text[100];
	int accepted;

	expect_ok(scif_accept(listener.endpoint, &from, &accepted, SCIF_ACCEPT_SYNC));
	expect(ask(peer, DO_POLL, endpoint, POLLOUT, -1) == POLLOUT);
	expect_ok(ask(peer, DO_CONNECT, endpoint, own_node(), listener.port));
	expect_value(scif_close(listener.endpoint), 0);
	ask(peer, DO_FILL, memory, 7, 100);
	expect_value(ask(peer, DO_SEND, endpoint, memory, 100, SCIF_SEND_BLOCK), 100);
	expect_value(scif_recv(accepted, text, 100, SCIF_RECV_BLOCK), 100);
	expect_value(differs(text, 7, 100), -1);
	expect_value(poll_for(accepted, POLLIN | POLLOUT, 0), POLLOUT);
}

static void accept_many(void)
{
	struct peer *peer = new_peer();
	struct listener listener = new_listener(2);
	struct scif_port_id from;
	int accepted[100], i;

	for (i = 0; i < 100; i++) {
		ask_for_connection(peer, listener.port);
		expect_ok(scif_accept(listener.endpoint, &from, &accepted[i], SCIF_ACCEPT_SYNC));
	}
	for (i = 0; i < 100; i++)
		expect_value(poll_for(accepted[i], POLLIN | POLLOUT, 0), POLLOUT);
}

const struct test_case accept_cases[] = {
	ALONE(accept_flags, "accept.flags"),
	PAIR(accept_null, "accept.null"),
	PAIR(accept_not_listening, "accept.not-listening"),
	ALONE(accept_empty, "accept.empty"),
	PAIR(accept_sync_waits, "accept.sync-waits"),
	PAIR(accept_tells_peer, "accept.tells-peer"),
	PAIR(accept_order, "accept.order"),
	PAIR(accept_same_port, "accept.same-port accept.port-stays-taken"),
	PAIR(accept_listener_unaffected, "accept.listener-unaffected"),
	ALONE(accept_interrupted, "accept.interrupted"),
	ALONE(accept_closed_meanwhile, "accept.closed-meanwhile"),
	PAIR(accept_several_threads, "accept.several-threads"),
	PAIR(accept_outlives_listener, "accept.outlives-listener"),
	PAIR(accept_many, "accept.many"),
	{ }
};
