// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of poll, in every state of an endpoint.
 */
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>

#include "../harness/suite.h"

#define BOTH	(POLLIN | POLLOUT)

static void poll_unbound(void)
{
	int endpoint = expect_ok(scif_open());

	expect_value(poll_for(endpoint, BOTH, 0), POLLERR);
	expect_value(poll_for(endpoint, 0, -1), POLLERR);
}

static void poll_bound(void)
{
	int endpoint = expect_ok(scif_open());

	expect_ok(scif_bind(endpoint, 0));
	expect_value(poll_for(endpoint, BOTH, 0), POLLERR);
}

static void poll_listening(void)
{
	struct peer *peer = new_peer();
	struct scif_port_id from;
	__u16 port = 0;
	int listener = listening(&port, 2), accepted, i;
	long endpoint;

	expect_value(poll_for(listener, BOTH, 0), 0);
	for (i = 0; i < 2; i++) {
		endpoint = expect_ok(ask(peer, DO_OPEN));
		expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
		expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), port), EINPROGRESS);
	}
	expect_value(poll_for(listener, BOTH, -1), POLLIN);
	wait_until(!scif_accept(listener, &from, &accepted, 0));
	/* There is another request. */
	expect_value(poll_for(listener, BOTH, -1), POLLIN);
	expect_value(scif_accept(listener, &from, &accepted, 0), 0);
	expect_value(poll_for(listener, BOTH, 0), 0);
}

static void poll_connected(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	char data[10];

	expect_value(poll_for(pair.here, BOTH, 0), POLLOUT);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 10, SCIF_SEND_BLOCK), 10);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	expect_value(poll_for(pair.here, BOTH, 0), BOTH);
	/* POLLIN stays as long as there are bytes. */
	expect_value(scif_recv(pair.here, data, 9, 0), 9);
	expect_value(poll_for(pair.here, BOTH, 0), BOTH);
	expect_value(scif_recv(pair.here, data, 1, 0), 1);
	expect_value(poll_for(pair.here, BOTH, 0), POLLOUT);
}

static void poll_only_wanted(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);

	expect_value(poll_for(pair.here, POLLIN, 0), 0);
	expect_value(poll_for(pair.here, 0, 0), 0);
	expect_value(poll_for(pair.here, POLLOUT, 0), POLLOUT);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 10, SCIF_SEND_BLOCK), 10);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	expect_value(poll_for(pair.here, POLLOUT, 0), POLLOUT);
	expect_value(poll_for(pair.here, 0, 0), 0);
}

static void poll_full(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long count = stuff(pair.here);

	expect_value(poll_for(pair.here, BOTH, 0), 0);
	begin(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK);
	expect_value(poll_for(pair.here, BOTH, -1), POLLOUT);
	expect_value(end(pair.peer), count);
	/* POLLOUT is true: some bytes can be sent. */
	expect(stuff(pair.here) > 0);
}

static void poll_closed(void)
{
	struct pair pair = connected();
	int events;

	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	/* The specification leaves open whether POLLIN is set, but POLLHUP has to be. */
	events = poll_for(pair.here, 0, -1);
	expect_value(events, POLLHUP);
	expect(poll_for(pair.here, BOTH, -1) & POLLHUP);
}

static void poll_closed_data(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	char data[10];

	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 10, SCIF_SEND_BLOCK), 10);
	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	expect((poll_for(pair.here, POLLIN, -1) & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP));
	expect_value(scif_recv(pair.here, data, 9, 0), 9);
	expect((poll_for(pair.here, POLLIN, -1) & (POLLIN | POLLHUP)) == (POLLIN | POLLHUP));
	expect_value(scif_recv(pair.here, data, 1, 0), 1);
	expect(poll_for(pair.here, POLLIN, -1) & POLLHUP);
	expect_error(scif_recv(pair.here, data, 1, 0), ECONNRESET);
}

static void poll_several(void)
{
	struct pair pair[3];
	struct scif_pollepd poll[4] = { };
	struct peer *peer = new_peer();
	__s64 memory = ask(peer, DO_PAGES, 1);
	int i;

	for (i = 0; i < 3; i++) {
		pair[i] = connected_to(peer);
		poll[i].epd = pair[i].here;
		poll[i].events = POLLIN;
	}
	poll[3].epd = expect_ok(scif_open());
	poll[3].events = POLLIN;
	expect_value(scif_poll(poll, 3, 0), 0);
	expect_value(scif_poll(poll, 4, 0), 1);
	expect(poll[3].revents == POLLERR);
	expect_value(ask(peer, DO_SEND, pair[1].there, memory, 10, SCIF_SEND_BLOCK), 10);
	expect_value(scif_poll(poll, 3, -1), 1);
	expect(!poll[0].revents && poll[1].revents == POLLIN && !poll[2].revents);
	expect_ok(ask(peer, DO_CLOSE, pair[2].there));
	wait_for_hangup(pair[2].here);
	expect_value(scif_poll(poll, 4, -1), 3);
	expect(!poll[0].revents && poll[1].revents == POLLIN && poll[2].revents & POLLHUP);
	expect_value(scif_poll(poll, 0, 0), 0);
}

static void poll_timeout(void)
{
	struct pair pair = connected();
	struct scif_pollepd poll = { .epd = pair.here, .events = POLLIN, .revents = 99 };
	__u64 started = now();

	expect_value(scif_poll(&poll, 1, 20), 0);
	expect(now() - started >= 19 && !poll.revents);
	expect_value(scif_poll(&poll, 1, 0), 0);
}

struct wake {
	struct pair pair;
	void (*cause)(struct pair *pair);
};

static void send_byte(struct pair *pair)
{
	__s64 memory = ask(pair->peer, DO_PAGES, 1);

	expect_value(ask(pair->peer, DO_SEND, pair->there, memory, 1, SCIF_SEND_BLOCK), 1);
}

static void close_peer(struct pair *pair)
{
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
}

static void kill_peer(struct pair *pair)
{
	begin(pair->peer, DO_DIE);
}

static void *cause_later(void *data)
{
	struct wake *wake = data;

	poll(NULL, 0, A_MOMENT);
	wake->cause(&wake->pair);
	return NULL;
}

static void poll_wakes(void)
{
	struct wake wake = { .pair = connected(), .cause = send_byte };
	pthread_t thread;
	char byte;

	thread = in_thread(cause_later, &wake);
	expect_value(poll_for(wake.pair.here, POLLIN, -1), POLLIN);
	thread_result(thread);
	expect_value(scif_recv(wake.pair.here, &byte, 1, 0), 1);
	wake.cause = close_peer;
	thread = in_thread(cause_later, &wake);
	expect(poll_for(wake.pair.here, POLLIN, -1) & POLLHUP);
	thread_result(thread);
	wake.pair = connected();
	wake.cause = kill_peer;
	thread = in_thread(cause_later, &wake);
	expect(poll_for(wake.pair.here, 0, -1) & POLLHUP);
	thread_result(thread);
}

static void poll_interrupted(void)
{
	struct pair pair = connected();

	interrupt_repeatedly(false);
	expect_error(poll_for(pair.here, POLLIN, -1), EINTR);
	stop_interrupting();
}

static void poll_invalid_descriptor(void)
{
	struct pair pair = connected();
	struct scif_pollepd poll[2] = {
		{ .epd = pair.here, .events = POLLOUT },
		{ .epd = 999, .events = POLLIN },
	};

	expect_value(scif_poll(poll, 2, -1), 2);
	expect(poll[0].revents == POLLOUT && poll[1].revents == POLLNVAL);
	/* poll(2) ignores a negative descriptor. */
	poll[1].epd = -1;
	expect_value(scif_poll(poll, 2, -1), 1);
	expect(!poll[1].revents);
}

static void poll_too_many(void)
{
	struct rlimit limit;
	struct scif_pollepd *poll;

	expect_value(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = 64;
	expect_value(setrlimit(RLIMIT_NOFILE, &limit), 0);
	poll = calloc(65, sizeof(*poll));
	expect(poll);
	memset(poll, 0xff, 65 * sizeof(*poll));
	expect_value(scif_poll(poll, 64, 0), 0);
	expect_error(scif_poll(poll, 65, 0), EINVAL);
	expect_error(scif_poll((struct scif_pollepd *)8, 1, 0), EFAULT);
}

static void poll_select_epoll(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET }, found;
	int queue = expect_ok(epoll_create1(0)), fd = scif_get_fd(pair.here);
	struct timeval no_time = { };
	fd_set in, out;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	expect_value(select(fd + 1, &in, &out, NULL, &no_time), 1);
	expect(!FD_ISSET(fd, &in) && FD_ISSET(fd, &out));
	expect_value(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event), 0);
	expect_value(epoll_wait(queue, &found, 1, 0), 0);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 1, SCIF_SEND_BLOCK), 1);
	expect_value(epoll_wait(queue, &found, 1, -1), 1);
	expect(found.events == EPOLLIN);
	FD_SET(fd, &in);
	FD_CLR(fd, &out);
	expect_value(select(fd + 1, &in, NULL, NULL, NULL), 1);
	/* Edge-triggered: one event, and another one when more bytes arrive. */
	expect_value(epoll_wait(queue, &found, 1, 0), 0);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 1, SCIF_SEND_BLOCK), 1);
	expect_value(epoll_wait(queue, &found, 1, -1), 1);
	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	do {
		expect_value(epoll_wait(queue, &found, 1, -1), 1);
	} while (!(found.events & EPOLLHUP));
	/* Closes the endpoint while epoll watches it. */
	expect_value(scif_close(pair.here), 0);
	expect_value(epoll_wait(queue, &found, 1, 0), 0);
}

/* One event when there is room again, and one when the peer has closed. */
static void poll_edges(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET }, found;
	int queue = expect_ok(epoll_create1(0));
	long count;

	expect_value(epoll_ctl(queue, EPOLL_CTL_ADD, scif_get_fd(pair.here), &event), 0);
	expect_value(epoll_wait(queue, &found, 1, -1), 1);
	expect(found.events == EPOLLOUT);
	count = stuff(pair.here);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK), count);
	do {
		expect_value(epoll_wait(queue, &found, 1, -1), 1);
	} while (!(found.events & EPOLLOUT));
	expect(stuff(pair.here) > 0);
	begin(pair.peer, DO_DIE);
	do {
		expect_value(epoll_wait(queue, &found, 1, -1), 1);
	} while (!(found.events & EPOLLHUP));
}

const struct test_case poll_cases[] = {
	ALONE(poll_unbound, "poll.unbound"),
	ALONE(poll_bound, "poll.bound"),
	PAIR(poll_listening, "poll.listening-idle poll.listening-request"),
	PAIR(poll_connected, "poll.connected-idle poll.connected-data"),
	PAIR(poll_only_wanted, "poll.only-wanted"),
	PAIR(poll_full, "poll.connected-full"),
	PAIR(poll_closed, "poll.closed"),
	PAIR(poll_closed_data, "poll.closed-data"),
	PAIR(poll_several, "poll.several"),
	PAIR(poll_timeout, "poll.timeout"),
	PAIR(poll_wakes, "poll.wakes"),
	PAIR(poll_interrupted, "poll.interrupted"),
	PAIR(poll_invalid_descriptor, "poll.invalid-descriptor"),
	ALONE(poll_too_many, "poll.too-many"),
	PAIR(poll_select_epoll, "poll.select-epoll"),
	PAIR(poll_edges, "poll.select-epoll poll.wakes"),
	{ }
};
