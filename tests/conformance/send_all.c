// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of SCIF_SEND_ALL, which sends all bytes or none.
 */
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/scif_services.h>

#include "../harness/suite.h"

static int send_all(int endpoint, const void *data, __u64 len, __u32 flags)
{
	struct scif_send_all all = {
		.size = sizeof(all), .flags = flags, .msg = (__u64)data, .len = len,
	};

	return ioctl(scif_get_fd(endpoint), SCIF_SEND_ALL, &all);
}

#define BLOCK	SCIF_SEND_ALL_BLOCK

/* Receives len bytes at the peer, and checks that they are the pattern. */
static void expect_there(const struct pair *pair, __s64 memory, __u32 seed, long len)
{
	expect_value(ask(pair->peer, DO_RECV, pair->there, memory, len, SCIF_RECV_BLOCK), len);
	expect_value(ask(pair->peer, DO_DIFFERS, memory, seed, len), -1);
}

/* Returns the size of the peer's ring. Nothing larger can be sent. */
static long largest(const struct pair *pair, const void *data)
{
	__s64 memory = ask(pair->peer, DO_PAGES, 1024);
	long len;

	/* The size is a power of two. */
	for (len = 256; len <= MIB && !send_all(pair->here, data, len, BLOCK); len *= 2)
		expect_value(ask(pair->peer, DO_RECV, pair->there, memory, len, SCIF_RECV_BLOCK),
			     len);
	expect_error(send_all(pair->here, data, len, BLOCK), EMSGSIZE);
	return len / 2;
}

static void all_arrives(void)
{
	static const int size[] = { 1, 7, 8, 64, 2047, 4096, 4097, 10000, 100000, 500000 };
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long most = largest(&pair, data);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(size) && size[i] <= most; i++) {
		fill(data, i, size[i]);
		expect_value(send_all(pair.here, data, size[i], BLOCK), 0);
		expect_there(&pair, memory, i, size[i]);
	}
	/* A ring has at least a page, whatever the aperture. */
	expect(i > 5);
	/* Sends without waiting, as there is room now. */
	for (i = 0; i < ARRAY_SIZE(size) && size[i] <= most; i++) {
		fill(data, i, size[i]);
		wait_until(!send_all(pair.here, data, size[i], 0) || errno != EAGAIN);
		expect_there(&pair, memory, i, size[i]);
	}
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
}

static void all_too_long(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long len = largest(&pair, data);

	expect(len >= 4096);
	expect_error(send_all(pair.here, data, len + 1, 0), EMSGSIZE);
	expect_error(send_all(pair.here, data, len + 1, BLOCK), EMSGSIZE);
	expect_error(send_all(pair.here, data, UINT64_MAX, BLOCK), EMSGSIZE);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
	fill(data, 1, len);
	expect_value(send_all(pair.here, data, len, 0), 0);
	/* Now the ring is full to the last byte. */
	expect_error(send_all(pair.here, data, 1, 0), EAGAIN);
	expect_value(scif_send(pair.here, data, 1, 0), 0);
	expect_there(&pair, memory, 1, len);
}

static void all_no_room(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long len = largest(&pair, data), rest = len / 4;

	fill(data, 2, len);
	expect_value(send_all(pair.here, data, len - rest, 0), 0);
	expect_error(send_all(pair.here, data, rest + 1, 0), EAGAIN);
	/* The failed call has sent nothing, so the room is still free. */
	expect_value(send_all(pair.here, data + len - rest, rest, 0), 0);
	expect_there(&pair, memory, 2, len);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
}

static void *take_later(void *data)
{
	struct pair *pair = data;
	__s64 memory = ask(pair->peer, DO_PAGES, 1024);
	long left = pair->own_port, piece;

	poll(NULL, 0, A_MOMENT);
	for (; left > 0; left -= piece) {
		piece = left < 10000 ? left : 10000;
		expect_value(ask(pair->peer, DO_RECV, pair->there, memory, piece, SCIF_RECV_BLOCK),
			     piece);
	}
	return NULL;
}

static void all_waits(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	long len = largest(&pair, data);
	__u64 started = now();
	pthread_t thread;

	expect_value(send_all(pair.here, data, len, BLOCK), 0);
	pair.own_port = len < 20000 ? len : 20000;
	thread = in_thread(take_later, &pair);
	expect_value(send_all(pair.here, data, pair.own_port, BLOCK), 0);
	expect(now() - started >= A_MOMENT - 2);
	thread_result(thread);
}

/* Sends. Without BLOCK it neither waits nor polls, but retries. */
static void send_in_the_end(struct pair *pair, unsigned char *data, long len, int flags)
{
	int result;

	wait_until(!(result = send_all(pair->here, data, len, flags)) || flags == BLOCK ||
		   errno != EAGAIN);
	expect_value(result, 0);
}

/*
 * The receiver waits for more bytes than have arrived, which are less than half a ring. The sender
 * waits for more room than they leave. Neither may wait for the other.
 */
static void no_deadlock(int flags)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long len = largest(&pair, data), first = len * 4 / 10, second = len * 7 / 10;
	int i;

	for (i = 0; i < 5; i++) {
		fill(data, i, first + second);
		begin(pair.peer, DO_RECV, pair.there, memory, first + second, SCIF_RECV_BLOCK);
		poll(NULL, 0, A_MOMENT);
		send_in_the_end(&pair, data, first, flags);
		poll(NULL, 0, A_MOMENT);
		send_in_the_end(&pair, data + first, second, flags);
		expect_value(end(pair.peer), first + second);
		expect_value(ask(pair.peer, DO_DIFFERS, memory, i, first + second), -1);
	}
}

static void all_no_deadlock(void)
{
	no_deadlock(BLOCK);
}

static void all_no_deadlock_nonblocking(void)
{
	no_deadlock(0);
}

static void all_interrupted(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	__s64 memory = ask(pair.peer, DO_PAGES, 1024);
	long len = largest(&pair, data), rest = len / 4;

	fill(data, 3, len);
	expect_value(send_all(pair.here, data, len - rest, BLOCK), 0);
	interrupt_repeatedly(false);
	expect_error(send_all(pair.here, data, rest + 1, BLOCK), EINTR);
	stop_interrupting();
	expect_value(send_all(pair.here, data + len - rest, rest, 0), 0);
	expect_there(&pair, memory, 3, len);
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
}

static void all_restarted(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	long len = largest(&pair, data);
	pthread_t thread;

	expect_value(send_all(pair.here, data, len, BLOCK), 0);
	interrupt_repeatedly(true);
	pair.own_port = len < 20000 ? len : 20000;
	thread = in_thread(take_later, &pair);
	expect_value(send_all(pair.here, data, pair.own_port, BLOCK), 0);
	stop_interrupting();
	thread_result(thread);
}

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
	int i, result;

	for (i = 0; i < MESSAGES; i++) {
		memset(message, sender->number * MESSAGES + i + 1, sizeof(message));
		/* Some senders wait, some retry. */
		do {
			result = send_all(sender->endpoint, message, sizeof(message),
					  sender->number % 2 ? BLOCK : 0);
		} while (result && errno == EAGAIN);
		expect_value(result, 0);
	}
	return NULL;
}

static void all_atomic(void)
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
	for (i = 0; i < SENDERS * MESSAGES; i++) {
		/* If the first byte has arrived, all have. */
		expect(ask(pair.peer, DO_POLL, pair.there, POLLIN, -1) & POLLIN);
		expect_value(ask(pair.peer, DO_RECV, pair.there, memory, MESSAGE_SIZE, 0),
			     MESSAGE_SIZE);
		expect_ok(ask(pair.peer, DO_PEEK, memory));
		byte = answer(pair.peer, 0) & 0xff;
		expect_value(ask(pair.peer, DO_DIFFERS_FROM_BYTE, memory, byte, MESSAGE_SIZE), -1);
		expect(byte && !seen[byte]);
		seen[byte] = true;
	}
	for (i = 0; i < SENDERS; i++)
		thread_result(thread[i]);
}

static void all_bad_address(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(2);
	__s64 there = ask(pair.peer, DO_PAGES, 2);

	munmap(memory + PAGE, PAGE);
	fill(memory, 9, PAGE);
	/* Lets the ring grow first. */
	expect_value(send_all(pair.here, memory, PAGE, BLOCK), 0);
	expect_there(&pair, there, 9, PAGE);
	expect_error(send_all(pair.here, (void *)8, 100, 0), EFAULT);
	expect_error(send_all(pair.here, memory + PAGE - 1000, 2000, 0), EFAULT);
	expect_error(send_all(pair.here, memory + PAGE - 1000, 2000, BLOCK), EFAULT);
	/* The call has not even sent the half for which there is room. */
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN, 0), 0);
	expect_value(send_all(pair.here, memory, 500, 0), 0);
	expect_there(&pair, there, 9, 500);
}

/* Memory that was never touched has to be faulted in first. */
static void all_untouched(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(1024);
	__s64 there = ask(pair.peer, DO_PAGES, 32);
	long most = largest(&pair, memory), len = 20 * PAGE + 5;

	/* The rings of a small aperture are smaller. */
	len = len < most ? len : most;
	madvise(memory, 1024 * PAGE, MADV_DONTNEED);
	/* Touches some of the memory after all. */
	memset(memory + len / 2, 0, 1);
	ask(pair.peer, DO_FILL, there, 1, len);
	expect_value(send_all(pair.here, memory, len, BLOCK), 0);
	expect_value(ask(pair.peer, DO_RECV, pair.there, there, len, SCIF_RECV_BLOCK), len);
	expect_value(ask(pair.peer, DO_DIFFERS_FROM_BYTE, there, 0, len), -1);
}

static void all_arguments(void)
{
	struct pair pair = connected();
	struct scif_send_all *all = pages(1), good = {
		.size = sizeof(good), .msg = (__u64)all, .len = 1,
	};
	int fd = scif_get_fd(pair.here), endpoint = expect_ok(scif_open());
	char byte = 0;

	expect_error(send_all(pair.here, &byte, 1, 2), EINVAL);
	*all = good;
	all->reserved = 1;
	expect_error(ioctl(fd, SCIF_SEND_ALL, all), EINVAL);
	*all = good;
	all->size--;
	expect_error(ioctl(fd, SCIF_SEND_ALL, all), EINVAL);
	all->size = sizeof(good) + 1;
	((char *)all)[sizeof(good)] = 1;
	expect_error(ioctl(fd, SCIF_SEND_ALL, all), E2BIG);
	expect_error(ioctl(fd, SCIF_SEND_ALL, NULL), EFAULT);
	expect_value(send_all(pair.here, NULL, 0, 0), 0);
	expect_value(send_all(endpoint, NULL, 0, BLOCK), 0);
	expect_error(send_all(endpoint, &byte, 1, 0), ENOTCONN);
	expect_ok(scif_bind(endpoint, 0));
	expect_error(send_all(endpoint, &byte, 1, BLOCK), ENOTCONN);
	/* The call has sent nothing. */
	expect_value(ask(pair.peer, DO_POLL, pair.there, POLLIN | POLLOUT, 0), POLLOUT);
}

static void all_reset(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect_ok(ask(pair.peer, DO_CLOSE, pair.there));
	wait_for_hangup(pair.here);
	expect_error(send_all(pair.here, &byte, 1, 0), ECONNRESET);
	expect_error(send_all(pair.here, &byte, 1, BLOCK), ECONNRESET);
}

static void *close_later(void *data)
{
	struct pair *pair = data;

	poll(NULL, 0, A_MOMENT);
	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	return NULL;
}

static void all_close_wakes(void)
{
	struct pair pair = connected();
	unsigned char *data = pages(1024);
	long len = largest(&pair, data);
	pthread_t thread;

	expect_value(send_all(pair.here, data, len, BLOCK), 0);
	thread = in_thread(close_later, &pair);
	expect_error(send_all(pair.here, data, len, BLOCK), ECONNRESET);
	thread_result(thread);
}

const struct test_case send_all_cases[] = {
	PAIR(all_arrives, "send-all.all"),
	PAIR(all_too_long, "send-all.too-long send-all.no-room"),
	PAIR(all_no_room, "send-all.no-room"),
	PAIR(all_waits, "send-all.waits"),
	PAIR(all_no_deadlock, "send-all.waits"),
	PAIR(all_no_deadlock_nonblocking, "send-all.tries-again"),
	PAIR(all_interrupted, "send-all.interrupted"),
	PAIR(all_restarted, "send-all.interrupted"),
	PAIR(all_atomic, "send-all.atomic"),
	PAIR(all_bad_address, "send-all.bad-address"),
	PAIR(all_untouched, "send-all.all"),
	PAIR(all_arguments, "send-all.arguments send-all.not-connected services.size"),
	PAIR(all_reset, "send-all.reset"),
	PAIR(all_close_wakes, "send-all.reset"),
	{ }
};
