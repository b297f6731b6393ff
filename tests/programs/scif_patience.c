// SPDX-License-Identifier: GPL-2.0
/*
 * No process waits for long because of another process or a peer. The tests use a greedy process,
 * and a peer that does nothing any more.
 *
 *	scif_patience server PORT			has a window for each client
 *	scif_patience greedy NODE PORT LIMIT		four threads give signals without a pause
 *	scif_patience silent NODE PORT LIMIT FOLDER	exits while the peer stands still
 *	scif_patience reader NODE PORT			reads without end, much at once
 *
 * LIMIT is the number of milliseconds that a call of a bystander, or the exit of a process, may
 * take. The silent one makes the file "ready" in FOLDER, and waits for "silent". Both print TAP.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "window_memory.h"

#define WINDOW		0x10000000L
#define SIZE		(256 * 1024L)
#define THREADS		4
#define ROUNDS		100
#define ENDS		24

static __u16 node, port;

static void make_window(int fd)
{
	if (scif_register(fd, memory_of(SIZE), SIZE, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		die("SCIF_REG");
}

/* Makes an end with a window, whose peer has a window, too. */
static int make_end(void)
{
	int fd = served(node, port);

	make_window(fd);
	return fd;
}

static int signal_peer(int fd, __u64 value)
{
	struct scifioctl_fence_signal argument = {
		.roff = WINDOW, .rval = value,
		.flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE,
	};

	return ioctl(fd, SCIF_FENCE_SIGNAL, &argument);
}

static void *give_signals(void *argument)
{
	int fd = (long)argument;
	__u64 value = 0;

	while (!signal_peer(fd, ++value))
		;
	return NULL;
}

static void *write_and_signal(void *argument)
{
	struct scifioctl_copy copy = { .loffset = WINDOW, .len = SIZE, .roffset = WINDOW };
	int fd = (long)argument;

	while (!ioctl(fd, SCIF_WRITETO, &copy) && !signal_peer(fd, 1))
		;
	return NULL;
}

static void *read_all(void *argument)
{
	struct scifioctl_copy copy = {
		.addr = (unsigned long)memory_of(SIZE), .len = SIZE, .roffset = WINDOW,
	};

	while (!ioctl((long)argument, SCIF_VREADFROM, &copy))
		;
	return NULL;
}

static void begin(void *(*routine)(void *), int fd)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, routine, (void *)(long)fd))
		die("pthread_create");
}

/* Kills a child, and returns the time until it has ended. */
static long end_of(pid_t child)
{
	__u64 start = now();
	int status;

	kill(child, SIGKILL);
	if (!ends(child, &status))
		return -1;
	return now() - start;
}

static void note(long *worst, __u64 start)
{
	long took = now() - start;

	if (took > *worst)
		*worst = took;
}

/* Runs as a process that is independent of the greedy one. */
static void stand_by(long limit)
{
	long worst_register = 0, worst_close = 0, worst_loopback = 0, worst_exit = 0, took;
	struct pair pair;
	__u64 start;
	pid_t child;
	int i, fd;

	for (i = 0; i < ROUNDS; i++) {
		fd = connected(node, port);
		start = now();
		make_window(fd);
		note(&worst_register, start);
		start = now();
		close(fd);
		note(&worst_close, start);
		pair = make_pair();
		make_window(pair.fd[0]);
		start = now();
		drop_pair(&pair);
		note(&worst_loopback, start);
		if (i % 10)
			continue;
		child = new_child();
		if (!child) {
			make_end();
			make_end();
			pause();
		}
		usleep(1000);
		took = end_of(child);
		if (took < 0 || took > worst_exit)
			worst_exit = took < 0 ? HANG_LIMIT_SECONDS * 1000L : took;
	}
	printf("# at worst: register %ld ms, close %ld ms, of a loopback %ld ms, exit %ld ms\n",
	       worst_register, worst_close, worst_loopback, worst_exit);
	test(worst_register <= limit, "a bystander registers in time");
	test(worst_close <= limit, "a bystander closes in time");
	test(worst_loopback <= limit, "a bystander closes a connection with its own node in time");
	test(worst_exit <= limit, "a bystander exits in time");
}

static void bystander_of_a_greedy_one(long limit)
{
	pid_t greedy = new_child();
	long took;
	int i;

	if (!greedy) {
		for (i = 0; i < THREADS; i++)
			begin(give_signals, make_end());
		pause();
	}
	/* The greedy process has begun by then. */
	usleep(300000);
	stand_by(limit);
	took = end_of(greedy);
	printf("# the greedy one exits within %ld ms\n", took);
	test(took >= 0 && took <= limit, "the greedy process exits in time");
}

static const char *in_folder(const char *folder, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

/* Exits with many operations in flight, though the peer does nothing for them. */
static void exit_from_a_silent_one(long limit, const char *folder)
{
	int fd[ENDS], i, go[2];
	long took;
	pid_t child;
	char byte = 0;

	if (pipe(go))
		die("pipe");
	child = new_child();
	if (!child) {
		for (i = 0; i < ENDS; i++)
			fd[i] = make_end();
		close(open(in_folder(folder, "ready"), O_CREAT | O_WRONLY, 0600));
		if (read(go[0], &byte, 1) != 1)
			die("read");
		for (i = 0; i < ENDS; i++) {
			signal_peer(fd[i], 1);
			if (i % 4 == 0)
				begin(write_and_signal, fd[i]);
			if (i % 4 == 1)
				begin(read_all, fd[i]);
		}
		pause();
	}
	while (access(in_folder(folder, "silent"), F_OK))
		usleep(10000);
	if (write(go[1], &byte, 1) != 1)
		die("write");
	/* By then all slots are in use, and more transfers wait. */
	sleep(1);
	took = end_of(child);
	printf("# %d ends: exit within %ld ms\n", ENDS, took);
	test(took >= 0 && took <= limit, "a process exits in time, whatever its peer does");
}

/* Reads more at a time than a peer accepts. */
static void read_without_end(void)
{
	int i;

	for (i = 0; i < ENDS; i++)
		begin(read_all, make_end());
	printf("# reading\n");
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "server"))
		serve_clients_at(atoi(argv[2]), make_window);
	if (argc >= 4) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
	}
	if (argc == 4 && !strcmp(role, "reader"))
		read_without_end();
	if (argc == 5 && !strcmp(role, "greedy")) {
		bystander_of_a_greedy_one(atol(argv[4]));
		return finish_tests();
	}
	if (argc == 6 && !strcmp(role, "silent")) {
		exit_from_a_silent_one(atol(argv[4]), argv[5]);
		return finish_tests();
	}
	fprintf(stderr, "usage: scif_patience server PORT\n"
		"       scif_patience greedy NODE PORT LIMIT\n"
		"       scif_patience silent NODE PORT LIMIT FOLDER\n"
		"       scif_patience reader NODE PORT\n");
	return 2;
}
