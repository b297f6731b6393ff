// SPDX-License-Identifier: GPL-2.0
/*
 * A user that takes no part in the test: makes connections, uses and closes them, and prints the
 * longest time of each call.
 *
 *	scif_bystander server PORT		answers clients
 *	scif_bystander client NODE PORT		until SIGTERM; then prints the times as JSON
 *
 * The program runs as a user other than root, who needs only the device. Any call that fails ends
 * the program.
 */
#define _GNU_SOURCE
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "die.h"
#include "ends.h"

#define USER		12321
#define MESSAGES	8
#define WINDOW		0x10000
#define MOST_TIMES	262144

struct step {
	const char *name;
	/* Times in microseconds, of the first calls. */
	unsigned int *times;
	size_t count;
	unsigned int worst;
	/* Time of the slowest call, in seconds from the start. */
	double worst_at;
};

enum { OPEN, BIND, CONNECT, EXCHANGE, REGISTER, UNREGISTER, CLOSE, STEPS };

static struct step steps[STEPS] = {
	[OPEN] = { "open" },
	[BIND] = { "bind" },
	[CONNECT] = { "connect" },
	[EXCHANGE] = { "exchange" },
	[REGISTER] = { "register" },
	[UNREGISTER] = { "unregister" },
	[CLOSE] = { "close" },
};

static volatile sig_atomic_t over;

static void end(int number)
{
	over = true;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static double start, begun;

static void begin(void)
{
	begun = now();
}

static void ended(int number)
{
	struct step *step = &steps[number];
	double until = now();
	unsigned int took = (until - begun) * 1e6;

	if (step->count < MOST_TIMES)
		step->times[step->count] = took;
	step->count++;
	if (took >= step->worst) {
		step->worst = took;
		step->worst_at = begun - start;
	}
}

static int compare(const void *one, const void *other)
{
	unsigned int a = *(const unsigned int *)one, b = *(const unsigned int *)other;

	return (a > b) - (a < b);
}

static void print(void)
{
	struct step *step;
	size_t count;

	printf("{");
	for (step = steps; step < steps + STEPS; step++) {
		count = step->count < MOST_TIMES ? step->count : MOST_TIMES;
		qsort(step->times, count, sizeof(*step->times), compare);
		printf("%s\"%s\": {\"count\": %zu, \"median_us\": %u, \"p99_us\": %u, ",
		       step == steps ? "" : ", ", step->name, step->count,
		       count ? step->times[count / 2] : 0,
		       count ? step->times[count * 99 / 100] : 0);
		printf("\"worst_us\": %u, \"worst_at_s\": %.2f}", step->worst, step->worst_at);
	}
	printf(", \"all\": {\"seconds\": %.2f}}\n", now() - start);
}

static void check(bool good, const char *what)
{
	if (!good)
		die(what);
}

static void once(__u16 node, __u16 port, void *window)
{
	__u16 any = 0;
	int fd, count;
	__s64 offset;
	char byte = 'b';

	begin();
	fd = scif_open();
	ended(OPEN);
	begin();
	check(!scif_bind(fd, &any), "bind");
	ended(BIND);
	begin();
	check(scif_connect(fd, node, port) >= 0, "connect");
	ended(CONNECT);
	for (count = 0; count < MESSAGES; count++) {
		begin();
		check(scif_send(fd, &byte, 1, SCIF_SEND_BLOCK) == 1, "send");
		check(scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) == 1, "receive");
		ended(EXCHANGE);
	}
	begin();
	offset = scif_register(fd, window, WINDOW, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
	check(offset >= 0, "register");
	ended(REGISTER);
	begin();
	check(!scif_unregister(fd, offset, WINDOW), "unregister");
	ended(UNREGISTER);
	begin();
	check(!close(fd), "close");
	ended(CLOSE);
}

static void run(__u16 node, __u16 port)
{
	void *window = mmap(NULL, WINDOW, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int number;

	check(window != MAP_FAILED, "mmap");
	for (number = 0; number < STEPS; number++) {
		steps[number].times = malloc(MOST_TIMES * sizeof(*steps[number].times));
		check(steps[number].times, "malloc");
	}
	start = now();
	while (!over) {
		sigset_t term, before;

		/* SIGTERM is blocked, so that it interrupts no call. */
		sigemptyset(&term);
		sigaddset(&term, SIGTERM);
		sigprocmask(SIG_BLOCK, &term, &before);
		once(node, port, window);
		sigprocmask(SIG_SETMASK, &before, NULL);
		/* Other processes need the CPU, too. */
		poll(NULL, 0, 2);
	}
	print();
}

/* Serves one client after the other, and answers each exchange until the client closes. */
static void serve(__u16 port)
{
	int listener = listen_on(&port), fd;
	char byte;

	printf("listening on port %u\n", port);
	fflush(stdout);
	for (;;) {
		fd = accept_from(listener);
		while (scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) == 1 &&
		       scif_send(fd, &byte, 1, SCIF_SEND_BLOCK) == 1)
			;
		close(fd);
	}
}

int main(int count, char **arguments)
{
	struct sigaction action = { .sa_handler = end };

	sigaction(SIGTERM, &action, NULL);
	if (setgroups(0, NULL) || setgid(USER) || setuid(USER))
		die("setuid");
	if (count == 3 && !strcmp(arguments[1], "server")) {
		signal(SIGTERM, SIG_DFL);
		serve(atoi(arguments[2]));
	} else if (count == 4 && !strcmp(arguments[1], "client")) {
		run(atoi(arguments[2]), atoi(arguments[3]));
	} else {
		fprintf(stderr, "usage: scif_bystander server PORT | client NODE PORT\n");
		return 2;
	}
	return 0;
}
