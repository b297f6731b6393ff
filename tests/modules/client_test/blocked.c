// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that wait, and that return because their endpoint is closed, because of a signal, or
 * because their thread is stopped.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "test.h"

/* More bytes than any ring has room for. */
#define TOO_MUCH	(4 << 20)

#define WINDOW_SIZE	(8 << 20)

/* A caller that waits on @epd. */
struct waiting {
	scif_epd_t epd;
	struct scif_port_id to;
	void *memory;
	int mark;
	short revents;
};

static long wait_in_accept(void *data)
{
	struct waiting *waiting = data;
	struct scif_port_id peer;
	scif_epd_t new;

	return scif_accept(waiting->epd, &peer, &new, SCIF_ACCEPT_SYNC);
}

static long wait_in_connect(void *data)
{
	struct waiting *waiting = data;

	return scif_connect(waiting->epd, &waiting->to);
}

static long wait_in_recv(void *data)
{
	struct waiting *waiting = data;

	return test_recv_work(waiting->epd);
}

static long wait_in_send(void *data)
{
	struct waiting *waiting = data;

	return scif_send(waiting->epd, waiting->memory, TOO_MUCH, SCIF_SEND_BLOCK);
}

/* A poll reports the close by an event, not by an error. */
static long wait_in_poll(void *data)
{
	struct waiting *waiting = data;
	struct scif_pollepd watched = { .epd = waiting->epd, .events = POLLIN };
	int count = scif_poll(&watched, 1, -1);

	waiting->revents = count == 1 ? watched.revents : 0;
	return count;
}

static long wait_in_fence(void *data)
{
	struct waiting *waiting = data;

	return scif_fence_wait(waiting->epd, waiting->mark);
}

/* --- Closing --- */

static long close_work(void *data)
{
	return scif_close(data);
}

static long close_in_time(scif_epd_t epd)
{
	struct worker worker;

	if (!worker_start(&worker, close_work, epd))
		return scif_close(epd);
	return worker_end(&worker);
}

/*
 * Returns whether the result is an error of a call, and not of the wait for its end. close does not
 * promise which error.
 */
static bool is_error(long result)
{
	if (result < 0 && result != -ETIME)
		return true;
	pr_info("a call on a closed endpoint has returned %ld, and not an error\n", result);
	return false;
}

/* Starts a caller that waits, closes the endpoint, and returns the result of the call. */
static long closed_in(long (*wait)(void *), struct waiting *waiting)
{
	struct worker worker;

	if (!test_ready(worker_start(&worker, wait, waiting), "a thread"))
		return 0;
	worker_await_sleep(&worker);
	test_ready(!worker_has_ended(&worker), "a call that waits");
	test_ready(!close_in_time(waiting->epd), "a close that returns");
	return worker_end(&worker);
}

static void check_closed(void)
{
	struct waiting waiting = { 0 };
	struct test_pair pair;
	scif_epd_t listener;
	long result;
	u16 port;

	waiting.epd = test_open_listener(0, 1, &port);
	if (test_ready(waiting.epd, "a listener"))
		test_returns(-EINTR, closed_in(wait_in_accept, &waiting),
			     "close ends accept of another thread");

	waiting.epd = test_open_listener(0, 1, &port);
	if (test_ready(waiting.epd, "a listener")) {
		result = closed_in(wait_in_poll, &waiting);
		test_returns(1, result, "close ends poll of a listener by another thread");
	}

	listener = test_open_listener(0, 1, &waiting.to.port);
	waiting.epd = scif_open();
	waiting.to.node = test_self;
	if (test_ready(listener && waiting.epd, "a listener"))
		test_returns(-ECONNREFUSED, closed_in(wait_in_connect, &waiting),
			     "close ends connect of another thread");
	if (listener)
		scif_close(listener);

	if (test_open_pair(&pair)) {
		waiting.epd = pair.a;
		pair.a = NULL;
		test_that(is_error(closed_in(wait_in_recv, &waiting)),
			  "close ends recv of another thread");
		test_close_pair(&pair);
	}
	if (test_open_pair(&pair)) {
		waiting.epd = pair.a;
		pair.a = NULL;
		result = closed_in(wait_in_poll, &waiting);
		test_returns(1, result, "close ends poll of another thread");
		test_that(waiting.revents & (POLLHUP | POLLERR),
			  "poll by another thread reports the close");
		test_close_pair(&pair);
	}
	if (test_open_pair(&pair)) {
		waiting.epd = pair.a;
		waiting.memory = vzalloc(TOO_MUCH);
		pair.a = NULL;
		if (test_ready(waiting.memory, "memory")) {
			result = closed_in(wait_in_send, &waiting);
			test_that(result > 0 && result < TOO_MUCH,
				  "close ends send of another thread with a partial count");
		} else {
			scif_close(waiting.epd);
		}
		vfree(waiting.memory);
		test_close_pair(&pair);
	}
}

/* One caller waits for bytes, and a second one for its turn after the first. */
static void check_two_closed(void)
{
	struct waiting waiting = { 0 };
	struct worker first, second;
	struct test_pair pair;

	if (!test_open_pair(&pair))
		return;
	waiting.epd = pair.a;
	if (!test_ready(worker_start(&first, wait_in_recv, &waiting), "a thread"))
		goto close;
	worker_await_sleep(&first);
	if (test_ready(worker_start(&second, wait_in_recv, &waiting), "a thread")) {
		worker_await_sleep(&second);
		pair.a = NULL;
		test_returns(0, close_in_time(waiting.epd), "close while two threads wait");
		test_that(is_error(worker_end(&second)), "close ends the second of two recv");
	} else {
		worker_signal(&first);
	}
	test_that(is_error(worker_end(&first)), "close ends the first of two recv");
close:
	test_close_pair(&pair);
}

/* Only one of two concurrent calls of close closes an endpoint. */
static void check_close_twice(void)
{
	scif_epd_t epd = scif_open();
	struct worker first, second;
	long a, b;

	if (!test_ready(epd, "an endpoint"))
		return;
	if (!test_ready(worker_start(&first, close_work, epd), "a thread")) {
		scif_close(epd);
		return;
	}
	if (test_ready(worker_start(&second, close_work, epd), "a thread")) {
		a = worker_end(&first);
		b = worker_end(&second);
		test_that((!a && b == -EBADF) || (a == -EBADF && !b),
			  "close by two threads at once is EBADF for one of them");
	} else {
		worker_end(&first);
	}
}

/* --- A fence that waits, and whose endpoint is closed --- */

struct copying {
	scif_epd_t epd;
	bool ready;
	bool stop;
};

/*
 * Makes one long transfer after the other by CPU, so that a fence always has a transfer to wait
 * for.
 */
static long copy_on_and_on(void *data)
{
	struct copying *copying = data;
	int err = 0;

	while (!READ_ONCE(copying->stop) && !err) {
		err = scif_writeto(copying->epd, 0, WINDOW_SIZE, 0, SCIF_RMA_USECPU);
		WRITE_ONCE(copying->ready, true);
	}
	return err;
}

static void *register_fixed(scif_epd_t epd)
{
	void *memory = vzalloc(WINDOW_SIZE);

	if (memory && scif_register(epd, memory, WINDOW_SIZE, 0,
				    SCIF_PROT_READ | SCIF_PROT_WRITE,
				    SCIF_MAP_FIXED | SCIF_MAP_KERNEL)) {
		vfree(memory);
		return NULL;
	}
	return memory;
}

/*
 * The other end copies. This end waits for one of these transfers, and is closed. The transfer may
 * have just completed, so both results are right.
 */
static void check_fence_closed(void)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS);
	struct copying copying = { 0 };
	struct waiting waiting = { 0 };
	struct worker copier, waiter;
	struct test_pair pair;
	void *a, *b;
	long result;

	if (!test_open_pair(&pair))
		return;
	a = register_fixed(pair.a);
	b = register_fixed(pair.b);
	copying.epd = pair.b;
	if (!test_ready(a && b, "two windows") ||
	    !test_ready(worker_start(&copier, copy_on_and_on, &copying), "a thread"))
		goto close;
	while (!READ_ONCE(copying.ready) && time_before(jiffies, limit))
		usleep_range(100, 500);
	waiting.epd = pair.a;
	result = scif_fence_mark(pair.a, SCIF_FENCE_INIT_PEER, &waiting.mark);
	if (test_ready(!result, "a mark") &&
	    test_ready(worker_start(&waiter, wait_in_fence, &waiting), "a thread")) {
		/* By now the waiter sleeps, or has returned. */
		worker_await_sleep(&waiter);
		pair.a = NULL;
		test_returns(0, close_in_time(waiting.epd), "close while the peer copies");
		result = worker_end(&waiter);
		test_that(!result || is_error(result), "close ends fence_wait of another thread");
	}
	WRITE_ONCE(copying.stop, true);
	result = worker_end(&copier);
	test_that(!result || result == -ECONNRESET || result == -ENXIO,
		  "the peer's copy ends with the connection");
close:
	test_close_pair(&pair);
	vfree(a);
	vfree(b);
}

/* --- Signals --- */

static void check_signal(long (*wait)(void *), struct waiting *waiting, const char *name)
{
	struct worker worker;

	if (!test_ready(worker_start(&worker, wait, waiting), "a thread"))
		return;
	worker_await_sleep(&worker);
	worker_signal(&worker);
	test_returns(-EINTR, worker_end(&worker), name);
}

static void check_signals(void)
{
	struct waiting waiting = { .to.node = test_self };
	struct scif_pollepd watched = { .events = POLLIN };
	unsigned long limit;
	struct test_pair pair;
	struct worker worker;
	scif_epd_t listener, epd, new = NULL;
	struct scif_port_id peer;

	listener = test_open_listener(0, 1, &waiting.to.port);
	epd = scif_open();
	if (!test_ready(listener && epd, "a listener"))
		return;
	waiting.epd = listener;
	check_signal(wait_in_accept, &waiting, "a signal ends accept");
	check_signal(wait_in_poll, &waiting, "a signal ends poll");
	waiting.epd = epd;
	check_signal(wait_in_connect, &waiting, "a signal ends connect");
	/* The news takes a moment to arrive. */
	watched.epd = listener;
	limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS);
	while (scif_poll(&watched, 1, 0) && time_before(jiffies, limit))
		usleep_range(100, 500);
	test_returns(-EAGAIN, scif_accept(listener, &peer, &new, 0),
		     "a request that was interrupted is withdrawn");
	test_returns(-EINVAL, scif_bind(epd, 0), "an endpoint interrupted in connect is bound");
	if (test_ready(worker_start(&worker, wait_in_connect, &waiting), "a thread")) {
		test_await(listener, POLLIN);
		test_returns(0, scif_accept(listener, &peer, &new, 0),
			     "accept of an endpoint interrupted before");
		test_returns(0, worker_end(&worker), "an endpoint interrupted in connect retries");
	}
	if (new)
		scif_close(new);
	scif_close(epd);
	scif_close(listener);

	if (!test_open_pair(&pair))
		return;
	waiting.epd = pair.a;
	check_signal(wait_in_recv, &waiting, "a signal ends recv");
	test_returns(1, scif_send(pair.b, "x", 1, SCIF_SEND_BLOCK),
		     "send after an interrupted recv");
	test_returns(1, test_recv_work(pair.a), "an interrupted recv has taken nothing");
	test_close_pair(&pair);
}

/* --- kthread_stop() --- */

struct stopped {
	scif_epd_t epd;
	struct task_struct *task;
	bool running;
	/* Results of the call that waited, and of a call made afterwards. */
	int first;
	int second;
};

static int stopped_thread(void *data)
{
	struct stopped *stopped = data;
	char byte;

	WRITE_ONCE(stopped->running, true);
	stopped->first = scif_recv(stopped->epd, &byte, 1, SCIF_RECV_BLOCK);
	stopped->second = scif_recv(stopped->epd, &byte, 1, SCIF_RECV_BLOCK);
	return 0;
}

/* Runs kthread_stop() in a thread of its own, because it waits until the other thread has ended. */
static long stop_work(void *data)
{
	struct stopped *stopped = data;

	return kthread_stop_put(stopped->task);
}

static void check_stop(void)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS);
	struct stopped stopped = { 0 };
	struct test_pair pair;
	struct worker worker;

	if (!test_open_pair(&pair))
		return;
	stopped.epd = pair.a;
	stopped.task = kthread_create(stopped_thread, &stopped, "scif_stopped");
	if (!test_ready(!IS_ERR(stopped.task), "a thread"))
		goto close;
	get_task_struct(stopped.task);
	wake_up_process(stopped.task);
	while (time_before(jiffies, limit) &&
	       !(READ_ONCE(stopped.running) &&
		 READ_ONCE(stopped.task->__state) & TASK_INTERRUPTIBLE))
		usleep_range(100, 500);
	if (!worker_start(&worker, stop_work, &stopped)) {
		test_ready(false, "a thread");
		kthread_stop_put(stopped.task);
		goto close;
	}
	if (!test_that(worker_await_end(&worker), "kthread_stop ends a thread that waits in recv"))
		/* This only lets the rest of the test go on. */
		scif_send(pair.b, "xx", 2, SCIF_SEND_BLOCK);
	worker_end(&worker);
	test_returns(-EINTR, stopped.first, "kthread_stop interrupts the waiting call");
	test_returns(-EINTR, stopped.second, "kthread_stop interrupts later calls");
close:
	test_close_pair(&pair);
}

void test_blocked(void)
{
	check_closed();
	check_two_closed();
	check_close_twice();
	check_fence_closed();
	check_signals();
	check_stop();
}
