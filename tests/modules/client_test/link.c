// SPDX-License-Identifier: GPL-2.0
/*
 * Connections for the tests, and bytes to send over them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include "test.h"

/* --- Bytes --- */

static u8 test_byte(size_t index, u32 seed)
{
	return index * 7 + (index >> 8) * 13 + (index >> 16) * 5 + seed * 31 + 1;
}

void test_fill(void *bytes, size_t len, u32 seed)
{
	size_t i;
	u8 *at = bytes;

	for (i = 0; i < len; i++)
		at[i] = test_byte(i, seed);
}

bool test_filled(const void *bytes, size_t len, u32 seed)
{
	const u8 *at = bytes;
	size_t i;

	for (i = 0; i < len; i++) {
		if (at[i] != test_byte(i, seed)) {
			pr_info("byte %zu of %zu is %#x, not %#x\n", i, len,
				at[i], test_byte(i, seed));
			return false;
		}
	}
	return true;
}

/* FNV-1a */
u64 test_sum(const void *bytes, size_t len)
{
	u64 sum = 0xcbf29ce484222325ULL;
	const u8 *at = bytes;

	while (len--)
		sum = (sum ^ *at++) * 0x100000001b3ULL;
	return sum;
}

/* --- Connections --- */

int test_await(scif_epd_t epd, int events)
{
	struct scif_pollepd watched = { .epd = epd, .events = events };

	return scif_poll(&watched, 1, TEST_LIMIT_MS) == 1 ? watched.revents : 0;
}

bool test_has_grown(scif_epd_t epd)
{
	struct scif_pollepd watched = { .epd = epd, .events = POLLOUT };

	return scif_poll(&watched, 1, 300) == 1 && watched.revents == POLLOUT;
}

long test_connect_work(void *data)
{
	struct test_connecting *connecting = data;

	return scif_connect(connecting->epd, &connecting->to);
}

long test_recv_work(void *data)
{
	char byte;

	return scif_recv(data, &byte, 1, SCIF_RECV_BLOCK);
}

scif_epd_t test_open_listener(u16 port, int backlog, u16 *bound)
{
	scif_epd_t epd = scif_open();
	int err;

	if (!epd)
		return NULL;
	err = scif_bind(epd, port);
	if (err < 0)
		goto close;
	*bound = err;
	err = scif_listen(epd, backlog);
	if (err)
		goto close;
	return epd;

close:
	scif_close(epd);
	return NULL;
}

bool test_open_pair(struct test_pair *pair)
{
	struct test_connecting connecting = { .to.node = test_self };
	struct scif_port_id peer;
	struct worker worker;
	scif_epd_t listener;

	pair->a = NULL;
	pair->b = NULL;
	listener = test_open_listener(0, 1, &connecting.to.port);
	if (!listener)
		return test_ready(false, "a listener of this node");
	pair->a = scif_open();
	connecting.epd = pair->a;
	if (pair->a && worker_start(&worker, test_connect_work, &connecting)) {
		if (test_await(listener, POLLIN) & POLLIN)
			scif_accept(listener, &peer, &pair->b, 0);
		if (worker_end(&worker) || !pair->b)
			test_close_pair(pair);
	} else {
		test_close_pair(pair);
	}
	scif_close(listener);
	return test_ready(pair->b, "a connection to this node");
}

void test_close_pair(struct test_pair *pair)
{
	if (pair->a)
		scif_close(pair->a);
	if (pair->b)
		scif_close(pair->b);
	pair->a = NULL;
	pair->b = NULL;
}
