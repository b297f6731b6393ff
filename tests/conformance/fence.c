// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of fence_mark, fence_wait and fence_signal.
 */
#include "../harness/suite.h"

#define SELF	SCIF_FENCE_INIT_SELF
#define PEER	SCIF_FENCE_INIT_PEER
#define LOCAL	SCIF_SIGNAL_LOCAL
#define REMOTE	SCIF_SIGNAL_REMOTE

/* --- Marks --- */

static void mark_flags(void)
{
	struct pair pair = connected();
	int mark = -5;

	expect_error(scif_fence_mark(pair.here, 0, &mark), EINVAL);
	expect_error(scif_fence_mark(pair.here, SELF | PEER, &mark), EINVAL);
	expect_error(scif_fence_mark(pair.here, 4, &mark), EINVAL);
	expect_error(scif_fence_mark(pair.here, SELF | LOCAL, &mark), EINVAL);
	expect_error(scif_fence_mark(pair.here, -1, &mark), EINVAL);
	expect(mark == -5);
	expect_value(scif_fence_mark(pair.here, SELF, &mark), 0);
	expect_value(scif_fence_mark(pair.here, PEER, &mark), 0);
}

static void mark_positive(void)
{
	struct windows windows = connected_windows(1);
	int mark, i;

	for (i = 0; i < 10; i++) {
		mark = -1;
		expect_value(scif_fence_mark(windows.pair.here, SELF, &mark), 0);
		expect(mark > 0);
		mark = -1;
		expect_value(scif_fence_mark(windows.pair.here, PEER, &mark), 0);
		expect(mark > 0);
		expect_value(scif_writeto(windows.pair.here, windows.offset, 100,
					  windows.peer_offset, 0), 0);
	}
}

static void mark_bad_address(void)
{
	struct pair pair = connected();

	expect_error(scif_fence_mark(pair.here, SELF, (int *)8), EFAULT);
	expect_error(scif_fence_mark(pair.here, PEER, (int *)8), EFAULT);
	expect_error(scif_fence_mark(pair.here, SELF, NULL), EFAULT);
}

static void fences_not_connected(void)
{
	int endpoint = expect_ok(scif_open()), mark;

	expect_error(scif_fence_mark(endpoint, SELF, &mark), ENOTCONN);
	expect_error(scif_fence_mark(endpoint, PEER, &mark), ENOTCONN);
	expect_error(scif_fence_wait(endpoint, 1), ENOTCONN);
	expect_error(scif_fence_signal(endpoint, 0, 0, 0, 0, SELF | LOCAL), ENOTCONN);
	expect_error(scif_fence_signal(endpoint, 0, 0, 0, 0, PEER | REMOTE), ENOTCONN);
}

static void wait_unknown(void)
{
	struct windows windows = connected_windows(1);
	int endpoint = windows.pair.here, mark;

	expect_error(scif_fence_wait(endpoint, 0), EINVAL);
	expect_error(scif_fence_wait(endpoint, -1), EINVAL);
	expect_error(scif_fence_wait(endpoint, INT32_MIN), EINVAL);
	expect_error(scif_fence_wait(endpoint, INT32_MAX), EINVAL);
	expect_error(scif_fence_wait(endpoint, 123456), EINVAL);
	expect_value(scif_writeto(endpoint, windows.offset, 8, windows.peer_offset, 0), 0);
	expect_value(scif_fence_mark(endpoint, SELF, &mark), 0);
	expect_error(scif_fence_wait(endpoint, mark + 1000), EINVAL);
	expect_value(scif_fence_wait(endpoint, mark), 0);
}

static void wait_idle(void)
{
	struct pair pair = connected();
	int self, peer;

	expect_value(scif_fence_mark(pair.here, SELF, &self), 0);
	expect_value(scif_fence_mark(pair.here, PEER, &peer), 0);
	expect_value(scif_fence_wait(pair.here, self), 0);
	expect_value(scif_fence_wait(pair.here, peer), 0);
	/* A mark can be waited for any number of times. */
	expect_value(scif_fence_wait(pair.here, self), 0);
	expect_value(scif_fence_wait(pair.here, peer), 0);
}

static void wait_self(void)
{
	struct windows windows = connected_windows(512);
	struct pair *pair = &windows.pair;
	int round, mark;

	for (round = 1; round <= 6; round++) {
		ask(pair->peer, DO_FILL, windows.peer_memory, round, windows.len);
		expect_value(scif_readfrom(pair->here, windows.offset, windows.len,
					   windows.peer_offset, 0), 0);
		expect_value(scif_fence_mark(pair->here, SELF, &mark), 0);
		expect_value(scif_fence_wait(pair->here, mark), 0);
		expect_value(differs(windows.memory, round, windows.len), -1);
	}
}

static void wait_peer(void)
{
	struct windows windows = connected_windows(512);
	struct pair *pair = &windows.pair;
	int round, mark;

	for (round = 1; round <= 6; round++) {
		ask(pair->peer, DO_FILL, windows.peer_memory, round, windows.len);
		expect_value(ask(pair->peer, DO_WRITETO, pair->there, windows.peer_offset,
				 windows.len, windows.offset, 0), 0);
		expect_value(scif_fence_mark(pair->here, PEER, &mark), 0);
		expect_value(scif_fence_wait(pair->here, mark), 0);
		expect_value(differs(windows.memory, round, windows.len), -1);
	}
}

#define MARKS	400

static void wait_many(void)
{
	struct windows windows = connected_windows(64);
	struct pair *pair = &windows.pair;
	static int mark[MARKS];
	int i;

	for (i = 0; i < MARKS; i++) {
		expect_value(scif_writeto(pair->here, windows.offset, PAGE + i,
					  windows.peer_offset, 0), 0);
		expect_value(scif_fence_mark(pair->here, SELF, &mark[i]), 0);
	}
	/* Waits in another order, and twice for some marks. */
	for (i = 0; i < MARKS; i++)
		expect_value(scif_fence_wait(pair->here, mark[(i * 37) % MARKS]), 0);
	for (i = 0; i < MARKS; i += 100)
		expect_value(scif_fence_wait(pair->here, mark[i]), 0);
	for (i = 0; i < 50; i++)
		expect_value(scif_fence_mark(pair->here, PEER, &mark[i]), 0);
	for (i = 49; i >= 0; i--)
		expect_value(scif_fence_wait(pair->here, mark[i]), 0);
}

static void *wait_for_own(void *data)
{
	struct windows *windows = data;
	int mark, i;

	for (i = 0; i < 20; i++) {
		expect_value(scif_writeto(windows->pair.here, windows->offset, 5 * PAGE,
					  windows->peer_offset, 0), 0);
		expect_value(scif_fence_mark(windows->pair.here, i % 2 ? SELF : PEER, &mark), 0);
		expect_value(scif_fence_wait(windows->pair.here, mark), 0);
	}
	return NULL;
}

static void wait_threads(void)
{
	struct windows windows = connected_windows(8);
	pthread_t thread[4];
	int i;

	for (i = 0; i < 4; i++)
		thread[i] = in_thread(wait_for_own, &windows);
	for (i = 0; i < 4; i++)
		thread_result(thread[i]);
}

/* --- Signals --- */

static __u64 word_at(struct windows *windows, long offset)
{
	const __u64 *word = (const __u64 *)(windows->memory + offset);

	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static __u64 peer_word_at(struct windows *windows, long offset)
{
	expect_ok(ask(windows->pair.peer, DO_PEEK, windows->peer_memory + offset));
	return answer(windows->pair.peer, 0);
}

#define LVAL	0x1122334455667788ULL
#define RVAL	0x99aabbccddeeff00ULL

static int signal_at(struct windows *windows, long local, long remote, int flags)
{
	return scif_fence_signal(windows->pair.here, windows->offset + local, LVAL,
				 windows->peer_offset + remote, RVAL, flags);
}

static void signal_local(void)
{
	struct windows windows = connected_windows(2);

	expect_value(signal_at(&windows, 64, 128, SELF | LOCAL), 0);
	wait_until(word_at(&windows, 64) == LVAL);
	/* The peer's words and other words here have not changed. */
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, 0,
			 windows.len), -1);
	expect_value(differs_from_byte(windows.memory, 0, 64), -1);
	expect_value(differs_from_byte(windows.memory + 72, 0, windows.len - 72), -1);
}

static void signal_remote(void)
{
	struct windows windows = connected_windows(2);

	expect_value(signal_at(&windows, 64, 128, SELF | REMOTE), 0);
	wait_until(peer_word_at(&windows, 128) == RVAL);
	expect_value(differs_from_byte(windows.memory, 0, windows.len), -1);
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, 0, 128),
		     -1);
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory + 136, 0,
			 windows.len - 136), -1);
}

static void signal_both(void)
{
	struct windows windows = connected_windows(2);

	expect_value(signal_at(&windows, 0, windows.len - 8, SELF | LOCAL | REMOTE), 0);
	wait_until(word_at(&windows, 0) == LVAL);
	wait_until(peer_word_at(&windows, windows.len - 8) == RVAL);
}

static void signal_init_peer(void)
{
	struct windows windows = connected_windows(2);

	expect_value(signal_at(&windows, 8, 16, PEER | LOCAL), 0);
	wait_until(word_at(&windows, 8) == LVAL);
	expect_value(signal_at(&windows, 24, 32, PEER | REMOTE), 0);
	wait_until(peer_word_at(&windows, 32) == RVAL);
	expect_value(signal_at(&windows, 40, 48, PEER | LOCAL | REMOTE), 0);
	wait_until(word_at(&windows, 40) == LVAL);
	wait_until(peer_word_at(&windows, 48) == RVAL);
	/*
	 * The values are not swapped, and the words at the other side's offsets have not changed.
	 */
	expect(!word_at(&windows, 16) && !word_at(&windows, 32) && !word_at(&windows, 24) &&
	       !word_at(&windows, 48));
	expect(!peer_word_at(&windows, 8) && !peer_word_at(&windows, 16) &&
	       !peer_word_at(&windows, 24) && !peer_word_at(&windows, 40));
}

static void signal_flags(void)
{
	struct windows windows = connected_windows(1);

	expect_error(signal_at(&windows, 0, 0, LOCAL | REMOTE), EINVAL);
	expect_error(signal_at(&windows, 0, 0, SELF | PEER | LOCAL), EINVAL);
	expect_error(signal_at(&windows, 0, 0, SELF), EINVAL);
	expect_error(signal_at(&windows, 0, 0, PEER), EINVAL);
	expect_error(signal_at(&windows, 0, 0, 0), EINVAL);
	expect_error(signal_at(&windows, 0, 0, SELF | LOCAL | 4), EINVAL);
	expect_error(signal_at(&windows, 0, 0, SELF | LOCAL | 0x40), EINVAL);
	expect_error(signal_at(&windows, 0, 0, -1), EINVAL);
	expect(!word_at(&windows, 0) && !peer_word_at(&windows, 0));
}

static void signal_unaligned(void)
{
	struct windows windows = connected_windows(1);
	int i;

	for (i = 1; i < 8; i++) {
		if (i == 4)
			continue;
		expect_error(signal_at(&windows, i, 0, SELF | LOCAL), EINVAL);
		expect_error(signal_at(&windows, 0, i, SELF | REMOTE), EINVAL);
		expect_error(signal_at(&windows, i, 0, PEER | LOCAL), EINVAL);
		expect_error(signal_at(&windows, 0, i, PEER | REMOTE), EINVAL);
	}
	expect_value(differs_from_byte(windows.memory, 0, PAGE), -1);
}

#define COUNTS	3000

/* Returns a count that is less than one before, or NULL if there is none. */
static void *watch_count(void *data)
{
	struct windows *windows = data;
	__u64 seen = 0, count;

	while (seen < COUNTS) {
		count = word_at(windows, 0);
		if (count < seen)
			return (void *)count;
		seen = count;
	}
	return NULL;
}

static void signal_counts(void)
{
	struct windows windows = connected_windows(8);
	pthread_t watcher = in_thread(watch_count, &windows);
	__u64 seen = 0, count;
	int i;

	/* Some fences find that all transfers are complete, and some do not. */
	for (i = 1; i <= COUNTS; i++) {
		if (i % 3)
			expect_value(scif_writeto(windows.pair.here, windows.offset + PAGE,
						  2 * PAGE, windows.peer_offset + PAGE, 0), 0);
		expect_value(scif_fence_signal(windows.pair.here, windows.offset, i,
					       windows.peer_offset, i, SELF | LOCAL | REMOTE), 0);
		if (i % 100)
			continue;
		count = peer_word_at(&windows, 0);
		expect(count >= seen && count <= (__u64)i);
		seen = count;
	}
	wait_until(peer_word_at(&windows, 0) == COUNTS);
	wait_until(word_at(&windows, 0) == COUNTS);
	expect(!thread_result(watcher));
}

static void signal_four_aligned(void)
{
	static const __u64 value = 0x0123456789abcdefULL;
	struct windows windows = connected_windows(1);
	struct peer *peer = windows.pair.peer;
	__u64 found;

	expect_value(scif_fence_signal(windows.pair.here, windows.offset + 100, value,
				       windows.peer_offset + 204, ~value, SELF | LOCAL | REMOTE),
		     0);
	wait_until((memcpy(&found, windows.memory + 100, 8), found == value));
	wait_until(!ask(peer, DO_PEEK, windows.peer_memory + 204) &&
		   (__u64)answer(peer, 0) == ~value);
	expect_value(differs_from_byte(windows.memory, 0, 100), -1);
	expect_value(differs_from_byte(windows.memory + 108, 0, PAGE - 108), -1);
	expect_value(ask(peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory, 0, 204), -1);
	expect_value(ask(peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory + 212, 0, PAGE - 212),
		     -1);
}

static void signal_page_end(void)
{
	/* There are two pages, so that the first page has a neighbour in the window. */
	struct windows windows = connected_windows(2);
	int mark;

	expect_errors(signal_at(&windows, PAGE - 4, 0, SELF | LOCAL), EINVAL, ENXIO);
	expect_errors(signal_at(&windows, 0, PAGE - 4, SELF | REMOTE), EINVAL, ENXIO);
	expect_errors(signal_at(&windows, PAGE - 4, 0, PEER | LOCAL), EINVAL, ENXIO);
	expect_errors(signal_at(&windows, 0, PAGE - 4, PEER | REMOTE), EINVAL, ENXIO);
	expect_errors(signal_at(&windows, 2 * PAGE - 4, 0, SELF | LOCAL), EINVAL, ENXIO);
	expect_errors(signal_at(&windows, 0, 2 * PAGE - 4, SELF | REMOTE), EINVAL, ENXIO);
	/* The last offset that fits. */
	expect_value(signal_at(&windows, PAGE - 8, PAGE - 8, SELF | LOCAL | REMOTE), 0);
	expect_value(scif_fence_mark(windows.pair.here, SELF, &mark), 0);
	expect_value(scif_fence_wait(windows.pair.here, mark), 0);
	wait_until(word_at(&windows, PAGE - 8) == LVAL);
	wait_until(peer_word_at(&windows, PAGE - 8) == RVAL);
	expect_value(differs_from_byte(windows.memory + PAGE, 0, PAGE), -1);
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory + PAGE, 0,
			 PAGE), -1);
}

static void signal_outside(void)
{
	struct windows windows = connected_windows(1);

	expect_error(signal_at(&windows, PAGE, 0, SELF | LOCAL), ENXIO);
	expect_error(signal_at(&windows, 0, PAGE, SELF | REMOTE), ENXIO);
	expect_error(signal_at(&windows, PAGE, 0, PEER | LOCAL), ENXIO);
	expect_error(signal_at(&windows, 0, PAGE, PEER | REMOTE), ENXIO);
	expect_error(signal_at(&windows, -PAGE, 0, SELF | LOCAL), ENXIO);
	/* If one of the two offsets is bad, neither word is stored. */
	expect_error(signal_at(&windows, 0, PAGE, SELF | LOCAL | REMOTE), ENXIO);
	expect_error(signal_at(&windows, PAGE, 0, SELF | LOCAL | REMOTE), ENXIO);
	expect_errors(scif_fence_signal(windows.pair.here, -8, 1, 0, 0, SELF | LOCAL), ENXIO,
		      EINVAL);
	expect(!word_at(&windows, 0) && !peer_word_at(&windows, 0));
}

static void signal_unused_offset(void)
{
	struct windows windows = connected_windows(1);

	expect_value(scif_fence_signal(windows.pair.here, windows.offset, LVAL, -3, 0,
				       SELF | LOCAL), 0);
	expect_value(scif_fence_signal(windows.pair.here, 1234567, 0, windows.peer_offset, RVAL,
				       SELF | REMOTE), 0);
	wait_until(word_at(&windows, 0) == LVAL);
	wait_until(peer_word_at(&windows, 0) == RVAL);
}

static void signal_read_only(void)
{
	struct windows windows = connected_windows(1);
	struct pair *pair = &windows.pair;
	__s64 there = ask(pair->peer, DO_PAGES, 1);
	__u64 *memory = pages(1);

	expect_ok(scif_register(pair->here, memory, PAGE, 0x50000, SCIF_PROT_READ, SCIF_MAP_FIXED));
	expect_ok(ask(pair->peer, DO_REGISTER, pair->there, there, PAGE, 0x50000, SCIF_PROT_READ,
		      SCIF_MAP_FIXED));
	expect_error(scif_fence_signal(pair->here, 0x50000, 1, 0, 0, SELF | LOCAL), EACCES);
	expect_error(scif_fence_signal(pair->here, 0, 0, 0x50000, 1, SELF | REMOTE), EACCES);
	expect_error(scif_fence_signal(pair->here, 0x50000, 1, 0, 0, PEER | LOCAL), EACCES);
	expect_error(scif_fence_signal(pair->here, 0, 0, 0x50000, 1, PEER | REMOTE), EACCES);
	expect(!memory[0]);
	expect_value(ask(pair->peer, DO_DIFFERS_FROM_BYTE, there, 0, PAGE), -1);
}

/* --- The signal and the data --- */

#define DATA_PAGES	512L

/* Runs in the peer: spins on the word behind the data, then checks the data. */
static __s64 spin_and_check(const __s64 *argument)
{
	const unsigned char *memory = (const unsigned char *)argument[0];
	const __s64 *word = (const __s64 *)(memory + DATA_PAGES * PAGE);

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != argument[1])
		;
	return differs(memory, argument[1], DATA_PAGES * PAGE);
}

static void signal_after_data(void)
{
	struct windows windows = connected_windows(DATA_PAGES + 1);
	struct pair *pair = &windows.pair;
	long len = DATA_PAGES * PAGE;
	int round, i;

	for (round = 1; round <= 10; round++) {
		fill(windows.memory, round, len);
		begin(pair->peer, DO_RUN, windows.peer_memory, round);
		for (i = 0; i < 4; i++)
			expect_value(scif_writeto(pair->here, windows.offset + i * len / 4, len / 4,
						  windows.peer_offset + i * len / 4,
						  i & SCIF_RMA_USECPU), 0);
		expect_value(scif_fence_signal(pair->here, 0, 0, windows.peer_offset + len, round,
					       SELF | REMOTE), 0);
		expect_value(end(pair->peer), -1);
	}
}

static void signal_after_own_reads(void)
{
	struct windows windows = connected_windows(DATA_PAGES + 1);
	struct pair *pair = &windows.pair;
	long len = DATA_PAGES * PAGE;
	__u64 round;

	for (round = 1; round <= 10; round++) {
		ask(pair->peer, DO_FILL, windows.peer_memory, round, len);
		expect_value(scif_readfrom(pair->here, windows.offset, len, windows.peer_offset, 0),
			     0);
		expect_value(scif_fence_signal(pair->here, windows.offset + len, round, 0, 0,
					       SELF | LOCAL), 0);
		while (word_at(&windows, len) != round)
			;
		expect_value(differs(windows.memory, round, len), -1);
	}
}

static void signal_after_peers_data(void)
{
	struct windows windows = connected_windows(DATA_PAGES + 1);
	struct pair *pair = &windows.pair;
	long len = DATA_PAGES * PAGE;
	__u64 round;

	for (round = 1; round <= 10; round++) {
		ask(pair->peer, DO_FILL, windows.peer_memory, round, len);
		expect_value(ask(pair->peer, DO_WRITETO, pair->there, windows.peer_offset, len,
				 windows.offset, 0), 0);
		expect_value(scif_fence_signal(pair->here, windows.offset + len, round, 0, 0,
					       PEER | LOCAL), 0);
		while (word_at(&windows, len) != round)
			;
		expect_value(differs(windows.memory, round, len), -1);
	}
}

static void signal_many(void)
{
	struct windows windows = connected_windows(4);
	struct pair *pair = &windows.pair;
	int i;

	/* Each signal has its own word, and each arrives. */
	for (i = 0; i < 300; i++) {
		expect_value(scif_writeto(pair->here, windows.offset + 3 * PAGE, 200,
					  windows.peer_offset + 3 * PAGE, 0), 0);
		expect_value(scif_fence_signal(pair->here, windows.offset + 8 * i, i + 1,
					       windows.peer_offset + 8 * i, i + 1,
					       SELF | LOCAL | REMOTE), 0);
	}
	wait_until(word_at(&windows, 8 * 299) == 300 && peer_word_at(&windows, 8 * 299) == 300);
	for (i = 0; i < 300; i++) {
		wait_until(word_at(&windows, 8 * i) == i + 1ULL);
		wait_until(peer_word_at(&windows, 8 * i) == i + 1ULL);
	}
}

const struct test_case fence_cases[] = {
	PAIR(mark_flags, "mark.flags"),
	PAIR(mark_positive, "mark.positive"),
	PAIR(mark_bad_address, "mark.bad-address"),
	ALONE(fences_not_connected,
	      "mark.not-connected wait.not-connected signal.not-connected"),
	PAIR(wait_unknown, "wait.unknown"),
	PAIR(wait_idle, "wait.idle"),
	PAIR(wait_self, "wait.self"),
	PAIR(wait_peer, "wait.peer"),
	PAIR(wait_many, "wait.many"),
	PAIR(wait_threads, "wait.self wait.peer rma.threads"),
	PAIR(signal_local, "signal.local"),
	PAIR(signal_remote, "signal.remote"),
	PAIR(signal_both, "signal.both"),
	PAIR(signal_init_peer, "signal.init-peer"),
	PAIR(signal_flags, "signal.init-flags signal.no-target signal.flags"),
	PAIR(signal_unaligned, "signal.unaligned"),
	PAIR(signal_four_aligned, "signal.four-aligned"),
	PAIR(signal_page_end, "signal.page-end"),
	PAIR(signal_outside, "signal.outside"),
	PAIR(signal_unused_offset, "signal.unused-offset"),
	PAIR(signal_read_only, "signal.read-only"),
	PAIR_WITH(signal_after_data, spin_and_check, "signal.after-data"),
	PAIR(signal_after_own_reads, "signal.after-data"),
	PAIR(signal_after_peers_data, "signal.after-peers-data"),
	PAIR(signal_many, "signal.both"),
	PAIR(signal_counts, "signal.in-order"),
	{ }
};
