// SPDX-License-Identifier: GPL-2.0
/*
 * SCIF_RMA_USECACHE: pages stay pinned, and no transfer ever uses the wrong pages.
 *
 *	scif_cache server PORT		has a window, for one client after the other
 *	scif_cache client NODE PORT	tests against a server
 *	scif_cache loopback PORT	both, on this node
 *	scif_cache limit PORT MIB	what a module with reg_cache_limit=MIB keeps
 *	scif_cache hold NODE PORT	has pages kept, says "holding", and waits to be killed
 *
 * Prints TAP. Data that was put into the window is read back without the cache, and data to get was
 * written without it. The module's counters in debugfs show whether pages stayed pinned. No other
 * process may use the cache of the client's node meanwhile.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "numbers.h"

#define PAGE			sysconf(_SC_PAGESIZE)
#define WINDOW			0x10000000L
#define WINDOW_SIZE		(4L << 20)

/* Address of the client's memory, which is fixed so that another program can have the same. */
#define PLACE			((unsigned char *)0x200000000000UL)
/* Pages of most tests, so many that the engine copies them and not the CPU. */
#define PAGES			8L
#define SIZE			(PAGES * PAGE)

/* Limit of kept registrations in the module. */
#define MAX_KEPT		1024L

/* SCIF_RMA_USECPU or 0. */
static int engine;
static int epd;

/* Does test(), and adds to the text which side copies. */
#define check(condition, format, ...)						\
	test(condition, format "%s", ##__VA_ARGS__, engine ? " (CPU)" : "")

/* --- Content --- */

static void fill(void *to, __u32 seed, long len)
{
	unsigned char *byte = to;
	long i;

	for (i = 0; i < len; i++)
		byte[i] = (i * 2654435761UL + seed * 97) >> (i % 13);
}

static bool is_filled(const void *from, __u32 seed, long len)
{
	unsigned char *expected = malloc(len);
	bool same;

	if (!expected)
		die("malloc");
	fill(expected, seed, len);
	same = !memcmp(from, expected, len);
	free(expected);
	return same;
}

/* --- The calls --- */

/* Opens a window with this memory. Returns 0 on success. */
static int open_window(int fd, void *memory, long len, long offset)
{
	return scif_register(fd, memory, len, offset, SCIF_PROT_READ | SCIF_PROT_WRITE,
			     SCIF_MAP_FIXED) < 0 ? -1 : 0;
}

static int fence(int fd)
{
	__s32 mark;

	return scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark) ?: scif_fence_wait(fd, mark);
}

static int copy(int fd, unsigned long call, void *memory, long len, long remote, int flags)
{
	struct scifioctl_copy argument = {
		.addr = (uintptr_t)memory, .len = len, .roffset = WINDOW + remote,
		.flags = flags,
	};

	return ioctl(fd, call, &argument);
}

/* Copies to the window, with the cache. */
static int put(void *memory, long len)
{
	return copy(epd, SCIF_VWRITETO, memory, len, 0,
		    SCIF_RMA_USECACHE | SCIF_RMA_SYNC | engine);
}

/* Copies from the window, with the cache. */
static int get(void *memory, long len)
{
	return copy(epd, SCIF_VREADFROM, memory, len, 0,
		    SCIF_RMA_USECACHE | SCIF_RMA_SYNC | engine);
}

/* Returns whether the window begins with this pattern. */
static bool arrived(__u32 seed, long len)
{
	unsigned char *back = malloc(len);
	bool same;

	if (!back)
		die("malloc");
	if (copy(epd, SCIF_VREADFROM, back, len, 0, SCIF_RMA_SYNC))
		die("SCIF_VREADFROM");
	same = is_filled(back, seed, len);
	free(back);
	return same;
}

/* Puts a pattern into the window. */
static void prepare(__u32 seed, long len)
{
	unsigned char *pattern = malloc(len);

	if (!pattern)
		die("malloc");
	fill(pattern, seed, len);
	if (copy(epd, SCIF_VWRITETO, pattern, len, 0, SCIF_RMA_SYNC))
		die("SCIF_VWRITETO");
	free(pattern);
}

/* --- What the kernel says --- */

static void pause_for_a_moment(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
}

static long kept(void)
{
	return counter("cache_pages");
}

/* The counters at the last check. */
static long hits_before, misses_before;

static bool counted(long hits, long misses)
{
	long new_hits = counter("cache_hits") - hits_before;
	long new_misses = counter("cache_misses") - misses_before;

	hits_before += new_hits;
	misses_before += new_misses;
	if (new_hits == hits && new_misses == misses)
		return true;
	printf("# %ld hits and %ld misses instead of %ld and %ld\n", new_hits, new_misses,
	       hits, misses);
	return false;
}

static bool hit(void)
{
	return counted(1, 0);
}

static bool missed(void)
{
	return counted(0, 1);
}

/* --- Memory --- */

static unsigned char *map(unsigned char *at, long len, int flags, int fd)
{
	unsigned char *memory = mmap(at, len, PROT_READ | PROT_WRITE,
				     flags | (at ? MAP_FIXED : 0), fd, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

/* Maps fresh memory at the usual address, with a pattern. */
static unsigned char *fresh(__u32 seed)
{
	unsigned char *memory = map(PLACE, SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	fill(memory, seed, SIZE);
	return memory;
}

/* Maps fresh memory, and makes the module keep its pages, for reading and for writing. */
static unsigned char *fresh_and_kept(__u32 seed)
{
	unsigned char *memory = fresh(seed);

	prepare(seed, SIZE);
	if (get(memory, SIZE) || put(memory, SIZE))
		die("a transfer with the cache");
	/* One of the two is for writing, which serves reads, too. */
	counted(1, 1);
	return memory;
}

static void forget(void)
{
	if (munmap(PLACE, SIZE))
		die("munmap");
	if (!comes_to(kept, 0))
		die("pages are left in the cache");
}

/* --- Tests --- */

static void test_hits(void)
{
	unsigned char *memory = fresh(1);

	check(!put(memory, SIZE) && missed() && arrived(1, SIZE) && comes_to(kept, PAGES),
	      "the first vwriteto caches its pages");
	fill(memory, 2, SIZE);
	check(!put(memory, SIZE) && hit() && arrived(2, SIZE),
	      "the second vwriteto finds the cached pages");
	fill(memory + 4099, 3, 2 * PAGE);
	check(!put(memory + 4099, 2 * PAGE) && hit() && arrived(3, 2 * PAGE),
	      "a vwriteto of a part at an odd address finds the cached pages");
	prepare(4, SIZE);
	check(!get(memory, SIZE) && missed() && is_filled(memory, 4, SIZE) &&
	      comes_to(kept, 2 * PAGES),
	      "vreadfrom does not use pages cached for reading only");
	prepare(5, 3 * PAGE);
	check(!get(memory + 77, 3 * PAGE) && hit() && is_filled(memory + 77, 5, 3 * PAGE),
	      "the second vreadfrom finds the pages of the first");
	check(comes_to(own_pinned_pages, 2 * PAGES), "cached pages count as locked");
	forget();
	check(comes_to(own_pinned_pages, 0), "after munmap no page is cached or locked");

	/* A registration for writing serves reads, too. */
	memory = fresh_and_kept(6);
	check(comes_to(kept, PAGES) && !put(memory, SIZE) && hit(),
	      "vwriteto uses pages cached for writing");
	forget();
}

static void test_overlaps(void)
{
	unsigned char *memory = fresh(1);

	put(memory, 4 * PAGE);
	put(memory + 2 * PAGE, 4 * PAGE);
	check(counted(0, 2) && comes_to(kept, 6), "two overlapping buffers become one");
	fill(memory, 2, SIZE);
	check(!put(memory, 4 * PAGE) && arrived(2, 4 * PAGE) &&
	      !put(memory + 2 * PAGE, 4 * PAGE) && !put(memory, 6 * PAGE) &&
	      arrived(2, 6 * PAGE) && counted(3, 0),
	      "a joined buffer serves both");
	put(memory + 6 * PAGE, 2 * PAGE);
	check(missed() && comes_to(kept, 8), "neighbours stay apart");
	/* The remaining part can't be joined with pages that no longer exist. */
	if (munmap(memory, 2 * PAGE))
		die("munmap");
	check(!put(memory + 3 * PAGE, 4 * PAGE) && missed() && comes_to(kept, 5),
	      "a new buffer is not joined with unmapped pages");
	forget();
}

static void test_mapped_anew(void)
{
	unsigned char *memory = fresh_and_kept(1);

	if (munmap(memory, SIZE))
		die("munmap");
	fresh(2);
	check(!put(memory, SIZE) && missed() && arrived(2, SIZE),
	      "munmap and mmap: vwriteto sends the new memory");
	forget();
	fresh_and_kept(3);
	/* Maps new memory over the old one. */
	fresh(4);
	prepare(5, SIZE);
	check(!get(memory, SIZE) && missed() && is_filled(memory, 5, SIZE),
	      "mmap over cached pages: vreadfrom fills the new memory");
	if (munmap(memory + 2 * PAGE, PAGE))
		die("munmap");
	check(put(memory, SIZE) == -1 && errno == EFAULT && get(memory, SIZE) == -1 &&
	      errno == EFAULT && counted(0, 2), "a buffer with a hole: EFAULT");
	check(!put(memory + 3 * PAGE, SIZE - 3 * PAGE) && !put(memory, 2 * PAGE),
	      "a buffer beside a hole: success");
	forget();
	counted(0, 2);
}

#ifdef __aarch64__
/* The CPU ignores the upper byte of an address, so programs may keep a tag there. */
static void test_tagged(void)
{
	unsigned char *memory = fresh(1);
	unsigned char *tagged = (void *)((uintptr_t)memory | 0x5aUL << 56);

	if (prctl(PR_SET_TAGGED_ADDR_CTRL, PR_TAGGED_ADDR_ENABLE, 0, 0, 0))
		die("PR_SET_TAGGED_ADDR_CTRL");
	check(!put(tagged, SIZE) && missed() && arrived(1, SIZE),
	      "an address with a tag: vwriteto sends the memory");
	check(!put(memory, SIZE) && hit(), "the same pages are cached, whatever the tag");
	/* Maps new memory over the old one. */
	fresh(2);
	check(!put(tagged, SIZE) && missed() && arrived(2, SIZE),
	      "mmap over cached pages, an address with a tag: vwriteto sends the new memory");
	forget();
}
#endif

static void test_moved(void)
{
	unsigned char *memory = fresh_and_kept(1);
	unsigned char *to = PLACE + (1L << 30);

	if (mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
		die("mremap");
	check(!put(to, SIZE) && arrived(1, SIZE), "mremap: the new address");
	check(put(memory, SIZE) == -1 && errno == EFAULT, "mremap: the old address");
	check(counted(0, 2), "mremap: neither address is cached");
	fresh(2);
	check(!put(memory, SIZE) && arrived(2, SIZE) && missed(),
	      "mremap: other memory at the old address");
	if (munmap(to, SIZE))
		die("munmap");
	forget();
}

static void test_discarded(void)
{
	unsigned char *memory = fresh_and_kept(1);
	unsigned char *back = malloc(SIZE);
	/* Large enough for pages of 64 KiB. */
	static const unsigned char zeroes[PAGES << 16];

	if (madvise(memory, SIZE, MADV_DONTNEED))
		die("madvise");
	check(!put(memory, SIZE) && missed() &&
	      !copy(epd, SCIF_VREADFROM, back, SIZE, 0, SCIF_RMA_SYNC) &&
	      !memcmp(back, zeroes, SIZE), "MADV_DONTNEED: vwriteto sends zeroes");
	if (madvise(memory, SIZE, MADV_DONTNEED))
		die("madvise");
	prepare(2, SIZE);
	check(!get(memory, SIZE) && missed() && is_filled(memory, 2, SIZE),
	      "MADV_DONTNEED: vreadfrom fills the new pages");
	/*
	 * The pages were pinned for reading before anything was written. Now the process has pages
	 * of its own.
	 */
	if (madvise(memory, SIZE, MADV_DONTNEED) || put(memory, SIZE))
		die("madvise");
	fill(memory, 3, SIZE);
	check(!put(memory, SIZE) && arrived(3, SIZE), "the first write after a first vwriteto");
	free(back);
	forget();
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

static void test_protected(void)
{
	unsigned char *memory = fresh_and_kept(1);

	if (mprotect(memory, SIZE, PROT_READ))
		die("mprotect");
	prepare(2, SIZE);
	check(get(memory, SIZE) == -1 && errno == EFAULT && missed() && is_filled(memory, 1, SIZE),
	      "mprotect for reading only: vreadfrom gives EFAULT");
	check(!put(memory, SIZE) && missed() && arrived(1, SIZE),
	      "mprotect for reading only: vwriteto still works");
	if (mprotect(memory, SIZE, PROT_NONE))
		die("mprotect");
	check(put(memory, SIZE) == -1 && errno == EFAULT && missed(),
	      "mprotect for nothing: vwriteto gives EFAULT");
	if (mprotect(memory, SIZE, PROT_READ | PROT_WRITE))
		die("mprotect");
	prepare(3, SIZE);
	check(!get(memory, SIZE) && missed() && is_filled(memory, 3, SIZE),
	      "mprotect for all: vreadfrom works again");
	forget();
}

static void test_truncated(void)
{
	int file = memfd_create("scif_cache", 0);
	unsigned char *memory;

	if (file < 0 || ftruncate(file, SIZE))
		die("memfd");
	memory = map(PLACE, SIZE, MAP_SHARED, file);
	fill(memory, 1, SIZE);
	check(!put(memory, SIZE) && !put(memory, SIZE) && arrived(1, SIZE) && counted(1, 1),
	      "a mapped file is cached");
	if (ftruncate(file, 0))
		die("ftruncate");
	check(put(memory, SIZE) == -1 && errno == EFAULT && missed(), "truncated: EFAULT");
	if (ftruncate(file, SIZE))
		die("ftruncate");
	fill(memory, 2, SIZE);
	check(!put(memory, SIZE) && missed() && arrived(2, SIZE),
	      "made longer: vwriteto sends the new content");
	if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE))
		die("fallocate");
	fill(memory, 3, SIZE);
	check(!put(memory, SIZE) && missed() && arrived(3, SIZE), "a hole punched and filled");
	close(file);
	forget();
}

static void test_fork(void)
{
	unsigned char *memory = fresh_and_kept(1);
	int to_child[2], from_child[2];
	pid_t child;
	char byte = 0;

	if (pipe(to_child) || pipe(from_child))
		die("pipe");
	child = new_child();
	if (!child) {
		/* Address, descriptor and content are the same as in the parent. */
		fill(memory, 2, SIZE);
		if (put(memory, SIZE) || !arrived(2, SIZE))
			_exit(1);
		if (write(from_child[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1)
			_exit(2);
		if (!is_filled(memory, 2, SIZE))
			_exit(3);
		if (put(memory, SIZE) || !arrived(2, SIZE))
			_exit(4);
		prepare(5, SIZE);
		if (get(memory, SIZE) || !is_filled(memory, 5, SIZE))
			_exit(5);
		_exit(0);
	}
	if (read(from_child[0], &byte, 1) != 1)
		die("the child has failed");
	check(is_filled(memory, 1, SIZE) && !put(memory, SIZE) && arrived(1, SIZE),
	      "fork: vwriteto of the parent does not send the child's bytes");
	fill(memory, 3, SIZE);
	check(!put(memory, SIZE) && arrived(3, SIZE), "fork: vwriteto sends the parent's bytes");
	prepare(4, SIZE);
	check(!get(memory, SIZE) && is_filled(memory, 4, SIZE),
	      "fork: vreadfrom fills the parent's memory");
	if (write(to_child[1], &byte, 1) != 1)
		die("the child has failed");
	check(wait_for_child(child) == 0, "fork: the child has its own memory");
	check(is_filled(memory, 4, SIZE) && !put(memory, SIZE) && arrived(4, SIZE),
	      "fork: vwriteto after the child has exited");
	check(comes_to(kept, 2 * PAGES), "fork: no page of the child is cached");
	close(to_child[0]);
	close(to_child[1]);
	close(from_child[0]);
	close(from_child[1]);
	forget();
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

static void test_exec(void)
{
	pid_t child = new_child();
	char fd[16], with[16];

	if (!child) {
		fresh_and_kept(1);
		if (fcntl(epd, F_SETFD, 0))
			_exit(99);
		snprintf(fd, sizeof(fd), "%d", epd);
		snprintf(with, sizeof(with), "%d", engine);
		execl("/proc/self/exe", "scif_cache", "executed", fd, with, NULL);
		_exit(100);
	}
	check(wait_for_child(child) == 0, "exec: the new program's memory is sent and filled");
	check(comes_to(kept, 0), "exec: no page of either program is cached at the end");
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

/* Runs as the program that test_exec() starts: another program with memory at the same address. */
static int executed(void)
{
	unsigned char *memory;

	if (!comes_to(kept, 0))
		return 1;
	memory = fresh(2);
	if (put(memory, SIZE) || !arrived(2, SIZE))
		return 2;
	prepare(3, SIZE);
	if (get(memory, SIZE) || !is_filled(memory, 3, SIZE))
		return 3;
	return 0;
}

/* Acts as the kernel does when memory is short, and asks all caches to shrink. */
static void test_shortage(void)
{
	long evicted = counter("cache_evictions");
	unsigned char *memory = fresh_and_kept(1);
	int file = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (file < 0 || write(file, "2", 1) != 1)
		die("/proc/sys/vm/drop_caches");
	close(file);
	check(comes_to(kept, 0) && counter("cache_evictions") > evicted &&
	      comes_to(own_pinned_pages, 0), "the kernel is short of memory: no page is cached");
	fill(memory, 2, SIZE);
	check(!put(memory, SIZE) && missed() && arrived(2, SIZE) && !put(memory, SIZE) && hit(),
	      "the kernel was short of memory: pages are cached again");
	forget();
}

/* Puts pressure on memory. This needs swap. */
static void test_pressure(void)
{
	long swapped = number_of("/proc/vmstat", "pswpout");
	unsigned char *other = map(NULL, SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	static const int kinds[] = { MAP_PRIVATE, MAP_SHARED };
	unsigned char *memory;
	size_t i;

	fill(other, 9, SIZE);
	if (madvise(other, SIZE, MADV_PAGEOUT))
		die("MADV_PAGEOUT");
	check(number_of("/proc/vmstat", "pswpout") >= swapped + PAGES,
	      "memory that is not cached is swapped out");
	for (i = 0; i < 2; i++) {
		memory = map(PLACE, SIZE, kinds[i] | MAP_ANONYMOUS, -1);
		fill(memory, 1, SIZE);
		prepare(1, SIZE);
		if (get(memory, SIZE) || put(memory, SIZE) ||
		    madvise(memory, SIZE, MADV_PAGEOUT))
			die("MADV_PAGEOUT");
		check(!put(memory, SIZE) && arrived(1, SIZE), "paged out: the same is sent (%s)",
		      i ? "shared" : "private");
		if (madvise(memory, SIZE, MADV_PAGEOUT))
			die("MADV_PAGEOUT");
		fill(memory, 2, SIZE);
		check(!put(memory, SIZE) && arrived(2, SIZE),
		      "paged out: vwriteto sends new bytes");
		if (madvise(memory, SIZE, MADV_PAGEOUT))
			die("MADV_PAGEOUT");
		prepare(3, SIZE);
		check(!get(memory, SIZE) && is_filled(memory, 3, SIZE),
		      "paged out: the process sees the bytes of vreadfrom");
		forget();
	}
	check(is_filled(other, 9, SIZE), "swapped memory comes back");
	munmap(other, SIZE);
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

static void test_asynchronous(void)
{
	int flags = SCIF_RMA_USECACHE | engine;
	unsigned char *memory = fresh_and_kept(1);

	fill(memory, 2, SIZE);
	check(!copy(epd, SCIF_VWRITETO, memory, SIZE, 0, flags) && hit() &&
	      !munmap(memory, SIZE) && !fence(epd) && arrived(2, SIZE),
	      "a transfer in flight continues after munmap");
	fresh(3);
	check(!copy(epd, SCIF_VWRITETO, memory, SIZE, 0, flags) && missed() &&
	      !copy(epd, SCIF_VWRITETO, memory, SIZE, SIZE, flags) && hit() &&
	      !fence(epd) && arrived(3, SIZE), "the next transfer uses the new memory");
	forget();
}

static void test_many(void)
{
	long size = (MAX_KEPT + 64) * PAGE, i, evicted = counter("cache_evictions");
	unsigned char *memory = map(PLACE, size, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (i = 0; i < size; i += PAGE) {
		if (put(memory + i, 8) || put(memory, 8))
			die("SCIF_VWRITETO");
	}
	check(comes_to(kept, MAX_KEPT) && counter("cache_evictions") == evicted + 64,
	      "of many pages, the largest allowed number is cached");
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
	check(!put(memory, 8) && !put(memory + size - PAGE, 8) && counted(2, 0) &&
	      !put(memory + PAGE, 8) && missed(),
	      "recently used pages stay, and other pages are evicted");
	munmap(memory, size);
	check(comes_to(kept, 0), "all cached pages go with the memory");
}

/* Runs as a user who may lock only a few pages, `limit`. */
static void limited(long limit)
{
	struct rlimit rlimit = { .rlim_cur = limit * PAGE, .rlim_max = limit * PAGE };
	unsigned char *memory;
	long i;

	tests = 1000;
	failures = 0;
	if (setrlimit(RLIMIT_MEMLOCK, &rlimit) || setuid(65534))
		die("setuid");
	/* The parent prints the results. */
	dup2(2, 1);
	memory = map(PLACE, 4 * limit * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	fill(memory, 1, 4 * limit * PAGE);
	check(!put(memory, limit * PAGE) && !put(memory, limit * PAGE) && counted(1, 1) &&
	      comes_to(own_pinned_pages, limit), "a low limit: pages up to the limit are cached");
	check(!put(memory + limit * PAGE, limit * PAGE) && missed() &&
	      comes_to(own_pinned_pages, limit) && comes_to(kept, limit),
	      "a low limit: a new page evicts a cached page");
	check(!put(memory, 2 * limit * PAGE) && arrived(1, 2 * limit * PAGE) && missed() &&
	      !put(memory, 2 * limit * PAGE) && missed() && comes_to(own_pinned_pages, 0),
	      "a low limit: more pages are sent without the cache");
	for (i = 0; i < 4; i++) {
		if (put(memory + i * (limit / 4) * PAGE, limit / 4 * PAGE))
			die("SCIF_VWRITETO");
	}
	check(comes_to(kept, limit) &&
	      !open_window(epd, memory + 2 * limit * PAGE, limit * PAGE, 0) &&
	      comes_to(own_pinned_pages, limit) && comes_to(kept, 0),
	      "a low limit: windows evict cached pages");
	check(!put(memory, limit * PAGE) && arrived(1, limit * PAGE) && comes_to(kept, 0),
	      "a low limit: beside windows no page is cached");
	exit(failures != 0);
}

static void test_limits(__u16 node, __u16 port)
{
	long before = pinned_pages();
	pid_t child = new_child();

	/* The child has its own connection, so its windows end with it. */
	if (!child) {
		epd = served(node, port);
		hits_before = counter("cache_hits");
		misses_before = counter("cache_misses");
		limited(16);
	}
	check(wait_for_child(child) == 0, "a process with a low limit");
	check(comes_to(kept, 0) && comes_to(pinned_pages, before),
	      "no page of a process with a low limit is left");
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

static void test_ends(__u16 node, __u16 port)
{
	long before = pinned_pages();
	unsigned char *memory = fresh(1);
	int to_parent[2], old = epd;
	pid_t child;
	char byte = 0;

	epd = served(node, port);
	check(!put(memory, SIZE) && !get(memory, SIZE) && comes_to(kept, 2 * PAGES),
	      "another connection keeps its own pages");
	close(epd);
	check(comes_to(kept, 0) && comes_to(own_pinned_pages, 0),
	      "after close no page is cached or locked");
	epd = old;

	if (pipe(to_parent))
		die("pipe");
	child = new_child();
	if (!child) {
		epd = served(node, port);
		put(memory, SIZE);
		get(memory, SIZE);
		if (write(to_parent[1], &byte, 1) != 1)
			_exit(1);
		pause();
	}
	if (read(to_parent[0], &byte, 1) != 1)
		die("the child has failed");
	check(comes_to(kept, 2 * PAGES), "a child caches its pages");
	kill(child, SIGKILL);
	wait_for_child(child);
	check(comes_to(kept, 0) && comes_to(pinned_pages, before),
	      "killed: no page is cached or pinned");

	/* The descriptor stays open, but the address space is gone. */
	child = new_child();
	if (!child)
		_exit(put(memory, SIZE) || get(memory, SIZE) || !comes_to(kept, 2 * PAGES));
	check(wait_for_child(child) == 0 && comes_to(kept, 0) && comes_to(pinned_pages, before),
	      "exited, while its parent has the descriptor: no page is cached or pinned");
	close(to_parent[0]);
	close(to_parent[1]);
	munmap(memory, SIZE);
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

/* --- A race --- */

static struct {
	/*
	 * Number of the last mapping that is ready to be sent, and of the last one that was begun.
	 */
	__u64 there, begun;
	bool stop;
} race;

static void *remap(void *nothing)
{
	__u64 number;

	for (number = 1; !__atomic_load_n(&race.stop, __ATOMIC_RELAXED); number++) {
		__atomic_store_n(&race.begun, number, __ATOMIC_SEQ_CST);
		map(PLACE, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		__atomic_store_n((__u64 *)PLACE, number, __ATOMIC_SEQ_CST);
		__atomic_store_n(&race.there, number, __ATOMIC_SEQ_CST);
	}
	return nothing;
}

static void test_race(void)
{
	unsigned char *memory = map(PLACE, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	long i, old = 0, failed = 0;
	__u64 first, there, begun, sent;
	pthread_t thread;

	race.stop = false;
	race.there = 0;
	if (pthread_create(&thread, NULL, remap, NULL))
		die("pthread_create");
	do {
		pause_for_a_moment();
		first = __atomic_load_n(&race.there, __ATOMIC_SEQ_CST);
	} while (!first);
	for (i = 0; i < 500; i++) {
		there = __atomic_load_n(&race.there, __ATOMIC_SEQ_CST);
		if (put(memory, PAGE) ||
		    copy(epd, SCIF_VREADFROM, &sent, sizeof(sent), 0, SCIF_RMA_SYNC)) {
			failed++;
			continue;
		}
		begun = __atomic_load_n(&race.begun, __ATOMIC_SEQ_CST);
		/* The data is from an old mapping, or from a newer one without content. */
		if (sent < there && (sent || begun == there))
			old++;
		if (i % 64 == 0)
			pause_for_a_moment();
	}
	__atomic_store_n(&race.stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	check(!old && !failed && race.there > first,
	      "500 transfers, %llu mappings: %ld old ones, %ld failed",
	      (unsigned long long)race.there, old, failed);
	munmap(memory, PAGE);
	check(comes_to(kept, 0), "no cached page is left");
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
}

/* --- Roles --- */

static void make_window(int fd)
{
	if (open_window(fd, map(NULL, WINDOW_SIZE, MAP_PRIVATE | MAP_ANONYMOUS, -1), WINDOW_SIZE,
			WINDOW))
		die("SCIF_REG");
}

static int finish(long pinned_before)
{
	close(epd);
	check(comes_to(kept, 0) && comes_to(pinned_pages, pinned_before),
	      "at the end as many pages are pinned as before");
	return finish_tests();
}

static int be_the_client(__u16 node, __u16 port, long pinned_before)
{
	bool swap = number_of("/proc/meminfo", "SwapTotal") > 0;

	epd = served(node, port);
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
	for (engine = 0; engine <= SCIF_RMA_USECPU; engine += SCIF_RMA_USECPU) {
		test_hits();
		test_overlaps();
		test_mapped_anew();
#ifdef __aarch64__
		test_tagged();
#endif
		test_moved();
		test_discarded();
		test_protected();
		test_truncated();
		test_fork();
		test_exec();
		test_asynchronous();
		test_shortage();
		if (swap)
			test_pressure();
		else
			printf("# there is no swap: nothing is paged out\n");
		test_limits(node, port);
		test_ends(node, port);
		test_race();
	}
	engine = 0;
	test_many();
	return finish(pinned_before);
}

static int test_the_limit(__u16 port, long mebibytes, long pinned_before)
{
	long limit = mebibytes << 20, half = limit / 2;
	unsigned char *memory = map(PLACE, 4L << 20, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	epd = served(0, port);
	fill(memory, 1, 4L << 20);
	hits_before = counter("cache_hits");
	misses_before = counter("cache_misses");
	if (!limit) {
		check(!put(memory, SIZE) && !put(memory, SIZE) && arrived(1, SIZE) &&
		      counted(0, 0) && comes_to(kept, 0), "with a limit of 0 no page is cached");
		return finish(pinned_before);
	}
	check(!put(memory, limit) && !put(memory, limit) && arrived(1, limit) && counted(1, 1) &&
	      comes_to(kept, limit / PAGE), "a buffer of the limit's size is cached");
	check(!put(memory, limit + 1) && arrived(1, limit + 1) && counted(0, 0) &&
	      comes_to(kept, limit / PAGE), "a larger buffer is sent without the cache");
	check(!put(memory + limit, half) && missed() && comes_to(kept, half / PAGE),
	      "a new buffer evicts a buffer beyond the limit");
	check(!put(memory + limit + half, half) && missed() &&
	      !put(memory + limit, half) && hit() &&
	      comes_to(kept, limit / PAGE), "two buffers within the limit stay");
	check(!put(memory, half) && missed() && comes_to(kept, limit / PAGE) &&
	      !put(memory + limit, half) && hit() && !put(memory + limit + half, half) && missed(),
	      "the least recently used buffer is evicted");
	check(!put(memory + limit / 4, limit) && missed() && kept() <= limit / PAGE,
	      "overlapping buffers are not joined beyond the limit");
	return finish(pinned_before);
}

static pid_t start_server(__u16 port)
{
	int listener = listen_on(&port);
	pid_t child = new_child();

	if (!child)
		serve_clients(listener, make_window);
	close(listener);
	return child;
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	long pinned_before;
	pid_t server;
	int result;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(role, "server"))
		serve_clients_at(atoi(argv[2]), make_window);
	if (argc == 4 && !strcmp(role, "executed")) {
		epd = atoi(argv[2]);
		engine = atoi(argv[3]);
		return executed();
	}
	if (argc == 4 && !strcmp(role, "hold")) {
		epd = served(atoi(argv[2]), atoi(argv[3]));
		fresh_and_kept(1);
		printf("holding\n");
		fflush(stdout);
		pause();
	}
	if (argc == 4 && !strcmp(role, "client"))
		return be_the_client(atoi(argv[2]), atoi(argv[3]), pinned_pages());
	if ((argc == 3 && !strcmp(role, "loopback")) || (argc == 4 && !strcmp(role, "limit"))) {
		pinned_before = pinned_pages();
		server = start_server(atoi(argv[2]));
		result = argc == 3 ? be_the_client(0, atoi(argv[2]), pinned_before) :
			 test_the_limit(atoi(argv[2]), atol(argv[3]), pinned_before);
		kill(server, SIGKILL);
		wait_for_child(server);
		return result;
	}
	fprintf(stderr, "usage: scif_cache server PORT\n"
		"       scif_cache client NODE PORT\n"
		"       scif_cache loopback PORT\n"
		"       scif_cache limit PORT MIB\n"
		"       scif_cache hold NODE PORT\n");
	return 2;
}
