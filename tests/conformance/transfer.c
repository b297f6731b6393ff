// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of readfrom, writeto, vreadfrom and vwriteto.
 *
 * Copies are checked at their destination, with the bytes around them: memory that a copy must not
 * change has the value AROUND.
 */
#include <sys/mman.h>

#include "../harness/suite.h"

#define AROUND	0xa5

/* One of the four copy calls, which a case can handle alike. */
struct way {
	const char *name;
	/* Whether the call writes to the peer. */
	bool writes;
	/* Whether the local side is memory, not a window. */
	bool memory;
};

static const struct way ways[] = {
	{ "writeto", true, false },
	{ "readfrom", false, false },
	{ "vwriteto", true, true },
	{ "vreadfrom", false, true },
};

/* Makes the call at offsets relative to the windows. */
static int copy(const struct windows *windows, const struct way *way, long local, long len,
		long remote, int flags)
{
	int endpoint = windows->pair.here;
	off_t there = windows->peer_offset + remote;

	if (way->memory && way->writes)
		return scif_vwriteto(endpoint, windows->memory + local, len, there, flags);
	if (way->memory)
		return scif_vreadfrom(endpoint, windows->memory + local, len, there, flags);
	if (way->writes)
		return scif_writeto(endpoint, windows->offset + local, len, there, flags);
	return scif_readfrom(endpoint, windows->offset + local, len, there, flags);
}

/* Fills the source with the pattern, and the destination with the background. */
static void prepare(struct windows *windows, const struct way *way, __u32 seed, long local,
		    long len, long remote)
{
	struct peer *peer = windows->pair.peer;

	if (way->writes) {
		fill(windows->memory + local, seed, len);
	} else {
		memset(windows->memory, AROUND, windows->len);
		ask(peer, DO_FILL, windows->peer_memory + remote, seed, len);
	}
}

/* Checks that the destination has the pattern, and that nothing else has changed. */
static void check_copy(struct windows *windows, const struct way *way, __u32 seed, long local,
		       long len, long remote)
{
	struct peer *peer = windows->pair.peer;
	__s64 there = windows->peer_memory;

	if (!way->writes) {
		expect_value(differs(windows->memory + local, seed, len), -1);
		expect_value(differs_from_byte(windows->memory, AROUND, local), -1);
		expect_value(differs_from_byte(windows->memory + local + len, AROUND,
					       windows->len - local - len), -1);
		return;
	}
	expect_value(ask(peer, DO_DIFFERS, there + remote, seed, len), -1);
	expect_value(ask(peer, DO_DIFFERS_FROM_BYTE, there, AROUND, remote), -1);
	expect_value(ask(peer, DO_DIFFERS_FROM_BYTE, there + remote + len, AROUND,
			 windows->len - remote - len), -1);
}

static void peer_background(struct windows *windows)
{
	void *background = pages(windows->len / PAGE);

	memset(background, AROUND, windows->len);
	expect_value(scif_vwriteto(windows->pair.here, background, windows->len,
				   windows->peer_offset, SYNC), 0);
	munmap(background, windows->len);
}

static void copy_and_check(struct windows *windows, const struct way *way, __u32 seed, long local,
			   long len, long remote, int flags)
{
	if (way->writes)
		peer_background(windows);
	prepare(windows, way, seed, local, len, remote);
	expect_value(copy(windows, way, local, len, remote, flags), 0);
	check_copy(windows, way, seed, local, len, remote);
}

static void copies_plain(void)
{
	struct windows windows = connected_windows(16);
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		copy_and_check(&windows, &ways[i], i + 1, 0, windows.len, 0, SYNC);
		copy_and_check(&windows, &ways[i], i + 11, PAGE, 2 * PAGE, 5 * PAGE, SYNC);
	}
}

static void copies_at_any_alignment(int flags)
{
	static const long place[] = { 0, 1, 3, 4, 7, 8, 60, 63, 64, 65, 4090, 4095, 4096, 4097 };
	static const long size[] = { 1, 2, 7, 8, 9, 63, 64, 65, 127, 4095, 4096, 4097, 9999 };
	struct windows windows = connected_windows(8);
	size_t way, i;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		/* Tests several combinations of offsets and sizes, not all. */
		for (i = 0; i < 40; i++)
			copy_and_check(&windows, &ways[way], i + 1,
				       PAGE + place[i % ARRAY_SIZE(place)],
				       size[i % ARRAY_SIZE(size)],
				       PAGE + place[i * 5 % ARRAY_SIZE(place)], flags);
	}
}

static void copies_any_alignment(void)
{
	copies_at_any_alignment(SYNC);
}

static void copies_any_alignment_cpu(void)
{
	copies_at_any_alignment(SYNC | SCIF_RMA_USECPU);
}

static void copies_any_alignment_ordered(void)
{
	copies_at_any_alignment(SYNC | SCIF_RMA_ORDERED);
}

static void copies_all_flags(void)
{
	struct windows windows = connected_windows(8);
	size_t way;
	int flags;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		for (flags = 0; flags < 16; flags++)
			copy_and_check(&windows, &ways[way], flags + 1, 100, 5 * PAGE, 201,
				       flags | SYNC);
	}
}

static void copies_large(void)
{
	struct windows windows = connected_windows(2048);
	size_t way;

	for (way = 0; way < ARRAY_SIZE(ways); way++)
		copy_and_check(&windows, &ways[way], way + 1, 0, windows.len, 0, SYNC);
	copy_and_check(&windows, &ways[0], 9, 1, windows.len - 64, 33, SYNC);
}

/* A copy of the largest possible size, which fails at a gap. */
static void copies_huge_length(void)
{
	struct windows windows = connected_windows(2);
	size_t way;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		expect(copy(&windows, &ways[way], 0, INT64_MAX, 0, SYNC) == -1);
		expect(copy(&windows, &ways[way], 0, -1, 0, SYNC) == -1);
		expect(copy(&windows, &ways[way], 8, INT64_MIN, 8, SYNC) == -1);
	}
	expect_error(scif_writeto(windows.pair.here, windows.offset, 1L << 40,
				  windows.peer_offset, SYNC), ENXIO);
}

/* --- Contiguous windows, and gaps --- */

#define AT	0x300000L

/* Makes contiguous windows of 1, 2, 3 and 4 pages from AT on. Both memories have ten pages. */
static struct windows touching_windows(void)
{
	struct windows windows = { .pair = connected(), .len = 10 * PAGE };
	struct pair *pair = &windows.pair;
	long at = 0, count;

	windows.memory = pages(10);
	windows.peer_memory = ask(pair->peer, DO_PAGES, 10);
	windows.offset = AT;
	windows.peer_offset = AT;
	for (count = 1; count <= 4; count++) {
		expect_ok(scif_register(pair->here, windows.memory + at, count * PAGE, AT + at,
					READ_WRITE, SCIF_MAP_FIXED));
		/* The peer's windows have another order of sizes. */
		expect_ok(ask(pair->peer, DO_REGISTER, pair->there,
			      windows.peer_memory + 10 * PAGE - at - count * PAGE, count * PAGE,
			      AT + 10 * PAGE - at - count * PAGE, READ_WRITE, SCIF_MAP_FIXED));
		at += count * PAGE;
	}
	return windows;
}

static void copies_span(void)
{
	struct windows windows = touching_windows();
	size_t way;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		copy_and_check(&windows, &ways[way], 1, 0, windows.len, 0, SYNC);
		copy_and_check(&windows, &ways[way], 2, 17, 7 * PAGE, 2 * PAGE + 5, SYNC);
		copy_and_check(&windows, &ways[way], 3, 17, 7 * PAGE, 2 * PAGE + 5,
			       SYNC | SCIF_RMA_USECPU);
		copy_and_check(&windows, &ways[way], 4, PAGE - 1, 2, 4 * PAGE - 1, SYNC);
	}
}

static void copies_gap(void)
{
	struct windows windows = touching_windows();
	struct pair *pair = &windows.pair;
	int endpoint = pair->here;
	size_t way;

	peer_background(&windows);
	memset(windows.memory, AROUND, windows.len);
	/* Makes a gap there: the peer's window of two pages at 7. */
	expect_ok(ask(pair->peer, DO_UNREGISTER, pair->there, AT + 7 * PAGE, 2 * PAGE));
	fill(windows.memory, 5, PAGE);
	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		if (!ways[way].writes)
			memset(windows.memory, AROUND, windows.len);
		expect_error(copy(&windows, &ways[way], 0, 10 * PAGE, 0, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], 0, PAGE + 1, 6 * PAGE, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], 0, PAGE, 9 * PAGE - 1, SYNC), ENXIO);
		/* Copies on both sides of the gap work. */
		if (ways[way].writes)
			continue;
		expect_value(differs_from_byte(windows.memory, AROUND, windows.len), -1);
	}
	expect_value(ask(pair->peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, AROUND,
			 windows.len), -1);
	/* Makes a gap here: the window of two pages at 1. */
	expect_value(scif_unregister(endpoint, AT + PAGE, 2 * PAGE), 0);
	expect_error(scif_writeto(endpoint, AT, 2 * PAGE, AT, SYNC), ENXIO);
	expect_error(scif_readfrom(endpoint, AT + 2 * PAGE, 2 * PAGE, AT, SYNC), ENXIO);
	expect_value(scif_writeto(endpoint, AT, PAGE, AT, SYNC), 0);
	expect_value(scif_readfrom(endpoint, AT + 3 * PAGE, 7 * PAGE, AT, SYNC), 0);
}

static void copies_outside(void)
{
	struct windows windows = connected_windows(2);
	int endpoint = windows.pair.here;
	size_t way;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		expect_error(copy(&windows, &ways[way], 0, 1, windows.len, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], 0, 1, -1, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], 0, 2, windows.len - 1, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], 0, 1, 1L << 40, SYNC), ENXIO);
		if (ways[way].memory)
			continue;
		expect_error(copy(&windows, &ways[way], windows.len, 1, 0, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], windows.len - 1, 2, 0, SYNC), ENXIO);
		expect_error(copy(&windows, &ways[way], -1, 2, 0, SYNC), ENXIO);
	}
	/* Only the peer has a window. The driver does not take it for a local one. */
	expect_value(scif_unregister(endpoint, windows.offset, windows.len), 0);
	expect_error(scif_writeto(endpoint, windows.offset, 1, windows.peer_offset, SYNC), ENXIO);
}

static void copies_negative(void)
{
	struct windows windows = connected_windows(1);
	int endpoint = windows.pair.here;

	expect_error(scif_writeto(endpoint, -PAGE, 1, windows.peer_offset, SYNC), ENXIO);
	expect_error(scif_writeto(endpoint, windows.offset, 1, -PAGE, SYNC), ENXIO);
	expect_error(scif_readfrom(endpoint, INT64_MIN, 1, windows.peer_offset, SYNC), ENXIO);
	expect_error(scif_readfrom(endpoint, windows.offset, 1, -1, SYNC), ENXIO);
	expect_error(scif_vwriteto(endpoint, windows.memory, 1, -1, SYNC), ENXIO);
	expect_error(scif_vreadfrom(endpoint, windows.memory, 1, INT64_MIN, SYNC), ENXIO);
}

static void copies_overflow(void)
{
	struct windows windows = connected_windows(1);
	int endpoint = windows.pair.here;

	expect(scif_writeto(endpoint, windows.offset, PAGE, INT64_MAX - 1, SYNC) == -1);
	expect(scif_readfrom(endpoint, INT64_MAX - 1, PAGE, windows.peer_offset, SYNC) == -1);
	expect(scif_vwriteto(endpoint, windows.memory, PAGE, INT64_MAX, SYNC) == -1);
	expect(scif_vwriteto(endpoint, (void *)-8L, 16, windows.peer_offset, SYNC) == -1);
}

/* --- Arguments --- */

static void copies_zero(void)
{
	struct windows windows = connected_windows(1);
	size_t way;

	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		expect_error(copy(&windows, &ways[way], 0, 0, 0, 0), EINVAL);
		expect_error(copy(&windows, &ways[way], 0, 0, 0, SYNC), EINVAL);
	}
}

static void copies_flags(void)
{
	struct windows windows = connected_windows(1);
	size_t way;

	peer_background(&windows);
	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		expect_error(copy(&windows, &ways[way], 0, 8, 0, 0x10), EINVAL);
		expect_error(copy(&windows, &ways[way], 0, 8, 0, SYNC | 0x40000000), EINVAL);
		expect_error(copy(&windows, &ways[way], 0, 8, 0, -1), EINVAL);
	}
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, AROUND,
			 PAGE), -1);
}

static void copies_not_connected(void)
{
	int endpoint = expect_ok(scif_open());
	char byte;

	expect_error(scif_writeto(endpoint, 0, 1, 0, SYNC), ENOTCONN);
	expect_error(scif_readfrom(endpoint, 0, 1, 0, SYNC), ENOTCONN);
	expect_error(scif_vwriteto(endpoint, &byte, 1, 0, SYNC), ENOTCONN);
	expect_error(scif_vreadfrom(endpoint, &byte, 1, 0, SYNC), ENOTCONN);
}

/* --- Protection --- */

/* Windows of a page each: at AT for reading, then for writing. */
static void access_remote(void)
{
	struct windows windows = connected_windows(1);
	struct pair *pair = &windows.pair;
	__s64 there = ask(pair->peer, DO_PAGES, 2);
	size_t way;
	int flags;

	expect_ok(ask(pair->peer, DO_REGISTER, pair->there, there, PAGE, AT, SCIF_PROT_READ,
		      SCIF_MAP_FIXED));
	expect_ok(ask(pair->peer, DO_REGISTER, pair->there, there + PAGE, PAGE, AT + PAGE,
		      SCIF_PROT_WRITE, SCIF_MAP_FIXED));
	windows.peer_offset = AT;
	memset(windows.memory, AROUND, PAGE);
	for (way = 0; way < ARRAY_SIZE(ways); way++) {
		long wrong = ways[way].writes ? 0 : PAGE;

		for (flags = 0; flags <= SYNC; flags += SYNC) {
			expect_error(copy(&windows, &ways[way], 0, 64, wrong, flags), EACCES);
			expect_error(copy(&windows, &ways[way], 0, 64, wrong,
					  flags | SCIF_RMA_USECPU), EACCES);
			/* A copy fails if one of its two windows does not allow it. */
			expect_error(copy(&windows, &ways[way], 0, 64, PAGE - 32, flags), EACCES);
		}
		expect_value(copy(&windows, &ways[way], 0, 64, PAGE - wrong, SYNC), 0);
	}
	/* No byte of the read-only page has changed. */
	expect_value(ask(pair->peer, DO_DIFFERS_FROM_BYTE, there, 0, PAGE), -1);
}

static void access_local(void)
{
	struct windows windows = connected_windows(2);
	int endpoint = windows.pair.here;
	unsigned char *memory = pages(2);

	expect_ok(scif_register(endpoint, memory, PAGE, AT, SCIF_PROT_READ, SCIF_MAP_FIXED));
	expect_ok(scif_register(endpoint, memory + PAGE, PAGE, AT + PAGE, SCIF_PROT_WRITE,
				SCIF_MAP_FIXED));
	memset(memory, AROUND, 2 * PAGE);
	ask(windows.pair.peer, DO_FILL, windows.peer_memory, 4, 2 * PAGE);
	expect_error(scif_readfrom(endpoint, AT, 64, windows.peer_offset, SYNC), EACCES);
	expect_error(scif_writeto(endpoint, AT + PAGE, 64, windows.peer_offset, SYNC), EACCES);
	expect_error(scif_readfrom(endpoint, AT, 2 * PAGE, windows.peer_offset, SYNC), EACCES);
	expect_error(scif_writeto(endpoint, AT, 2 * PAGE, windows.peer_offset, SYNC), EACCES);
	expect_value(differs_from_byte(memory, AROUND, 2 * PAGE), -1);
	expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, 4, 2 * PAGE), -1);
	expect_value(scif_writeto(endpoint, AT, 64, windows.peer_offset, SYNC), 0);
	expect_value(scif_readfrom(endpoint, AT + PAGE, 64, windows.peer_offset + PAGE, SYNC), 0);
}

static void access_from_peer(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(2);
	__s64 there = ask(pair.peer, DO_PAGES, 1);

	/* The peer gets the same errors for windows of this end. */
	expect_ok(scif_register(pair.here, memory, PAGE, AT, SCIF_PROT_READ, SCIF_MAP_FIXED));
	expect_ok(scif_register(pair.here, memory + PAGE, PAGE, AT + PAGE, SCIF_PROT_WRITE,
				SCIF_MAP_FIXED));
	expect_error(ask(pair.peer, DO_VWRITETO, pair.there, there, 8, AT, SYNC), EACCES);
	expect_error(ask(pair.peer, DO_VREADFROM, pair.there, there, 8, AT + PAGE, SYNC), EACCES);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 8, AT, SYNC), 0);
	expect_value(ask(pair.peer, DO_VWRITETO, pair.there, there, 8, AT + PAGE, SYNC), 0);
	expect_value(differs_from_byte(memory, 0, PAGE), -1);
}

static void v_bad_address(void)
{
	struct windows windows = connected_windows(8);
	int endpoint = windows.pair.here, cpu;
	unsigned char *memory = pages(3);
	off_t there = windows.peer_offset;

	munmap(memory + PAGE, PAGE);
	for (cpu = 0; cpu <= SCIF_RMA_USECPU; cpu++) {
		expect_error(scif_vwriteto(endpoint, (void *)8, 100, there, SYNC | cpu), EFAULT);
		expect_error(scif_vreadfrom(endpoint, (void *)8, 100, there, SYNC | cpu), EFAULT);
		expect_error(scif_vwriteto(endpoint, memory + 10, 3 * PAGE - 20, there,
					   SYNC | cpu), EFAULT);
		expect_error(scif_vreadfrom(endpoint, memory + 10, 3 * PAGE - 20, there,
					    SYNC | cpu), EFAULT);
		/* The copy crosses the edge a little, as copies by the CPU may do. */
		expect_error(scif_vwriteto(endpoint, memory + PAGE - 8, 16, there, SYNC | cpu),
			     EFAULT);
	}
	expect_value(locked(), windows.len);
}

static void v_read_only(void)
{
	struct windows windows = connected_windows(2);
	unsigned char *memory = pages(2);
	int cpu;

	memset(memory, AROUND, 2 * PAGE);
	ask(windows.pair.peer, DO_FILL, windows.peer_memory, 4, 2 * PAGE);
	expect_value(mprotect(memory, 2 * PAGE, PROT_READ), 0);
	for (cpu = 0; cpu <= SCIF_RMA_USECPU; cpu++) {
		expect_error(scif_vreadfrom(windows.pair.here, memory + 8, PAGE,
					    windows.peer_offset, SYNC | cpu), EFAULT);
		expect_value(differs_from_byte(memory, AROUND, 2 * PAGE), -1);
		/* Reads of the memory work. */
		expect_value(scif_vwriteto(windows.pair.here, memory + 8, PAGE,
					   windows.peer_offset, SYNC | cpu), 0);
	}
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, AROUND,
			 PAGE), -1);
}

/* --- Order and time --- */

/* Runs in the peer: waits for the last bytes, and then checks that those before are there. */
static __s64 wait_for_last(const __s64 *argument)
{
	unsigned char *memory = (unsigned char *)argument[0];
	long len = argument[1];
	unsigned char round = argument[2];
	const __u64 *last = (const __u64 *)(memory + len - 8);
	__u64 expected;

	memset(&expected, round, sizeof(expected));
	while (__atomic_load_n(last, __ATOMIC_ACQUIRE) != expected)
		;
	return differs_from_byte(memory, round, len);
}

static void ordered(void)
{
	static const int flags[] = { SCIF_RMA_ORDERED, SCIF_RMA_ORDERED | SCIF_RMA_USECPU };
	struct windows windows = connected_windows(64);
	struct pair *pair = &windows.pair;
	long len = 64 * PAGE - 40;
	int round, i;

	for (round = 1; round <= 20; round++) {
		i = round % 2;
		memset(windows.memory, round, len);
		begin(pair->peer, DO_RUN, windows.peer_memory, len, round);
		expect_value(scif_writeto(pair->here, windows.offset, len, windows.peer_offset,
					  flags[i]), 0);
		expect_value(end(pair->peer), -1);
	}
}

static void async_fence(void)
{
	struct windows windows = connected_windows(256);
	struct pair *pair = &windows.pair;
	int round, mark, i;
	size_t way;

	for (round = 1; round <= 4; round++) {
		for (way = 0; way < ARRAY_SIZE(ways); way++) {
			prepare(&windows, &ways[way], round, 0, windows.len, 0);
			for (i = 0; i < 8; i++)
				expect_value(copy(&windows, &ways[way], i * 32 * PAGE, 32 * PAGE,
						  i * 32 * PAGE, 0), 0);
			expect_value(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), 0);
			expect_value(scif_fence_wait(pair->here, mark), 0);
			check_copy(&windows, &ways[way], round, 0, windows.len, 0);
		}
	}
}

/* After a synchronous copy, the peer finds the data if it is notified by other means. */
static void sync_complete(void)
{
	struct windows windows = connected_windows(64);
	struct pair *pair = &windows.pair;
	int round;

	for (round = 1; round <= 10; round++) {
		fill(windows.memory, round, windows.len);
		expect_value(scif_writeto(pair->here, windows.offset, windows.len,
					  windows.peer_offset, SYNC), 0);
		/* The memory belongs to this process again. */
		memset(windows.memory, 0, windows.len);
		expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, round, windows.len),
			     -1);
	}
}

/*
 * Makes small copies by the CPU, which are complete, and a large one by the engine if there is one.
 * The large copy overwrites the data of the small ones, or reads it.
 */
static void sync_other_way(void)
{
	struct windows windows = connected_windows(16);
	unsigned char old[64], *back = pages(windows.len / PAGE);
	int here = windows.pair.here, by_cpu = SYNC | SCIF_RMA_USECPU, round;
	long at;

	for (round = 1; round <= 40; round++) {
		bool writes = round % 2;

		at = round * 97 % 15 * PAGE + round * 64 % PAGE;
		fill(windows.memory, round, windows.len);
		expect_value(scif_writeto(here, windows.offset, windows.len, windows.peer_offset,
					  SYNC), 0);
		memset(old, AROUND, sizeof(old));
		expect_value(scif_vwriteto(here, old, sizeof(old), windows.peer_offset + at,
					   by_cpu), 0);
		if (!writes) {
			memcpy(windows.memory + at, old, sizeof(old));
			expect_value(scif_vreadfrom(here, back, windows.len, windows.peer_offset,
						    SYNC), 0);
			expect_value(memcmp(back, windows.memory, windows.len), 0);
			continue;
		}
		expect_value(scif_writeto(here, windows.offset, windows.len, windows.peer_offset,
					  SYNC), 0);
		/* The answer to this read comes behind the transfers in flight. */
		expect_value(scif_vreadfrom(here, old, sizeof(old), windows.peer_offset + at,
					    by_cpu), 0);
		expect_value(memcmp(old, windows.memory + at, sizeof(old)), 0);
	}
}

/* --- Registration cache --- */

static void usecache(void)
{
	struct windows windows = connected_windows(8);
	unsigned char *memory = pages(16);
	int flags = SYNC | SCIF_RMA_USECACHE, i;
	long at, len;

	for (i = 0; i < 60; i++) {
		/* Uses the same range again and again, and others that overlap with it. */
		at = i % 3 ? i * 100 : 0;
		len = i % 3 ? 4000 + i * 13 : 8 * PAGE;
		fill(memory + at, i, len);
		expect_value(scif_vwriteto(windows.pair.here, memory + at, len,
					   windows.peer_offset, flags), 0);
		expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, i, len), -1);
		memset(memory + at, 0, len);
		expect_value(scif_vreadfrom(windows.pair.here, memory + at, len,
					    windows.peer_offset, flags), 0);
		expect_value(differs(memory + at, i, len), -1);
	}
}

static void usecache_remap(void)
{
	struct windows windows = connected_windows(8);
	unsigned char *memory = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int flags = SYNC | SCIF_RMA_USECACHE, i;
	off_t there = windows.peer_offset;

	expect(memory != MAP_FAILED);
	for (i = 1; i < 20; i++) {
		fill(memory, i, 8 * PAGE);
		expect_value(scif_vwriteto(windows.pair.here, memory, 8 * PAGE, there, flags), 0);
		expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, i, 8 * PAGE),
			     -1);
		/* Puts other pages at the same address: by mmap, by madvise, by mremap. */
		if (i % 3 == 0)
			expect(mmap(memory, 8 * PAGE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
		else if (i % 3 == 1)
			expect_value(madvise(memory, 8 * PAGE, MADV_DONTNEED), 0);
		else
			expect(mremap(pages(8), 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
				      memory) == memory);
		expect_value(differs_from_byte(memory, 0, 8 * PAGE), -1);
		expect_value(scif_vreadfrom(windows.pair.here, memory, 8 * PAGE, there, flags), 0);
		expect_value(differs(memory, i, 8 * PAGE), -1);
	}
	/* Also if no memory is mapped any more. */
	expect_value(munmap(memory, 8 * PAGE), 0);
	expect_error(scif_vwriteto(windows.pair.here, memory, 8 * PAGE, there, flags), EFAULT);
}

static void usecache_protection(void)
{
	struct windows windows = connected_windows(1);
	unsigned char *memory = pages(1);
	int flags = SYNC | SCIF_RMA_USECACHE;

	expect_value(scif_vreadfrom(windows.pair.here, memory, PAGE, windows.peer_offset, flags),
		     0);
	memset(memory, AROUND, PAGE);
	expect_value(mprotect(memory, PAGE, PROT_READ), 0);
	/* Pages that are pinned for writing must not be written any more. */
	expect(scif_vreadfrom(windows.pair.here, memory, PAGE, windows.peer_offset, flags) == -1);
	expect_value(differs_from_byte(memory, AROUND, PAGE), -1);
	expect_value(scif_vwriteto(windows.pair.here, memory, PAGE, windows.peer_offset, flags),
		     0);
}

static void usecache_unpins(void)
{
	struct windows windows = connected_windows(1);
	int flags = SYNC | SCIF_RMA_USECACHE, way;
	unsigned char *memory;
	long before;

	for (way = 0; way < 2; way++) {
		memory = pages(64);
		/* Pages of earlier cases may be released meanwhile, so this is an upper limit. */
		before = pinned();
		expect_value(scif_vwriteto(windows.pair.here, memory + 100, PAGE / 2,
					   windows.peer_offset, flags), 0);
		if (way)
			expect_value(scif_close(windows.pair.here), 0);
		else
			expect_value(munmap(memory, 64 * PAGE), 0);
		wait_until(pinned() <= before);
	}
	wait_until(!locked());
}

/* --- Both sides, and threads --- */

static void both_directions(void)
{
	struct windows windows = connected_windows(512);
	struct pair *pair = &windows.pair;
	long half = windows.len / 2;
	int round, mark;

	for (round = 1; round <= 4; round++) {
		fill(windows.memory, round, half);
		ask(pair->peer, DO_FILL, windows.peer_memory, round + 100, half);
		/* Copies lower halves to the other end's upper halves, at the same time. */
		begin(pair->peer, DO_WRITETO, pair->there, windows.peer_offset, half,
		      windows.offset + half, SYNC);
		expect_value(scif_writeto(pair->here, windows.offset, half,
					  windows.peer_offset + half, 0), 0);
		expect_value(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), 0);
		expect_value(scif_fence_wait(pair->here, mark), 0);
		expect_value(end(pair->peer), 0);
		expect_value(differs(windows.memory + half, round + 100, half), -1);
		expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory + half, round, half),
			     -1);
	}
}

#define COPIERS	4

struct copier {
	struct windows *windows;
	int number;
};

static void *copy_own_part(void *data)
{
	struct copier *copier = data;
	struct windows *windows = copier->windows;
	long part = windows->len / COPIERS, at = copier->number * part;
	unsigned char *back = pages(part / PAGE);
	int i;

	for (i = 0; i < 10; i++) {
		fill(windows->memory + at, copier->number * 100 + i, part);
		expect_value(scif_writeto(windows->pair.here, windows->offset + at, part,
					  windows->peer_offset + at, SYNC), 0);
		expect_value(scif_vreadfrom(windows->pair.here, back, part,
					    windows->peer_offset + at, SYNC), 0);
		expect_value(differs(back, copier->number * 100 + i, part), -1);
	}
	return NULL;
}

static void copies_by_threads(void)
{
	struct windows windows = connected_windows(64);
	struct copier copier[COPIERS];
	pthread_t thread[COPIERS];
	int i;

	for (i = 0; i < COPIERS; i++) {
		copier[i].windows = &windows;
		copier[i].number = i;
		thread[i] = in_thread(copy_own_part, &copier[i]);
	}
	for (i = 0; i < COPIERS; i++)
		thread_result(thread[i]);
}

#define READERS	3

struct reader {
	struct windows *windows;
	bool stop;
};

static void read_once(struct windows *windows, unsigned char *into)
{
	expect_value(scif_vreadfrom(windows->pair.here, into, windows->len,
				    windows->peer_offset, SYNC), 0);
}

static void *read_on(void *data)
{
	struct reader *reader = data;
	unsigned char *into = pages(reader->windows->len / PAGE);

	while (!__atomic_load_n(&reader->stop, __ATOMIC_SEQ_CST))
		read_once(reader->windows, into);
	return NULL;
}

/*
 * Only this thread gets the signals. The readers make it wait for its turn where copies of one
 * endpoint take turns.
 */
static void copies_beside_signals(void)
{
	struct windows windows = connected_windows(64);
	struct reader reader = { .windows = &windows };
	unsigned char *into = pages(64);
	pthread_t thread[READERS];
	int i;

	for (i = 0; i < READERS; i++)
		thread[i] = in_thread(read_on, &reader);
	interrupt_repeatedly(false);
	while (interruptions() < 40)
		read_once(&windows, into);
	stop_interrupting();
	__atomic_store_n(&reader.stop, true, __ATOMIC_SEQ_CST);
	for (i = 0; i < READERS; i++)
		thread_result(thread[i]);
}

const struct test_case transfer_cases[] = {
	PAIR(copies_plain, "rma.writeto rma.readfrom rma.vwriteto rma.vreadfrom"),
	PAIR(copies_any_alignment, "rma.any-alignment"),
	PAIR(copies_any_alignment_cpu, "rma.any-alignment rma.usecpu"),
	PAIR(copies_any_alignment_ordered, "rma.any-alignment rma.ordered"),
	PAIR(copies_all_flags, "rma.sync rma.usecpu rma.ordered rma.usecache"),
	PAIR(copies_large, "rma.large"),
	PAIR(copies_huge_length, "rma.overflow rma.outside"),
	PAIR(copies_span, "rma.spans"),
	PAIR(copies_gap, "rma.gap"),
	PAIR(copies_outside, "rma.outside"),
	PAIR(copies_negative, "rma.negative"),
	PAIR(copies_overflow, "rma.overflow"),
	PAIR(copies_zero, "rma.zero"),
	PAIR(copies_flags, "rma.flags"),
	ALONE(copies_not_connected, "rma.not-connected"),
	PAIR(access_remote, "rma.access-remote"),
	PAIR(access_local, "rma.access-local"),
	PAIR(access_from_peer, "rma.access-remote"),
	PAIR(v_bad_address, "rma.v-bad-address"),
	PAIR(v_read_only, "rma.v-read-only"),
	PAIR_WITH(ordered, wait_for_last, "rma.ordered"),
	PAIR(async_fence, "rma.async-fence wait.self"),
	PAIR(sync_complete, "rma.sync"),
	PAIR(sync_other_way, "rma.sync rma.usecpu"),
	PAIR(usecache, "rma.usecache"),
	PAIR(usecache_remap, "rma.usecache-remap"),
	PAIR(usecache_protection, "rma.usecache-remap rma.v-read-only"),
	PAIR(usecache_unpins, "rma.usecache-unpins"),
	PAIR(both_directions, "rma.both-directions"),
	PAIR(copies_by_threads, "rma.threads"),
	PAIR(copies_beside_signals, "rma.signals"),
	{ }
};
