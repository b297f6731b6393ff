// SPDX-License-Identifier: GPL-2.0
/*
 * Fences: marks, and words that signal the completion of transfers.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/sched/signal.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define PLACED	(SCIF_MAP_KERNEL | SCIF_MAP_FIXED)

#define SIZE	(64L << 10)

/* Offset of the window of both ends, and offset of a read-only window. */
#define WINDOW		0x1000000L
#define READABLE	0x2000000L
#define NOWHERE		0x3000000L

#define SELF	SCIF_FENCE_INIT_SELF
#define PEER	SCIF_FENCE_INIT_PEER
#define LOCAL	SCIF_SIGNAL_LOCAL
#define REMOTE	SCIF_SIGNAL_REMOTE

/* Returns whether the word is stored in time. */
static bool word_comes(const u64 *word, u64 value)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS);

	while (READ_ONCE(*word) != value) {
		if (time_after(jiffies, limit) || fatal_signal_pending(current))
			return false;
		usleep_range(50, 200);
	}
	return true;
}

static void check_marks(scif_epd_t epd, void *memory)
{
	static const int no_marks[] = { 0, -1, 1, INT_MAX, INT_MIN };
	static const int no_flags[] = { 0, SELF | PEER, 4, SELF | 4, SELF | LOCAL, -1 };
	int i, mark = 0, other = 0;
	bool ok = true;
	u64 sum = 0;

	test_returns(0, scif_fence_mark(epd, SELF, &mark), "fence_mark without transfers");
	test_at_least(1, mark, "a mark without transfers is positive");
	test_returns(0, scif_fence_wait(epd, mark), "fence_wait without transfers");
	test_returns(0, scif_fence_mark(epd, PEER, &mark),
		     "fence_mark without transfers of the peer");
	test_at_least(1, mark, "a mark without transfers of the peer is positive");
	test_returns(0, scif_fence_wait(epd, mark), "fence_wait without transfers of the peer");
	for (i = 0; i < ARRAY_SIZE(no_flags); i++)
		ok &= scif_fence_mark(epd, no_flags[i], &mark) == -EINVAL;
	test_that(ok, "fence_mark with invalid flags is EINVAL");
	test_returns(-EINVAL, scif_fence_mark(epd, SELF, NULL),
		     "fence_mark with NULL for the mark");
	ok = true;
	for (i = 0; i < ARRAY_SIZE(no_marks); i++)
		ok &= scif_fence_wait(epd, no_marks[i]) == -EINVAL;
	test_that(ok, "fence_wait for an unknown mark is EINVAL");

	test_fill(memory, SIZE, 1);
	/*
	 * A transfer by CPU without order may complete at once, so there would be nothing to mark.
	 */
	test_returns(0, scif_writeto(epd, WINDOW, SIZE, WINDOW, SCIF_RMA_ORDERED),
		     "a transfer");
	test_returns(0, scif_fence_mark(epd, SELF, &mark), "fence_mark of a transfer");
	test_at_least(1, mark, "a mark is positive");
	test_returns(0, scif_fence_wait(epd, mark), "fence_wait for a transfer");
	ask_sum(epd, &sum, ASK_SUM, WINDOW, SIZE);
	test_that(sum == test_sum(memory, SIZE), "after fence_wait the transfer is complete");
	test_returns(0, scif_fence_wait(epd, mark), "a second fence_wait for the same mark");

	ask(epd, ASK_FILL, 0, WINDOW, SIZE, 2);
	test_returns(0, ask(epd, ASK_WRITETO, 0, WINDOW, SIZE, WINDOW, 0),
		     "a transfer of the peer");
	test_returns(0, scif_fence_mark(epd, PEER, &other),
		     "fence_mark of the peer's transfer");
	test_that(other > 0 && other != mark, "the mark of the peer's transfer differs");
	test_returns(0, scif_fence_wait(epd, other), "fence_wait for the peer's transfer");
	test_that(test_filled(memory, SIZE, 2), "after fence_wait the peer's transfer is complete");
}

/* A mark of one endpoint is invalid for another one that has started no transfers. */
static void check_foreign_mark(scif_epd_t epd)
{
	scif_epd_t other = test_reach_server();
	int mark = 0;

	if (!other)
		return;
	test_returns(0, scif_fence_mark(epd, SELF, &mark), "fence_mark of some transfers");
	test_returns(-EINVAL, scif_fence_wait(other, mark),
		     "fence_wait for another endpoint's mark");
	scif_close(other);
}

static void check_signal(scif_epd_t epd, u64 *words, int flags, off_t at, u64 value,
			 const char *name)
{
	char line[128];

	/* Clears the words of the other end, too. */
	memset(words, 0, PAGE_SIZE);
	test_ready(!scif_writeto(epd, WINDOW, PAGE_SIZE, WINDOW, SCIF_RMA_SYNC), "zeros");
	snprintf(line, sizeof(line), "fence_signal, %s", name);
	test_returns(0, scif_fence_signal(epd, WINDOW + at, value, WINDOW + at, value + 1, flags),
		     line);
	if (flags & LOCAL) {
		snprintf(line, sizeof(line), "fence_signal, %s: the word comes here", name);
		test_that(word_comes((u64 *)((u8 *)words + at), value), line);
	}
	if (flags & REMOTE) {
		snprintf(line, sizeof(line), "fence_signal, %s: the word comes there", name);
		test_returns(0, ask(epd, ASK_WORD, 0, WINDOW + at, value + 1), line);
	}
	/*
	 * The requested words are stored. After a further fence, so would be a word that was not
	 * requested.
	 */
	snprintf(line, sizeof(line), "fence_signal, %s: nothing else comes", name);
	if (flags & LOCAL)
		*(u64 *)((u8 *)words + at) = 0;
	test_that(!memchr_inv(words, 0, PAGE_SIZE) &&
		  (flags & REMOTE || !ask(epd, ASK_WORD, 0, WINDOW + at, 0)), line);
}

static void check_signals(scif_epd_t epd, u64 *words)
{
	static const struct {
		const char *name;
		int flags;
	} all[] = {
		{ "own transfers, here", SELF | LOCAL },
		{ "own transfers, there", SELF | REMOTE },
		{ "own transfers, both", SELF | LOCAL | REMOTE },
		{ "the other's transfers, here", PEER | LOCAL },
		{ "the other's transfers, there", PEER | REMOTE },
		{ "the other's transfers, both", PEER | LOCAL | REMOTE },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(all); i++)
		check_signal(epd, words, all[i].flags, 64, 0x123456789abcdef0ULL + i, all[i].name);
	check_signal(epd, words, SELF | LOCAL | REMOTE, PAGE_SIZE - 8, 1, "the end of a page");
	check_signal(epd, words, SELF | LOCAL | REMOTE, 12, 0xfedcba9876543210ULL,
		     "a multiple of 4 only");
}

/* The word is not stored before the transfers that it stands for are complete. */
static void check_order(scif_epd_t epd, u8 *memory)
{
	u64 *word = (u64 *)(memory + SIZE - 8), sum = 0;

	test_fill(memory, SIZE, 3);
	*word = 0;
	test_returns(0, scif_writeto(epd, WINDOW, SIZE - 8, WINDOW, 0),
		     "a transfer before a signal");
	test_returns(0, scif_fence_signal(epd, 0, 0, WINDOW + SIZE - 8, 77, SELF | REMOTE),
		     "a signal behind a transfer");
	test_returns(0, ask(epd, ASK_WORD, 0, WINDOW + SIZE - 8, 77),
		     "the signal arrives at the peer");
	ask_sum(epd, &sum, ASK_SUM, WINDOW, SIZE - 8);
	test_that(sum == test_sum(memory, SIZE - 8), "the transfer has arrived before the signal");

	ask(epd, ASK_FILL, 0, WINDOW, SIZE, 4);
	test_returns(0, ask(epd, ASK_WRITETO, 0, WINDOW, SIZE - 8, WINDOW, 0),
		     "the peer's transfer before a signal");
	test_returns(0, scif_fence_signal(epd, WINDOW + SIZE - 8, 78, 0, 0, PEER | LOCAL),
		     "a signal behind the peer's transfer");
	test_that(word_comes(word, 78), "the signal arrives in the own window");
	test_that(test_filled(memory, SIZE - 8, 4),
		  "the peer's transfer has arrived before the signal");
}

static void check_errors(scif_epd_t epd)
{
	static const int wrong[] = { 0, SELF, PEER, LOCAL, LOCAL | REMOTE, SELF | PEER | LOCAL,
				     SELF | LOCAL | 0x40, SELF | LOCAL | 4 };
	bool ok = true;
	int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		ok &= scif_fence_signal(epd, WINDOW, 1, WINDOW, 1, wrong[i]) == -EINVAL;
	test_that(ok, "fence_signal with invalid flags is EINVAL");
	test_returns(-EINVAL, scif_fence_signal(epd, WINDOW + 2, 1, 0, 0, SELF | LOCAL),
		     "local fence_signal to no multiple of 4");
	test_returns(-EINVAL, scif_fence_signal(epd, 0, 0, WINDOW + 1, 1, SELF | REMOTE),
		     "remote fence_signal to no multiple of 4");
	test_returns(-EINVAL,
		     scif_fence_signal(epd, WINDOW + PAGE_SIZE - 4, 1, 0, 0, SELF | LOCAL),
		     "fence_signal here over the border of pages");
	test_returns(-EINVAL,
		     scif_fence_signal(epd, 0, 0, WINDOW + PAGE_SIZE - 4, 1, PEER | REMOTE),
		     "fence_signal there over the border of pages");
	test_returns(-ENXIO, scif_fence_signal(epd, NOWHERE, 1, 0, 0, SELF | LOCAL),
		     "local fence_signal outside of all windows");
	test_returns(-ENXIO, scif_fence_signal(epd, 0, 0, NOWHERE, 1, SELF | REMOTE),
		     "remote fence_signal outside of all windows");
	test_returns(-ENXIO, scif_fence_signal(epd, NOWHERE, 1, WINDOW, 1, PEER | LOCAL | REMOTE),
		     "fence_signal with INIT_PEER outside of all windows");
	test_returns(-EACCES, scif_fence_signal(epd, READABLE, 1, 0, 0, SELF | LOCAL),
		     "local fence_signal to a read-only window");
	test_returns(-EACCES, scif_fence_signal(epd, 0, 0, READABLE, 1, SELF | REMOTE),
		     "remote fence_signal to a read-only window");
	test_returns(-EACCES, scif_fence_signal(epd, 0, 0, READABLE, 1, PEER | REMOTE),
		     "fence_signal with INIT_PEER to a read-only window");
	/* The driver does not check an offset that the flags do not use. */
	test_returns(0, scif_fence_signal(epd, WINDOW, 0, NOWHERE + 1, 0, SELF | LOCAL),
		     "fence_signal ignores the offset of the other side");
}

void test_fences(void)
{
	scif_epd_t epd = test_reach_server();
	void *memory = vzalloc(SIZE);
	void *readable = vzalloc(PAGE_SIZE);

	if (!epd || !test_ready(memory && readable, "memory"))
		goto free;
	if (test_ready(ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, WINDOW, BOTH, 0) == WINDOW &&
		       ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, PAGE_SIZE, READABLE, SCIF_PROT_READ,
			   0) == READABLE &&
		       scif_register(epd, memory, SIZE, WINDOW, BOTH, PLACED) == WINDOW &&
		       scif_register(epd, readable, PAGE_SIZE, READABLE, SCIF_PROT_READ, PLACED) ==
			       READABLE, "windows")) {
		check_marks(epd, memory);
		check_foreign_mark(epd);
		check_signals(epd, memory);
		check_order(epd, memory);
		check_errors(epd);
	}
free:
	if (epd)
		scif_close(epd);
	vfree(readable);
	vfree(memory);
}
