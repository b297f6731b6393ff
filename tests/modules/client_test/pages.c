// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is pinned by itself, and pages of the other end.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)

#define PAGES	4
#define SIZE	(PAGES * PAGE_SIZE)

/* Of the other end. */
#define THEIRS		0x1000000L
#define READABLE	0x2000000L
#define NOWHERE		0x3000000L

/* --- Pinned pages --- */

static void check_pin_errors(void *memory)
{
	scif_pinned_pages_t pinned = NULL;

	test_returns(-EINVAL, scif_pin_pages(memory + 8, SIZE, BOTH, SCIF_MAP_KERNEL, &pinned),
		     "pin of an address within a page");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE - 8, BOTH, SCIF_MAP_KERNEL, &pinned),
		     "pin of a length within a page");
	test_returns(-EINVAL, scif_pin_pages(memory, 0, BOTH, SCIF_MAP_KERNEL, &pinned),
		     "pin of nothing");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, 0, SCIF_MAP_KERNEL, &pinned),
		     "pin for no access");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH | 4, SCIF_MAP_KERNEL, &pinned),
		     "pin for another access");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL | SCIF_MAP_FIXED,
					     &pinned), "pin at a place");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL | 0x40, &pinned),
		     "pin with another flag");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL, NULL),
		     "pin without a place for the handle");
	test_that(!pinned, "pin that fails stores no handle");
	test_returns(-EINVAL, scif_unpin_pages(NULL), "unpin of NULL");
}

static void check_pin(scif_epd_t epd, void *memory)
{
	scif_pinned_pages_t pinned = NULL, readable = NULL;
	off_t first, second;
	u64 sum = 0;

	test_fill(memory, SIZE, 1);
	test_returns(0, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL, &pinned), "pin");
	if (!test_that(pinned, "pin stores a handle"))
		return;
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 0, 0x40),
		     "register of pinned pages with another flag");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 0, SCIF_MAP_KERNEL),
		     "register of pinned pages with SCIF_MAP_KERNEL");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 8, SCIF_MAP_FIXED),
		     "register of pinned pages at an offset within a page");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, -PAGE_SIZE, 0),
		     "register of pinned pages at a negative offset");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, NULL, 0, 0),
		     "register of pinned pages that are NULL");
	first = scif_register_pinned_pages(epd, pinned, 0, 0);
	test_at_least(0, first, "register of pinned pages");
	second = scif_register_pinned_pages(epd, pinned, NOWHERE, SCIF_MAP_FIXED);
	test_returns(NOWHERE, second, "register of pinned pages at a place");
	test_returns(-EADDRINUSE, scif_register_pinned_pages(epd, pinned, NOWHERE, SCIF_MAP_FIXED),
		     "register of pinned pages at a place that is taken");
	test_returns(0, ask_sum(epd, &sum, ASK_VREADFROM, SIZE, first, 0),
		     "pinned pages are read by the other end");
	test_that(sum == test_sum(memory, SIZE), "pinned pages are what the other end reads");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, second, 0, 2),
		     "pinned pages are written by the other end");
	test_that(test_filled(memory, SIZE, 2), "pinned pages are what the other end writes");

	test_returns(0, scif_unpin_pages(pinned), "unpin while there are windows");
	test_returns(-EINVAL, scif_unpin_pages(pinned), "unpin of what is unpinned");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 0, 0),
		     "register of what is unpinned");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, first, 0, 3), "a window outlives unpin");
	test_that(test_filled(memory, SIZE, 3), "and is the same memory");
	test_returns(0, scif_unregister(epd, first, SIZE),
		     "unregister of a window of pinned pages");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, second, 0, 4),
		     "the other window of them stays");
	test_returns(0, scif_unregister(epd, second, SIZE), "unregister of the last one");

	test_returns(0, scif_pin_pages(memory, SIZE, SCIF_PROT_READ, SCIF_MAP_KERNEL, &readable),
		     "pin for reading");
	first = scif_register_pinned_pages(epd, readable, 0, 0);
	test_returns(-EACCES, ask(epd, ASK_VWRITETO, 0, SIZE, first, 0, 5),
		     "a window has the protection of its pinned pages");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, SIZE, first, 0), "which is to be read");
	test_returns(0, scif_unpin_pages(readable), "unpin of pages for reading");
}

/* --- Pages of the other end --- */

static void check_get_errors(scif_epd_t epd)
{
	struct scif_range *range = NULL;

	test_returns(-EINVAL, scif_get_pages(epd, THEIRS + 8, PAGE_SIZE, &range),
		     "get_pages of an offset within a page");
	test_returns(-EINVAL, scif_get_pages(epd, THEIRS, PAGE_SIZE - 8, &range),
		     "get_pages of a length within a page");
	test_returns(-EINVAL, scif_get_pages(epd, THEIRS, 0, &range), "get_pages of nothing");
	test_returns(-EINVAL, scif_get_pages(epd, -PAGE_SIZE, PAGE_SIZE, &range),
		     "get_pages of a negative offset");
	test_returns(-EINVAL, scif_get_pages(epd, THEIRS, PAGE_SIZE, NULL),
		     "get_pages without a place for them");
	test_returns(-ENXIO, scif_get_pages(epd, NOWHERE, PAGE_SIZE, &range),
		     "get_pages of where there is no window");
	test_returns(-ENXIO, scif_get_pages(epd, THEIRS, 2 * SIZE, &range),
		     "get_pages of two windows");
	test_returns(-ENXIO, scif_get_pages(epd, THEIRS + SIZE, SIZE + PAGE_SIZE, &range),
		     "get_pages of more than there is");
	test_that(!range, "get_pages that fails stores nothing");
	test_returns(-EINVAL, scif_put_pages(NULL), "put_pages of NULL");
	test_returns(-EINVAL, scif_put_pages((struct scif_range *)&test_self),
		     "put_pages of what is not of get_pages");
}

/* All that is said of a window's pages; @bytes is what the window has in them. */
static void check_range(const struct scif_range *range, int count, int prot, const u8 *bytes)
{
	bool aligned = true, same = true, equal = true;
	static u8 page[PAGE_SIZE];
	int i;

	if (!test_returns(count, range->nr_pages, "get_pages says how many there are"))
		return;
	test_returns(prot, range->prot_flags, "get_pages says what is allowed");
	for (i = 0; i < count; i++) {
		aligned &= range->phys_addr[i] && !(range->phys_addr[i] % PAGE_SIZE);
		same &= !((unsigned long)range->va[i] % PAGE_SIZE) && range->va[i];
		if (!range->va[i])
			continue;
		memcpy_fromio(page, range->va[i], PAGE_SIZE);
		equal &= !memcmp(page, bytes + i * PAGE_SIZE, PAGE_SIZE);
	}
	test_that(aligned, "get_pages says addresses of pages");
	test_that(same, "get_pages says where the kernel has pages");
	test_that(equal, "there is what the window has");
}

static void check_get(scif_epd_t epd, u8 *bytes)
{
	struct scif_range *range = NULL, *again = NULL, *readable = NULL;
	long err;
	u64 sum = 0;

	test_fill(bytes, SIZE, 10);
	err = scif_get_pages(epd, THEIRS + PAGE_SIZE, 2 * PAGE_SIZE, &range);
	if (err == -EOPNOTSUPP && test_node != test_self) {
		pr_info("get_pages is not for this bridge\n");
		return;
	}
	if (!test_returns(0, err, "get_pages"))
		return;
	check_range(range, 2, BOTH, bytes + PAGE_SIZE);
	memset_io(range->va[1], 0x5a, PAGE_SIZE);
	/* What was written has to be there before the question. */
	readb(range->va[1]);
	memset(bytes + 2 * PAGE_SIZE, 0x5a, PAGE_SIZE);
	ask_sum(epd, &sum, ASK_SUM, THEIRS, SIZE);
	test_that(sum == test_sum(bytes, SIZE), "what is written there is in the window");

	test_returns(0, scif_get_pages(epd, THEIRS, SIZE, &again), "get_pages of a whole window");
	if (again) {
		check_range(again, PAGES, BOTH, bytes);
		test_that(again->phys_addr[1] == range->phys_addr[0] &&
			  again->phys_addr[2] == range->phys_addr[1],
			  "get_pages says the same of the same pages");
	}
	test_returns(0, scif_get_pages(epd, READABLE, PAGE_SIZE, &readable),
		     "get_pages of what can't be written");
	if (readable) {
		test_returns(SCIF_PROT_READ, readable->prot_flags, "get_pages says that it can't");
		test_returns(0, scif_put_pages(readable), "put_pages of what can't be written");
	}

	test_returns(0, ask(epd, ASK_UNREGISTER, 0, THEIRS, SIZE),
		     "the other end unregisters what was got");
	test_returns(-ENXIO, scif_vreadfrom(epd, bytes, 8, THEIRS, 0), "it can't be used anew");
	check_range(range, 2, BOTH, bytes + PAGE_SIZE);
	test_returns(0, scif_put_pages(range), "put_pages");
	if (again) {
		check_range(again, PAGES, BOTH, bytes);
		test_returns(0, scif_put_pages(again), "put_pages of the last ones");
		test_returns(-EINVAL, scif_put_pages(again), "put_pages of what was put");
	}
}

static long close_work(void *data)
{
	return scif_close(data);
}

/* The addresses are good until they are put, even if the other end does not wait for that. */
static void check_get_and_close(u8 *memory)
{
	struct scif_range *range = NULL;
	struct test_pair pair;
	struct worker worker;
	off_t offset;

	if (!test_open_pair(&pair))
		return;
	test_fill(memory, SIZE, 20);
	offset = scif_register(pair.b, memory, SIZE, 0, BOTH, SCIF_MAP_KERNEL);
	test_at_least(0, offset, "register of what is got");
	test_returns(0, scif_get_pages(pair.a, offset, SIZE, &range), "get_pages over loopback");
	if (range && test_ready(worker_start(&worker, close_work, pair.b), "a thread")) {
		pair.b = NULL;
		test_returns(0, worker_end(&worker), "close of the end of which pages were got");
		check_range(range, PAGES, BOTH, memory);
	}
	if (range)
		test_returns(0, scif_put_pages(range), "put_pages after the other end was closed");
	test_close_pair(&pair);
}

void test_pages(void)
{
	scif_epd_t epd = test_reach_server();
	void *memory = vzalloc(SIZE);

	if (!epd || !test_ready(memory, "memory"))
		goto free;
	check_pin_errors(memory);
	check_pin(epd, memory);
	check_get_and_close(memory);
	if (test_ready(ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, THEIRS, BOTH, 10) == THEIRS &&
		       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, THEIRS + SIZE, BOTH, 11) ==
			       THEIRS + SIZE &&
		       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, PAGE_SIZE, READABLE, SCIF_PROT_READ,
			   12) == READABLE, "windows")) {
		check_get_errors(epd);
		check_get(epd, memory);
	}
free:
	if (epd)
		scif_close(epd);
	vfree(memory);
}
