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

/* An offset below those that the driver chooses. */
#define PLACE	0x100000L

/* Lets the server read and write a window of this kind of memory. */
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
	snprintf(name, sizeof(name), "the peer reads memory of %s", kind);
	test_returns(0, ask_sum(epd, &sum, ASK_VREADFROM, len, offset, 0), name);
	snprintf(name, sizeof(name), "the peer reads the right bytes of memory of %s", kind);
	test_that(sum == test_sum(memory, len), name);
	snprintf(name, sizeof(name), "the peer writes memory of %s", kind);
	test_returns(0, ask(epd, ASK_VWRITETO, 0, len, offset, 0, 8), name);
	snprintf(name, sizeof(name), "memory of %s has the bytes that the peer wrote", kind);
	test_that(test_filled(memory, len, 8), name);
	snprintf(name, sizeof(name), "memory of %s is unregistered", kind);
	test_returns(0, scif_unregister(epd, offset, len), name);
	snprintf(name, sizeof(name), "memory of %s is out of reach after unregister", kind);
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
	/* The window does not begin at the start of the mapping. */
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
		     "register of a kernel address without SCIF_MAP_KERNEL");
}

static void check_places(scif_epd_t epd, void *memory)
{
	off_t hinted;

	test_returns(PLACE, place(epd, memory, 2, PLACE), "register at an offset");
	test_returns(-EADDRINUSE, place(epd, memory, 2, PLACE),
		     "register at a taken offset");
	test_returns(-EADDRINUSE, place(epd, memory, 1, PLACE + PAGE_SIZE),
		     "register at an offset whose end is taken");
	test_returns(-EADDRINUSE, place(epd, memory, 2, PLACE - PAGE_SIZE),
		     "register at an offset whose beginning is taken");
	hinted = scif_register(epd, memory, PAGE_SIZE, PLACE, BOTH, SCIF_MAP_KERNEL);
	test_that(hinted >= 0 && (hinted < PLACE || hinted >= PLACE + 2 * PAGE_SIZE),
		  "register with a taken hint gets another offset");
	test_returns(0, scif_unregister(epd, hinted, PAGE_SIZE),
		     "unregister of the window with another offset");

	test_returns(-EINVAL, scif_unregister(epd, PLACE, PAGE_SIZE),
		     "unregister that would cut the end of a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE + PAGE_SIZE, PAGE_SIZE),
		     "unregister that would cut the beginning of a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE, 0), "unregister of nothing");
	test_returns(-EINVAL, scif_unregister(epd, -PAGE_SIZE, PAGE_SIZE),
		     "unregister of a negative offset");
	test_returns(-ENXIO, scif_unregister(epd, PLACE + 4 * PAGE_SIZE, PAGE_SIZE),
		     "unregister outside of all windows");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 2 * PAGE_SIZE, PLACE, 0),
		     "a failed unregister leaves the window");
	test_returns(PLACE + 2 * PAGE_SIZE, place(epd, memory, 1, PLACE + 2 * PAGE_SIZE),
		     "register next to a window");
	test_returns(-EINVAL, scif_unregister(epd, PLACE + PAGE_SIZE, 2 * PAGE_SIZE),
		     "unregister that would cut one of two windows");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 3 * PAGE_SIZE, PLACE, 0),
		     "a failed unregister leaves both windows");
	test_returns(0, scif_unregister(epd, PLACE - PAGE_SIZE, 5 * PAGE_SIZE),
		     "unregister of all windows in a larger range");
	test_returns(-ENXIO, scif_unregister(epd, PLACE - PAGE_SIZE, 5 * PAGE_SIZE),
		     "a second unregister of all windows");
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
	test_returns(0, ask(epd, ASK_VREADFROM, 0, 100, readable, 0),
		     "the peer reads a readable window");
	test_returns(-EACCES, ask(epd, ASK_VWRITETO, 0, 100, readable, 0, 1),
		     "the peer writes a read-only window");
	test_returns(0, *byte, "a failed write of the peer changes no byte");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, 100, writable, 0, 1),
		     "the peer writes a writable window");
	test_returns(-EACCES, ask(epd, ASK_VREADFROM, 0, 100, writable, 0),
		     "the peer reads a write-only window");
	test_returns(-EACCES, scif_readfrom(epd, readable, 100, theirs, 0),
		     "readfrom to an own read-only window");
	test_returns(-EACCES, scif_writeto(epd, writable, 100, theirs, 0),
		     "writeto from an own write-only window");
	test_returns(0, scif_readfrom(epd, writable, 100, theirs, SCIF_RMA_SYNC),
		     "readfrom to an own writable window");
	test_returns(0, scif_writeto(epd, readable, 100, theirs, SCIF_RMA_SYNC),
		     "writeto from an own readable window");
}

/* When close has returned, the memory belongs to its owner alone, as the documentation promises. */
static void check_close(void *memory)
{
	scif_epd_t epd = test_reach_server();

	if (!epd)
		return;
	test_returns(PLACE, place(epd, memory, 2, PLACE), "register before close");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, PAGE_SIZE, PLACE, 0),
		     "use of a window before close");
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
