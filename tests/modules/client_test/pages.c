// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that is pinned separately, and pages of the other end.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/io.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)

#define PAGES	4
#define SIZE	(PAGES * PAGE_SIZE)

/* Offsets of windows of the other end. */
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
		     "pin with unknown protection bits");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL | SCIF_MAP_FIXED,
					     &pinned), "pin with SCIF_MAP_FIXED");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL | 0x40, &pinned),
		     "pin with an unknown flag");
	test_returns(-EINVAL, scif_pin_pages(memory, SIZE, BOTH, SCIF_MAP_KERNEL, NULL),
		     "pin with NULL for the handle");
	test_that(!pinned, "a failed pin stores no handle");
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
		     "register of pinned pages with an unknown flag");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 0, SCIF_MAP_KERNEL),
		     "register of pinned pages with SCIF_MAP_KERNEL");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 8, SCIF_MAP_FIXED),
		     "register of pinned pages at an offset within a page");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, -PAGE_SIZE, 0),
		     "register of pinned pages at a negative offset");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, NULL, 0, 0),
		     "register of pinned pages with NULL");
	first = scif_register_pinned_pages(epd, pinned, 0, 0);
	test_at_least(0, first, "register of pinned pages");
	second = scif_register_pinned_pages(epd, pinned, NOWHERE, SCIF_MAP_FIXED);
	test_returns(NOWHERE, second, "register of pinned pages at an offset");
	test_returns(-EADDRINUSE, scif_register_pinned_pages(epd, pinned, NOWHERE, SCIF_MAP_FIXED),
		     "register of pinned pages at a taken offset");
	test_returns(0, ask_sum(epd, &sum, ASK_VREADFROM, SIZE, first, 0),
		     "the peer reads pinned pages");
	test_that(sum == test_sum(memory, SIZE), "the peer reads the right bytes of pinned pages");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, second, 0, 2),
		     "the peer writes pinned pages");
	test_that(test_filled(memory, SIZE, 2), "pinned pages have the bytes that the peer wrote");

	test_returns(0, scif_unpin_pages(pinned), "unpin while there are windows");
	test_returns(-EINVAL, scif_unpin_pages(pinned), "a second unpin");
	test_returns(-EINVAL, scif_register_pinned_pages(epd, pinned, 0, 0),
		     "register of unpinned pages");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, first, 0, 3), "a window outlives unpin");
	test_that(test_filled(memory, SIZE, 3),
		  "a window that outlives unpin shows the same memory");
	test_returns(0, scif_unregister(epd, first, SIZE),
		     "unregister of a window of pinned pages");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, second, 0, 4),
		     "the other window of pinned pages stays");
	test_returns(0, scif_unregister(epd, second, SIZE), "unregister of the last window");

	test_returns(0, scif_pin_pages(memory, SIZE, SCIF_PROT_READ, SCIF_MAP_KERNEL, &readable),
		     "pin for reading");
	first = scif_register_pinned_pages(epd, readable, 0, 0);
	test_returns(-EACCES, ask(epd, ASK_VWRITETO, 0, SIZE, first, 0, 5),
		     "a window has the protection of its pinned pages");
	test_returns(0, ask(epd, ASK_VREADFROM, 0, SIZE, first, 0),
		     "a window for reading can be read");
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
		     "get_pages with NULL for the range");
	test_returns(-ENXIO, scif_get_pages(epd, NOWHERE, PAGE_SIZE, &range),
		     "get_pages outside of all windows");
	test_returns(-ENXIO, scif_get_pages(epd, THEIRS, 2 * SIZE, &range),
		     "get_pages of two windows");
	test_returns(-ENXIO, scif_get_pages(epd, THEIRS + SIZE, SIZE + PAGE_SIZE, &range),
		     "get_pages beyond the end of a window");
	test_that(!range, "a failed get_pages stores no range");
	test_returns(-EINVAL, scif_put_pages(NULL), "put_pages of NULL");
	test_returns(-EINVAL, scif_put_pages((struct scif_range *)&test_self),
		     "put_pages of an unknown range");
}

/* Checks all fields of a range. @bytes is the content of the window. */
static void check_range(const struct scif_range *range, int count, int prot, const u8 *bytes)
{
	bool aligned = true, same = true, equal = true;
	static u8 page[PAGE_SIZE];
	int i;

	if (!test_returns(count, range->nr_pages, "get_pages returns the number of pages"))
		return;
	test_returns(prot, range->prot_flags, "get_pages returns the protection");
	for (i = 0; i < count; i++) {
		aligned &= range->phys_addr[i] && !(range->phys_addr[i] % PAGE_SIZE);
		same &= !((unsigned long)range->va[i] % PAGE_SIZE) && range->va[i];
		if (!range->va[i])
			continue;
		memcpy_fromio(page, range->va[i], PAGE_SIZE);
		equal &= !memcmp(page, bytes + i * PAGE_SIZE, PAGE_SIZE);
	}
	test_that(aligned, "get_pages returns aligned addresses");
	test_that(same, "get_pages returns aligned virtual addresses");
	test_that(equal, "the pages have the bytes of the window");
}

static void check_get(scif_epd_t epd, u8 *bytes)
{
	struct scif_range *range = NULL, *again = NULL, *readable = NULL;
	long err;
	u64 sum = 0;

	test_fill(bytes, SIZE, 10);
	err = scif_get_pages(epd, THEIRS + PAGE_SIZE, 2 * PAGE_SIZE, &range);
	if (err == -EOPNOTSUPP && test_node != test_self) {
		pr_info("scif_get_pages() does not work over this bridge: skipping its checks\n");
		return;
	}
	if (!test_returns(0, err, "get_pages"))
		return;
	check_range(range, 2, BOTH, bytes + PAGE_SIZE);
	memset_io(range->va[1], 0x5a, PAGE_SIZE);
	/* The load makes sure that the store has arrived before the request. */
	readb(range->va[1]);
	memset(bytes + 2 * PAGE_SIZE, 0x5a, PAGE_SIZE);
	ask_sum(epd, &sum, ASK_SUM, THEIRS, SIZE);
	test_that(sum == test_sum(bytes, SIZE), "bytes written to the pages are in the window");

	test_returns(0, scif_get_pages(epd, THEIRS, SIZE, &again), "get_pages of a whole window");
	if (again) {
		check_range(again, PAGES, BOTH, bytes);
		test_that(again->phys_addr[1] == range->phys_addr[0] &&
			  again->phys_addr[2] == range->phys_addr[1],
			  "get_pages says the same of the same pages");
	}
	test_returns(0, scif_get_pages(epd, READABLE, PAGE_SIZE, &readable),
		     "get_pages of a read-only window");
	if (readable) {
		test_returns(SCIF_PROT_READ, readable->prot_flags,
			     "get_pages returns a read-only protection");
		test_returns(0, scif_put_pages(readable), "put_pages of a read-only range");
	}

	test_returns(0, ask(epd, ASK_UNREGISTER, 0, THEIRS, SIZE),
		     "the peer unregisters a window with a range");
	test_returns(-ENXIO, scif_vreadfrom(epd, bytes, 8, THEIRS, 0),
		     "an unregistered window with a range takes no new transfer");
	check_range(range, 2, BOTH, bytes + PAGE_SIZE);
	test_returns(0, scif_put_pages(range), "put_pages");
	if (again) {
		check_range(again, PAGES, BOTH, bytes);
		test_returns(0, scif_put_pages(again), "put_pages of the last range");
		test_returns(-EINVAL, scif_put_pages(again), "a second put_pages");
	}
}

static long close_work(void *data)
{
	return scif_close(data);
}

/* The addresses are valid until they are put, even if the other end does not wait for that. */
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
		test_returns(0, worker_end(&worker),
			     "close of the endpoint whose pages a range has");
		check_range(range, PAGES, BOTH, memory);
	}
	if (range)
		test_returns(0, scif_put_pages(range), "put_pages after the peer has closed");
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
