// SPDX-License-Identifier: GPL-2.0
/*
 * C helpers for copies by CPU: between memory of the kernel, devices' memory
 * that is mapped write-combining, and processes.
 */

#include <linux/cacheflush.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "helpers.h"

/*
 * memcpy_toio() and memcpy_fromio() of x86 move four bytes at a time. Memory
 * that is mapped write-combining takes accesses of any size. A bus moves a few
 * large ones faster than many small ones.
 */
void scif_helper_copy_to_io(void __iomem *dst, const void *src, size_t len)
{
	if (IS_ENABLED(CONFIG_X86_64))
		memcpy((void __force *)dst, src, len);
	else
		memcpy_toio(dst, src, len);
}

/* A CPU can only copy between two devices through its own memory. */
static void scif_copy_io_to_io(void __iomem *dst, const void __iomem *src,
			       size_t len)
{
	char some[256];
	size_t count;

	for (; len; len -= count) {
		count = min(len, sizeof(some));
		scif_helper_copy_from_io(some, false, src, count);
		scif_helper_copy_to_io(dst, some, count);
		src += count;
		dst += count;
	}
}

/* "dst_io": the destination is also device memory mapped write-combining. */
void scif_helper_copy_from_io(void *dst, bool dst_io, const void __iomem *src,
			      size_t len)
{
	if (dst_io)
		scif_copy_io_to_io((void __force __iomem *)dst, src, len);
	else if (IS_ENABLED(CONFIG_X86_64))
		memcpy(dst, (const void __force *)src, len);
	else
		memcpy_fromio(dst, src, len);
}

/* Returns the kernel's address of a page: 64-bit machines have all RAM mapped. */
void *scif_helper_page_address(phys_addr_t phys)
{
	return page_address(phys_to_page(phys)) + offset_in_page(phys);
}

/* Flushes pages that the kernel has written and processes may have mapped. */
void scif_helper_flush_pages(phys_addr_t phys, size_t len)
{
	phys_addr_t at;

	for (at = round_down(phys, PAGE_SIZE); at < phys + len; at += PAGE_SIZE)
		flush_dcache_page(phys_to_page(at));
}

int scif_helper_copy_struct_from_user(void *dst, size_t size,
				      const void __user *src, size_t theirs)
{
	return copy_struct_from_user(dst, size, src, theirs);
}

/* Returns -EFAULT if the store fails. */
int scif_helper_put_user_u32(u32 value, u32 __user *to)
{
	return put_user(value, to);
}

/*
 * Stores bytes of the calling process in device memory that is mapped write-
 * combining. This works only where plain stores of any size reach such memory.
 * Returns false if not all bytes were in memory; some may have been stored.
 *
 * This is copy_from_user_nofault() without the check that the destination lies
 * in an object of the kernel, since it lies in none. A kernel thread has no
 * such memory, although it may have borrowed the page tables of a process.
 *
 * Context: does not sleep.
 */
bool scif_helper_copy_user_to_io(void __iomem *to, const void __user *from,
				 size_t len)
{
#if defined(CONFIG_X86_64) || defined(CONFIG_ARM64)
	unsigned long left;

	if (!current->mm || !access_ok(from, len))
		return false;
	pagefault_disable();
	left = raw_copy_from_user((void __force *)to, from, len);
	pagefault_enable();
	return !left;
#else
	return false;
#endif
}
