// SPDX-License-Identifier: GPL-2.0
/*
 * A window so large that it lies in two parts of the aperture, behind two memory windows of the
 * bridge.
 *
 *	scif_seam server PORT		reads and writes where it is told, until killed
 *	scif_seam client NODE PORT MIB	registers so much there
 *
 * The program does not know where one part ends: at the end of some page. So copies by CPU cross
 * the end of each page.
 *
 * The client prints TAP. No other process may register on its node.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checks.h"
#include "ends.h"
#include "window_memory.h"

#define PAGE	4096L
#define WORD	8L
#define ACCESS	(SCIF_PROT_READ | SCIF_PROT_WRITE)

enum way {
	WRITE_ALL,
	READ_ALL,
	WRITE_EDGES,
	READ_EDGES,
	STORE_EDGES,
};

/*
 * A request to the server: to write or to check words. Each word consists of its offset in the
 * window and the value.
 */
struct task {
	__s64 way;
	__s64 offset;
	__s64 len;
	__u64 value;
};

/* An error or 0, and the number of wrong words. */
struct outcome {
	__s64 error;
	__s64 wrong;
};

/* The window that the client has registered. */
static struct {
	__s64 offset;
	__s64 len;
} window;

static __u64 word_at(long place, __u64 value)
{
	return place ^ value << 40;
}

static void fill(__u64 *words, long place, long len, __u64 value)
{
	long i;

	for (i = 0; i < len / WORD; i++)
		words[i] = word_at(place + i * WORD, value);
}

static long count_wrong(const __u64 *words, long place, long len, __u64 value)
{
	long i, wrong = 0;

	for (i = 0; i < len / WORD; i++)
		wrong += words[i] != word_at(place + i * WORD, value);
	return wrong;
}

static int copy(int fd, unsigned long call, void *memory, __s64 offset, long len, int flags)
{
	struct scifioctl_copy request = {
		.addr = (uintptr_t)memory,
		.len = len,
		.roffset = offset,
		.flags = SCIF_RMA_SYNC | flags,
	};

	return ioctl(fd, call, &request) ? errno : 0;
}

static struct outcome copy_all(int fd, const struct task *task)
{
	struct outcome outcome = { 0 };
	__u64 *memory = memory_of(task->len);

	if (task->way == WRITE_ALL) {
		fill(memory, 0, task->len, task->value);
		outcome.error = copy(fd, SCIF_VWRITETO, memory, task->offset, task->len, 0);
	} else {
		outcome.error = copy(fd, SCIF_VREADFROM, memory, task->offset, task->len, 0);
		outcome.wrong = count_wrong(memory, 0, task->len, task->value);
	}
	munmap(memory, task->len);
	return outcome;
}

/* Copies the last word of each page and the first of the next. */
static struct outcome copy_edges(int fd, const struct task *task)
{
	struct outcome outcome = { 0 };
	__u64 words[2];
	long at;

	for (at = PAGE - WORD; at + PAGE < task->len && !outcome.error; at += PAGE) {
		__s64 offset = task->offset + at;

		if (task->way == WRITE_EDGES) {
			fill(words, at, sizeof(words), task->value);
			outcome.error = copy(fd, SCIF_VWRITETO, words, offset, sizeof(words),
					     SCIF_RMA_USECPU);
		} else {
			outcome.error = copy(fd, SCIF_VREADFROM, words, offset, sizeof(words),
					     SCIF_RMA_USECPU);
			outcome.wrong += count_wrong(words, at, sizeof(words), task->value);
		}
	}
	return outcome;
}

static struct outcome store_edges(int fd, const struct task *task)
{
	struct outcome outcome = { 0 };
	volatile __u64 *words = mmap(NULL, task->len, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
				     task->offset);
	long at;

	if (words == MAP_FAILED) {
		outcome.error = errno;
		return outcome;
	}
	for (at = PAGE - WORD; at + PAGE < task->len; at += PAGE) {
		words[at / WORD] = word_at(at, task->value);
		words[at / WORD + 1] = word_at(at + WORD, task->value);
	}
	/* When this load has returned, the stores have arrived. */
	outcome.wrong = words[0] == ~0ULL;
	munmap((void *)words, task->len);
	return outcome;
}

static struct outcome carry_out(int fd, const struct task *task)
{
	switch (task->way) {
	case WRITE_ALL:
	case READ_ALL:
		return copy_all(fd, task);
	case STORE_EDGES:
		return store_edges(fd, task);
	default:
		return copy_edges(fd, task);
	}
}

static noreturn void serve(__u16 port)
{
	int listener = listen_on(&port);
	struct task task;

	printf("listening\n");
	fflush(stdout);
	for (;;) {
		int fd = accept_from(listener);

		while (scif_recv(fd, &task, sizeof(task), SCIF_RECV_BLOCK) == sizeof(task)) {
			struct outcome outcome = carry_out(fd, &task);

			scif_send(fd, &outcome, sizeof(outcome), SCIF_SEND_BLOCK);
		}
		close(fd);
	}
}

/* Asks the server to do a task with the client's window. */
static void ask(int fd, enum way way, __u64 value, const char *what)
{
	struct task task = { way, window.offset, window.len, value };
	struct outcome outcome = { .error = -1 };

	scif_send(fd, &task, sizeof(task), SCIF_SEND_BLOCK);
	scif_recv(fd, &outcome, sizeof(outcome), SCIF_RECV_BLOCK);
	test(!outcome.error && !outcome.wrong, "%s: error %lld, %lld words wrong", what,
	     outcome.error, outcome.wrong);
}

static void check_edges(const char *memory, long len, __u64 value, const char *what)
{
	long at, wrong = 0;

	for (at = PAGE - WORD; at + PAGE < len; at += PAGE)
		wrong += count_wrong((const __u64 *)(memory + at), at, 2 * WORD, value);
	test(!wrong, "%s: the written words are there (%ld are not)", what, wrong);
}

int main(int argc, char **argv)
{
	void *memory;
	int fd;

	if (argc == 3 && !strcmp(argv[1], "server"))
		serve(atoi(argv[2]));
	if (argc != 5 || strcmp(argv[1], "client")) {
		fprintf(stderr, "usage: %s server PORT | client NODE PORT MIB\n", argv[0]);
		return 2;
	}
	window.len = atoi(argv[4]) * 1024L * 1024;
	memory = memory_of(window.len);
	fd = connected(atoi(argv[2]), atoi(argv[3]));
	window.offset = scif_register(fd, memory, window.len, 0, ACCESS, 0);
	test(window.offset >= 0 && !count_unreached(), "register: the window has room");

	ask(fd, WRITE_ALL, 1, "writeto");
	test(!count_wrong(memory, 0, window.len, 1), "writeto: the whole window is written");

	fill(memory, 0, window.len, 2);
	ask(fd, READ_ALL, 2, "readfrom");

	ask(fd, WRITE_EDGES, 3, "writeto by CPU");
	check_edges(memory, window.len, 3, "writeto by CPU");

	fill(memory, 0, window.len, 4);
	ask(fd, READ_EDGES, 4, "readfrom by CPU");

	ask(fd, STORE_EDGES, 5, "mmap");
	check_edges(memory, window.len, 5, "mmap");
	return finish_tests();
}
