// SPDX-License-Identifier: GPL-2.0
/*
 * C helpers for memory of the kernel, of processes and of devices.
 */

#include <linux/capability.h>
#include <linux/cma.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/dma-map-ops.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_context.h>
#include <linux/mmu_notifier.h>
#include <linux/overflow.h>
#include <linux/pci.h>
#include <linux/personality.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/security.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>

#include "helpers.h"

/* Memory */

phys_addr_t scif_helper_page_to_phys(struct page *page)
{
	return page_to_phys(page);
}

/*
 * Returns whether a process that maps a page of this folio maps all of it, one
 * page after another. This is so for hugetlbfs. It is also so for a huge page
 * of anonymous memory that is mapped once, and as a whole. Pinned anonymous
 * memory belongs to one process alone, so no other process can have that
 * mapping.
 */
static bool scif_is_mapped_whole(struct folio *folio)
{
	if (folio_test_hugetlb(folio))
		return true;
	return folio_test_anon(folio) && folio_large_mapcount(folio) == 1 &&
	       folio_entire_mapcount(folio) == 1;
}

/*
 * Pins the pages behind a pinned page in its folio, too, if the process maps
 * the whole folio. Up to "wanted" pages are pinned then, including the first.
 * Returns how many are pinned. So huge pages are pinned without a walk over
 * their small pages.
 */
size_t scif_helper_pin_folio(struct page *page, size_t wanted)
{
	struct folio *folio = page_folio(page);
	size_t count;

	if (!folio_test_large(folio) || !scif_is_mapped_whole(folio))
		return 1;
	count = min_t(size_t, wanted,
		      folio_nr_pages(folio) - folio_page_idx(folio, page));
	if (count > 1 && folio_add_pins(folio, count - 1))
		return 1;
	return count;
}

/* Unpins pages that follow each other, each of which was pinned once. */
void scif_helper_unpin(phys_addr_t phys, size_t count, bool dirty)
{
	unpin_user_page_range_dirty_lock(phys_to_page(phys), count, dirty);
}

phys_addr_t scif_helper_virt_to_phys(const void *address)
{
	return virt_to_phys((void *)address);
}

/*
 * Returns the kernel's own pointer to physical memory, or NULL if a part of it
 * is not RAM that the kernel has mapped.
 */
void *scif_helper_direct_map(phys_addr_t start, size_t len)
{
	phys_addr_t last, at;

	if (check_add_overflow(start, (phys_addr_t)len, &last))
		return NULL;
	if (len)
		last--;

	at = start;
	for (;;) {
		if (!pfn_valid(PHYS_PFN(at)) || PageHighMem(phys_to_page(at)) ||
		    !virt_addr_valid(phys_to_virt(at)))
			return NULL;
		if (PHYS_PFN(at) == PHYS_PFN(last))
			break;
		at += PAGE_SIZE;
	}

	return phys_to_virt(start);
}

static int scif_note_end(struct resource *ram, void *argument)
{
	phys_addr_t *end = argument;

	*end = max_t(phys_addr_t, *end, ram->end + 1);
	return 0;
}

/* Walks the resources, because max_pfn is not exported. */
phys_addr_t scif_helper_end_of_memory(void)
{
	phys_addr_t end = 0;

	walk_iomem_res_desc(IORES_DESC_NONE,
			    IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, -1, &end,
			    scif_note_end);
	return end;
}

/* Without "tries_hard", the allocation fails rather than start the OOM killer. */
void *scif_helper_alloc_pages_exact(size_t size, bool account, bool tries_hard)
{
	gfp_t flags = account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;

	if (!tries_hard)
		flags |= __GFP_NORETRY;
	return alloc_pages_exact(size, flags | __GFP_ZERO | __GFP_NOWARN);
}

/*
 * Frees and allocates contiguous pages, if the page allocator has no such
 * piece. It frees more than "size" if "align" is larger, and gives the rest
 * back.
 */
static void *scif_make_contiguous(struct device *dev, size_t size, size_t align)
{
#ifdef CONFIG_CONTIG_ALLOC
	unsigned long count = max(size, align) >> PAGE_SHIFT;
	unsigned long kept = size >> PAGE_SHIFT;
	int node = dev_to_node(dev);
	struct page *pages;

	if (node == NUMA_NO_NODE)
		node = numa_mem_id();
	pages = alloc_contig_pages(count, GFP_KERNEL | __GFP_NOWARN, node,
				   NULL);
	if (!pages)
		return NULL;
	if (count > kept)
		free_contig_range(page_to_pfn(pages) + kept, count - kept);
	return page_address(pages);
#else
	return NULL;
#endif
}

/* Allocates from the CMA area that the administrator has reserved. */
static void *scif_take_contiguous(struct device *dev, size_t size, size_t align)
{
#ifdef CONFIG_DMA_CMA
	struct page *pages;

	pages = cma_alloc(dev_get_cma_area(dev), size >> PAGE_SHIFT,
			  get_order(align), true);
	if (pages)
		return page_address(pages);
#endif
	return NULL;
}

/* "size" and "align" are powers of two, and at least a page. */
void *scif_helper_alloc_contiguous(struct device *dev, size_t size, size_t align)
{
	void *memory = scif_take_contiguous(dev, size, align);

	if (!memory && align <= size)
		memory = alloc_pages_exact(size, GFP_KERNEL | __GFP_NOWARN);
	if (!memory)
		memory = scif_make_contiguous(dev, size, align);
	if (memory)
		memset(memory, 0, size);
	return memory;
}

void scif_helper_free_contiguous(struct device *dev, void *memory, size_t size)
{
#ifdef CONFIG_DMA_CMA
	if (cma_release(dev_get_cma_area(dev), virt_to_page(memory),
			size >> PAGE_SHIFT))
		return;
#endif
	free_pages_exact(memory, size);
}

/* Returns a reference, or NULL if there are no memory cgroups. */
void *scif_helper_current_memcg(void)
{
	return get_mem_cgroup_from_mm(NULL);
}

void scif_helper_put_memcg(void *group)
{
	mem_cgroup_put(group);
}

void *scif_helper_set_active_memcg(void *group)
{
	return set_active_memcg(group);
}

/* Returns the page of an address in the kernel's own memory, or NULL. */
struct page *scif_helper_kernel_page(const void *address)
{
	struct page *page;

	if (!is_vmalloc_or_module_addr(address))
		return virt_addr_valid(address) ? virt_to_page(address) : NULL;

	page = vmalloc_to_page(address);
	/* Memory of a device may be mapped there. */
	return page && pfn_valid(page_to_pfn(page)) ? page : NULL;
}

/* Returns false for pages without their own reference count, such as slab's. */
bool scif_helper_hold_page(struct page *page)
{
	return folio_try_get(page_folio(page));
}

void scif_helper_get_page(struct page *page)
{
	get_page(page);
}

/*
 * Returns whether the caller's reference to the page is the only one. Orders
 * the accesses of earlier holders before those of the caller.
 */
bool scif_helper_is_page_unused(struct page *page)
{
	if (page_ref_count(page) != 1)
		return false;
	/* Pairs with the release of the reference by its last holder. */
	smp_rmb();
	return true;
}

struct page *scif_helper_linear_page(const void *address)
{
	return virt_to_page(address);
}

void scif_helper_put_page(struct page *page)
{
	put_page(page);
}

/* Returns false, and charges nothing, if the limit would be exceeded. */
static bool scif_charge_mm(struct mm_struct *mm, unsigned long pages,
			   unsigned long limit)
{
	s64 pinned = atomic64_read(&mm->pinned_vm);

	do {
		if (pinned + pages > limit)
			return false;
	} while (!atomic64_try_cmpxchg(&mm->pinned_vm, &pinned,
				       pinned + pages));
	return true;
}

/* Returns false, and charges nothing, if the limit would be exceeded. */
static bool scif_charge_user(struct user_struct *user, unsigned long pages,
			     unsigned long limit)
{
	long locked = atomic_long_read(&user->locked_vm);

	do {
		if (locked + pages > limit)
			return false;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &locked,
					  locked + pages));
	return true;
}

/* noaudit: most callers do not need the capability. */
bool scif_helper_pins_without_limit(void)
{
	return ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK);
}

/*
 * Charges the caller's own address space, as RDMA, vDPA and io_uring do. Also
 * charges the caller's user, in the counter of io_uring, and stores the user in
 * "charged". A caller with CAP_IPC_LOCK has no limit. Its user is not charged,
 * and "charged" is NULL.
 */
bool scif_helper_charge_pinned(struct mm_struct *mm, unsigned long pages,
			       struct user_struct **charged)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();

	*charged = NULL;
	if (scif_helper_pins_without_limit()) {
		atomic64_add(pages, &mm->pinned_vm);
		return true;
	}
	if (!scif_charge_mm(mm, pages, limit))
		return false;
	if (!scif_charge_user(user, pages, limit)) {
		atomic64_sub(pages, &mm->pinned_vm);
		return false;
	}
	*charged = get_uid(user);
	return true;
}

void scif_helper_uncharge_pinned(struct mm_struct *mm, unsigned long pages,
				 struct user_struct *charged)
{
	atomic64_sub(pages, &mm->pinned_vm);
	if (charged) {
		atomic_long_sub(pages, &charged->locked_vm);
		free_uid(charged);
	}
}

unsigned long scif_helper_pinned(struct mm_struct *mm)
{
	return atomic64_read(&mm->pinned_vm);
}

unsigned long scif_helper_user_pinned(void)
{
	return atomic_long_read(&current_user()->locked_vm);
}

/* Clears execution that the personality has added to PROT_READ. */
void scif_helper_vma_drop_implied_exec(struct vm_area_struct *vma)
{
	if (current->personality & READ_IMPLIES_EXEC)
		vm_flags_clear(vma, VM_EXEC);
}

void scif_helper_vma_set_pfnmap(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_PFNMAP);
}

void scif_helper_vma_set_write_combined(struct vm_area_struct *vma)
{
	vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
}

/*
 * vmf_insert_pfn() for memory: it is mapped cached, however the area was set
 * up.
 */
vm_fault_t scif_helper_insert_cached(struct vm_area_struct *vma,
				     unsigned long address, unsigned long frame)
{
	return vmf_insert_pfn_prot(vma, address, frame,
				   vm_get_page_prot(vma->vm_flags));
}

/* Notification of changes to an address space */

bool scif_helper_mmu_interval_read_retry(struct mmu_interval_notifier *subscription,
					 unsigned long sequence)
{
	return mmu_interval_read_retry(subscription, sequence);
}

void scif_helper_mmu_interval_set_seq(struct mmu_interval_notifier *subscription,
				      unsigned long sequence)
{
	mmu_interval_set_seq(subscription, sequence);
}

/* Memory of devices */

/*
 * Returns the device that has a whole range in one of its memory BARs, with a
 * reference. NULL if there is none.
 */
static struct pci_dev *scif_device_with(phys_addr_t start, size_t len, int *bar)
{
	struct pci_dev *dev = NULL;
	phys_addr_t last;

	if (!len || check_add_overflow(start, (phys_addr_t)len - 1, &last))
		return NULL;
	for_each_pci_dev(dev) {
		for (*bar = 0; *bar < PCI_STD_NUM_BARS; (*bar)++) {
			const struct resource *memory = &dev->resource[*bar];

			if (resource_type(memory) == IORESOURCE_MEM &&
			    !(memory->flags & IORESOURCE_UNSET) &&
			    memory->start <= start && last <= memory->end)
				return dev;
		}
	}
	return NULL;
}

/* Returns whether one device has all of it, and no driver has made it RAM. */
bool scif_helper_is_device_memory(phys_addr_t start, size_t len)
{
	struct pci_dev *dev;
	int bar;

	dev = scif_device_with(start, len, &bar);
	if (!dev)
		return false;
	pci_dev_put(dev);
	return region_intersects(start, len, IORESOURCE_SYSTEM_RAM,
				 IORES_DESC_NONE) == REGION_DISJOINT;
}

/* Returns the address as other devices know it: some host bridges add an offset. */
u64 scif_helper_bus_address(phys_addr_t phys)
{
	struct pci_dev *dev;
	u64 address;
	int bar;

	dev = scif_device_with(phys, 1, &bar);
	if (!dev)
		return phys;
	address = pci_bus_address(dev, bar) +
		  (phys - pci_resource_start(dev, bar));
	pci_dev_put(dev);
	return address;
}

/* Fails for all processes in a kernel that is locked down. */
bool scif_helper_may_access_devices(void)
{
	return capable(CAP_SYS_RAWIO) &&
	       !security_locked_down(LOCKDOWN_PCI_ACCESS);
}

/* ioremap_wc() is a function on some architectures, a macro on others. */
void __iomem *scif_helper_ioremap_wc(phys_addr_t phys, size_t size)
{
	return ioremap_wc(phys, size);
}

/*
 * Returns the address that a pointer of the calling process means. It is
 * without the bits that the CPU ignores, in which programs keep tags (arm64's
 * TBI and MTE, x86's LAM).
 */
unsigned long scif_helper_untagged(unsigned long address)
{
#ifdef CONFIG_ADDRESS_MASKING
	/* x86's untagged_addr() uses a variable that is not exported. */
	return current->mm ? address & mm_untag_mask(current->mm) : address;
#else
	return untagged_addr(address);
#endif
}

/* Returns whether these are addresses of user space. */
bool scif_helper_access_ok(const void *start, size_t len)
{
	return access_ok((const void __user *)start, len);
}
