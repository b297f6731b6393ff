// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of send and recv: counts, order, errors, and the effects of signals and closes.
 */
#include <signal.h>
#include <sys/mman.h>

#include "../harness/suite.h"

/* --- Arguments --- */

static void send_zero(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_value(scif_send(pair.here, &byte, 0, 0), 0);
	expect_value(scif_send(pair.here, &byte, 0, SCIF_SEND_BLOCK), 0);
	expect_value(scif_recv(pair.here, &byte, 0, 0), 0);
	expect_value(scif_recv(pair.here, &byte, 0, SCIF_RECV_BLOCK), 0);
	/* If the length is 0, the address does not matter. */
	expect_value(scif_send(pair.here, NULL, 0, SCIF_SEND_BLOCK), 0);
	expect_value(scif_recv(pair.here, NULL, 0, SCIF_RECV_BLOCK), 0);
	/* The call has sent nothing. */
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
}

static void send_negative(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_error(scif_send(pair.here, &byte, -1, 0), EINVAL);
	expect_error(scif_send(pair.here, &byte, INT32_MIN, SCIF_SEND_BLOCK), EINVAL);
	expect_error(scif_recv(pair.here, &byte, -1, 0), EINVAL);
	expect_error(scif_recv(pair.here, &byte, INT32_MIN, SCIF_RECV_BLOCK), EINVAL);
}

static void send_flags(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_error(scif_send(pair.here, &byte, 1, 2), EINVAL);
	expect_error(scif_send(pair.here, &byte, 1, -1), EINVAL);
	expect_error(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK | 0x100), EINVAL);
	expect_error(scif_recv(pair.here, &byte, 1, 2), EINVAL);
	expect_error(scif_recv(pair.here, &byte, 1, -1), EINVAL);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
}

static void send_not_connected(void)
{
	int endpoint = expect_ok(scif_open());
	char byte = 0;

	expect_error(scif_send(endpoint, &byte, 1, 0), ENOTCONN);
	expect_error(scif_send(endpoint, &byte, 1, SCIF_SEND_BLOCK), ENOTCONN);
	expect_error(scif_recv(endpoint, &byte, 1, 0), ENOTCONN);
	expect_error(scif_recv(endpoint, &byte, 1, SCIF_RECV_BLOCK), ENOTCONN);
	expect_ok(scif_bind(endpoint, 0));
	expect_error(scif_send(endpoint, &byte, 1, 0), ENOTCONN);
	expect_error(scif_recv(endpoint, &byte, 1, SCIF_RECV_BLOCK), ENOTCONN);
}

/* --- The stream --- */

static void send_all_sizes(void)
{
	static const int size[] = {
		1, 2, 3, 7, 8, 63, 64, 65, 511, 4095, 4096, 4097, 10000, 1, 33,
	};
	static unsigned char data[64 * 1024], back[64 * 1024];
	struct pair pair = connected();
	long total = 0, at;
	__s64 memory;
	size_t i;

	fill(data, 1, sizeof(data));
	memory = ask(pair.peer, DO_PAGES, 16);
	for (i = 0; i < ARRAY_SIZE(size); i++) {
		expect_value(scif_send(pair.here, data + total, size[i], SCIF_SEND_BLOCK), size[i]);
		total += size[i];
	}
	/* The peer receives in other pieces, from the other end of the list. */
	for (at = 0, i = ARRAY_SIZE(size); i-- > 0; at += size[i])
		expect_value(ask(pair.peer, DO_RECV, pair.there, memory + at, size[i],
				 SCIF_RECV_BLOCK), size[i]);
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 1, total), -1);
	/* The peer sends all bytes back in one call. */
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, total, SCIF_SEND_BLOCK), total);
	expect_value(scif_recv(pair.here, back, total, SCIF_RECV_BLOCK), total);
	expect_value(differs(back, 1, total), -1);
}

static void send_block_all(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(256);
	__s64 memory = ask(pair.peer, DO_PAGES, 256);

	/* A megabyte is far more than any ring holds. */
	fill(data, 2, MIB);
	begin(pair.peer, DO_RECV, pair.there, memory, MIB, SCIF_RECV_BLOCK);
	expect_value(scif_send(pair.here, data, MIB, SCIF_SEND_BLOCK), MIB);
	expect_value(end(pair.peer), MIB);
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 2, MIB), -1);
	memset(data, 0, MIB);
	begin(pair.peer, DO_SEND, pair.there, memory, MIB, SCIF_SEND_BLOCK);
	expect_value(scif_recv(pair.here, data, MIB, SCIF_RECV_BLOCK), MIB);
	expect_value(end(pair.peer), MIB);
	expect_value(differs(data, 2, MIB), -1);
}

static void send_nonblock_partial(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long count;

	fill(data, 3, 4 * MIB);
	count = expect_ok(scif_send(pair.here, data, 4 * MIB, 0));
	expect(count > 0 && count < 4 * MIB);
	/* The ring may have grown since. Then it is full, and the result is 0 for any length. */
	while (poll_for(pair.here, POLLOUT, GROWTH_MILLISECONDS) == POLLOUT)
		count += expect_ok(scif_send(pair.here, data + count, 1000, 0));
	expect_value(scif_send(pair.here, data, 1, 0), 0);
	expect_value(scif_send(pair.here, data, 100000, 0), 0);
	/* The peer has received exactly the counted bytes. */
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK), count);
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 3, count), -1);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, 1, 0), 0);
}

static void send_room_again(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long count = stuff(pair.here), again;
	char byte = 0;

	expect_value(scif_send(pair.here, &byte, 1, 0), 0);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK), count);
	expect_value(poll_for(pair.here, POLLOUT, -1), POLLOUT);
	again = stuff(pair.here);
	/* In the end the ring takes as much as before. */
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, again, SCIF_RECV_BLOCK), again);
	expect(again > 0);
}

static void send_largest(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	char *data = mmap(NULL, 1L << 31, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	long count;

	expect(data != MAP_FAILED);
	fill(data, 4, MIB);
	count = expect_ok(scif_send(pair.here, data, INT32_MAX, 0));
	expect(count > 0 && count <= MIB);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK), count);
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 4, count), -1);
	/*
	 * In the other direction: recv returns the available bytes, which are fewer than the
	 * length.
	 */
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 1000, SCIF_SEND_BLOCK), 1000);
	memset(data, 0, 1000);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	for (count = 0; count < 1000;)
		count += expect_ok(scif_recv(pair.here, data + count, INT32_MAX, 0));
	expect_value(count, 1000);
	expect_value(differs(data, 4, 1000), -1);
}

static void recv_nonblock(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	unsigned char data[200];

	expect_value(scif_recv(pair.here, data, sizeof(data), 0), 0);
	ask(pair.peer, DO_FILL, memory, 5, 100);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 100, SCIF_SEND_BLOCK), 100);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	memset(data, 0xee, sizeof(data));
	expect_value(scif_recv(pair.here, data, 60, 0), 60);
	expect_value(differs_from_byte(data + 60, 0xee, 140), -1);
	expect_value(scif_recv(pair.here, data + 60, 140, 0), 40);
	expect_value(differs(data, 5, 100), -1);
	expect_value(differs_from_byte(data + 100, 0xee, 100), -1);
	expect_value(scif_recv(pair.here, data, sizeof(data), 0), 0);
}

static void recv_block_all(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	unsigned char data[1000];
	int i;

	fill(data, 6, sizeof(data));
	begin(pair.peer, DO_RECV, pair.there, memory, sizeof(data), SCIF_RECV_BLOCK);
	for (i = 0; i < 999; i += 333)
		expect_value(scif_send(pair.here, data + i, 333, SCIF_SEND_BLOCK), 333);
	/* One byte is missing. */
	expect_blocked(pair.peer);
	expect_value(scif_send(pair.here, data + 999, 1, SCIF_SEND_BLOCK), 1);
	expect_value(end(pair.peer), sizeof(data));
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 6, sizeof(data)), -1);
}

static void send_both_ways(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(64);
	__s64 memory = ask(pair.peer, DO_PAGES, 64);
	long len = 64 * PAGE, there, here;

	/* Fills both rings at the same time. */
	fill(data, 7, len);
	ask(pair.peer, DO_FILL, memory, 8, len);
	here = expect_ok(scif_send(pair.here, data, len, 0));
	there = expect_ok(ask(pair.peer, DO_SEND, pair.there, memory, len, 0));
	expect(here > 0 && there > 0);
	expect_value(scif_recv(pair.here, data, there, SCIF_RECV_BLOCK), there);
	expect_value(differs(data, 8, there), -1);
	expect_value(ask(pair.peer, DO_RECV, pair.there, memory, here, SCIF_RECV_BLOCK), here);
	expect_value(ask(pair.peer, DO_DIFFERS, memory, 7, here), -1);
}

/* --- Threads --- */

#define SENDERS		4
#define MESSAGES	50
#define MESSAGE_SIZE	3000

struct sender {
	int endpoint;
	int number;
};

static void *send_messages(void *data)
{
	struct sender *sender = data;
	unsigned char message[MESSAGE_SIZE];
	int i;

	for (i = 0; i < MESSAGES; i++) {
		memset(message, sender->number * MESSAGES + i + 1, sizeof(message));
		expect_value(scif_send(sender->endpoint, message, sizeof(message),
				       SCIF_SEND_BLOCK), sizeof(message));
	}
	return NULL;
}

static void send_atomic(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	struct sender sender[SENDERS];
	pthread_t thread[SENDERS];
	bool seen[256] = { false };
	int i, byte;

	for (i = 0; i < SENDERS; i++) {
		sender[i].endpoint = pair.here;
		sender[i].number = i;
		thread[i] = in_thread(send_messages, &sender[i]);
	}
	/* Each message consists of one byte's value, and each value comes once. */
	for (i = 0; i < SENDERS * MESSAGES; i++) {
		expect_value(ask(pair.peer, DO_RECV, pair.there, memory, MESSAGE_SIZE,
				 SCIF_RECV_BLOCK), MESSAGE_SIZE);
		expect_ok(ask(pair.peer, DO_PEEK, memory));
		byte = answer(pair.peer, 0) & 0xff;
		expect_value(ask(pair.peer, DO_DIFFERS_FROM_BYTE, memory, byte, MESSAGE_SIZE), -1);
		expect(byte && !seen[byte]);
		seen[byte] = true;
	}
	for (i = 0; i < SENDERS; i++)
		thread_result(thread[i]);
}

/* --- Bad addresses --- */

/* Maps memory whose second page is missing. */
static unsigned char *page_before_hole(void)
{
	unsigned char *memory = pages(2);

	munmap(memory + PAGE, PAGE);
	return memory;
}

static void send_bad_address(void)
{
	struct pair pair = connected();
	unsigned char *memory = page_before_hole();
	__s64 there = ask(pair.peer, DO_PAGES, 2);
	long count;
	int error;

	expect_error(scif_send(pair.here, (void *)8, 100, 0), EFAULT);
	expect_error(scif_send(pair.here, (void *)8, 100, SCIF_SEND_BLOCK), EFAULT);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
	/* Half of the data exists. */
	fill(memory, 9, PAGE);
	count = scif_send(pair.here, memory + PAGE - 1000, 2000, SCIF_SEND_BLOCK);
	error = errno;
	expect((count < 0 && error == EFAULT) || (count > 0 && count <= 1000));
	/* The failed call does not disturb later ones. */
	expect_value(scif_send(pair.here, memory, 500, SCIF_SEND_BLOCK), 500);
	if (count > 0)
		expect_value(ask(pair.peer, DO_RECV, pair.there, there, count, SCIF_RECV_BLOCK),
			     count);
	expect_value(ask(pair.peer, DO_RECV, pair.there, there, 500, SCIF_RECV_BLOCK), 500);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 9, 500), -1);
	expect_value(ask(pair.peer, DO_RECV, pair.there, there, 1, 0), 0);
}

static void recv_bad_address(void)
{
	struct pair pair = connected();
	unsigned char *memory = page_before_hole(), data[2000];
	__s64 there = ask(pair.peer, DO_PAGES, 1);
	long count;
	int error;

	ask(pair.peer, DO_FILL, there, 10, 2000);
	expect_value(ask(pair.peer, DO_SEND, pair.there, there, 2000, SCIF_SEND_BLOCK), 2000);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	expect_error(scif_recv(pair.here, (void *)8, 2000, 0), EFAULT);
	expect_error(scif_recv(pair.here, (void *)8, 2000, SCIF_RECV_BLOCK), EFAULT);
	/* Half of the room exists. Bytes that were not delivered can still be received. */
	count = scif_recv(pair.here, memory + PAGE - 1000, 2000, SCIF_RECV_BLOCK);
	error = errno;
	expect((count < 0 && error == EFAULT) || (count > 0 && count <= 1000));
	if (count < 0)
		count = 0;
	memcpy(data, memory + PAGE - 1000, count);
	expect_value(scif_recv(pair.here, data + count, 2000 - count, SCIF_RECV_BLOCK),
		     2000 - count);
	expect_value(differs(data, 10, 2000), -1);
}

/* Sends with a length that far exceeds the existing memory. */
static void send_largest_from_little(void)
{
	struct pair pair = connected();
	unsigned char *memory = page_before_hole();
	__s64 there = ask(pair.peer, DO_PAGES, 1);
	long count;

	fill(memory, 16, PAGE);
	count = scif_send(pair.here, memory, INT32_MAX, 0);
	expect(count == -1 || (count > 0 && count <= PAGE));
	if (count > 0) {
		expect_value(ask(pair.peer, DO_RECV, pair.there, there, count, SCIF_RECV_BLOCK),
			     count);
		expect_value(ask(pair.peer, DO_DIFFERS, there, 16, count), -1);
	}
	expect_value(ask(pair.peer, DO_RECV, pair.there, there, 1, 0), 0);
	/* The same length for recv: the available bytes fit. */
	ask(pair.peer, DO_FILL, there, 17, 1000);
	expect_value(ask(pair.peer, DO_SEND, pair.there, there, 1000, SCIF_SEND_BLOCK), 1000);
	expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
	for (count = 0; count < 1000;)
		count += expect_ok(scif_recv(pair.here, memory + count, INT32_MAX, 0));
	expect_value(differs(memory, 17, 1000), -1);
}

/* --- Signals --- */

static void send_interrupted_partial(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long count;
	int restart;

	for (restart = 0; restart < 2; restart++) {
		fill(data, 11, 4 * MIB);
		interrupt_repeatedly(restart);
		count = expect_ok(scif_send(pair.here, data, 4 * MIB, SCIF_SEND_BLOCK));
		stop_interrupting();
		expect(count > 0 && count < 4 * MIB);
		expect_value(ask(pair.peer, DO_RECV, pair.there, memory, count, SCIF_RECV_BLOCK),
			     count);
		expect_value(ask(pair.peer, DO_DIFFERS, memory, 11, count), -1);
		expect_value(ask(pair.peer, DO_RECV, pair.there, memory, 1, 0), 0);
	}
}

static void send_interrupted_none(void)
{
	struct pair pair = connected();
	char byte = 0;

	stuff(pair.here);
	interrupt_repeatedly(false);
	expect_error(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK), EINTR);
	stop_interrupting();
}

struct later {
	struct pair *pair;
	__s64 memory;
	long len;
};

/* Makes room at the peer after some signals. */
static void *make_room_later(void *data)
{
	struct later *later = data;

	wait_until(interruptions() >= 3);
	expect_value(ask(later->pair->peer, DO_RECV, later->pair->there, later->memory, later->len,
			 SCIF_RECV_BLOCK), later->len);
	return NULL;
}

static void send_restarted(void)
{
	struct pair pair = connected();
	struct later later = { .pair = &pair };
	pthread_t thread;
	char byte = 0;

	later.memory = ask(pair.peer, DO_PAGES, 1024);
	later.len = stuff(pair.here);
	interrupt_repeatedly(true);
	thread = in_thread(make_room_later, &later);
	expect_value(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK), 1);
	stop_interrupting();
	thread_result(thread);
	expect(interruptions() >= 3);
}

static void recv_interrupted_partial(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	unsigned char data[1000];
	int restart;

	for (restart = 0; restart < 2; restart++) {
		ask(pair.peer, DO_FILL, memory, 12, 300);
		expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 300, SCIF_SEND_BLOCK),
			     300);
		expect_value(poll_for(pair.here, POLLIN, -1), POLLIN);
		interrupt_repeatedly(restart);
		expect_value(scif_recv(pair.here, data, 1000, SCIF_RECV_BLOCK), 300);
		stop_interrupting();
		expect_value(differs(data, 12, 300), -1);
	}
}

static void recv_interrupted_none(void)
{
	struct pair pair = connected();
	char byte;

	interrupt_repeatedly(false);
	expect_error(scif_recv(pair.here, &byte, 1, SCIF_RECV_BLOCK), EINTR);
	stop_interrupting();
}

static void *send_later(void *data)
{
	struct later *later = data;

	wait_until(interruptions() >= 3);
	expect_value(ask(later->pair->peer, DO_SEND, later->pair->there, later->memory, later->len,
			 SCIF_SEND_BLOCK), later->len);
	return NULL;
}

static void recv_restarted(void)
{
	struct pair pair = connected();
	struct later later = { .pair = &pair, .len = 1 };
	pthread_t thread;
	char byte;

	later.memory = ask(pair.peer, DO_PAGES, 1);
	interrupt_repeatedly(true);
	thread = in_thread(send_later, &later);
	expect_value(scif_recv(pair.here, &byte, 1, SCIF_RECV_BLOCK), 1);
	stop_interrupting();
	thread_result(thread);
	expect(interruptions() >= 3);
}

/* --- Closes --- */

static void send_reset(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	expect_error(scif_send(pair.here, &byte, 1, 0), ECONNRESET);
	expect_error(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK), ECONNRESET);
}

/* Closes the peer once this end's send has filled the ring, so that the send waits. */
static void *close_when_full(void *data)
{
	struct pair *pair = data;

	wait_until(!(poll_for(pair->here, POLLOUT, 0) & POLLOUT));
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	return NULL;
}

static void send_reset_partial(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	pthread_t thread = in_thread(close_when_full, &pair);
	long count = expect_ok(scif_send(pair.here, data, 4 * MIB, SCIF_SEND_BLOCK));

	expect(count > 0 && count < 4 * MIB);
	thread_result(thread);
	expect_error(scif_send(pair.here, data, 1, SCIF_SEND_BLOCK), ECONNRESET);
}

static void *close_after_moment(void *data)
{
	struct pair *pair = data;

	poll(NULL, 0, A_MOMENT);
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	return NULL;
}

static void send_close_wakes(void)
{
	struct pair pair = connected();
	pthread_t thread;
	char byte = 0;

	stuff(pair.here);
	thread = in_thread(close_after_moment, &pair);
	expect_error(scif_send(pair.here, &byte, 1, SCIF_SEND_BLOCK), ECONNRESET);
	thread_result(thread);
}

static void recv_close_wakes(void)
{
	struct pair pair = connected();
	pthread_t thread = in_thread(close_after_moment, &pair);
	char byte;

	expect_error(scif_recv(pair.here, &byte, 1, SCIF_RECV_BLOCK), ECONNRESET);
	thread_result(thread);
}

static void recv_drain(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 2);
	unsigned char data[5000];

	ask(pair.peer, DO_FILL, memory, 13, 5000);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 5000, SCIF_SEND_BLOCK), 5000);
	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	expect_value(scif_recv(pair.here, data, 1, SCIF_RECV_BLOCK), 1);
	expect_value(scif_recv(pair.here, data + 1, 999, 0), 999);
	expect_value(scif_recv(pair.here, data + 1000, 4000, SCIF_RECV_BLOCK), 4000);
	expect_value(differs(data, 13, 5000), -1);
	expect_error(scif_recv(pair.here, data, 1, 0), ECONNRESET);
	expect_error(scif_recv(pair.here, data, 1, SCIF_RECV_BLOCK), ECONNRESET);
	/* The error stays. */
	expect_error(scif_recv(pair.here, data, 1, 0), ECONNRESET);
}

static void recv_drain_full_ring(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	unsigned char *data = pages(1024);
	long count;

	ask(pair.peer, DO_FILL, memory, 14, 4 * MIB);
	count = expect_ok(ask(pair.peer, DO_SEND, pair.there, memory, 4 * MIB, 0));
	expect(count > 0);
	/* The peer dies without closing. */
	begin(pair.peer, DO_DIE);
	wait_for_hangup(pair.here);
	expect_value(scif_recv(pair.here, data, 4 * MIB, SCIF_RECV_BLOCK), count);
	expect_value(differs(data, 14, count), -1);
	expect_error(scif_recv(pair.here, data, 1, 0), ECONNRESET);
}

static void recv_short_drain(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	pthread_t thread;
	char data[1000];

	ask(pair.peer, DO_FILL, memory, 15, 200);
	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 200, SCIF_SEND_BLOCK), 200);
	thread = in_thread(close_after_moment, &pair);
	expect_value(scif_recv(pair.here, data, 1000, SCIF_RECV_BLOCK), 200);
	expect_value(differs(data, 15, 200), -1);
	thread_result(thread);
	expect_error(scif_recv(pair.here, data, 1000, SCIF_RECV_BLOCK), ECONNRESET);
}

static void zero_after_close(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	/* Both success, as len is 0, and the reset are right. The call must not hang. */
	expect(scif_send(pair.here, &byte, 0, SCIF_SEND_BLOCK) == 0 || errno == ECONNRESET);
	expect(scif_recv(pair.here, &byte, 0, SCIF_RECV_BLOCK) == 0 || errno == ECONNRESET);
	expect_error(scif_recv(pair.here, &byte, -1, 0), EINVAL);
	expect_error(scif_send(pair.here, &byte, 1, 0x40), EINVAL);
}

const struct test_case send_receive_cases[] = {
	PAIR(send_zero, "send.zero recv.zero"),
	PAIR(send_negative, "send.negative recv.negative"),
	PAIR(send_flags, "send.flags recv.flags"),
	ALONE(send_not_connected, "send.not-connected recv.not-connected"),
	PAIR(send_all_sizes, "send.bytes"),
	PAIR(send_block_all, "send.block-all recv.block-all"),
	PAIR(send_nonblock_partial, "send.nonblock-partial send.nonblock-full"),
	PAIR(send_room_again, "send.room-again"),
	PAIR(send_largest, "send.largest recv.largest"),
	PAIR(recv_nonblock, "recv.nonblock-empty recv.nonblock-partial recv.no-overrun"),
	PAIR(recv_block_all, "recv.block-all"),
	PAIR(send_both_ways, "send.both-ways"),
	PAIR(send_atomic, "send.atomic"),
	PAIR(send_bad_address, "send.bad-address"),
	PAIR(recv_bad_address, "recv.bad-address"),
	PAIR(send_largest_from_little, "send.largest recv.largest send.bad-address"),
	PAIR(send_interrupted_partial, "send.interrupted-partial"),
	PAIR(send_interrupted_none, "send.interrupted-none"),
	PAIR(send_restarted, "send.interrupted-none"),
	PAIR(recv_interrupted_partial, "recv.interrupted-partial"),
	PAIR(recv_interrupted_none, "recv.interrupted-none"),
	PAIR(recv_restarted, "recv.interrupted-none"),
	PAIR(send_reset, "send.reset"),
	PAIR(send_reset_partial, "send.reset-partial"),
	PAIR(send_close_wakes, "send.close-wakes"),
	PAIR(recv_close_wakes, "recv.close-wakes"),
	PAIR(recv_drain, "recv.drain"),
	PAIR(recv_drain_full_ring, "recv.drain process.killed-peer"),
	PAIR(recv_short_drain, "recv.block-short-drain"),
	PAIR(zero_after_close, "send.zero recv.zero recv.negative send.flags"),
	{ }
};
