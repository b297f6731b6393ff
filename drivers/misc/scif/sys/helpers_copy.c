// SPDX-License-Identifier: GPL-2.0
/*
 * Copies by CPU, for sys/: between memory of the kernel, devices' memory that is mapped
 * write-combining, and processes.
 */

#include <linux/cacheflush.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "helpers.h"

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

/* Between two devices there is no copy but through a processor. */
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

/* "dst_io": the destination is such memory of a device, too. */
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

/* Where the kernel has a page mapped: on machines of 64 bits it has all. */
void *scif_helper_page_address(phys_addr_t phys)
{
	return page_address(phys_to_page(phys)) + offset_in_page(phys);
}

/* After the kernel has written to pages that processes may have mapped. */
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

/* Fails with -EFAULT. */
int scif_helper_put_user_u32(u32 value, u32 __user *to)
{
	return put_user(value, to);
}

/*
 * Stores bytes of the calling process in a device's memory that is mapped write-
 * combining, where plain stores of any size reach that. Says whether all were in
 * memory; if not, some may have been stored. Does not sleep.
 *
 * As copy_from_user_nofault(), without the check that the other side lies in an
 * object of the kernel: it lies in none. A kernel thread has no such memory, though
 * it may have borrowed the page tables of a process.
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
