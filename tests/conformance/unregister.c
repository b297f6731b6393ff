// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of unregister: which windows it closes, and when they are closed.
 */
#include "../harness/suite.h"

/* A pair with three contiguous windows of two pages here, from AT on. */
#define AT	0x200000L
#define TWO	(2 * PAGE)

struct three {
	struct pair pair;
	unsigned char *memory;
	__s64 there;
};

static struct three three_windows(void)
{
	struct three three = { .pair = connected() };
	int i;

	three.memory = pages(6);
	three.there = ask(three.pair.peer, DO_PAGES, 6);
	fill(three.memory, 1, 6 * PAGE);
	for (i = 0; i < 3; i++)
		expect_value(scif_register(three.pair.here, three.memory + i * TWO, TWO,
					   AT + i * TWO, READ_WRITE, SCIF_MAP_FIXED), AT + i * TWO);
	return three;
}

/* Returns whether the peer can read a window. */
static bool is_there(struct three *three, off_t offset, long len)
{
	return !ask(three->pair.peer, DO_VREADFROM, three->pair.there, three->there, len, offset,
		    SYNC);
}

static void unregister_whole(void)
{
	struct three three = three_windows();

	expect(is_there(&three, AT, 3 * TWO));
	expect_value(scif_unregister(three.pair.here, AT + TWO, TWO), 0);
	expect(is_there(&three, AT, TWO) && !is_there(&three, AT + TWO, 1) &&
	       is_there(&three, AT + 2 * TWO, TWO));
	/* Unregisters the other two, by a larger range with a hole. */
	expect_value(scif_unregister(three.pair.here, AT - PAGE, 100 * PAGE), 0);
	expect(!is_there(&three, AT, 1) && !is_there(&three, AT + 2 * TWO, 1));
	wait_until(!locked());
}

static void unregister_cut(void)
{
	struct three three = three_windows();
	int endpoint = three.pair.here;

	expect_error(scif_unregister(endpoint, AT, PAGE), EINVAL);
	expect_error(scif_unregister(endpoint, AT + PAGE, PAGE), EINVAL);
	/* If the range cuts one window, all windows stay. */
	expect_error(scif_unregister(endpoint, AT, 5 * PAGE), EINVAL);
	expect_error(scif_unregister(endpoint, AT + PAGE, 5 * PAGE), EINVAL);
	expect_error(scif_unregister(endpoint, AT + PAGE, 4 * PAGE), EINVAL);
	expect(is_there(&three, AT, 3 * TWO));
	expect_value(locked(), 6 * PAGE);
	expect_value(scif_unregister(endpoint, AT, 6 * PAGE), 0);
}

static void unregister_nothing(void)
{
	struct three three = three_windows();
	int endpoint = three.pair.here;

	expect_error(scif_unregister(endpoint, 0, PAGE), ENXIO);
	expect_error(scif_unregister(endpoint, AT - PAGE, PAGE), ENXIO);
	expect_error(scif_unregister(endpoint, AT + 3 * TWO, 1000 * PAGE), ENXIO);
	expect_value(scif_unregister(endpoint, AT, TWO), 0);
	expect_error(scif_unregister(endpoint, AT, TWO), ENXIO);
	expect(is_there(&three, AT + TWO, 2 * TWO));
}

static void unregister_negative(void)
{
	struct three three = three_windows();

	expect_error(scif_unregister(three.pair.here, -PAGE, 100 * PAGE), EINVAL);
	expect_error(scif_unregister(three.pair.here, INT64_MIN, PAGE), EINVAL);
	/* The range exceeds the address space. */
	expect(scif_unregister(three.pair.here, AT, -1UL) == -1);
	expect(scif_unregister(three.pair.here, INT64_MAX & -PAGE, 2 * PAGE) == -1);
	expect(is_there(&three, AT, 3 * TWO));
}

static void unregister_no_new_use(void)
{
	struct windows windows = connected_windows(2);
	struct pair *pair = &windows.pair;

	expect_value(scif_unregister(pair->here, windows.offset, windows.len), 0);
	/* The window serves neither as the local side, nor as the remote one. */
	expect_error(scif_writeto(pair->here, windows.offset, 1, windows.peer_offset, 0), ENXIO);
	expect_error(scif_readfrom(pair->here, windows.offset, 1, windows.peer_offset, SYNC),
		     ENXIO);
	expect_error(ask(pair->peer, DO_WRITETO, pair->there, windows.peer_offset, 1,
			 windows.offset, 0), ENXIO);
	expect_error(ask(pair->peer, DO_VREADFROM, pair->there, windows.peer_memory, 1,
			 windows.offset, 0), ENXIO);
	expect_error(ask(pair->peer, DO_SIGNAL, pair->there, 0, 0, windows.offset, 1,
			 SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE), ENXIO);
	expect_error(scif_fence_signal(pair->here, windows.offset, 1, 0, 0,
				       SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL), ENXIO);
	expect_error(ask(pair->peer, DO_MMAP, pair->there, windows.offset, PAGE, SCIF_PROT_READ),
		     ENXIO);
}

static void unregister_in_use(void)
{
	struct windows windows = connected_windows(1024);
	struct pair *pair = &windows.pair;
	int i, mark;

	for (i = 0; i < 4; i++) {
		fill(windows.memory, i, 4096);
		expect_value(scif_writeto(pair->here, windows.offset, windows.len,
					  windows.peer_offset, 0), 0);
	}
	fill(windows.memory, 9, windows.len);
	expect_value(scif_writeto(pair->here, windows.offset, windows.len, windows.peer_offset, 0),
		     0);
	expect_value(scif_fence_mark(pair->here, SCIF_FENCE_INIT_SELF, &mark), 0);
	expect_value(scif_unregister(pair->here, windows.offset, windows.len), 0);
	expect_value(scif_fence_wait(pair->here, mark), 0);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 9, windows.len), -1);
	wait_until(!locked());
}

static void unregister_offset_free(void)
{
	struct three three = three_windows();
	int i;

	for (i = 0; i < 50; i++) {
		expect_value(scif_unregister(three.pair.here, AT + TWO, TWO), 0);
		/* A user of the old window may release it a moment later. */
		wait_until(scif_register(three.pair.here, three.memory, TWO, AT + TWO, READ_WRITE,
					 SCIF_MAP_FIXED) == AT + TWO);
		expect(is_there(&three, AT, 3 * TWO));
	}
}

static void unregister_peers_window(void)
{
	struct windows windows = connected_windows(2);
	struct pair *pair = &windows.pair;
	off_t offset = 0x770000;

	expect_value(ask(pair->peer, DO_REGISTER, pair->there, windows.peer_memory, PAGE, offset,
			 READ_WRITE, SCIF_MAP_FIXED), offset);
	expect_error(scif_unregister(pair->here, offset, PAGE), ENXIO);
	expect_value(scif_vwriteto(pair->here, "x", 1, offset, SYNC), 0);
}

static void unregister_pending_signal(void)
{
	struct windows windows = connected_windows(1024);
	struct pair *pair = &windows.pair;
	__u64 *words = pages(1);
	off_t offset = expect_ok(scif_register(pair->here, words, PAGE, 0, READ_WRITE, 0));
	int i;

	for (i = 0; i < 20; i++) {
		words[0] = 0;
		expect_value(scif_writeto(pair->here, windows.offset, windows.len,
					  windows.peer_offset, 0), 0);
		expect_value(scif_fence_signal(pair->here, offset, 77 + i, 0, 0,
					       SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL), 0);
		expect_value(scif_unregister(pair->here, offset, PAGE), 0);
		wait_until(__atomic_load_n(words, __ATOMIC_ACQUIRE) == 77U + i);
		wait_until(scif_register(pair->here, words, PAGE, offset, READ_WRITE,
					 SCIF_MAP_FIXED) == offset);
	}
}

static void unregister_mapped(void)
{
	struct windows windows = connected_windows(2);
	struct pair *pair = &windows.pair;
	__s64 mapped;

	mapped = expect_ok(ask(pair->peer, DO_MMAP, pair->there, windows.offset, windows.len,
			       READ_WRITE));
	fill(windows.memory, 3, windows.len);
	expect_value(scif_unregister(pair->here, windows.offset, windows.len), 0);
	/* The window still exists and is charged, and its offsets are in use. */
	expect_value(ask(pair->peer, DO_DIFFERS, mapped, 3, windows.len), -1);
	ask(pair->peer, DO_FILL, mapped, 4, windows.len);
	ask(pair->peer, DO_PEEK, mapped);
	expect_value(differs(windows.memory, 4, windows.len), -1);
	expect_value(locked(), windows.len);
	expect_error(scif_register(pair->here, windows.memory, windows.len, windows.offset,
				   READ_WRITE, SCIF_MAP_FIXED), EADDRINUSE);
	expect_error(scif_unregister(pair->here, windows.offset, windows.len), ENXIO);
	/* The rest of the mapping keeps the window. */
	expect_ok(ask(pair->peer, DO_MUNMAP, mapped, PAGE));
	expect_value(ask(pair->peer, DO_DIFFERS_FROM_BYTE, mapped + PAGE,
			 windows.memory[PAGE], 1), -1);
	expect_error(scif_register(pair->here, windows.memory, PAGE, windows.offset, READ_WRITE,
				   SCIF_MAP_FIXED), EADDRINUSE);
	expect_ok(ask(pair->peer, DO_MUNMAP, mapped + PAGE, PAGE));
	wait_until(!locked());
	expect_value(scif_register(pair->here, windows.memory, windows.len, windows.offset,
				   READ_WRITE, SCIF_MAP_FIXED), windows.offset);
}

const struct test_case unregister_cases[] = {
	PAIR(unregister_whole, "unregister.whole"),
	PAIR(unregister_cut, "unregister.cut"),
	PAIR(unregister_nothing, "unregister.nothing"),
	PAIR(unregister_negative, "unregister.negative"),
	PAIR(unregister_no_new_use, "unregister.no-new-use"),
	PAIR(unregister_in_use, "unregister.in-use"),
	PAIR(unregister_offset_free, "unregister.offset-free"),
	PAIR(unregister_peers_window, "unregister.peers-window"),
	PAIR(unregister_pending_signal, "unregister.pending-signal"),
	PAIR_MAPPING_US(unregister_mapped, "unregister.mapped"),
	{ }
};
