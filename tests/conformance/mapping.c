// SPDX-License-Identifier: GPL-2.0
/*
 * mmap of the peer's windows.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "../harness/suite.h"

/* Makes a pair in which only the peer has a window, with pattern 1. */
static struct windows peers_window(long page_count, int prot)
{
	struct windows windows = { .pair = connected(), .len = page_count * PAGE };
	struct peer *peer = windows.pair.peer;

	windows.peer_memory = ask(peer, DO_PAGES, page_count);
	ask(peer, DO_FILL, windows.peer_memory, 1, windows.len);
	windows.peer_offset = expect_ok(ask(peer, DO_REGISTER, windows.pair.there,
					    windows.peer_memory, windows.len, 0, prot, 0));
	return windows;
}

static unsigned char *map(const struct windows *windows, long at, long len, int prot)
{
	return scif_mmap(NULL, len, prot, 0, windows->pair.here, windows->peer_offset + at);
}

static unsigned char *mapped(const struct windows *windows, int prot)
{
	unsigned char *memory = map(windows, 0, windows->len, prot);

	if (memory == SCIF_MMAP_FAILED)
		fail("mmap: %s", strerror(errno));
	return memory;
}

static void expect_no_mapping(void *memory, int error, int other)
{
	int found = errno;

	expect(memory == SCIF_MMAP_FAILED);
	expect(found == error || found == other);
}

/* Finds the signal that an access causes, or 0. */
static sigjmp_buf after_fault;

static void on_fault(int signal)
{
	siglongjmp(after_fault, signal);
}

static int access_signal(unsigned char *address, bool write)
{
	int signal;

	sigaction(SIGSEGV, &(struct sigaction) { .sa_handler = on_fault }, NULL);
	sigaction(SIGBUS, &(struct sigaction) { .sa_handler = on_fault }, NULL);
	signal = sigsetjmp(after_fault, 1);
	if (!signal) {
		unsigned char value = __atomic_load_n(address, __ATOMIC_RELAXED);

		if (write)
			__atomic_store_n(address, value, __ATOMIC_RELAXED);
	}
	return signal;
}

/* --- Content of mappings --- */

static void mmap_reads(void)
{
	struct windows windows = peers_window(8, READ_WRITE);
	unsigned char *memory = mapped(&windows, SCIF_PROT_READ);

	expect_value(differs(memory, 1, windows.len), -1);
	ask(windows.pair.peer, DO_FILL, windows.peer_memory, 2, windows.len);
	expect_value(differs(memory, 2, windows.len), -1);
	expect_value(scif_munmap(memory, windows.len), 0);
	expect_value(access_signal(memory, false), SIGSEGV);
}

static void mmap_writes(void)
{
	struct windows windows = peers_window(8, READ_WRITE);
	unsigned char *memory = mapped(&windows, READ_WRITE);

	fill(memory, 3, windows.len);
	/* A load returns after the stores before it have arrived. */
	expect_value(differs(memory, 3, windows.len), -1);
	expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, 3, windows.len), -1);
	memory[4097] = 0x5a;
	expect(memory[4097] == 0x5a);
	expect_value(ask(windows.pair.peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory + 4097, 0x5a,
			 1), -1);
}

/* Runs in a peer: waits for each number, and answers with its double. */
static __s64 double_numbers(const __s64 *argument)
{
	__u64 *word = (__u64 *)argument[0];
	__u64 round;

	for (round = 1; round <= (__u64)argument[1]; round++) {
		while (__atomic_load_n(&word[0], __ATOMIC_ACQUIRE) != round * 0x100000001)
			;
		__atomic_store_n(&word[8], round * 0x200000002, __ATOMIC_RELEASE);
	}
	return 0;
}

static void mmap_words(void)
{
	struct windows windows = peers_window(1, READ_WRITE);
	__u64 *word = (__u64 *)mapped(&windows, READ_WRITE);
	const __u64 rounds = 100;
	__u64 round;

	memset(word, 0, 128);
	begin(windows.pair.peer, DO_RUN, windows.peer_memory, rounds);
	for (round = 1; round <= rounds; round++) {
		/* Stores both halves at once. The other side never sees only one of them. */
		__atomic_store_n(&word[0], round * 0x100000001, __ATOMIC_SEQ_CST);
		while (__atomic_load_n(&word[8], __ATOMIC_SEQ_CST) != round * 0x200000002)
			;
	}
	expect_value(end(windows.pair.peer), 0);
}

static void mmap_part(void)
{
	struct windows windows = peers_window(8, READ_WRITE);
	unsigned char *whole = mapped(&windows, SCIF_PROT_READ), *part;
	long first, count;

	for (first = 0; first < 8; first += 3) {
		for (count = 1; first + count <= 8; count += 2) {
			part = map(&windows, first * PAGE, count * PAGE, READ_WRITE);
			expect(part != SCIF_MMAP_FAILED);
			expect(!memcmp(part, whole + first * PAGE, count * PAGE));
			expect_value(scif_munmap(part, count * PAGE), 0);
		}
	}
	expect_value(differs(whole, 1, windows.len), -1);
}

static void mmap_fixed(void)
{
	struct windows windows = peers_window(2, READ_WRITE);
	unsigned char *memory = pages(4);

	expect(scif_mmap(memory + PAGE, 2 * PAGE, READ_WRITE, SCIF_MAP_FIXED, windows.pair.here,
			 windows.peer_offset) == memory + PAGE);
	expect_value(differs(memory + PAGE, 1, 2 * PAGE), -1);
	expect(!memory[0] && !memory[3 * PAGE]);
}

#define AT	0x400000L

static void mmap_spans(void)
{
	struct windows windows = { .pair = connected(), .len = 6 * PAGE, .peer_offset = AT };
	struct pair *pair = &windows.pair;
	__s64 there = ask(pair->peer, DO_PAGES, 6);
	unsigned char *memory;
	long at = 0, count;

	ask(pair->peer, DO_FILL, there, 4, windows.len);
	for (count = 1; count <= 3; count++) {
		expect_ok(ask(pair->peer, DO_REGISTER, pair->there, there + at, count * PAGE,
			      AT + at, READ_WRITE, SCIF_MAP_FIXED));
		at += count * PAGE;
	}
	memory = mapped(&windows, READ_WRITE);
	expect_value(differs(memory, 4, windows.len), -1);
	fill(memory, 5, windows.len);
	expect_value(differs(memory, 5, windows.len), -1);
	expect_value(ask(pair->peer, DO_DIFFERS, there, 5, windows.len), -1);
	/* With the middle window unregistered, the mapping stays, but a new one is refused. */
	expect_ok(ask(pair->peer, DO_UNREGISTER, pair->there, AT + PAGE, 2 * PAGE));
	expect_value(differs(memory, 5, windows.len), -1);
	expect_no_mapping(map(&windows, 0, windows.len, READ_WRITE), ENXIO, ENXIO);
	expect_no_mapping(map(&windows, PAGE, PAGE, READ_WRITE), ENXIO, ENXIO);
	expect(map(&windows, 3 * PAGE, 3 * PAGE, READ_WRITE) != SCIF_MMAP_FAILED);
}

static void mmap_outside(void)
{
	struct windows windows = peers_window(2, READ_WRITE);

	expect_no_mapping(map(&windows, 2 * PAGE, PAGE, READ_WRITE), ENXIO, ENXIO);
	expect_no_mapping(map(&windows, PAGE, 2 * PAGE, READ_WRITE), ENXIO, ENXIO);
	expect_no_mapping(map(&windows, -PAGE, PAGE, READ_WRITE), ENXIO, ENXIO);
	expect_no_mapping(map(&windows, 1L << 40, PAGE, READ_WRITE), ENXIO, ENXIO);
	/* A negative offset is beyond all windows. */
	expect_no_mapping(scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, windows.pair.here, -PAGE),
			  ENXIO, EOVERFLOW);
}

static void mmap_unaligned(void)
{
	struct windows windows = peers_window(2, READ_WRITE);

	expect_no_mapping(map(&windows, 1, PAGE, READ_WRITE), EINVAL, EINVAL);
	expect_no_mapping(map(&windows, 2048, PAGE, READ_WRITE), EINVAL, EINVAL);
	expect_no_mapping(map(&windows, 0, 0, READ_WRITE), EINVAL, EINVAL);
}

/* --- Protection --- */

static void mmap_protection(void)
{
	struct windows windows = peers_window(2, SCIF_PROT_READ);
	unsigned char *memory;

	expect_no_mapping(map(&windows, 0, PAGE, READ_WRITE), EACCES, EACCES);
	expect_no_mapping(map(&windows, 0, PAGE, SCIF_PROT_WRITE), EACCES, EACCES);
	memory = mapped(&windows, SCIF_PROT_READ);
	expect_value(differs(memory, 1, windows.len), -1);
	expect_value(access_signal(memory, true), SIGSEGV);
	expect_value(ask(windows.pair.peer, DO_DIFFERS, windows.peer_memory, 1, windows.len), -1);
}

static void mmap_write_only(void)
{
	struct windows windows = peers_window(2, SCIF_PROT_WRITE);

	expect_no_mapping(map(&windows, 0, PAGE, SCIF_PROT_READ), EACCES, EACCES);
	expect_no_mapping(map(&windows, 0, PAGE, READ_WRITE), EACCES, EACCES);
}

static void mmap_mprotect(void)
{
	struct windows windows = peers_window(2, SCIF_PROT_READ);
	unsigned char *memory = mapped(&windows, SCIF_PROT_READ);

	expect_error(mprotect(memory, windows.len, PROT_READ | PROT_WRITE), EACCES);
	expect_error(mprotect(memory + PAGE, PAGE, PROT_WRITE), EACCES);
	expect_error(mprotect(memory, windows.len, PROT_READ | PROT_EXEC), EACCES);
	expect_value(access_signal(memory, true), SIGSEGV);
	/* Nor after its rights were removed. */
	expect_value(mprotect(memory, windows.len, PROT_NONE), 0);
	expect_error(mprotect(memory, windows.len, PROT_READ | PROT_WRITE), EACCES);
}

static void mmap_mprotect_lower(void)
{
	struct windows windows = peers_window(2, READ_WRITE);
	unsigned char *memory = mapped(&windows, READ_WRITE);

	memory[0] = 7;
	expect_value(mprotect(memory, windows.len, PROT_READ), 0);
	expect_value(access_signal(memory, false), 0);
	expect_value(access_signal(memory, true), SIGSEGV);
	expect_value(mprotect(memory, windows.len, PROT_NONE), 0);
	expect_value(access_signal(memory, false), SIGSEGV);
	expect_value(mprotect(memory, windows.len, PROT_READ | PROT_WRITE), 0);
	expect_value(access_signal(memory, true), 0);
	expect(memory[0] == 7);
}

static void mmap_mprotect_what_window_allows(void)
{
	struct windows windows = peers_window(1, READ_WRITE);
	unsigned char *memory = mapped(&windows, SCIF_PROT_READ);

	/* The limit is the window's protection or that of the call, and never more. */
	if (!mprotect(memory, PAGE, PROT_READ | PROT_WRITE))
		expect_value(access_signal(memory, true), 0);
	else
		expect_value(access_signal(memory, true), SIGSEGV);
	expect_error(mprotect(memory, PAGE, PROT_READ | PROT_EXEC), EACCES);
}

static void mmap_private(void)
{
	struct windows windows = peers_window(1, READ_WRITE);
	int fd = scif_get_fd(windows.pair.here);

	expect_no_mapping(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd,
			       windows.peer_offset), EINVAL, EACCES);
}

/* --- Lifetime of mappings --- */

static void mmap_unregister(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);

	expect_ok(ask(pair->peer, DO_UNREGISTER, pair->there, windows.peer_offset, windows.len));
	/* Also checks pages that were not loaded before. */
	expect_value(differs(memory, 1, windows.len), -1);
	fill(memory, 6, windows.len);
	expect_value(differs(memory, 6, windows.len), -1);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 6, windows.len), -1);
	expect_no_mapping(map(&windows, 0, PAGE, SCIF_PROT_READ), ENXIO, ENXIO);
	expect_value(ask(pair->peer, DO_LOCKED), windows.len);
	expect_value(scif_munmap(memory, windows.len), 0);
	wait_until(!ask(pair->peer, DO_LOCKED));
}

static void mmap_peer_close(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);

	expect_ok(ask(pair->peer, DO_CLOSE, pair->there));
	wait_for_hangup(pair->here);
	expect_value(differs(memory, 1, windows.len), -1);
	fill(memory, 7, windows.len);
	expect_value(differs(memory, 7, windows.len), -1);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 7, windows.len), -1);
	expect_no_mapping(map(&windows, 0, PAGE, SCIF_PROT_READ), ECONNRESET, ENOTCONN);
	expect_value(scif_munmap(memory, windows.len), 0);
	wait_until(!ask(pair->peer, DO_LOCKED));
}

static void mmap_own_close(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);

	expect_value(scif_close(pair->here), 0);
	expect_value(differs(memory, 1, windows.len), -1);
	fill(memory, 8, windows.len);
	expect_value(differs(memory, 8, windows.len), -1);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 8, windows.len), -1);
	expect_value(scif_munmap(memory, windows.len), 0);
	wait_until(!ask(pair->peer, DO_LOCKED));
}

static void mmap_peer_dies(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	unsigned char *memory = mapped(&windows, READ_WRITE);

	begin(windows.pair.peer, DO_DIE);
	wait_for_hangup(windows.pair.here);
	/*
	 * The process has ended. Its memory is kept for this process, or is gone. Memory of other
	 * processes is never seen.
	 */
	if (!access_signal(memory, false)) {
		expect_value(differs(memory, 1, windows.len), -1);
		fill(memory, 9, windows.len);
		expect_value(differs(memory, 9, windows.len), -1);
	}
	expect_value(scif_munmap(memory, windows.len), 0);
}

static void mmap_partial_unmap(void)
{
	struct windows windows = peers_window(8, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);
	int i;

	/* Unmaps pages from the middle, from the start, and from the end. */
	expect_value(scif_munmap(memory + 3 * PAGE, 2 * PAGE), 0);
	expect_value(scif_munmap(memory, PAGE), 0);
	expect_value(scif_munmap(memory + 7 * PAGE, PAGE), 0);
	for (i = 0; i < 8; i++)
		expect_value(access_signal(memory + i * PAGE, true),
			     i == 1 || i == 2 || i == 5 || i == 6 ? 0 : SIGSEGV);
	expect_ok(ask(pair->peer, DO_UNREGISTER, pair->there, windows.peer_offset, windows.len));
	memset(memory + 5 * PAGE, 0x33, 2 * PAGE);
	expect(memory[7 * PAGE - 1] == 0x33);
	expect_value(ask(pair->peer, DO_DIFFERS_FROM_BYTE, windows.peer_memory + 5 * PAGE, 0x33,
			 2 * PAGE), -1);
	expect_value(scif_munmap(memory, windows.len), 0);
	wait_until(!ask(pair->peer, DO_LOCKED));
}

static void touch(void *data)
{
	const unsigned char *memory = data;

	signal(SIGSEGV, SIG_DFL);
	signal(SIGBUS, SIG_DFL);
	__atomic_load_n(memory, __ATOMIC_RELAXED);
}

static void mmap_not_inherited(void)
{
	struct windows windows = peers_window(1, READ_WRITE);
	unsigned char *memory = mapped(&windows, READ_WRITE);

	memory[0] = 1;
	expect_value(child_signal(in_child(touch, memory)), SIGSEGV);
	/* The process can't change this. */
	expect(madvise(memory, PAGE, MADV_DOFORK) == -1);
	expect_value(child_signal(in_child(touch, memory)), SIGSEGV);
	expect(memory[0] == 1);
}

static void mmap_no_growth(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	unsigned char *memory = map(&windows, 0, 2 * PAGE, READ_WRITE), *moved;

	expect(memory != SCIF_MMAP_FAILED);
	expect(mremap(memory, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	expect(mremap(memory, 2 * PAGE, 3 * PAGE, 0) == MAP_FAILED);
	expect_value(access_signal(memory + PAGE, true), 0);
	/* Moving the mapping is harmless, if it is allowed. */
	moved = mremap(memory, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, pages(2));
	if (moved != MAP_FAILED)
		memory = moved;
	expect_value(differs(memory, 1, 2 * PAGE), -1);
	expect_value(scif_munmap(memory, 2 * PAGE), 0);
}

static void mmap_not_connected(void)
{
	int endpoint = expect_ok(scif_open());

	expect_no_mapping(scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, endpoint, 0), ENOTCONN,
			  ENOTCONN);
	expect_ok(scif_bind(endpoint, 0));
	expect_no_mapping(scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, endpoint, 0), ENOTCONN,
			  ENOTCONN);
	expect_value(scif_listen(endpoint, 1), 0);
	expect_no_mapping(scif_mmap(NULL, PAGE, SCIF_PROT_READ, 0, endpoint, 0), ENOTCONN,
			  ENOTCONN);
}

static void mmap_not_pinnable(void)
{
	struct windows windows = peers_window(2, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);

	expect_error(scif_register(pair->here, memory, PAGE, 0, READ_WRITE, 0), EFAULT);
	expect_error(scif_vreadfrom(pair->here, memory, PAGE, windows.peer_offset, SYNC), EFAULT);
	expect_value(locked(), 0);
	expect_value(differs(memory, 1, windows.len), -1);
}

/* Messages and copies whose memory is a mapping move byte by byte, or fail. Nothing breaks. */
static void mmap_as_buffer(void)
{
	struct windows windows = peers_window(2, READ_WRITE);
	struct pair *pair = &windows.pair;
	unsigned char *memory = mapped(&windows, READ_WRITE);
	__s64 there = ask(pair->peer, DO_PAGES, 1);

	expect_value(scif_send(pair->here, memory, 100, SCIF_SEND_BLOCK), 100);
	expect_value(ask(pair->peer, DO_RECV, pair->there, there, 100, SCIF_RECV_BLOCK), 100);
	expect_value(ask(pair->peer, DO_DIFFERS, there, 1, 100), -1);
	ask(pair->peer, DO_FILL, there, 12, 100);
	expect_value(ask(pair->peer, DO_SEND, pair->there, there, 100, SCIF_SEND_BLOCK), 100);
	expect_value(scif_recv(pair->here, memory, 100, SCIF_RECV_BLOCK), 100);
	expect_value(differs(memory, 12, 100), -1);
}

static void mmap_many(void)
{
	struct windows windows = peers_window(4, READ_WRITE);
	unsigned char *memory[100];
	int i;

	for (i = 0; i < 100; i++) {
		memory[i] = map(&windows, i % 4 * PAGE, PAGE, READ_WRITE);
		expect(memory[i] != SCIF_MMAP_FAILED);
		memory[i][i] = i;
		expect(memory[i][i] == i);
	}
	for (i = 0; i < 100; i++)
		expect_value(scif_munmap(memory[i], PAGE), 0);
}

static void mmap_staged(void)
{
	struct windows windows = peers_window(3, READ_WRITE);

	expect_no_mapping(map(&windows, 0, windows.len, READ_WRITE), EOPNOTSUPP, EOPNOTSUPP);
	expect_no_mapping(map(&windows, PAGE, PAGE, SCIF_PROT_READ), EOPNOTSUPP, EOPNOTSUPP);
	/* Other errors have precedence. */
	expect_no_mapping(map(&windows, PAGE, windows.len, READ_WRITE), ENXIO, ENXIO);
}

const struct test_case mapping_cases[] = {
	PAIR_MAPPED(mmap_reads, "mmap.reads"),
	PAIR_MAPPED(mmap_writes, "mmap.writes"),
	PAIR_MAPPED_WITH(mmap_words, double_numbers, "mmap.atomic-words"),
	PAIR_MAPPED(mmap_part, "mmap.part"),
	PAIR_MAPPED(mmap_fixed, "mmap.part"),
	PAIR_MAPPED(mmap_spans, "mmap.spans mmap.gap"),
	PAIR(mmap_outside, "mmap.gap"),
	PAIR(mmap_unaligned, "mmap.unaligned"),
	PAIR_MAPPED(mmap_protection, "mmap.protection"),
	PAIR(mmap_write_only, "mmap.write-only"),
	PAIR_MAPPED(mmap_mprotect, "mmap.mprotect"),
	PAIR_MAPPED(mmap_mprotect_lower, "mmap.mprotect-lower"),
	PAIR_MAPPED(mmap_mprotect_what_window_allows, "mmap.mprotect"),
	PAIR(mmap_private, "mmap.private"),
	PAIR_MAPPED(mmap_unregister, "mmap.unregister unregister.mapped"),
	PAIR_MAPPED(mmap_peer_close, "mmap.peer-close mmap.reset"),
	PAIR_MAPPED(mmap_own_close, "mmap.own-close"),
	PAIR_MAPPED(mmap_peer_dies, "mmap.peer-close process.killed-peer"),
	PAIR_MAPPED(mmap_partial_unmap, "mmap.partial-unmap"),
	PAIR_MAPPED(mmap_not_inherited, "mmap.not-inherited"),
	PAIR_MAPPED(mmap_no_growth, "mmap.no-growth"),
	ALONE(mmap_not_connected, "mmap.not-connected"),
	PAIR_MAPPED(mmap_not_pinnable, "mmap.not-pinnable register.device-memory"),
	PAIR_MAPPED(mmap_as_buffer, "mmap.reads mmap.writes"),
	PAIR_MAPPED(mmap_many, "mmap.part"),
	PAIR_STAGED(mmap_staged, "mmap.staged"),
	{ }
};
