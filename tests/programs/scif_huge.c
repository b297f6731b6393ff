// SPDX-License-Identifier: GPL-2.0
/*
 * Windows of huge pages. The other end sees the same data as the process, whatever part of such a
 * page is mapped, and pinned memory is released.
 *
 *	scif_huge
 *
 * Needs no second node. Prints TAP. Requires root, no other process that pins memory, and huge
 * pages for processes that ask for them.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "die.h"
#include "ends.h"
#include "numbers.h"

#define PAGE	4096L
#define HUGE	(512 * PAGE)
#define LENGTH	(3 * HUGE)
#define ACCESS	(SCIF_PROT_READ | SCIF_PROT_WRITE)

static struct pair pair;
static unsigned char *seen;

/* Gives each page a content of its own. */
static void fill(unsigned char *memory, long len, int seed)
{
	for (long at = 0; at < len; at += PAGE)
		memset(memory + at, (at / PAGE * 7 + seed) & 0xff, PAGE);
}

/* Maps memory in huge pages, if there are any. */
static unsigned char *make_memory(void)
{
	uintptr_t start = (uintptr_t)mmap(NULL, LENGTH + HUGE, PROT_READ | PROT_WRITE,
					  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *memory = (unsigned char *)((start + HUGE - 1) & ~(HUGE - 1));

	if (start == (uintptr_t)MAP_FAILED || madvise(memory, LENGTH, MADV_HUGEPAGE))
		die("mmap");
	fill(memory, LENGTH, 1);
	return memory;
}

static int copy(unsigned long call, void *memory, long len, __s64 offset)
{
	struct scifioctl_copy argument = {
		.addr = (uintptr_t)memory,
		.len = len,
		.roffset = offset,
		.flags = SCIF_RMA_USECPU | SCIF_RMA_SYNC,
	};

	return ioctl(pair.fd[1], call, &argument);
}

/* Registers memory, and lets the other end read it. */
static void check_window(unsigned char *memory, long len, const char *what)
{
	long before = pinned_pages();
	__s64 offset = scif_register(pair.fd[0], memory, len, 0, ACCESS, 0);

	test(offset >= 0, "%s is registered", what);
	test(own_pinned_pages() == len / PAGE, "%s: the window is charged", what);
	test(pinned_pages() == before + len / PAGE, "%s: each page is pinned", what);
	memset(seen, 0, len);
	test(!copy(SCIF_VREADFROM, seen, len, offset), "%s is read", what);
	test(!memcmp(seen, memory, len), "%s: the peer sees the bytes of the process", what);
	fill(seen, len, 5);
	test(!copy(SCIF_VWRITETO, seen, len, offset), "%s is written", what);
	test(!memcmp(seen, memory, len), "%s: the process sees the peer's bytes", what);
	test(!scif_unregister(pair.fd[0], offset, len), "%s is unregistered", what);
	test(comes_to(pinned_pages, before), "%s: nothing stays pinned", what);
	test(own_pinned_pages() == 0, "%s: nothing stays charged", what);
}

static void replace(unsigned char *page)
{
	void *other = mmap(page, PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (other == MAP_FAILED)
		die("mmap");
	memset(page, 0xcc, PAGE);
}

/* The memory of a forked child is its own. The other end writes only to the parent's memory. */
static void check_fork(void)
{
	unsigned char *memory = make_memory();
	int go[2], status = -1;
	pid_t child;
	char byte;

	if (pipe(go))
		die("pipe");
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		bool same = true;

		close(go[1]);
		if (read(go[0], &byte, 1))
			_exit(2);
		fill(seen, LENGTH, 1);
		same = !memcmp(seen, memory, LENGTH);
		_exit(same ? 0 : 1);
	}
	close(go[0]);
	check_window(memory, LENGTH, "memory that a child shares");
	close(go[1]);
	test(waitpid(child, &status, 0) == child && status == 0,
	     "the child does not see the peer's bytes");
}

int main(void)
{
	unsigned char *memory = make_memory();

	seen = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (seen == MAP_FAILED)
		die("mmap");
	pair = make_pair();
	test(number_of("/proc/self/smaps_rollup", "AnonHugePages") * 1024 >= LENGTH,
	     "the memory is in huge pages");
	check_window(memory, LENGTH, "memory in huge pages");
	check_window(memory + 5 * PAGE, LENGTH - 8 * PAGE, "a part of memory in huge pages");
	check_window(memory + HUGE, PAGE, "a page of memory in huge pages");
	/* The huge page stays, as the rest of it is mapped, its first and last pages among it. */
	replace(memory + HUGE + 100 * PAGE);
	check_window(memory, LENGTH, "memory of huge pages with another page inside");
	if (mremap(memory + HUGE + 200 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   memory + HUGE + 201 * PAGE) == MAP_FAILED)
		die("mremap");
	replace(memory + HUGE + 200 * PAGE);
	check_window(memory, LENGTH, "memory whose pages have moved");
	check_fork();
	drop_pair(&pair);
	return finish_tests();
}
