// SPDX-License-Identifier: GPL-2.0
/*
 * Copies from a peer that does not run, while signals come. No signal interrupts a copy.
 *
 *	scif_copy_signals server PORT		has a window for each client
 *	scif_copy_signals client NODE PORT	copies, once it has read a line
 *
 * The client fills the peer's ring with requests at first, so that the first copy waits for room to
 * offer its memory to the peer, and the second copy waits for the first. The client prints
 * "connected" at first, and "done" once the signals have come. The copies end when the peer runs.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "die.h"
#include "ends.h"

#define WINDOW		0x10000000L
#define SIZE		(16 * 4096L)
/* More requests than any ring has slots. */
#define QUESTIONS	600
#define COPIERS		2
#define SIGNALS		40

static int epd;

static void *memory(void)
{
	void *area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	return area;
}

static void make_window(int fd)
{
	if (scif_register(fd, memory(), SIZE, WINDOW, SCIF_PROT_READ, SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
}

static void on_signal(int number)
{
}

static void interrupt_each(long microseconds)
{
	struct itimerval timer = {
		.it_interval.tv_usec = microseconds,
		.it_value.tv_usec = microseconds,
	};

	if (setitimer(ITIMER_REAL, &timer, NULL))
		die("setitimer");
}

static void fill_ring(void)
{
	interrupt_each(5000);
	for (int number = 0; number < QUESTIONS; number++) {
		__s32 ignored;

		expect(scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &ignored) < 0 && errno == EINTR);
	}
	interrupt_each(0);
}

static void *copy_once(void *unused)
{
	struct scifioctl_copy argument = {
		.addr = (unsigned long)memory(),
		.len = SIZE,
		.roffset = WINDOW,
		.flags = SCIF_RMA_SYNC,
	};

	expect(!ioctl(epd, SCIF_VREADFROM, &argument));
	return NULL;
}

static void copy(__u16 node, __u16 port)
{
	/* SA_RESTART is not set, so that calls are interrupted. */
	const struct sigaction action = { .sa_handler = on_signal };
	const struct timespec moment = { .tv_nsec = 5000000 };
	pthread_t copier[COPIERS];
	char byte;

	epd = served(node, port);
	if (sigaction(SIGALRM, &action, NULL) || sigaction(SIGUSR1, &action, NULL))
		die("sigaction");
	printf("connected\n");
	fflush(stdout);
	if (read(0, &byte, 1) != 1)
		die("read");
	fill_ring();
	for (int number = 0; number < COPIERS; number++) {
		errno = pthread_create(&copier[number], NULL, copy_once, NULL);
		if (errno)
			die("pthread_create");
	}
	for (int number = 0; number < SIGNALS; number++) {
		nanosleep(&moment, NULL);
		/* A copier that fails ends the process. */
		pthread_kill(copier[0], SIGUSR1);
		pthread_kill(copier[1], SIGUSR1);
	}
	printf("done\n");
	fflush(stdout);
	for (int number = 0; number < COPIERS; number++)
		pthread_join(copier[number], NULL);
	close(epd);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server")) {
		serve_clients_at(atoi(argv[2]), make_window);
	} else if (argc == 4 && !strcmp(argv[1], "client")) {
		copy(atoi(argv[2]), atoi(argv[3]));
	} else {
		fprintf(stderr, "usage: %s server PORT | client NODE PORT\n", argv[0]);
		return 2;
	}
	return 0;
}
