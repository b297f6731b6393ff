// SPDX-License-Identifier: GPL-2.0
/*
 * Windows of kernel memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/gfp.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define PLACED	(SCIF_MAP_KERNEL | SCIF_MAP_FIXED)

/* Where nothing is put that has no place of its own. */
#define PLACE	0x100000L

/* The server reads them, and writes them. */
static void check_kind(scif_epd_t epd, void *memory, size_t len, const char *kind)
{
	char name[96];
	off_t offset;
	u64 sum = 0;

	if (!test_ready(memory, "memory"))
		return;
	test_fill(memory, len, 7);
	offset = scif_register(epd, memory, len, 0, BOTH, SCIF_MAP_KERNEL);
	snprintf(name, sizeof(name), "register of memory of %s", kind);
	if (!test_at_least(0, offset, name))
		return;
	snprintf(name, sizeof(name), "memory of %s: the offset is one of a page", kind);
	test_returns(0, offset % PAGE_SIZE, name);
	snprintf(name, sizeof(name), "memory of %s is read by the other end", kind);
	test_returns(0, ask_sum(epd, &sum, ASK_VREADFROM, len, offset, 0), name);
	snprintf(name, sizeof(name), "memory of %s is what the other end reads", kind);
	test_that(sum == test_sum(memory, len), name);
	snprintf(name, sizeof(name), "memory of %s is written by the other end", kind);
	test_returns(0, ask(epd, ASK_VWRITETO, 0, len, offset, 0, 8), name);
	snprintf(name, sizeof(name), "memory of %s is what the other end writes", kind);
	test_that(test_filled(memory, len, 8), name);
	snprintf(name, sizeof(name), "memory of %s is unregistered", kind);
	test_returns(0, scif_unregister(epd, offset, len), name);
	snprintf(name, sizeof(name), "memory of %s is out of reach then", kind);
	test_returns(-ENXIO, ask(epd, ASK_VREADFROM, 0, len, offset, 0), name);
}

static void check_kinds(scif_epd_t epd)
{
	void *pages = (void *)__get_free_pages(GFP_KERNEL, 2);
	void *slab = kmalloc(2 * PAGE_SIZE, GFP_KERNEL);
	void *large = kmalloc(16 * PAGE_SIZE, GFP_KERNEL);
	void *mapped = vmalloc(5 * PAGE_SIZE);

	check_kind(epd, pages, 4 * PAGE_SIZE, "the page allocator");
	check_kind(epd, slab, 2 * PAGE_SIZE, "kmalloc");
	check_kind(epd, large, 16 * PAGE_SIZE, "kmalloc, large");
	check_kind(epd, mapped, 5 * PAGE_SIZE, "vmalloc");
	/* Not from its beginning. */
	if (mapped)
		check_kind(epd, mapped + PAGE_SIZE, 3 * PAGE_SIZE, "vmalloc, the middle");
	free_pages((unsigned long)pages, 2);
	kfree(slab);
	kfree(large);
	vfree(mapped);
}

static long place(scif_epd_t epd, void *memory, size_t pages, off_t at)
{
	return scif_register(epd, memory, pages * PAGE_SIZE, at, BOTH, PLACED);
}

static void check_arguments(scif_epd_t epd, void *memory)
{
	static const struct {
		const char *name;
		size_t shift, len;
		off_t offset;
		int prot, map;
	} wrong[] = {
		{ "an address within a page", 8, PAGE_SIZE, 0, BOTH, SCIF_MAP_KERNEL },
		{ "a length within a page", 0, PAGE_SIZE + 8, 0, BOTH, SCIF_MAP_KERNEL },
		{ "an offset within a page", 0, PAGE_SIZE, 8, BOTH, PLACED },
		{ "nothing", 0, 0, 0, BOTH, SCIF_MAP_KERNEL },
		{ "a negative place", 0, PAGE_SIZE, -PAGE_SIZE, BOTH, PLACED },
		{ "a negative hint", 0, PAGE_SIZE, -PAGE_SIZE, BOTH, SCIF_MAP_KERNEL },
		{ "no protection", 0, PAGE_SIZE, 0, 0, SCIF_MAP_KERNEL },
		{ "another protection", 0, PAGE_SIZE, 0, BOTH | 4, SCIF_MAP_KERNEL },
		{ "another flag", 0, PAGE_SIZE, 0, BOTH, SCIF_MAP_KERNEL | 0x40 },
	};
	char name[96];
	int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		snprintf(name, sizeof(name), "register of %s", wrong[i].name);
		test_returns(-EINVAL, scif_register(epd, memory + wrong[i].shift, wrong[i].len,
						    wrong[i].offset, wrong[i].prot, wrong[i].map),
			     name);
	}
	test_returns(-EINVAL, scif_register(epd, NULL, PAGE_SIZE, 0, BOTH, SCIF_MAP_KERNEL),
		     "register of NULL");
	test_returns(-EINVAL, scif_register(epd, (void *)0x10000, PAGE_SIZE, 0, BOTH,
					    SCIF_MAP_KERNEL),
		     "register of a process's address as one of the kernel");
	test_returns(-EINVAL, scif_register(epd, memory, PAGE_SIZE, 0, BOTH, 0),
		     "register of a kernel's address as one of a process");
}

static void check_places(scif_epd_t epd, void *memory)
{
	off_t hinted;

	test_returns(PLACE, place(epd, memory, 2, PLACE), "register at a place");
	test_returns(-EADDRINUSE, place(epd, memory, 2, PLACE),
		     "register at a place that is taken");
	test_returns(-EADDRINUSE, place(epd, memory, 1, PLACE + PAGE_SIZE),
		     "register at a place of which the end is taken");
	test_returns(-EADDRINUSE, place(epd, memory, 2, PLACE - PAGE_SIZE),
		     "register at a place of which the beginning is taken");
	hinted = scif_register(epd, memory, PAGE_SIZE, PLACE, BOTH, SCIF_MAP_KERNEL);
	test_that(hinted >= 0 && (hinted < PLACE || hinted >= PLACE + 2 * PAGE_SIZE),
		  "register near a place that is taken goes elsewhere");
	test_returns(0, scif_unregister(epd, hinted, PAGE_SIZE),
		     "unregister of what went elsewhere");

	test_returns(-EINVAL, scif_unregister(epd, PLACE, PAGE_SIZE),
		     "unregister that would cut the end of a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE + PAGE_SIZE, PAGE_SIZE),
		     "unregister that would cut the beginning of a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE, 0), "unregister of nothing");
	test_returns(-EINVAL, scif_unregister(epd, -PAGE_SIZE, PAGE_SIZE),
		     "unregister of a negative place");
	test_returns(-ENXIO, scif_unregister(epd, PLACE + 4 * PAGE_SIZE, PAGE_SIZE),
		     "unregister of where there is no window");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 2 * PAGE_SIZE, PLACE, 0),
		     "unregister that fails has changed nothing");
	test_returns(PLACE + 2 * PAGE_SIZE, place(epd, memory, 1, PLACE + 2 * PAGE_SIZE),
		     "register next to a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE + PAGE_SIZE, 2 * PAGE_SIZE),
		     "unregister that would cut one of two windows");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 3 * PAGE_SIZE, PLACE, 0),
		     "it has left both of them");
	test_returns(0, scif_unregister(epd, PLACE - PAGE_SIZE, 5 * PAGE_SIZE),
		     "unregister of all windows in a larger range");
	test_returns(-ENXIO, scif_unregister(epd, PLACE - PAGE_SIZE, 5 * PAGE_SIZE),
		     "unregister of them once more");
}

static void check_protection(scif_epd_t epd, void *memory)
{
	off_t readable, writable, theirs;
	char *byte = memory;

	readable = scif_register(epd, memory, PAGE_SIZE, 0, SCIF_PROT_READ, SCIF_MAP_KERNEL);
	writable = scif_register(epd, memory, PAGE_SIZE, 0, SCIF_PROT_WRITE, SCIF_MAP_KERNEL);
	theirs = ask(epd, ASK_REGISTER, 0, PAGE_SIZE, 0, BOTH, 9);
	test_that(readable >= 0 && writable >= 0 && readable != writable && theirs >= 0,
		  "the same memory in two windows");
	*byte = 0;
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 100, readable, 0), "the other end reads");
	test_returns(-EACCES, ask(epd, ASK_VWRITETO, 0, 100, readable, 0, 1),
		     "the other end writes where it may read only");
	test_returns(0, *byte, "and has not written");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, 100, writable, 0, 1), "the other end writes");
	test_returns(-EACCES, ask(epd, ASK_VREADFROM, 0, 100, writable, 0),
		     "the other end reads where it may write only");
	test_returns(-EACCES, scif_readfrom(epd, readable, 100, theirs, 0),
		     "readfrom to a window of this end that can't be written");
	test_returns(-EACCES, scif_writeto(epd, writable, 100, theirs, 0),
		     "writeto from a window of this end that can't be read");
	test_returns(0, scif_readfrom(epd, writable, 100, theirs, SCIF_RMA_SYNC),
		     "readfrom to a window of this end that can be written");
	test_returns(0, scif_writeto(epd, readable, 100, theirs, SCIF_RMA_SYNC),
		     "writeto from a window of this end that can be read");
}

/* "When it has returned", close says, the memory is whose it was. */
static void check_close(void *memory)
{
	scif_epd_t epd = test_reach_server();

	if (!epd)
		return;
	test_returns(PLACE, place(epd, memory, 2, PLACE), "register before close");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, PAGE_SIZE, PLACE, 0), "its use before close");
	test_returns(0, scif_close(epd), "close with a window");
}

void test_windows(void)
{
	scif_epd_t epd = test_reach_server();
	void *memory = vzalloc(4 * PAGE_SIZE);

	if (epd && test_ready(memory, "memory")) {
		check_kinds(epd);
		check_arguments(epd, memory);
		check_places(epd, memory);
		check_protection(epd, memory);
		check_close(memory);
	}
	if (epd)
		scif_close(epd);
	vfree(memory);
}
