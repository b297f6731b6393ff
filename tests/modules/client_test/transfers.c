// SPDX-License-Identifier: GPL-2.0
/*
 * Transfers between kernel memory, windows of this end, and those of the other.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define PLACED	(SCIF_MAP_KERNEL | SCIF_MAP_FIXED)

#define SIZE	(256L << 10)

/* Offsets of windows of the other end: two adjacent ones, and two with fewer rights. */
#define THEIRS		0x1000000L
#define READABLE	0x3000000L
#define WRITABLE	0x4000000L
#define NOWHERE		0x5000000L

/* Offset of this end's window. */
#define OURS		0x6000000L

/* Content of bytes that a transfer must not change. */
#define GUARD		0xa5

static const struct {
	const char *name;
	int flags;
} kinds[] = {
	{ "no flags", 0 },
	{ "USECPU", SCIF_RMA_USECPU },
	{ "SYNC", SCIF_RMA_SYNC },
	{ "USECPU and SYNC", SCIF_RMA_USECPU | SCIF_RMA_SYNC },
	{ "ORDERED", SCIF_RMA_ORDERED },
	{ "ORDERED and SYNC", SCIF_RMA_ORDERED | SCIF_RMA_SYNC },
	{ "USECPU, ORDERED and SYNC", SCIF_RMA_USECPU | SCIF_RMA_ORDERED | SCIF_RMA_SYNC },
	{ "USECACHE and SYNC", SCIF_RMA_USECACHE | SCIF_RMA_SYNC },
	{ "USECACHE", SCIF_RMA_USECACHE },
};

/* Waits for a transfer, and returns its result. */
static long ended(scif_epd_t epd, int flags, long err)
{
	int mark;

	if (err || flags & SCIF_RMA_SYNC)
		return err;
	err = scif_fence_mark(epd, SCIF_FENCE_INIT_SELF, &mark);
	return err ? err : scif_fence_wait(epd, mark);
}

static bool is_guard(const u8 *bytes, size_t len)
{
	return !memchr_inv(bytes, GUARD, len);
}

/* Checks copies of @len bytes at offset @at of memory: these bytes change, and no others. */
static void check_memory(scif_epd_t epd, u8 *memory, size_t at, size_t len, off_t remote,
			 const char *where, int kind)
{
	int flags = kinds[kind].flags;
	char name[128];
	u64 sum = 0;

	test_fill(memory + at, len, kind + 20);
	snprintf(name, sizeof(name), "vwriteto from %s, %s", where, kinds[kind].name);
	test_returns(0, ended(epd, flags, scif_vwriteto(epd, memory + at, len, remote, flags)),
		     name);
	ask_sum(epd, &sum, ASK_SUM, remote, len);
	snprintf(name, sizeof(name), "vwriteto from %s, %s: the bytes arrive", where,
		 kinds[kind].name);
	test_that(sum == test_sum(memory + at, len), name);

	ask(epd, ASK_FILL, 0, remote, len, kind + 40);
	memset(memory, GUARD, at + len + 64);
	snprintf(name, sizeof(name), "vreadfrom to %s, %s", where, kinds[kind].name);
	test_returns(0, ended(epd, flags, scif_vreadfrom(epd, memory + at, len, remote, flags)),
		     name);
	snprintf(name, sizeof(name), "vreadfrom to %s, %s: the bytes arrive", where,
		 kinds[kind].name);
	test_that(test_filled(memory + at, len, kind + 40) && is_guard(memory, at) &&
		  is_guard(memory + at + len, 64), name);
}

static void check_windows(scif_epd_t epd, u8 *ours, int kind)
{
	int flags = kinds[kind].flags;
	size_t at = 4099, len = 70001;
	off_t remote = THEIRS + 777;
	char name[128];
	u64 sum = 0;

	test_fill(ours + at, len, kind + 60);
	snprintf(name, sizeof(name), "writeto, %s", kinds[kind].name);
	test_returns(0, ended(epd, flags, scif_writeto(epd, OURS + at, len, remote, flags)), name);
	ask_sum(epd, &sum, ASK_SUM, remote, len);
	snprintf(name, sizeof(name), "writeto, %s: the bytes arrive", kinds[kind].name);
	test_that(sum == test_sum(ours + at, len), name);

	ask(epd, ASK_FILL, 0, remote, len, kind + 80);
	memset(ours, GUARD, SIZE);
	snprintf(name, sizeof(name), "readfrom, %s", kinds[kind].name);
	test_returns(0, ended(epd, flags, scif_readfrom(epd, OURS + at, len, remote, flags)), name);
	snprintf(name, sizeof(name), "readfrom, %s: the bytes arrive", kinds[kind].name);
	test_that(test_filled(ours + at, len, kind + 80) && is_guard(ours, at) &&
		  is_guard(ours + at + len, SIZE - at - len), name);
}

/* Copies all sizes from @len on below @end, with changing flags and offsets. */
static void check_sizes(scif_epd_t epd, size_t len, size_t end, u8 *from, u8 *to)
{
	size_t at, first = len, wrong = 0;
	char name[128];
	long err = 0;
	int flags;
	off_t remote;

	for (; len < end && !err; len++) {
		flags = kinds[len % ARRAY_SIZE(kinds)].flags;
		remote = THEIRS + len * 3 % 1000;
		at = len % 61;
		test_fill(from + at, len, len);
		memset(to, GUARD, at + len + 64);
		err = ended(epd, flags, scif_vwriteto(epd, from + at, len, remote, flags));
		if (!err)
			err = ended(epd, flags, scif_vreadfrom(epd, to + at, len, remote, flags));
		if (!err && (memcmp(from + at, to + at, len) || !is_guard(to, at) ||
			     !is_guard(to + at + len, 64)) && !wrong)
			wrong = len;
		if (fatal_signal_pending(current))
			break;
	}
	snprintf(name, sizeof(name), "transfers of all sizes from %zu to %zu", first, end - 1);
	test_returns(0, err, name);
	snprintf(name, sizeof(name), "the bytes of all sizes from %zu to %zu (0: none is wrong)",
		 first, end - 1);
	test_returns(0, wrong, name);
}

static void check_errors(scif_epd_t epd, u8 *memory)
{
	static const int wrong[] = { 0x10, 0x80, INT_MIN, -1 };
	bool ok = true;
	int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		ok &= scif_readfrom(epd, OURS, 8, THEIRS, wrong[i]) == -EINVAL &&
		      scif_writeto(epd, OURS, 8, THEIRS, wrong[i]) == -EINVAL &&
		      scif_vreadfrom(epd, memory, 8, THEIRS, wrong[i]) == -EINVAL &&
		      scif_vwriteto(epd, memory, 8, THEIRS, wrong[i]) == -EINVAL;
	test_that(ok, "transfers with invalid flags are EINVAL");
	test_returns(-EINVAL, scif_readfrom(epd, OURS, 0, THEIRS, 0), "readfrom of nothing");
	test_returns(-EINVAL, scif_writeto(epd, OURS, 0, THEIRS, 0), "writeto of nothing");
	test_returns(-EINVAL, scif_vreadfrom(epd, memory, 0, THEIRS, 0), "vreadfrom of nothing");
	test_returns(-EINVAL, scif_vwriteto(epd, memory, 0, THEIRS, 0), "vwriteto of nothing");

	test_returns(-ENXIO, scif_vreadfrom(epd, memory, 8, NOWHERE, 0),
		     "vreadfrom outside of all windows");
	test_returns(-ENXIO, scif_vwriteto(epd, memory, 8, -8, 0), "vwriteto to a negative offset");
	test_returns(-ENXIO, scif_vreadfrom(epd, memory, 9, THEIRS + 2 * SIZE - 8, 0),
		     "vreadfrom of a byte beyond a window");
	test_returns(-ENXIO, scif_vreadfrom(epd, memory, 9, THEIRS - 8, 0),
		     "vreadfrom of bytes before a window");
	test_returns(-ENXIO, scif_vwriteto(epd, memory, 8, LONG_MAX - 3, 0),
		     "vwriteto to the largest offsets");
	test_returns(-ENXIO, scif_readfrom(epd, NOWHERE, 8, THEIRS, 0),
		     "readfrom to an offset outside of the own windows");
	test_returns(-ENXIO, scif_writeto(epd, OURS + SIZE - 8, 9, THEIRS, 0),
		     "writeto of a byte beyond an own window");
	test_returns(-ENXIO, scif_writeto(epd, -1, 8, THEIRS, 0),
		     "writeto from a negative own offset");

	test_returns(-EACCES, scif_vwriteto(epd, memory, 8, READABLE, 0),
		     "vwriteto to a window that can't be written");
	test_returns(-EACCES, scif_vreadfrom(epd, memory, 8, WRITABLE, 0),
		     "vreadfrom of a window that can't be read");
	test_returns(-EACCES, scif_writeto(epd, OURS, 8, READABLE, 0),
		     "writeto to a window that can't be written");
	test_returns(-EACCES, scif_readfrom(epd, OURS, 8, WRITABLE, 0),
		     "readfrom of a window that can't be read");
	test_returns(0, scif_vreadfrom(epd, memory, 8, READABLE, SCIF_RMA_SYNC),
		     "vreadfrom of a window that can be read");
	test_returns(0, scif_vwriteto(epd, memory, 8, WRITABLE, SCIF_RMA_SYNC),
		     "vwriteto to a window that can be written");
}

/* Copies across the border of two windows, and up to the last byte. */
static void check_span(scif_epd_t epd, u8 *memory)
{
	u64 sum = 0;

	test_fill(memory, 10000, 100);
	test_returns(0, scif_vwriteto(epd, memory, 10000, THEIRS + SIZE - 5001, SCIF_RMA_SYNC),
		     "vwriteto over the border of two windows");
	memset(memory, 0, 10000);
	test_returns(0, scif_vreadfrom(epd, memory, 10000, THEIRS + SIZE - 5001, SCIF_RMA_SYNC),
		     "vreadfrom over the border of two windows");
	test_that(test_filled(memory, 10000, 100), "both copies have the same bytes");
	ask_sum(epd, &sum, ASK_SUM, THEIRS + SIZE, 10000 - 5001);
	test_that(sum == test_sum(memory + 5001, 10000 - 5001), "the second window has its part");
	test_returns(0, scif_vwriteto(epd, memory, 100, THEIRS + 2 * SIZE - 100, SCIF_RMA_SYNC),
		     "vwriteto up to the last byte");
	test_returns(0, scif_vwriteto(epd, memory, 1, THEIRS, SCIF_RMA_SYNC),
		     "vwriteto of the first byte");
}

/*
 * Starts more transfers than a thread usually does. No data is lost, and the last fence covers all.
 */
static void check_many(scif_epd_t epd, u8 *memory)
{
	u64 sum = 0;
	long err = 0;
	int i;

	test_fill(memory, SIZE, 101);
	for (i = 0; i < SIZE / 512 && !err; i++)
		err = scif_vwriteto(epd, memory + i * 512, 512, THEIRS + i * 512, 0);
	test_returns(0, err, "512 transfers one after another");
	test_returns(0, ended(epd, 0, 0), "one fence for all transfers");
	ask_sum(epd, &sum, ASK_SUM, THEIRS, SIZE);
	test_that(sum == test_sum(memory, SIZE), "after the fence all transfers are complete");
}

static void check_other_end(scif_epd_t epd, u8 *ours)
{
	u64 sum = 0;

	ask(epd, ASK_FILL, 0, THEIRS, 5000, 102);
	memset(ours, GUARD, SIZE);
	test_returns(0, ask(epd, ASK_WRITETO, 0, THEIRS, 5000, OURS + 33, SCIF_RMA_SYNC),
		     "writeto of the peer");
	test_that(test_filled(ours + 33, 5000, 102) && is_guard(ours, 33) &&
		  is_guard(ours + 5033, SIZE - 5033), "the bytes of the peer's writeto arrive");
	test_fill(ours + 71, 6000, 103);
	test_returns(0, ask(epd, ASK_READFROM, 0, THEIRS, 6000, OURS + 71, SCIF_RMA_SYNC),
		     "readfrom of the peer");
	ask_sum(epd, &sum, ASK_SUM, THEIRS, 6000);
	test_that(sum == test_sum(ours + 71, 6000), "the peer's readfrom has the right bytes");
}

static bool make_windows(scif_epd_t epd, void *ours)
{
	return ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, THEIRS, BOTH, 10) == THEIRS &&
	       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, THEIRS + SIZE, BOTH, 11) ==
		       THEIRS + SIZE &&
	       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, PAGE_SIZE, READABLE, SCIF_PROT_READ, 12) ==
		       READABLE &&
	       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, PAGE_SIZE, WRITABLE, SCIF_PROT_WRITE, 13) ==
		       WRITABLE &&
	       scif_register(epd, ours, SIZE, OURS, BOTH, PLACED) == OURS;
}

void test_transfers(void)
{
	u8 *slab = kmalloc(4 * PAGE_SIZE, GFP_KERNEL);
	u8 *mapped = vmalloc(SIZE);
	scif_epd_t epd = test_reach_server();
	u8 *ours = vmalloc(SIZE);
	size_t size;
	int kind;

	if (!epd || !test_ready(slab && mapped && ours, "memory") ||
	    !test_ready(make_windows(epd, ours), "windows"))
		goto free;
	for (kind = 0; kind < ARRAY_SIZE(kinds); kind++) {
		check_memory(epd, slab, 13, 5001, THEIRS + 777, "kmalloc, odd places", kind);
		check_memory(epd, slab, 64, 8192, THEIRS + 128, "kmalloc, even places", kind);
		check_memory(epd, mapped, 4095, 20002, THEIRS + 1, "vmalloc, over pages", kind);
		check_memory(epd, slab, 1, 3, THEIRS + 4095, "kmalloc, three bytes", kind);
		check_windows(epd, ours, kind);
	}
	for (size = 1; size <= 4097; size += 241)
		check_sizes(epd, size, size + 241, slab, mapped + 3);
	check_errors(epd, slab);
	check_span(epd, mapped);
	check_many(epd, mapped);
	check_other_end(epd, ours);
free:
	if (epd)
		scif_close(epd);
	vfree(ours);
	vfree(mapped);
	kfree(slab);
}
