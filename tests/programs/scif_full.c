// SPDX-License-Identifier: GPL-2.0
/*
 * The behaviour when the aperture, through which the peer reaches registered memory, is full.
 *
 *	scif_full server PORT		reads and writes where it is told, until it is killed
 *	scif_full client NODE PORT	registers there until there is no room, and goes on
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
#define SIZE	(1024 * 1024L)
/* More windows than fit into the aperture. */
#define MOST	4096
#define ACCESS	(SCIF_PROT_READ | SCIF_PROT_WRITE)

/* A request to the server: write to the window at the offset, read it back, and map it. */
struct task {
	__s64 offset;
	__s64 len;
	__s64 value;
};

/* Errors, or 0. */
struct outcome {
	__s64 writing;
	__s64 reading;
	__s64 mapping;
	/* Number of bytes that were not read as they had been written. */
	__s64 wrong;
};

static __s64 offsets[MOST];

static int copy(int fd, unsigned long call, void *memory, const struct task *task)
{
	struct scifioctl_copy request = {
		.addr = (uintptr_t)memory,
		.len = task->len,
		.roffset = task->offset,
		.flags = SCIF_RMA_SYNC,
	};

	return ioctl(fd, call, &request) ? errno : 0;
}

static struct outcome carry_out(int fd, const struct task *task)
{
	unsigned char *memory = memory_of(task->len);
	struct outcome outcome = { 0 };
	void *mapped;
	long i;

	memset(memory, task->value, task->len);
	outcome.writing = copy(fd, SCIF_VWRITETO, memory, task);
	memset(memory, ~task->value, task->len);
	outcome.reading = copy(fd, SCIF_VREADFROM, memory, task);
	for (i = 0; i < task->len; i++)
		outcome.wrong += memory[i] != (unsigned char)task->value;
	mapped = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, task->offset);
	if (mapped == MAP_FAILED)
		outcome.mapping = errno;
	else
		munmap(mapped, PAGE);
	munmap(memory, task->len);
	return outcome;
}

static noreturn void serve(__u16 port)
{
	int listener = listen_on(&port);
	struct task task;

	signal(SIGCHLD, SIG_IGN);
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		int fd = accept_from(listener);

		/* Each connection has a process of its own. */
		if (fork()) {
			close(fd);
			continue;
		}
		while (scif_recv(fd, &task, sizeof(task), SCIF_RECV_BLOCK) == sizeof(task)) {
			struct outcome outcome = carry_out(fd, &task);

			scif_send(fd, &outcome, sizeof(outcome), SCIF_SEND_BLOCK);
		}
		exit(0);
	}
}

static void use(int fd, __s64 offset, unsigned char *memory, int value, int mapping,
		const char *what)
{
	struct task task = { .offset = offset, .len = SIZE, .value = value };
	struct outcome outcome = { .writing = -1 };
	long i, wrong = 0;

	scif_send(fd, &task, sizeof(task), SCIF_SEND_BLOCK);
	scif_recv(fd, &outcome, sizeof(outcome), SCIF_RECV_BLOCK);
	test(!outcome.writing && !outcome.reading && !outcome.wrong,
	     "%s: the peer writes (%lld) and reads (%lld)", what, outcome.writing,
	     outcome.reading);
	test(outcome.mapping == mapping, "%s: the peer maps the window: %lld", what,
	     outcome.mapping);
	for (i = 0; i < SIZE; i++)
		wrong += memory[i] != value;
	test(!wrong, "%s: the written bytes are there", what);
}

int main(int argc, char **argv)
{
	unsigned char *memory, *last;
	int fd, other, count = 0;

	if (argc == 3 && !strcmp(argv[1], "server"))
		serve(atoi(argv[2]));
	if (argc != 4 || strcmp(argv[1], "client")) {
		fprintf(stderr, "usage: %s server PORT | client NODE PORT\n", argv[0]);
		return 2;
	}
	memory = memory_of(SIZE);
	last = memory_of(SIZE);
	fd = connected(atoi(argv[2]), atoi(argv[3]));
	/* All windows have the same memory, as only their place in the aperture matters. */
	while (count < MOST && !count_unreached()) {
		offsets[count] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
		if (offsets[count] < 0)
			break;
		count++;
	}
	test(count > 1 && count_unreached() == 1, "register: no room after %d windows", count - 1);
	use(fd, offsets[0], memory, 1, 0, "a window in the aperture");
	use(fd, offsets[count - 1], memory, 2, EOPNOTSUPP, "a window for which there is no room");
	offsets[count] = scif_register(fd, last, SIZE, 0, ACCESS, 0);
	test(offsets[count] >= 0 && count_unreached() == 2,
	     "register: a second window without room");
	use(fd, offsets[count], last, 3, EOPNOTSUPP, "a second window without room");
	test(!scif_unregister(fd, offsets[1], SIZE), "unregister one");
	offsets[1] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
	test(offsets[1] >= 0 && count_unreached() == 2, "register: there is room for one");
	use(fd, offsets[1], memory, 4, 0, "a window with new room");
	/* Other connections can go on, as they need less room. */
	other = connected(atoi(argv[2]), atoi(argv[3]));
	test(other >= 0, "connect: a ring still fits");
	close(other);
	close(fd);
	fd = connected(atoi(argv[2]), atoi(argv[3]));
	offsets[0] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
	test(offsets[0] >= 0 && !count_unreached(), "register: close gives all room back");
	return finish_tests();
}
