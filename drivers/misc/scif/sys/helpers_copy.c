// SPDX-License-Identifier: GPL-2.0
/*
 * Copies by CPU, for sys/: between memory of the kernel, pages that need not be
 * mapped, devices' memory that is mapped write-combining, and processes.
 */

#include <linux/highmem.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/uaccess.h>

#include "helpers.h"

/* The bytes lie in one page, which need not be mapped. */
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

/* From bytes that lie in one page, which need not be mapped. */
void scif_helper_copy_from_page(void *dst, bool dst_io, phys_addr_t phys,
				size_t len)
{
	char *page = kmap_local_page(phys_to_page(phys));

	if (dst_io)
		scif_helper_copy_to_io((void __force __iomem *)dst,
				       page + offset_in_page(phys), len);
	else
		memcpy(dst, page + offset_in_page(phys), len);
	kunmap_local(page);
}

/* To bytes that lie in one page, which need not be mapped. */
void scif_helper_copy_to_page(phys_addr_t phys, const void *src, bool src_io,
			      size_t len)
{
	struct page *page = phys_to_page(phys);
	char *to = kmap_local_page(page);

	if (src_io)
		scif_helper_copy_from_io(to + offset_in_page(phys), false,
					 (const void __force __iomem *)src, len);
	else
		memcpy(to + offset_in_page(phys), src, len);
	flush_dcache_page(page);
	kunmap_local(to);
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
