// SPDX-License-Identifier: GPL-2.0
/*
 * Polls of endpoints.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/vmalloc.h>

#include "test.h"

/* More bytes than any ring has room for. */
#define TOO_MUCH	(4 << 20)

struct polling {
	struct scif_pollepd epds[3];
	unsigned int count;
};

/* Polls in a worker, without a timeout. */
static long poll_work(void *data)
{
	struct polling *polling = data;

	return scif_poll(polling->epds, polling->count, -1);
}

static void check_none(void)
{
	struct scif_pollepd none[2] = { { .events = POLLIN, .revents = POLLOUT } };
	struct polling polling = { .count = 1 };
	scif_epd_t epd = scif_open();
	struct worker worker;

	test_returns(1, scif_poll(none, 1, TEST_LIMIT_MS), "poll of NULL");
	test_returns(POLLNVAL, none[0].revents, "poll of NULL reports POLLNVAL");
	test_returns(0, scif_poll(none, 0, 0), "poll of no endpoints");
	test_returns(-EINVAL, scif_poll(none, UINT_MAX, 0), "poll of too many endpoints");
	if (test_ready(worker_start(&worker, poll_work, &polling), "a thread"))
		test_returns(1, worker_end(&worker), "poll of NULL without a limit");
	if (!test_ready(epd, "an endpoint"))
		return;
	none[0].epd = epd;
	none[0].events = 0;
	test_returns(1, scif_poll(none, 1, 0), "poll of a fresh endpoint");
	test_returns(POLLERR, none[0].revents, "poll of a fresh endpoint reports POLLERR");
	scif_bind(epd, 0);
	test_returns(1, scif_poll(none, 1, 0), "poll of a bound endpoint");
	test_returns(POLLERR, none[0].revents, "poll of a bound endpoint reports POLLERR");
	scif_close(epd);
}

static void check_time(scif_epd_t epd)
{
	struct scif_pollepd watched = { .epd = epd, .events = POLLIN, .revents = POLLIN };
	static const int milliseconds[] = { 1, 7, 50 };
	ktime_t before;
	s64 passed;
	int i;

	test_returns(0, scif_poll(&watched, 1, 0), "poll with a timeout of 0");
	test_returns(0, watched.revents, "poll without an event clears revents");
	for (i = 0; i < ARRAY_SIZE(milliseconds); i++) {
		before = ktime_get();
		test_returns(0, scif_poll(&watched, 1, milliseconds[i]),
			     "poll until the timeout");
		passed = ktime_us_delta(ktime_get(), before);
		test_at_least(milliseconds[i] * 1000, passed, "poll does not end before its time");
		test_that(passed < TEST_LIMIT_MS * 1000L, "poll ends soon after its timeout");
	}
	before = ktime_get();
	test_returns(0, scif_poll(NULL, 0, 20), "poll of no endpoints until the timeout");
	test_at_least(20000, ktime_us_delta(ktime_get(), before),
		      "poll of nothing does not end before its time");
}

static void check_events(struct test_pair *pair)
{
	struct scif_pollepd watched = { .epd = pair->b };
	struct polling polling = { .count = 1 };
	struct worker worker;
	char byte = 0;

	watched.events = POLLIN | POLLOUT;
	test_returns(1, scif_poll(&watched, 1, TEST_LIMIT_MS), "poll of an idle connection");
	test_returns(POLLOUT, watched.revents, "an idle connection is writable only");
	watched.events = 0;
	test_returns(0, scif_poll(&watched, 1, 0), "poll for no events");

	polling.epds[0].epd = pair->b;
	polling.epds[0].events = POLLIN;
	if (test_ready(worker_start(&worker, poll_work, &polling), "a thread")) {
		worker_await_sleep(&worker);
		test_that(!worker_has_ended(&worker), "poll waits for bytes");
		scif_send(pair->a, &byte, 1, SCIF_SEND_BLOCK);
		test_returns(1, worker_end(&worker), "bytes end poll");
		test_returns(POLLIN, polling.epds[0].revents, "poll reports bytes");
	}
	watched.events = POLLIN | POLLOUT;
	test_returns(1, scif_poll(&watched, 1, 0), "poll of two events counts endpoints");
	test_returns(POLLIN | POLLOUT, watched.revents, "poll reports two events");
	watched.events = POLLOUT;
	scif_poll(&watched, 1, 0);
	test_returns(POLLOUT, watched.revents, "poll reports only requested events");
	scif_recv(pair->b, &byte, 1, SCIF_RECV_BLOCK);
	watched.events = POLLIN;
	test_returns(0, scif_poll(&watched, 1, 0), "poll after all bytes were received");
}

static void check_room(struct test_pair *pair)
{
	struct polling polling = { .count = 1 };
	struct worker worker;
	void *bytes = vzalloc(TOO_MUCH);
	int room = 0, sent;

	if (!test_ready(bytes, "memory"))
		return;
	do {
		sent = scif_send(pair->a, bytes, 60000, 0);
		room += max(sent, 0);
	} while (sent > 0 || test_has_grown(pair->a));
	polling.epds[0].epd = pair->a;
	polling.epds[0].events = POLLOUT;
	test_returns(0, scif_poll(polling.epds, 1, 0), "a full ring is not writable");
	if (test_ready(worker_start(&worker, poll_work, &polling), "a thread")) {
		worker_await_sleep(&worker);
		test_that(!worker_has_ended(&worker), "poll waits for room");
		test_returns(room, scif_recv(pair->b, bytes, room, SCIF_RECV_BLOCK),
			     "recv of a full ring");
		test_returns(1, worker_end(&worker), "room ends poll");
		test_returns(POLLOUT, polling.epds[0].revents, "poll reports room");
	}
	vfree(bytes);
}

static void check_several(struct test_pair *pair, struct test_pair *other)
{
	struct polling polling = { .count = 3 };
	struct worker worker;
	char byte = 0;

	polling.epds[0].epd = pair->b;
	polling.epds[0].events = POLLIN;
	polling.epds[1].epd = other->b;
	polling.epds[1].events = POLLIN;
	polling.epds[2].epd = other->a;
	polling.epds[2].events = POLLIN;
	if (!test_ready(worker_start(&worker, poll_work, &polling), "a thread"))
		return;
	worker_await_sleep(&worker);
	scif_send(other->a, &byte, 1, SCIF_SEND_BLOCK);
	test_returns(1, worker_end(&worker), "one of several endpoints ends poll");
	test_that(!polling.epds[0].revents && polling.epds[1].revents == POLLIN &&
		  !polling.epds[2].revents, "poll reports which of several endpoints is ready");
	scif_send(pair->a, &byte, 1, SCIF_SEND_BLOCK);
	test_await(pair->b, POLLIN);
	test_returns(2, scif_poll(polling.epds, 3, -1), "poll counts ready endpoints");
	polling.epds[2].epd = NULL;
	test_returns(3, scif_poll(polling.epds, 3, -1), "poll counts NULL, too");
	test_that(polling.epds[0].revents == POLLIN && polling.epds[1].revents == POLLIN &&
		  polling.epds[2].revents == POLLNVAL, "NULL does not affect other endpoints");
	/* Polls the same endpoint twice. */
	polling.epds[1].epd = pair->b;
	test_returns(2, scif_poll(polling.epds, 2, 0), "poll of one endpoint twice");
	scif_recv(pair->b, &byte, 1, SCIF_RECV_BLOCK);
	scif_recv(other->b, &byte, 1, SCIF_RECV_BLOCK);
}

static void check_end(struct test_pair *pair)
{
	struct scif_pollepd watched = { .epd = pair->b, .events = POLLIN | POLLOUT };
	struct polling polling = { .count = 1 };
	struct worker worker;
	char byte = 0;

	polling.epds[0].epd = pair->b;
	if (!test_ready(worker_start(&worker, poll_work, &polling), "a thread"))
		return;
	worker_await_sleep(&worker);
	scif_send(pair->a, &byte, 1, SCIF_SEND_BLOCK);
	scif_close(pair->a);
	pair->a = NULL;
	test_returns(1, worker_end(&worker), "close of the peer ends poll");
	test_returns(POLLHUP, polling.epds[0].revents, "poll reports the close without a request");
	test_returns(1, scif_poll(&watched, 1, TEST_LIMIT_MS), "poll after the peer has closed");
	test_returns(POLLIN | POLLHUP, watched.revents, "bytes are left after the peer has closed");
	scif_recv(pair->b, &byte, 1, SCIF_RECV_BLOCK);
	test_returns(1, scif_poll(&watched, 1, TEST_LIMIT_MS), "poll after the last byte");
	test_returns(POLLHUP, watched.revents, "after the last byte poll reports only the close");
}

static void check_listener(void)
{
	struct test_connecting connecting = { .epd = scif_open(), .to.node = test_self };
	struct polling polling = { .count = 1 };
	struct worker poller, connector;
	scif_epd_t listener;

	listener = test_open_listener(0, 1, &connecting.to.port);
	if (!test_ready(listener && connecting.epd, "a listener"))
		goto close;
	polling.epds[0].epd = listener;
	polling.epds[0].events = POLLIN | POLLOUT;
	test_returns(0, scif_poll(polling.epds, 1, 0), "poll of a listener without requests");
	if (!test_ready(worker_start(&poller, poll_work, &polling), "a thread"))
		goto close;
	worker_await_sleep(&poller);
	if (test_ready(worker_start(&connector, test_connect_work, &connecting), "a thread")) {
		test_returns(1, worker_end(&poller), "a request ends poll");
		test_returns(POLLIN, polling.epds[0].revents, "poll reports a request");
		scif_close(listener);
		listener = NULL;
		worker_end(&connector);
	} else {
		worker_signal(&poller);
		worker_end(&poller);
	}
close:
	if (listener)
		scif_close(listener);
	if (connecting.epd)
		scif_close(connecting.epd);
}

void test_poll(void)
{
	struct test_pair pair, other;

	check_none();
	check_listener();
	if (!test_open_pair(&pair))
		return;
	if (!test_open_pair(&other)) {
		test_close_pair(&pair);
		return;
	}
	check_time(pair.a);
	check_events(&pair);
	check_several(&pair, &other);
	check_room(&other);
	check_end(&pair);
	test_close_pair(&pair);
	test_close_pair(&other);
}
