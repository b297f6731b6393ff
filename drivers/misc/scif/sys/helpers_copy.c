// SPDX-License-Identifier: GPL-2.0
/*
 * Copies by CPU, for sys/: between memory of the kernel, pages that need not be
 * mapped, devices' memory that is mapped write-combining, and processes.
 */

#include <linux/cpufeature.h>
#include <linux/fault-inject-usercopy.h>
#include <linux/highmem.h>
#include <linux/instrumented.h>
#include <linux/io.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/unroll.h>

#include "helpers.h"

/* These are of bytes that lie in one page, which need not be mapped. */

void scif_helper_copy_from_page(void *dst, phys_addr_t phys, size_t len)
{
	memcpy_from_page(dst, phys_to_page(phys), offset_in_page(phys), len);
}

void scif_helper_copy_to_page(phys_addr_t phys, const void *src, size_t len)
{
	memcpy_to_page(phys_to_page(phys), offset_in_page(phys), src, len);
}

void scif_helper_store_u64(phys_addr_t phys, u64 value)
{
	char *page = kmap_local_page(phys_to_page(phys));
	char *to = page + offset_in_page(phys);

	/* Whoever sees the value sees what was written before. */
	smp_wmb();
	if (IS_ALIGNED(phys, sizeof(u64))) {
		WRITE_ONCE(*(__le64 *)to, cpu_to_le64(value));
	} else {
		WRITE_ONCE(*(__le32 *)(to + 4), cpu_to_le32(upper_32_bits(value)));
		/* The lower half says that both are there. */
		smp_wmb();
		WRITE_ONCE(*(__le32 *)to, cpu_to_le32(lower_32_bits(value)));
	}
	kunmap_local(page);
}

/*
 * memcpy_toio() and memcpy_fromio() of x86 move four bytes at a time. Memory
 * that is mapped write-combining takes accesses of any size, and a bus fewer
 * large ones sooner than many small ones.
 */
void scif_helper_copy_to_io(void __iomem *dst, const void *src, size_t len)
{
	if (IS_ENABLED(CONFIG_X86_64))
		memcpy((void __force *)dst, src, len);
	else
		memcpy_toio(dst, src, len);
}

void scif_helper_copy_from_io(void *dst, const void __iomem *src, size_t len)
{
	if (IS_ENABLED(CONFIG_X86_64))
		memcpy(dst, (const void __force *)src, len);
	else
		memcpy_fromio(dst, src, len);
}

void scif_helper_copy_page_to_io(void __iomem *dst, phys_addr_t phys, size_t len)
{
	char *page = kmap_local_page(phys_to_page(phys));

	scif_helper_copy_to_io(dst, page + offset_in_page(phys), len);
	kunmap_local(page);
}

void scif_helper_copy_page_from_io(phys_addr_t phys, const void __iomem *src,
				   size_t len)
{
	struct page *page = phys_to_page(phys);
	char *to = kmap_local_page(page);

	scif_helper_copy_from_io(to + offset_in_page(phys), src, len);
	flush_dcache_page(page);
	kunmap_local(to);
}

/* Between two devices there is no copy but through a processor. */
void scif_helper_copy_io_to_io(void __iomem *dst, const void __iomem *src,
			       size_t len)
{
	char some[256];
	size_t count;

	for (; len; len -= count) {
		count = min(len, sizeof(some));
		scif_helper_copy_from_io(some, src, count);
		scif_helper_copy_to_io(dst, some, count);
		src += count;
		dst += count;
	}
}

/* Fails with -EFAULT. */
int scif_helper_put_user_u32(u32 value, u32 __user *to)
{
	return put_user(value, to);
}

#ifdef CONFIG_X86_64
/*
 * The usual copies from and to processes are string instructions. A processor on which
 * those are fast says so. Of others, some take a word at a time, where memcpy() goes by
 * loads and stores of several: these copy in the same way, if that was measured to be
 * faster.
 */
#define WORDS 8
#define WORDS_SIZE (WORDS * sizeof(u64))

/* From here on it is worth the way there. */
#define WORDS_FROM 512

/* Bytes that are copied to see which way is faster, and how often. */
#define MEASURED_SIZE 16384
#define MEASURED_TIMES 8

static bool copies_by_words __read_mostly;

void scif_helper_set_copies_by_words(bool by_words)
{
	WRITE_ONCE(copies_by_words, by_words);
}

static void measured_words(void *to, const void *from)
{
	memcpy(to, from, MEASURED_SIZE);
}

static void measured_strings(void *to, const void *from)
{
	size_t words = MEASURED_SIZE / sizeof(u64);

	asm volatile("rep movsq" : "+D" (to), "+S" (from), "+c" (words) : : "memory");
}

/* The best of some: what else the processor does meanwhile is not the copy's. */
static u64 time_of(void (*copy)(void *to, const void *from), void *memory)
{
	u64 begin, best = U64_MAX;
	int i;

	for (i = 0; i < MEASURED_TIMES; i++) {
		preempt_disable();
		begin = ktime_get_ns();
		copy(memory, memory + MEASURED_SIZE);
		best = min(best, ktime_get_ns() - begin);
		preempt_enable();
	}
	return best;
}

/* May sleep. By words only if that is clearly faster: the kernel has its reasons. */
bool scif_helper_words_are_faster(void)
{
	u64 words, strings;
	void *memory;

	if (cpu_feature_enabled(X86_FEATURE_ERMS) || cpu_feature_enabled(X86_FEATURE_FSRM))
		return false;
	memory = kzalloc(2 * MEASURED_SIZE, GFP_KERNEL | __GFP_NOWARN);
	if (!memory)
		return false;
	words = time_of(measured_words, memory);
	strings = time_of(measured_strings, memory);
	kfree(memory);
	return strings > words + words / 8;
}

/* By how much the second word follows the first, so that it is aligned. */
static size_t to_next_word(const void *to)
{
	return sizeof(u64) - (unsigned long)to % sizeof(u64);
}

/*
 * Both say how many bytes are left, or are to be copied again. The first word may lie
 * across what is aligned, as the usual copies have it, too.
 */
static __no_sanitize_address size_t words_from_user(u64 *to, const u64 __user *from, size_t len)
{
	size_t i, skip = to_next_word(to);

	if (!user_read_access_begin(from, len))
		return len;
	unsafe_get_user(to[0], from, done);
	to = (void *)to + skip;
	from = (void __user *)from + skip;
	len -= skip;
	for (; len >= WORDS_SIZE; len -= WORDS_SIZE, to += WORDS, from += WORDS) {
		unrolled_count(WORDS)
		for (i = 0; i < WORDS; i++)
			unsafe_get_user(to[i], from + i, done);
	}
done:
	user_read_access_end();
	return len;
}

static __no_sanitize_address size_t words_to_user(u64 __user *to, const u64 *from, size_t len)
{
	size_t i, skip = to_next_word((void __force *)to);

	if (!user_write_access_begin(to, len))
		return len;
	unsafe_put_user(from[0], to, done);
	to = (void __user *)to + skip;
	from = (void *)from + skip;
	len -= skip;
	for (; len >= WORDS_SIZE; len -= WORDS_SIZE, to += WORDS, from += WORDS) {
		unrolled_count(WORDS)
		for (i = 0; i < WORDS; i++)
			unsafe_put_user(from[i], to + i, done);
	}
done:
	user_write_access_end();
	return len;
}

/* How many bytes have been copied; the usual copies do the rest, or find out that they can't. */
static size_t copy_words_from_user(void *to, const void __user *from, size_t len)
{
	if (len < WORDS_FROM || !READ_ONCE(copies_by_words))
		return 0;
	return len - words_from_user(to, from, len);
}

static size_t copy_words_to_user(void __user *to, const void *from, size_t len)
{
	if (len < WORDS_FROM || !READ_ONCE(copies_by_words) || !access_ok(to, len))
		return 0;
	instrument_copy_to_user(to, from, len);
	return len - words_to_user(to, from, len);
}
#else
void scif_helper_set_copies_by_words(bool by_words)
{
}

bool scif_helper_words_are_faster(void)
{
	return false;
}

static size_t copy_words_to_user(void __user *to, const void *from, size_t len)
{
	return 0;
}

#ifdef CONFIG_ARM64
static size_t copy_words_from_user(void *to, const void __user *from, size_t len)
{
	return 0;
}
#endif
#endif

/*
 * Copies to the calling process memory of which the kernel may copy any part. Says
 * whether all could be copied. May sleep.
 */
bool scif_helper_copy_to_user(void __user *to, const void *from, size_t len)
{
	size_t done;

	might_fault();
	/* The usual copy asks for the rest only. */
	if (should_fail_usercopy())
		return false;
	done = copy_words_to_user(to, from, len);
	return !_copy_to_user(to + done, from + done, len - done);
}

#if defined(CONFIG_X86_64) || defined(CONFIG_ARM64)
/*
 * Stores bytes of the calling process in a device's memory that is mapped write-
 * combining, which plain stores of any size reach on these architectures. Says
 * whether all were in memory; if not, some may have been stored. Does not sleep.
 *
 * As copy_from_user_nofault(), without the check that the other side lies in an
 * object of the kernel: it lies in none. A kernel thread has no such memory, though
 * it may have borrowed the page tables of a process.
 */
bool scif_helper_copy_user_to_io(void __iomem *to, const void __user *from,
				 size_t len)
{
	void *memory = (void __force *)to;
	size_t done;

	if (!current->mm || !access_ok(from, len))
		return false;
	pagefault_disable();
	done = copy_words_from_user(memory, from, len);
	len = raw_copy_from_user(memory + done, from + done, len - done);
	pagefault_enable();
	return !len;
}
#endif
