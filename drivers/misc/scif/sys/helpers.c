// SPDX-License-Identifier: GPL-2.0
/*
 * See helpers.h. No policy here but which engines are refused, and no state but
 * that it was said.
 */

#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/dmaengine.h>
#include <linux/dma-mapping.h>
#include <linux/fdtable.h>
#include <linux/iommu.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/string.h>
#include <linux/suspend.h>

#include "helpers.h"

/* DMA engines */

/*
 * Drivers that do not keep what dmaengine promises, as of Linux 7.3. "scif
 * doctor" has the list, too.
 */
static struct scif_unfit {
	const char *driver, *why;
	bool said;
} scif_unfit[] = {
	/*
	 * pt_tx_status() and the interrupt acknowledge, end and begin copies
	 * without a lock: where two of them meet, the next copy is ended, too.
	 * A hardware error is logged and not told to the callback.
	 */
	{ "ptdma", "it ends copies that are under way, and does not tell of those that fail" },
	/*
	 * pt_create_desc() takes a mutex. pt_issue_pending() begins the first
	 * of the copies that were submitted, and none behind that.
	 */
	{ "ae4dma", "it sleeps when it is given a copy, and does not begin all that it was given" },
};

/* Whether this is one of them, of which the log says so once. */
static bool scif_is_unfit(struct dma_chan *chan)
{
	const char *driver = dev_driver_string(chan->device->dev);
	struct scif_unfit *unfit;

	for (unfit = scif_unfit; unfit < scif_unfit + ARRAY_SIZE(scif_unfit); unfit++) {
		if (strcmp(driver, unfit->driver))
			continue;
		if (!unfit->said)
			pr_warn("DMA engines of the driver %s are not used: %s\n", driver,
				unfit->why);
		unfit->said = true;
		return true;
	}
	return false;
}

/*
 * Whether to take this channel. Some end copies in another order than that in
 * which they were submitted. A device whose driver is just bound or unbound is
 * locked by that, and the channel may be asked for again later; this must not
 * wait for it, as the list of engines is locked. The device of the channel that
 * was chosen stays locked. Called with the list locked, by one at a time.
 */
static bool scif_may_take(struct dma_chan *chan, void *param)
{
	struct device **locked = param;

	if (dma_has_cap(DMA_COMPLETION_NO_ORDER, chan->device->cap_mask))
		return false;
	if (scif_is_unfit(chan))
		return false;
	/* One that was chosen before, and could not be had. */
	if (*locked)
		device_unlock(*locked);
	*locked = NULL;
	if (!device_trylock(chan->device->dev))
		return false;
	*locked = chan->device->dev;
	return true;
}

/*
 * The driver of the channel that is returned stays until the caller has called
 * scif_helper_dma_requested().
 */
struct dma_chan *scif_helper_dma_request_memcpy(void)
{
	struct device *locked = NULL;
	struct dma_chan *chan;
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);

	chan = dma_request_channel(mask, scif_may_take, &locked);
	if (!chan && locked)
		device_unlock(locked);
	return chan;
}

void scif_helper_dma_requested(struct device *dev)
{
	device_unlock(dev);
}

/* For the caller that has requested the channel: the driver frees the name. */
void scif_helper_dma_copy_name(struct dma_chan *chan, char *name, size_t size)
{
	strscpy(name, dma_chan_name(chan), size);
}

struct device *scif_helper_dma_device(struct dma_chan *chan)
{
	return chan->device->dev;
}

/* Asked of every mapping, or the DMA-API debug check warns. */
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
 * Whether the device has the address bits for this memory. If it has not, the
 * kernel would warn where the memory is mapped. An IOMMU gives it other addresses.
 */
bool scif_helper_dma_reaches(struct device *dev, phys_addr_t phys, size_t len)
{
	u64 limit = min_not_zero(dma_get_mask(dev), dev->bus_dma_limit);

	if (scif_helper_has_iommu(dev) || dev->dma_range_map)
		return true;
	return len && phys <= limit && len - 1 <= limit - phys;
}

#if IS_ENABLED(CONFIG_IOMMU_API)
/* Nothing is mapped for a bridge of the PCI bus itself. */
static int scif_count_device(struct device *dev, void *count)
{
	if (!dev_is_pci(dev) || !pci_is_bridge(to_pci_dev(dev)))
		++*(unsigned int *)count;
	return 0;
}
#endif

/*
 * Whether the device is the only one in its IOMMU group: what is mapped for one
 * of a group, all of them reach, and they may reach each other.
 */
bool scif_helper_is_alone(struct device *dev)
{
	unsigned int count = 0;

#if IS_ENABLED(CONFIG_IOMMU_API)
	struct iommu_group *group = iommu_group_get(dev);

	if (group) {
		iommu_group_for_each_dev(group, &count, scif_count_device);
		iommu_group_put(group);
	}
#endif
	return count == 1;
}

/*
 * Whether the device can raise its own interrupts only: an IOMMU lets writes to
 * where interrupts are raised through, whatever is mapped.
 */
bool scif_helper_has_isolated_msi(struct device *dev)
{
	bool has = false;

#if IS_ENABLED(CONFIG_IOMMU_API)
	struct iommu_group *group = iommu_group_get(dev);

	if (group) {
		has = iommu_group_has_isolated_msi(group);
		iommu_group_put(group);
	}
#endif
	return has;
}

/*
 * Whether the device names all memory by its physical address. Asked with a page
 * that is mapped for it, which also shows whether it is coherent.
 */
bool scif_helper_bus_is_physical(struct device *dev)
{
	struct page *page;
	dma_addr_t bus;
	bool is;

	if (scif_helper_has_iommu(dev) || dev->dma_range_map ||
	    dma_addressing_limited(dev))
		return false;
	page = alloc_page(GFP_KERNEL);
	if (!page)
		return false;
	bus = dma_map_page_attrs(dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL,
				 DMA_ATTR_REQUIRE_COHERENT);
	is = !dma_mapping_error(dev, bus);
	if (is) {
		is = bus == page_to_phys(page);
		dma_unmap_page_attrs(dev, bus, PAGE_SIZE, DMA_BIDIRECTIONAL,
				     DMA_ATTR_REQUIRE_COHERENT);
	}
	__free_page(page);
	return is;
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
			    bool fence, dma_async_tx_callback_result done,
			    void *param)
{
	unsigned long flags = DMA_CTRL_ACK;
	struct dma_async_tx_descriptor *tx;

	if (interrupt)
		flags |= DMA_PREP_INTERRUPT;
	if (fence)
		flags |= DMA_PREP_FENCE;

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
	/* Which copy is asked for does not matter, so the cookie may change meanwhile. */
	dma_async_is_tx_complete(chan, data_race(chan->cookie), NULL, NULL);
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

/*
 * Ranges of I/O addresses. All of it is static inline, and says no, in a kernel
 * whose IOMMUs do not serve the DMA API.
 */

bool scif_helper_iova_alloc(struct device *dev, struct dma_iova_state *range,
			    size_t size)
{
	return dma_iova_try_alloc(dev, range, 0, size);
}

void scif_helper_iova_free(struct device *dev, struct dma_iova_state *range)
{
	dma_iova_free(dev, range);
}

int scif_helper_iova_link(struct device *dev, struct dma_iova_state *range,
			  phys_addr_t phys, size_t offset, size_t size,
			  enum dma_data_direction dir, unsigned long attrs)
{
	return dma_iova_link(dev, range, phys, offset, size, dir, attrs);
}

int scif_helper_iova_sync(struct device *dev, struct dma_iova_state *range,
			  size_t offset, size_t size)
{
	return dma_iova_sync(dev, range, offset, size);
}

/* Has flushed the IOTLB when it returns. */
void scif_helper_iova_unlink(struct device *dev, struct dma_iova_state *range,
			     size_t offset, size_t size,
			     enum dma_data_direction dir, unsigned long attrs)
{
	dma_iova_unlink(dev, range, offset, size, dir, attrs);
}

/* Waiting */

bool scif_helper_need_resched(void)
{
	return need_resched();
}

bool scif_helper_has_waiters(struct wait_queue_head *queue)
{
	return wq_has_sleeper(queue);
}

void scif_helper_cond_resched(void)
{
	cond_resched();
}

unsigned int scif_helper_current_uid(void)
{
	return __kuid_val(current_uid());
}

/* Not asked as a privilege that is used: most have no need of it. */
bool scif_helper_has_no_share(void)
{
	return current->flags & PF_KTHREAD ||
	       ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE);
}

/* The process of the calling task, by its name; padded with zeros. */
void scif_helper_current_name(char *name, size_t size)
{
	strscpy_pad(name, current->group_leader->comm, size);
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

/* Sleep of the machine */

int scif_helper_register_pm_notifier(struct notifier_block *nb)
{
	return register_pm_notifier(nb);
}

int scif_helper_unregister_pm_notifier(struct notifier_block *nb)
{
	return unregister_pm_notifier(nb);
}

bool scif_helper_resumed_via_firmware(void)
{
	return pm_resume_via_firmware();
}

/* User space */

static int is_this_file(const void *file, struct file *other, unsigned int fd)
{
	return file == other;
}

/*
 * Whether no descriptor of the file is in that table. One that is not the
 * caller's own is on its way out, with all its descriptors.
 */
bool scif_helper_is_last_descriptor(struct file *file, unsigned long table)
{
	if (!current->files || (unsigned long)current->files != table)
		return true;
	return !iterate_fd(current->files, 0, is_this_file, file);
}

unsigned long scif_helper_compat_ptr(unsigned long argument)
{
#ifdef CONFIG_COMPAT
	return (unsigned long)compat_ptr((compat_uptr_t)argument);
#else
	return argument;
#endif
}
