// SPDX-License-Identifier: GPL-2.0
/*
 * Bytes through a connection.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/vmalloc.h>

#include "test.h"

#define MUCH	(1024 * 1024)

/* More bytes than any ring has room for. */
#define TOO_MUCH	(4 * MUCH)

/* Not a divisor of a ring's size. */
#define CHUNK	5000

static void check_arguments(scif_epd_t epd)
{
	char byte = 0;

	test_returns(0, scif_send(epd, &byte, 0, 0), "send of nothing");
	test_returns(0, scif_send(epd, &byte, 0, SCIF_SEND_BLOCK), "blocking send of no bytes");
	test_returns(0, scif_recv(epd, &byte, 0, 0), "recv of nothing");
	test_returns(0, scif_recv(epd, &byte, 0, SCIF_RECV_BLOCK), "blocking recv of no bytes");
	test_returns(-EINVAL, scif_send(epd, &byte, -1, 0), "send of less than nothing");
	test_returns(-EINVAL, scif_send(epd, &byte, INT_MIN, SCIF_SEND_BLOCK),
		     "send of far less than nothing");
	test_returns(-EINVAL, scif_recv(epd, &byte, -1, 0), "recv of less than nothing");
	test_returns(-EINVAL, scif_recv(epd, &byte, INT_MIN, SCIF_RECV_BLOCK),
		     "recv of far less than nothing");
	test_returns(-EINVAL, scif_send(epd, &byte, 1, 2), "send with an unknown flag");
	test_returns(-EINVAL, scif_send(epd, &byte, 1, SCIF_SEND_BLOCK | 0x100),
		     "blocking send with an unknown flag");
	test_returns(-EINVAL, scif_recv(epd, &byte, 1, 2), "recv with an unknown flag");
	test_returns(0, scif_recv(epd, &byte, 1, 0), "recv without data");
}

/* Exchanges much data with the server, each in one call. */
static void check_much(scif_epd_t epd)
{
	struct test_answer answer = { 0 };
	void *bytes = vmalloc(MUCH);

	if (!test_ready(bytes, "memory"))
		return;
	test_fill(bytes, MUCH, 1);
	if (test_ready(test_tell(epd, test_question(ASK_RECEIVE, 0, MUCH)), "a question")) {
		test_returns(MUCH, scif_send(epd, bytes, MUCH, SCIF_SEND_BLOCK),
			     "send of a megabyte");
		test_returns(sizeof(answer),
			     scif_recv(epd, &answer, sizeof(answer), SCIF_RECV_BLOCK),
			     "recv after a megabyte was sent");
		test_returns(MUCH, answer.result, "a megabyte arrives");
		test_that(answer.sum == test_sum(bytes, MUCH), "a megabyte arrives unchanged");
	}
	memset(bytes, 0, MUCH);
	if (test_ready(test_tell(epd, test_question(ASK_SEND, 0, MUCH, 2)), "a question")) {
		test_returns(MUCH, scif_recv(epd, bytes, MUCH, SCIF_RECV_BLOCK),
			     "recv of a megabyte");
		test_that(test_filled(bytes, MUCH, 2), "a megabyte is received unchanged");
		test_returns(sizeof(answer),
			     scif_recv(epd, &answer, sizeof(answer), SCIF_RECV_BLOCK),
			     "recv after a megabyte was received");
		test_returns(MUCH, answer.result, "the peer's send returns the whole length");
	}
	vfree(bytes);
}

static void check_last_words(scif_epd_t epd)
{
	char bytes[100];

	if (!test_ready(test_tell(epd, test_question(ASK_SEND_AND_CLOSE, 0, sizeof(bytes), 3)),
			"a question"))
		return;
	test_that(test_await(epd, 0) & POLLHUP, "an endpoint hangs up when the peer closes");
	test_returns(-ECONNRESET, scif_send(epd, bytes, 1, 0), "send to a closed peer");
	test_returns(60, scif_recv(epd, bytes, 60, SCIF_RECV_BLOCK),
		     "bytes sent before close can be received");
	test_returns(40, scif_recv(epd, bytes + 60, 60, SCIF_RECV_BLOCK),
		     "recv beyond the bytes sent before close");
	test_that(test_filled(bytes, sizeof(bytes), 3), "bytes sent before close are unchanged");
	test_returns(-ECONNRESET, scif_recv(epd, bytes, 1, SCIF_RECV_BLOCK),
		     "recv after all bytes");
	test_returns(-ECONNRESET, scif_recv(epd, bytes, 1, 0),
		     "non-blocking recv after all bytes");
}

/* --- Full rings, over loopback --- */

struct moving {
	scif_epd_t epd;
	void *bytes;
	int len;
	/* Results of one call, and of a call after it. */
	long first;
	long second;
};

static long send_twice(void *data)
{
	struct moving *moving = data;

	moving->first = scif_send(moving->epd, moving->bytes, moving->len, SCIF_SEND_BLOCK);
	moving->second = scif_send(moving->epd, moving->bytes, moving->len, SCIF_SEND_BLOCK);
	return 0;
}

static long send_once(void *data)
{
	struct moving *moving = data;

	return scif_send(moving->epd, moving->bytes, moving->len, SCIF_SEND_BLOCK);
}

static long recv_twice(void *data)
{
	struct moving *moving = data;

	moving->first = scif_recv(moving->epd, moving->bytes, moving->len, SCIF_RECV_BLOCK);
	moving->second = scif_recv(moving->epd, moving->bytes, moving->len, SCIF_RECV_BLOCK);
	return 0;
}

/* Sends as much as the ring has room for. Returns the number of bytes. */
static int fill_ring(scif_epd_t epd, void *bytes)
{
	int sent, total = 0;

	do {
		sent = scif_send(epd, bytes + total, CHUNK, 0);
		if (sent < 0)
			return sent;
		total += sent;
	} while (total < TOO_MUCH - CHUNK && (sent == CHUNK || test_has_grown(epd)));
	return total;
}

static void check_full(void *bytes, void *received)
{
	struct test_pair pair;
	int room;

	if (!test_open_pair(&pair))
		return;
	test_fill(bytes, TOO_MUCH, 4);
	room = fill_ring(pair.a, bytes);
	test_at_least(1, room, "send until there is no room");
	test_that(room % CHUNK, "non-blocking send sends a part");
	test_returns(0, scif_send(pair.a, bytes, 1, 0), "send without room returns 0");
	test_returns(10, scif_recv(pair.b, received, 10, 0), "recv of a part");
	test_await(pair.a, POLLOUT);
	test_returns(10, scif_send(pair.a, bytes + room, 20, 0),
		     "send fills exactly the freed room");
	test_returns(room, scif_recv(pair.b, received + 10, TOO_MUCH - 10, 0),
		     "non-blocking recv takes all bytes of the ring");
	test_that(test_filled(received, room + 10, 4), "a full ring keeps all bytes");
	test_returns(0, scif_recv(pair.b, received, 1, 0), "recv from an empty ring returns 0");
	test_close_pair(&pair);
}

static void check_send_parts(void *bytes, void *received)
{
	struct moving moving = { .bytes = bytes, .len = TOO_MUCH };
	struct test_pair pair;
	struct worker worker;

	test_fill(bytes, TOO_MUCH, 5);
	if (!test_open_pair(&pair))
		return;
	moving.epd = pair.a;
	if (test_ready(worker_start(&worker, send_once, &moving), "a thread")) {
		worker_await_sleep(&worker);
		test_that(!worker_has_ended(&worker), "send waits for room");
		test_returns(TOO_MUCH, scif_recv(pair.b, received, TOO_MUCH, SCIF_RECV_BLOCK),
			     "recv of more than a ring holds");
		test_returns(TOO_MUCH, worker_end(&worker),
			     "send returns after it has waited for room");
		test_that(test_filled(received, TOO_MUCH, 5),
			  "bytes sent by a waiting send arrive unchanged");
	}
	if (test_ready(worker_start(&worker, send_twice, &moving), "a thread")) {
		worker_await_sleep(&worker);
		worker_signal(&worker);
		test_returns(0, worker_end(&worker), "a signal ends send");
		test_that(moving.first > 0 && moving.first < TOO_MUCH,
			  "an interrupted send returns a partial count");
		test_returns(-EINTR, moving.second, "the signal is an error of the next send");
		test_returns(moving.first, scif_recv(pair.b, received, TOO_MUCH, 0),
			     "exactly the partial count was sent");
		test_that(test_filled(received, moving.first, 5),
			  "the bytes of an interrupted send are unchanged");
	}
	if (test_ready(worker_start(&worker, send_twice, &moving), "a thread")) {
		worker_await_sleep(&worker);
		scif_close(pair.b);
		pair.b = NULL;
		test_returns(0, worker_end(&worker), "close of the peer ends send");
		test_that(moving.first > 0 && moving.first < TOO_MUCH,
			  "a send ended by close returns a partial count");
		test_returns(-ECONNRESET, moving.second, "the close is an error of the next send");
	}
	test_close_pair(&pair);
}

static void check_recv_parts(void)
{
	char bytes[100], sent[10];
	struct moving moving = { .bytes = bytes, .len = sizeof(bytes) };
	struct test_pair pair;
	struct worker worker;

	test_fill(sent, sizeof(sent), 6);
	if (!test_open_pair(&pair))
		return;
	moving.epd = pair.b;
	scif_send(pair.a, sent, sizeof(sent), SCIF_SEND_BLOCK);
	if (test_ready(worker_start(&worker, recv_twice, &moving), "a thread")) {
		worker_await_sleep(&worker);
		test_that(!worker_has_ended(&worker), "recv waits for all bytes");
		worker_signal(&worker);
		test_returns(0, worker_end(&worker), "a signal ends recv that has bytes");
		test_returns(sizeof(sent), moving.first,
			     "an interrupted recv returns a partial count");
		test_that(test_filled(bytes, sizeof(sent), 6),
			  "the bytes of an interrupted recv are unchanged");
		test_returns(-EINTR, moving.second, "the signal is an error of the next recv");
	}
	scif_send(pair.a, sent, sizeof(sent), SCIF_SEND_BLOCK);
	if (test_ready(worker_start(&worker, recv_twice, &moving), "a thread")) {
		worker_await_sleep(&worker);
		scif_close(pair.a);
		pair.a = NULL;
		test_returns(0, worker_end(&worker), "close of the peer ends recv");
		test_returns(sizeof(sent), moving.first,
			     "a recv ended by close returns a partial count");
		test_returns(-ECONNRESET, moving.second, "the close is an error of the next recv");
	}
	test_close_pair(&pair);
}

/* Two senders at one end: no bytes are lost, and none arrive twice. */
static void check_two_senders(void *bytes, void *received)
{
	struct moving ones = { .bytes = bytes, .len = MUCH };
	struct moving twos = { .bytes = bytes + MUCH, .len = MUCH };
	struct worker one, two;
	struct test_pair pair;
	size_t i, count = 0;
	const u8 *at = received;

	if (!test_open_pair(&pair))
		return;
	memset(ones.bytes, 1, MUCH);
	memset(twos.bytes, 2, MUCH);
	ones.epd = pair.a;
	twos.epd = pair.a;
	if (!test_ready(worker_start(&one, send_once, &ones), "a thread"))
		goto close;
	if (!test_ready(worker_start(&two, send_once, &twos), "a thread")) {
		scif_close(pair.b);
		pair.b = NULL;
		worker_end(&one);
		goto close;
	}
	test_returns(2 * MUCH, scif_recv(pair.b, received, 2 * MUCH, SCIF_RECV_BLOCK),
		     "recv of messages of two threads");
	test_returns(MUCH, worker_end(&one), "send of the first of two threads");
	test_returns(MUCH, worker_end(&two), "send of the second of two threads");
	for (i = 0; i < 2 * MUCH; i++)
		count += at[i] == 1;
	test_returns(MUCH, count, "all bytes of two threads arrive");
close:
	test_close_pair(&pair);
}

void test_messages(void)
{
	scif_epd_t epd = test_reach_server();
	void *received = vzalloc(TOO_MUCH);
	void *bytes = vzalloc(TOO_MUCH);

	if (epd) {
		check_arguments(epd);
		check_much(epd);
		check_last_words(epd);
		scif_close(epd);
	}
	if (test_ready(bytes && received, "memory")) {
		check_full(bytes, received);
		check_send_parts(bytes, received);
		check_recv_parts();
		check_two_senders(bytes, received);
	}
	vfree(received);
	vfree(bytes);
}
