// SPDX-License-Identifier: GPL-2.0
/*
 * See helpers.h. No policy here, and no state.
 */

#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/dmaengine.h>
#include <linux/dma-mapping.h>
#include <linux/fs.h>
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/iommu.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/ntb.h>
#include <linux/overflow.h>
#include <linux/notifier.h>
#include <linux/personality.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>

#include "helpers.h"

/* Non-transparent bridges */

const char *scif_helper_ntb_name(struct ntb_dev *ntb)
{
	return dev_name(&ntb->dev);
}

/* What ntb_set_ctx() was called with. */
void *scif_helper_ntb_context(struct ntb_dev *ntb)
{
	return ntb->ctx;
}

struct device *scif_helper_ntb_device(struct ntb_dev *ntb)
{
	return &ntb->dev;
}

struct device *scif_helper_ntb_dma_device(struct ntb_dev *ntb)
{
	return ntb_get_dma_dev(ntb);
}

int scif_helper_ntb_port_number(struct ntb_dev *ntb)
{
	return ntb_port_number(ntb);
}

int scif_helper_ntb_peer_port_count(struct ntb_dev *ntb)
{
	return ntb_peer_port_count(ntb);
}

int scif_helper_ntb_peer_port_number(struct ntb_dev *ntb, int peer)
{
	return ntb_peer_port_number(ntb, peer);
}

u64 scif_helper_ntb_link_is_up(struct ntb_dev *ntb)
{
	return ntb_link_is_up(ntb, NULL, NULL);
}

int scif_helper_ntb_link_enable(struct ntb_dev *ntb)
{
	return ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);
}

int scif_helper_ntb_link_disable(struct ntb_dev *ntb)
{
	return ntb_link_disable(ntb);
}

int scif_helper_ntb_mw_count(struct ntb_dev *ntb, int peer)
{
	return ntb_mw_count(ntb, peer);
}

int scif_helper_ntb_mw_get_align(struct ntb_dev *ntb, int peer, int index,
				 resource_size_t *addr_align,
				 resource_size_t *size_align,
				 resource_size_t *size_max)
{
	return ntb_mw_get_align(ntb, peer, index, addr_align, size_align,
				size_max);
}

/* ntb_mw_set_trans() does nothing and says 0 where the peer has to do it. */
bool scif_helper_ntb_mw_is_set_here(struct ntb_dev *ntb)
{
	return ntb->ops->mw_set_trans;
}

int scif_helper_ntb_mw_set_trans(struct ntb_dev *ntb, int peer, int index,
				 dma_addr_t addr, resource_size_t size)
{
	return ntb_mw_set_trans(ntb, peer, index, addr, size);
}

int scif_helper_ntb_mw_clear_trans(struct ntb_dev *ntb, int peer, int index)
{
	return ntb_mw_clear_trans(ntb, peer, index);
}

int scif_helper_ntb_peer_mw_count(struct ntb_dev *ntb)
{
	return ntb_peer_mw_count(ntb);
}

int scif_helper_ntb_peer_mw_get_addr(struct ntb_dev *ntb, int index,
				     phys_addr_t *base, resource_size_t *size)
{
	return ntb_peer_mw_get_addr(ntb, index, base, size);
}

int scif_helper_ntb_spad_count(struct ntb_dev *ntb)
{
	return ntb_spad_count(ntb);
}

u32 scif_helper_ntb_spad_read(struct ntb_dev *ntb, int index)
{
	return ntb_spad_read(ntb, index);
}

int scif_helper_ntb_spad_write(struct ntb_dev *ntb, int index, u32 value)
{
	return ntb_spad_write(ntb, index, value);
}

int scif_helper_ntb_peer_spad_write(struct ntb_dev *ntb, int peer, int index,
				    u32 value)
{
	return ntb_peer_spad_write(ntb, peer, index, value);
}

u64 scif_helper_ntb_db_valid_mask(struct ntb_dev *ntb)
{
	return ntb_db_valid_mask(ntb);
}

int scif_helper_ntb_db_vector_count(struct ntb_dev *ntb)
{
	return ntb_db_vector_count(ntb);
}

u64 scif_helper_ntb_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	return ntb_db_vector_mask(ntb, vector);
}

u64 scif_helper_ntb_db_read(struct ntb_dev *ntb)
{
	return ntb_db_read(ntb);
}

int scif_helper_ntb_db_clear(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_clear(ntb, bits);
}

int scif_helper_ntb_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_set_mask(ntb, bits);
}

int scif_helper_ntb_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	return ntb_db_clear_mask(ntb, bits);
}

int scif_helper_ntb_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	return ntb_peer_db_set(ntb, bits);
}

/* DMA engines */

struct dma_chan *scif_helper_dma_request_memcpy(void)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);

	return dma_request_channel(mask, NULL, NULL);
}

/*
 * A channel's name is freed when the driver unregisters it, which it does with
 * the device locked.
 */
void scif_helper_dma_copy_name(struct dma_chan *chan, char *name, size_t size)
{
	struct device *dev = chan->device->dev;

	device_lock(dev);
	if (chan->device->chancnt)
		strscpy(name, dma_chan_name(chan), size);
	device_unlock(dev);
}

/* Fails when the driver is past telling that it is being unbound. */
int scif_helper_dma_watch(struct dma_chan *chan, struct notifier_block *nb)
{
	struct device *dev = chan->device->dev;
	int err = -EINVAL;

	device_lock(dev);
	if (chan->device->chancnt)
		err = bus_register_notifier(dev->bus, nb);
	device_unlock(dev);
	return err;
}

void scif_helper_dma_unwatch(struct device *dev, struct notifier_block *nb)
{
	bus_unregister_notifier(dev->bus, nb);
}

struct device *scif_helper_dma_device(struct dma_chan *chan)
{
	return chan->device->dev;
}

/* Asked of every mapping, or the DMA-API debug check complains. */
bool scif_helper_dma_mapping_failed(struct device *dev, dma_addr_t address)
{
	return dma_mapping_error(dev, address);
}

/*
 * Whether this device reaches mapped memory only. Not so with an IOMMU that
 * passes everything through.
 */
bool scif_helper_has_iommu(struct device *dev)
{
	struct iommu_domain *domain = NULL;

#if IS_ENABLED(CONFIG_IOMMU_API)
	domain = iommu_get_domain_for_dev(dev);
#endif
	return domain && domain->type != IOMMU_DOMAIN_IDENTITY;
}

/*
 * The longest entry of a scatterlist for this device, in whole pages. The
 * DMA-API debug check complains of longer ones.
 */
unsigned int scif_helper_dma_segment_size(struct device *dev)
{
	return max_t(unsigned int, dma_get_max_seg_size(dev) & PAGE_MASK,
		     PAGE_SIZE);
}

size_t scif_helper_dma_max_segment(struct dma_chan *chan)
{
	return dma_get_max_seg_size(chan->device->dev);
}

bool scif_helper_dma_is_aligned(struct dma_chan *chan, size_t dst, size_t src,
				size_t len)
{
	return is_dma_copy_aligned(chan->device, dst, src, len);
}

/*
 * Prepares and submits one copy. Both in one function because some drivers
 * (plx_dma) return from prep with a spinlock held that only submit releases:
 * nothing but filling in the descriptor may happen in between.
 *
 * false: nothing was submitted and done() will not be called.
 */
bool scif_helper_dma_submit(struct dma_chan *chan, dma_addr_t dst,
			    dma_addr_t src, size_t len, bool interrupt,
			    dma_async_tx_callback_result done, void *param)
{
	unsigned long flags = DMA_CTRL_ACK;
	struct dma_async_tx_descriptor *tx;

	if (interrupt)
		flags |= DMA_PREP_INTERRUPT;

	tx = dmaengine_prep_dma_memcpy(chan, dst, src, len, flags);
	if (!tx)
		return false;

	tx->callback = NULL;
	tx->callback_result = done;
	tx->callback_param = param;

	return !dma_submit_error(dmaengine_submit(tx));
}

/*
 * Some drivers report copies that asked for no interrupt only when somebody
 * looks at their state. plx_dma takes its lock there without disabling soft
 * interrupts, in which it takes it, too.
 */
void scif_helper_dma_reap(struct dma_chan *chan)
{
	local_bh_disable();
	dma_async_is_tx_complete(chan, chan->cookie, NULL, NULL);
	local_bh_enable();
}

void scif_helper_dma_issue_pending(struct dma_chan *chan)
{
	dma_async_issue_pending(chan);
}

int scif_helper_dma_terminate(struct dma_chan *chan)
{
	return dmaengine_terminate_async(chan);
}

void scif_helper_dma_synchronize(struct dma_chan *chan)
{
	dmaengine_synchronize(chan);
}

/* Work queues */

struct workqueue_struct *scif_helper_alloc_ordered(const char *name)
{
	return alloc_ordered_workqueue("%s", 0, name);
}

struct workqueue_struct *scif_helper_alloc_unbound_highpri(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND | WQ_HIGHPRI, 0, name);
}

struct workqueue_struct *scif_helper_alloc_background(const char *name)
{
	return alloc_workqueue("%s", WQ_UNBOUND, 0, name);
}

/* Waiting */

void scif_helper_cond_resched(void)
{
	cond_resched();
}

/* Names the calling task's table of descriptors; never followed. */
unsigned long scif_helper_current_files(void)
{
	return (unsigned long)current->files;
}

bool scif_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

bool scif_helper_can_be_killed(void)
{
	return !(current->flags & (PF_EXITING | PF_KTHREAD));
}

/* Memory */

phys_addr_t scif_helper_page_to_phys(struct page *page)
{
	return page_to_phys(page);
}

phys_addr_t scif_helper_virt_to_phys(const void *address)
{
	return virt_to_phys((void *)address);
}

/*
 * The kernel's own pointer to physical memory, or NULL where some of it is not
 * RAM that the kernel has mapped.
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

/* max_pfn is not exported. */
phys_addr_t scif_helper_end_of_memory(void)
{
	phys_addr_t end = 0;

	walk_iomem_res_desc(IORES_DESC_NONE,
			    IORESOURCE_SYSTEM_RAM | IORESOURCE_BUSY, 0, -1, &end,
			    scif_note_end);
	return end;
}

void *scif_helper_alloc_pages_exact(size_t size, bool account)
{
	gfp_t flags = account ? GFP_KERNEL_ACCOUNT : GFP_KERNEL;

	return alloc_pages_exact(size, flags | __GFP_ZERO | __GFP_NOWARN);
}

void scif_helper_copy_from_page(void *dst, struct page *page, size_t offset,
				size_t len)
{
	memcpy_from_page(dst, page, offset, len);
}

void scif_helper_copy_to_page(struct page *page, size_t offset, const void *src,
			      size_t len)
{
	memcpy_to_page(page, offset, src, len);
}

void scif_helper_store_u64(struct page *page, size_t offset, u64 value)
{
	char *to = kmap_local_page(page) + offset;

	/* Whoever sees the value sees what was written before. */
	smp_wmb();
	if (IS_ALIGNED(offset, sizeof(u64))) {
		WRITE_ONCE(*(__le64 *)to, cpu_to_le64(value));
	} else {
		WRITE_ONCE(*(__le32 *)(to + 4), cpu_to_le32(upper_32_bits(value)));
		/* The lower half says that both are there. */
		smp_wmb();
		WRITE_ONCE(*(__le32 *)to, cpu_to_le32(lower_32_bits(value)));
	}
	kunmap_local(to);
}

void scif_helper_copy_page_to_io(void __iomem *dst, struct page *page,
				 size_t offset, size_t len)
{
	char *from = kmap_local_page(page);

	memcpy_toio(dst, from + offset, len);
	kunmap_local(from);
}

void scif_helper_copy_page_from_io(struct page *page, size_t offset,
				   const void __iomem *src, size_t len)
{
	char *to = kmap_local_page(page);

	memcpy_fromio(to + offset, src, len);
	flush_dcache_page(page);
	kunmap_local(to);
}

void scif_helper_copy_page_to_page(struct page *dst, size_t dst_offset,
				   struct page *src, size_t src_offset,
				   size_t len)
{
	memcpy_page(dst, dst_offset, src, src_offset, len);
}

unsigned long scif_helper_copy_page_to_user(void __user *dst, struct page *page,
					    size_t offset, size_t len)
{
	char *from = kmap_local_page(page);
	unsigned long left = copy_to_user(dst, from + offset, len);

	kunmap_local(from);
	return left;
}

unsigned long scif_helper_copy_page_from_user(struct page *page, size_t offset,
					      const void __user *src, size_t len)
{
	char *to = kmap_local_page(page);
	unsigned long left = copy_from_user(to + offset, src, len);

	flush_dcache_page(page);
	kunmap_local(to);
	return left;
}

/* The page at an address of the kernel's own memory, or NULL where there is none. */
struct page *scif_helper_kernel_page(const void *address)
{
	struct page *page;

	if (!is_vmalloc_or_module_addr(address))
		return virt_addr_valid(address) ? virt_to_page(address) : NULL;

	page = vmalloc_to_page(address);
	/* What is mapped there may be memory of a device. */
	return page && pfn_valid(page_to_pfn(page)) ? page : NULL;
}

/* False, and nothing is charged: it would be more than the limit. */
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

/* As scif_charge_mm(). */
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

/*
 * Charges the caller's own address space, as RDMA, vDPA and io_uring do, and the
 * caller's user, in the counter of io_uring, which is what "charged" names then.
 * Who may lock as much as it likes has no limit, and its user is not charged.
 */
bool scif_helper_charge_pinned(struct mm_struct *mm, unsigned long pages,
			       struct user_struct **charged)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct user_struct *user = current_user();

	*charged = NULL;
	if (ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK)) {
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

/* What the process has not asked for, but its personality adds to PROT_READ. */
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

unsigned long scif_helper_vma_start(const struct vm_area_struct *vma)
{
	return vma->vm_start;
}

unsigned long scif_helper_vma_end(const struct vm_area_struct *vma)
{
	return vma->vm_end;
}

struct file *scif_helper_vma_file(const struct vm_area_struct *vma)
{
	return vma->vm_file;
}

struct inode *scif_helper_file_inode(const struct file *file)
{
	return file_inode(file);
}

/* News of changes to an address space */

#ifdef CONFIG_MMU_NOTIFIER
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
#endif

/* Memory of devices */

void scif_helper_io_write_u32(void __iomem *address, u32 value)
{
	writel(value, address);
}

void scif_helper_io_write_u64(void __iomem *address, u64 value)
{
	writeq(value, address);
}

u32 scif_helper_io_read_u32(const void __iomem *address)
{
	return readl(address);
}

u64 scif_helper_io_read_u64(const void __iomem *address)
{
	return readq(address);
}

/* User space */

unsigned long scif_helper_compat_ptr(unsigned long argument)
{
#ifdef CONFIG_COMPAT
	return (unsigned long)compat_ptr((compat_uptr_t)argument);
#else
	return argument;
#endif
}
