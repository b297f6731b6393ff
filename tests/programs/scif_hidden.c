// SPDX-License-Identifier: GPL-2.0
/*
 * A peer must not see memory that is not registered, or no longer. While this runs, a peer goes
 * through all memory that the bridge lets it reach (see raid.rs of the emulator).
 *
 *	scif_hidden server PORT			accepts until it is killed
 *	scif_hidden client NODE PORT ROUNDS	registers and gives up ROUNDS windows; prints TAP
 *	scif_hidden hold NODE PORT		registers a window, and keeps it until it is killed
 *
 * While memory is registered, each of its pages begins with a mark that says so. Once unregister,
 * close or the wait for a killed process has returned, each page begins with another mark, which
 * the peer must not see. Pages that the peer must not write stay unchanged.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"

#define PAGE		4096L
#define MARK		16
#define PAGES		4
#define SIZE		(PAGES * PAGE)
/* Regions that are used in turn. All but one are secret. */
#define REGIONS		8
/* Number of pages that are never registered. */
#define OTHERS		256

/* The same marks as in raid.rs. */
static const char public_mark[MARK + 1] = "scif: may be see";
static const char secret_mark[MARK + 1] = "scif: a secret!!";

static __u16 node, port;
static unsigned char *regions[REGIONS];
static long changed_secrets, changed_read_only, written_to;

static unsigned char *new_memory(long size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

static void mark_pages(unsigned char *memory, long size, const char *mark)
{
	memset(memory, 0, size);
	for (long at = 0; at < size; at += PAGE)
		memcpy(memory + at, mark, MARK);
}

/* Returns whether the memory is as mark_pages() has left it. */
static bool is_unchanged(const unsigned char *memory, long size, const char *mark)
{
	static const unsigned char zeroes[PAGE - MARK];

	for (long at = 0; at < size; at += PAGE) {
		if (memcmp(memory + at, mark, MARK) ||
		    memcmp(memory + at + MARK, zeroes, PAGE - MARK))
			return false;
	}
	return true;
}

static int protection_of(long round)
{
	static const int protections[] = {
		SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_PROT_READ, SCIF_PROT_WRITE,
	};

	return protections[round % 3];
}

static int connect_to_server(void)
{
	int fd = connected(node, port);

	if (fd < 0)
		die("connect");
	return fd;
}

/* Registers and unregisters a window. Closing the connection releases each 16th window. */
static void use_window(int *fd, long round)
{
	unsigned char *memory = regions[round % REGIONS];
	int protection = protection_of(round);
	__s64 offset;

	if (!is_unchanged(memory, SIZE, secret_mark))
		changed_secrets++;
	mark_pages(memory, SIZE, public_mark);
	offset = scif_register(*fd, memory, SIZE, 0, protection, 0);
	if (offset < 0)
		die("register");
	sched_yield();
	if (round % 16 != 15) {
		if (scif_unregister(*fd, offset, SIZE))
			die("unregister");
	} else {
		close(*fd);
		*fd = connect_to_server();
	}
	if (is_unchanged(memory, SIZE, public_mark))
		;
	else if (protection & SCIF_PROT_WRITE)
		written_to++;
	else
		changed_read_only++;
	mark_pages(memory, SIZE, secret_mark);
}

/* Kills a process with a window. The kernel may then give its pages to any process. */
static void kill_one(void)
{
	int ready[2], fd;
	unsigned char *memory;
	pid_t child;
	char byte;

	if (pipe(ready))
		die("pipe");
	child = new_child();
	if (!child) {
		memory = new_memory(16 * SIZE);
		mark_pages(memory, 16 * SIZE, public_mark);
		fd = connect_to_server();
		if (scif_register(fd, memory, 16 * SIZE, 0,
				  SCIF_PROT_READ | SCIF_PROT_WRITE, 0) < 0)
			die("register");
		if (write(ready[1], "", 1) != 1)
			die("write");
		for (;;)
			pause();
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		die("read");
	close(ready[0]);
	kill(child, SIGKILL);
	wait_for_child(child);
	memory = new_memory(32 * SIZE);
	mark_pages(memory, 32 * SIZE, secret_mark);
	sched_yield();
	if (!is_unchanged(memory, 32 * SIZE, secret_mark))
		changed_secrets++;
	munmap(memory, 32 * SIZE);
}

static int client(long rounds)
{
	unsigned char *others = new_memory(OTHERS * PAGE);
	int fd = connect_to_server();

	mark_pages(others, OTHERS * PAGE, secret_mark);
	for (int i = 0; i < REGIONS; i++) {
		regions[i] = new_memory(SIZE);
		mark_pages(regions[i], SIZE, secret_mark);
	}
	for (long round = 0; round < rounds; round++) {
		use_window(&fd, round);
		if (round % 100 == 99)
			kill_one();
	}
	for (int i = 0; i < REGIONS; i++)
		changed_secrets += !is_unchanged(regions[i], SIZE, secret_mark);
	changed_secrets += !is_unchanged(others, OTHERS * PAGE, secret_mark);
	printf("# %ld windows, %ld of which the peer has written to\n", rounds, written_to);
	test(!changed_secrets, "memory that is not registered is unchanged");
	test(!changed_read_only, "a read-only window is unchanged");
	close(fd);
	return finish_tests();
}

static void hold(void)
{
	int fd = connect_to_server();

	regions[0] = new_memory(SIZE);
	if (scif_register(fd, regions[0], SIZE, 0, SCIF_PROT_READ, 0) < 0)
		die("register");
	printf("holding\n");
	fflush(stdout);
	for (;;)
		pause();
}

static int server(void)
{
	int listener = listen_on(&port);

	/* Clients close sooner or later, so these processes end by themselves. */
	signal(SIGCHLD, SIG_IGN);
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		int fd = accept_from(listener);

		if (!fork()) {
			char byte;

			close(listener);
			while (scif_recv(fd, &byte, 1, SCIF_RECV_BLOCK) > 0)
				;
			_exit(0);
		}
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server")) {
		port = atoi(argv[2]);
		return server();
	}
	if (argc == 4 && !strcmp(argv[1], "hold")) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
		hold();
	}
	if (argc == 5 && !strcmp(argv[1], "client")) {
		node = atoi(argv[2]);
		port = atoi(argv[3]);
		return client(atol(argv[4]));
	}
	fprintf(stderr, "usage: %s server PORT | client NODE PORT ROUNDS | hold NODE PORT\n",
		argv[0]);
	return 2;
}
