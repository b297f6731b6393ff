// SPDX-License-Identifier: GPL-2.0
/*
 * Sends requests to a peer that does not answer, over and over, and is interrupted each time.
 *
 *	scif_interrupted peer PORT	what to ask
 *	scif_interrupted ask NODE PORT	asks, once it has read a line
 *
 * There are more requests than the peer's ring has room for. A caller that waits for room is
 * interrupted like one that waits for an answer, and a caller that must not wait does not. The
 * latter program prints "connected" at first, and "done" when all calls have returned in time. Once
 * it has read another line, it sends a last request, which is answered.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

/* More requests than any ring has slots. */
#define QUESTIONS	600

static void be_the_peer(__u16 port)
{
	int fd = listen_on(&port);

	printf("listening\n");
	fflush(stdout);
	for (;;)
		/* The endpoint stays open until this process ends. */
		accept_from(fd);
}

static void on_alarm(int number)
{
}

static void interrupt_each(long microseconds)
{
	struct itimerval timer = {
		.it_interval.tv_usec = microseconds,
		.it_value.tv_usec = microseconds,
	};
	/* SA_RESTART is not set, so that calls are interrupted. */
	struct sigaction action = { .sa_handler = on_alarm };

	if (sigaction(SIGALRM, &action, NULL) || setitimer(ITIMER_REAL, &timer, NULL))
		die("setitimer");
}

static void read_line(void)
{
	char byte;

	do {
		if (read(0, &byte, 1) != 1)
			die("read");
	} while (byte != '\n');
}

static void ask(__u16 node, __u16 port)
{
	int fd = connected(node, port), late;
	time_t end;
	__s32 mark;

	/* Makes a mark for requests that are deferred behind transfers. */
	if (scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark))
		die("SCIF_FENCE_MARK");
	printf("connected\n");
	fflush(stdout);
	read_line();
	end = time(NULL) + HANG_LIMIT_SECONDS;
	interrupt_each(5000);
	for (int number = 0; number < QUESTIONS; number++) {
		__s32 ignored;

		expect(scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &ignored) < 0 && errno == EINTR);
		expect(scif_fence_wait(fd, mark) < 0 && errno == EINTR);
		expect(time(NULL) <= end);
	}
	interrupt_each(0);
	/* This endpoint must not wait. */
	late = scif_open();
	if (fcntl(late, F_SETFL, O_NONBLOCK))
		die("fcntl");
	expect(scif_connect(late, node, port) < 0 && errno == EINPROGRESS);
	expect(scif_connect(late, node, port) < 0 && errno == EINPROGRESS);
	expect(time(NULL) <= end);
	printf("done\n");
	fflush(stdout);
	read_line();
	if (scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark))
		die("SCIF_FENCE_MARK");
	close(late);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "peer")) {
		be_the_peer(atoi(argv[2]));
	} else if (argc == 4 && !strcmp(argv[1], "ask")) {
		ask(atoi(argv[2]), atoi(argv[3]));
	} else {
		fprintf(stderr, "usage: %s peer PORT | ask NODE PORT\n", argv[0]);
		return 2;
	}
	return 0;
}
