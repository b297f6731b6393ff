// SPDX-License-Identifier: GPL-2.0
/*
 * Fences and signals behind transfers by a slow DMA engine.
 *
 *	scif_slow server PORT			has a window for each client
 *	scif_slow slow NODE PORT		waits for much, and orders many signals
 *	scif_slow fail NODE PORT DEVICE		takes the engine's driver away meanwhile
 *	scif_slow interrupted NODE PORT DEVICE	the same, after a signal while it waits for room
 *
 * The client prints TAP. DEVICE is the engine's PCI device on the client's node.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "engine_driver.h"
#include "hang_limits.h"

#define WINDOW		0x10000000L
#define SIZE		(64 * 1024 * 1024L)
/* Words for signals lie behind this offset. */
#define WORDS		4096L

/* Largest number of pending signals at an endpoint. */
#define MOST		4096

#define test_ok(call, text)	test(!(call), text)

static int epd;
static __u64 *words;

static void *window_of(int fd)
{
	void *area = mmap(NULL, SIZE + WORDS, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	if (scif_register(fd, area, SIZE + WORDS, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
	return area;
}

static void make_window(int fd)
{
	window_of(fd);
}

static void begin(__u16 node, __u16 port)
{
	epd = served(node, port);
	words = (__u64 *)((char *)window_of(epd) + SIZE);
}

/* Starts to write the first `len` bytes of the window. */
static void write_part(size_t len)
{
	struct scifioctl_copy argument = { .loffset = WINDOW, .len = len, .roffset = WINDOW };

	if (ioctl(epd, SCIF_WRITETO, &argument))
		die("SCIF_WRITETO");
}

/* Starts to write the window several times. Waits while the engine's ring is full. */
static void write_window(int times)
{
	while (times--)
		write_part(SIZE);
}

/* Requests a signal that stores a value in a word of this end, behind the transfers of this end. */
static int signal_word(int word, __u64 value)
{
	struct scifioctl_fence_signal argument = {
		.loff = WINDOW + SIZE + word * 8, .lval = value,
		.flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL,
	};

	return ioctl(epd, SCIF_FENCE_SIGNAL, &argument);
}

static bool is_stored(int word, __u64 value)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;

	while (__atomic_load_n(&words[word], __ATOMIC_ACQUIRE) != value) {
		if (time(NULL) > end)
			return false;
		usleep(1000);
	}
	return true;
}

static __s32 mark(void)
{
	__s32 mark;

	if (scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark))
		die("SCIF_FENCE_MARK");
	return mark;
}

static void on_alarm(int number)
{
}

/* The transfers take longer than the time after which an engine that moves nothing is lost. */
static void slow_is_not_lost(void)
{
	write_window(8);
	test_ok(signal_word(0, 1), "a signal behind 512 MiB");
	test_ok(scif_fence_wait(epd, mark()), "the 512 MiB arrive");
	test(is_stored(0, 1), "the signal is stored");
}

static void many_signals_wait_for_room(void)
{
	int i, failed = 0;

	write_window(2);
	for (i = 1; i <= MOST + 100 && !failed; i++)
		failed = signal_word(1, i);
	test_ok(failed, "more signals than can wait at once");
	test_ok(scif_fence_wait(epd, mark()), "the signals are complete");
	test(is_stored(1, MOST + 100), "the last signal is stored");
}

/*
 * The caller waits behind a transfer that takes longer than this whole test, and that fits into the
 * engine's ring.
 */
static void a_waiter_for_room_is_interrupted(const char *device)
{
	struct itimerval often = { { 0, 100000 }, { 0, 100000 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm };
	int count, error = 0;

	write_part(4 << 20);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	/* A call that does not wait is not interrupted. */
	for (count = 0; count < 2 * MOST && !error; count++)
		error = signal_word(0, 1) ? errno : 0;
	test(error == EINTR, "a caller that waits for room can be interrupted");
	test(count == MOST + 1, "a caller waits when the largest number of signals waits");
	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm(PROGRAM_LIMIT_SECONDS);
	if (!tell_driver("unbind", device) || !tell_driver("bind", device))
		die("plx_dma");
	test_errno(scif_fence_wait(epd, mark()), EIO, "the transfer has failed with its engine");
}

static void a_failure_is_remembered(const char *device)
{
	__s32 first, second;
	int i;

	write_window(2);
	test_ok(signal_word(0, 1), "a signal behind a transfer that will fail");
	first = mark();
	write_window(2);
	test_ok(signal_word(1, 1), "another signal behind a transfer that will fail");
	second = mark();
	if (!tell_driver("unbind", device))
		die("unbind");
	for (i = 0; i < 2; i++) {
		test_errno(scif_fence_wait(epd, second), EIO,
			   "the second mark reports the failure");
		test_errno(scif_fence_wait(epd, first), EIO, "the first mark reports the failure");
	}
	test_ok(signal_word(2, 1), "a signal requested after the failure");
	test(is_stored(2, 1), "a signal requested after the failure is stored");
	test(!__atomic_load_n(&words[0], __ATOMIC_ACQUIRE) &&
	     !__atomic_load_n(&words[1], __ATOMIC_ACQUIRE),
	     "signals behind failed transfers are not stored");
	test_ok(scif_fence_wait(epd, mark()), "a mark after the failure reports none");
	write_window(1);
	test_ok(signal_word(3, 1), "a signal behind a copy by the CPU");
	test(is_stored(3, 1), "a signal behind a copy by the CPU is stored");
	test_ok(scif_fence_wait(epd, mark()), "a mark after a copy by the CPU reports no failure");
	if (!tell_driver("bind", device))
		die("bind");
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "server"))
		serve_clients_at(atoi(argv[2]), make_window);
	if (argc == 4 && !strcmp(role, "slow")) {
		begin(atoi(argv[2]), atoi(argv[3]));
		slow_is_not_lost();
		many_signals_wait_for_room();
		return finish_tests();
	}
	if (argc == 5 && !strcmp(role, "fail")) {
		begin(atoi(argv[2]), atoi(argv[3]));
		a_failure_is_remembered(argv[4]);
		return finish_tests();
	}
	if (argc == 5 && !strcmp(role, "interrupted")) {
		begin(atoi(argv[2]), atoi(argv[3]));
		a_waiter_for_room_is_interrupted(argv[4]);
		return finish_tests();
	}
	fprintf(stderr, "usage: scif_slow server PORT\n"
		"       scif_slow slow NODE PORT\n"
		"       scif_slow fail NODE PORT DEVICE\n"
		"       scif_slow interrupted NODE PORT DEVICE\n");
	return 2;
}
