// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of close, and its effect on the other end.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>

#include <linux/scif_ioctl.h>

#include "../harness/suite.h"

static void close_bad_descriptor(void)
{
	int endpoint = expect_ok(scif_open());

	expect_value(scif_close(endpoint), 0);
	expect_error(scif_close(endpoint), EBADF);
	expect_error(scif_close(-1), EBADF);
}

static void close_hangup(void)
{
	struct pair pair = connected();

	expect_value(scif_close(pair.here), 0);
	expect(ask(pair.peer, DO_POLL, pair.there, 0, -1) & POLLHUP);
}

static void close_data_stays(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	char data[3000];

	fill(data, 1, sizeof(data));
	expect_value(scif_send(pair.here, data, sizeof(data), SCIF_SEND_BLOCK), sizeof(data));
	expect_value(scif_close(pair.here), 0);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, sizeof(data), SCIF_RECV_BLOCK),
		     sizeof(data));
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 1, sizeof(data)), -1);
	expect_error(ask(pair.peer, DO_RECV, pair.there, memory, 1, SCIF_RECV_BLOCK), ECONNRESET);
}

static void close_rejects_pending(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, 8)), endpoint[5], i;
	__u16 port = answer(peer, 0);
	__u64 started;

	for (i = 0; i < 5; i++) {
		endpoint[i] = expect_ok(scif_open());
		set_nonblock(endpoint[i], true);
		expect_error(connect_to(endpoint[i], peer_node(peer), port), EINPROGRESS);
	}
	expect(ask(peer, DO_POLL, listener, POLLIN, -1) == POLLIN);
	started = now();
	expect_ok(ask(peer, DO_CLOSE, listener));
	for (i = 0; i < 5; i++) {
		expect(poll_for(endpoint[i], POLLOUT, -1) & POLLOUT);
		expect_error(connect_to(endpoint[i], peer_node(peer), port), ECONNREFUSED);
	}
	/* The call returns at once, and not after some timeout. */
	expect(now() - started < 1000ULL * runner.limit / 20);
}

static void *close_listener_later(void *data)
{
	struct pair *pair = data;

	expect(ask(pair->peer, DO_POLL, pair->there, POLLIN, -1) == POLLIN);
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	return NULL;
}

static void close_rejects_waiting(void)
{
	struct pair pair = { .peer = new_peer() };
	pthread_t thread;
	__u16 port;

	pair.there = expect_ok(ask(pair.peer, DO_LISTENER, 1));
	port = answer(pair.peer, 0);
	pair.here = expect_ok(scif_open());
	thread = in_thread(close_listener_later, &pair);
	/* This connect waits, as the endpoint is blocking. */
	expect_error(connect_to(pair.here, peer_node(pair.peer), port), ECONNREFUSED);
	thread_result(thread);
}

static void close_kills_pending(void)
{
	struct peer *peer = new_peer();
	int endpoint = expect_ok(scif_open());

	expect_ok(ask(peer, DO_LISTENER, 8));
	set_nonblock(endpoint, true);
	expect_error(connect_to(endpoint, peer_node(peer), answer(peer, 0)), EINPROGRESS);
	/* A killed listener has the same effect as a close. */
	begin(peer, DO_DIE);
	expect(poll_for(endpoint, POLLOUT, -1) & POLLOUT);
	expect_error(connect_to(endpoint, peer_node(peer), answer(peer, 0)), ECONNREFUSED);
}

static void close_listener_no_more(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, 8)), endpoint = expect_ok(scif_open());
	__u16 port = answer(peer, 0);

	expect_ok(ask(peer, DO_CLOSE, listener));
	expect_error(connect_to(endpoint, peer_node(peer), port), ECONNREFUSED);
}

static void close_simultaneous(void)
{
	struct peer *peer = new_peer();
	struct pair pair;
	char byte = 0;
	int i;

	for (i = 0; i < 50; i++) {
		pair = connected_to(peer);
		/* Data is in flight, too. */
		expect_value(scif_send(pair.here, &byte, 1, 0), 1);
		begin(peer, DO_CLOSE, pair.there);
		expect_value(scif_close(pair.here), 0);
		expect_value(end(peer), 0);
	}
}

static void close_process_ends(void)
{
	struct peer *peer = new_peer();
	struct pair pair = connected_to(peer);

	begin(peer, DO_EXIT);
	wait_for_hangup(pair.here);
	pair = connected();
	begin(pair.peer, DO_DIE);
	wait_for_hangup(pair.here);
}

static void close_windows_released(void)
{
	struct windows windows = connected_windows(1);
	struct pair *pair = &windows.pair;
	int mark;

	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	wait_for_hangup(pair->here);
	expect_error(scif_writeto(pair->here, windows.offset, 8, windows.peer_offset, SYNC),
		     ECONNRESET);
	expect_error(scif_readfrom(pair->here, windows.offset, 8, windows.peer_offset, SYNC),
		     ECONNRESET);
	expect_error(scif_vwriteto(pair->here, &mark, 4, windows.peer_offset, SYNC), ECONNRESET);
	expect_error(scif_vreadfrom(pair->here, &mark, 4, windows.peer_offset, SYNC), ECONNRESET);
}

static void close_resets_calls(void)
{
	struct windows windows = connected_windows(1);
	struct pair *pair = &windows.pair;
	int mark = 0;

	expect_value(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), 0);
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	wait_for_hangup(pair->here);
	expect_error(scif_register(pair->here, pages(1), PAGE, 0, READ_WRITE, 0), ECONNRESET);
	expect_error(scif_unregister(pair->here, windows.offset, PAGE), ECONNRESET);
	expect_error(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), ECONNRESET);
	expect_error(scif_fence_mark(pair->here, SCIF_FENCE_INIT_PEER, &mark), ECONNRESET);
	expect_error(scif_fence_wait(pair->here, mark), ECONNRESET);
	/* The close has precedence over an invalid mark. */
	expect_error(scif_fence_wait(pair->here, -1), ECONNRESET);
	expect_error(scif_fence_signal(pair->here, windows.offset, 1, windows.peer_offset, 1,
				       SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL), ECONNRESET);
	expect(scif_mmap(NULL, PAGE, READ_WRITE, 0, pair->here, windows.peer_offset) ==
	       SCIF_MMAP_FAILED);
}

static void close_endpoint_used_up(void)
{
	struct pair pair = connected();

	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	/* The endpoint was connected, so it is not free, and can't connect again. */
	expect_error(connect_to(pair.here, own_node(), 3009), EISCONN);
	expect_error(scif_bind(pair.here, 0), EISCONN);
	expect_error(scif_listen(pair.here, 1), EISCONN);
}

static void close_unpins(void)
{
	long before = locked();
	struct windows windows = connected_windows(16);

	expect_value(locked(), before + 16 * PAGE);
	expect_value(scif_close(windows.pair.here), 0);
	wait_until(locked() == before);
	/* The peer need not close its end for this. Its own window goes, too. */
	wait_until(!ask(windows.pair.peer, DO_LOCKED));
}

static void close_rma_completes(void)
{
	struct windows windows = connected_windows(1024);
	int i;

	for (i = 0; i < 5; i++) {
		fill(windows.memory, i, windows.len);
		expect_value(scif_writeto(windows.pair.here, windows.offset, windows.len,
					  windows.peer_offset, 0), 0);
	}
	expect_value(scif_close(windows.pair.here), 0);
	/* The memory belongs to this process again, so this store must not get into the copy. */
	memset(windows.memory, 0xff, windows.len);
	expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, 4, windows.len), -1);
}

static void close_peers_rma_completes(void)
{
	struct windows windows = connected_windows(1024);
	struct pair *pair = &windows.pair;

	ask(pair->peer, DO_FILL, windows.peer_memory, 7, windows.len);
	expect_value(ask(pair->peer, DO_WRITETO, pair->there, windows.peer_offset, windows.len,
			 windows.offset, 0), 0);
	/* "RMAs through epd or its peer endpoint will complete before scif_close() returns" */
	expect_value(scif_close(pair->here), 0);
	expect_value(differs(windows.memory, 7, windows.len), -1);
	memset(windows.memory, 0x11, windows.len);
	/* Nothing arrives later. */
	expect(ask(pair->peer, DO_POLL, pair->there, 0, -1) & POLLHUP);
	expect_value(differs_from_byte(windows.memory, 0x11, windows.len), -1);
}

static void close_dup(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	int other = expect_ok(dup(pair.here));

	expect_value(scif_close(pair.here), 0);
	expect_value(scif_send(other, "hello", 5, SCIF_SEND_BLOCK), 5);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, 5, SCIF_RECV_BLOCK), 5);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
	expect_value(scif_close(other), 0);
	expect(ask(pair.peer, DO_POLL, pair.there, 0, -1) & POLLHUP);
}

static void *receive_one(void *data)
{
	char byte;
	int count = scif_recv(*(int *)data, &byte, 1, SCIF_RECV_BLOCK);

	return (void *)(long)(count < 0 ? -errno : count);
}

static void close_while_blocked(void)
{
	struct pair pair = connected();
	pthread_t thread = in_thread(receive_one, &pair.here);
	long result;

	poll(NULL, 0, A_MOMENT);
	expect_value(scif_close(pair.here), 0);
	/*
	 * As with files, the call keeps the endpoint until it returns. The peer's close ends the
	 * call.
	 */
	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	result = (long)thread_result(thread);
	expect(result == -ECONNRESET || result == -EINTR || result == -ENOTCONN ||
	       result == -EBADF);
}

static void close_unaccepted(void)
{
	struct peer *peer = new_peer();
	struct scifioctl_accept request = { .flags = SCIF_ACCEPT_SYNC };
	long endpoint = expect_ok(ask(peer, DO_OPEN));
	__u16 port = 0;
	int listener = listening(&port, 1);

	expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
	expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), port), EINPROGRESS);
	expect_value(ioctl(listener, SCIF_ACCEPTREQ, &request), 0);
	expect(ask(peer, DO_POLL, endpoint, POLLOUT, -1) & POLLOUT);
	expect_ok(ask(peer, DO_CONNECT, endpoint, own_node(), port));
	expect_value(scif_close(listener), 0);
	expect(ask(peer, DO_POLL, endpoint, 0, -1) & POLLHUP);
}

/* Makes and closes connections, some with windows and copies in flight, either end first. */
static void *churn(void *data)
{
	struct peer *peer = data;
	unsigned char *memory = pages(8);
	__s64 there = ask(peer, DO_PAGES, 8);
	struct pair pair;
	off_t here, remote;
	int i;

	for (i = 0; i < 25; i++) {
		pair = connected_to(peer);
		here = expect_ok(scif_register(pair.here, memory, 8 * PAGE, 0, READ_WRITE, 0));
		remote = expect_ok(ask(peer, DO_REGISTER, pair.there, there, 8 * PAGE, 0,
				       READ_WRITE, 0));
		expect_value(scif_writeto(pair.here, here, 8 * PAGE, remote, 0), 0);
		expect_value(scif_send(pair.here, memory, 100, SCIF_SEND_BLOCK), 100);
		if (i % 3 == 0)
			begin(peer, DO_CLOSE, pair.there);
		expect_value(scif_close(pair.here), 0);
		expect_value(i % 3 == 0 ? end(peer) : ask(peer, DO_CLOSE, pair.there), 0);
	}
	return NULL;
}

static void close_churn(void)
{
	pthread_t thread[3];
	int i;

	for (i = 0; i < 3; i++)
		thread[i] = in_thread(churn, new_peer());
	for (i = 0; i < 3; i++)
		thread_result(thread[i]);
	wait_until(!locked());
}

const struct test_case close_cases[] = {
	ALONE(close_bad_descriptor, "close.bad-descriptor"),
	PAIR(close_hangup, "close.hangup"),
	PAIR(close_data_stays, "close.data-stays"),
	PAIR(close_rejects_pending, "close.rejects-pending"),
	PAIR(close_rejects_waiting, "close.rejects-pending"),
	PAIR(close_kills_pending, "close.rejects-pending close.process-ends"),
	PAIR(close_listener_no_more, "close.listener-no-more"),
	PAIR(close_simultaneous, "close.simultaneous"),
	PAIR(close_process_ends, "close.process-ends"),
	PAIR(close_windows_released, "close.windows-released rma.reset"),
	PAIR(close_resets_calls,
	     "register.reset unregister.reset mark.reset wait.reset signal.reset mmap.reset"),
	PAIR(close_endpoint_used_up, "close.peer-endpoint bind.connected connect.connected"),
	PAIR(close_unpins, "close.unpins register.memlock-returned"),
	PAIR(close_rma_completes, "close.rma-completes"),
	PAIR(close_peers_rma_completes, "close.rma-completes"),
	PAIR(close_churn, "close.simultaneous close.unpins close.rma-completes"),
	PAIR(close_dup, "close.dup"),
	PAIR(close_while_blocked, "close.while-blocked"),
	PAIR(close_unaccepted, "close.unaccepted"),
	{ }
};
