// SPDX-License-Identifier: GPL-2.0
/*
 * C helpers for the Rust code; helpers.h declares them. The only policy here is
 * which DMA engines are refused. The only state is which refusals were logged.
 */

#include <linux/bottom_half.h>
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
 * DMA engine drivers that break the contract of dmaengine, as of Linux 7.3.
 * "scif doctor" has the list, too.
 */
static struct scif_unfit {
	const char *driver, *why;
	bool said;
} scif_unfit[] = {
	/*
	 * pt_tx_status() and the acknowledgment of an interrupt complete and start
	 * copies without a lock. If both run at the same time, they also complete the
	 * next copy. The driver logs a hardware error, but does not report it to the
	 * callback.
	 */
	{ "ptdma", "it completes copies that are in flight, and does not report copies that fail" },
	/*
	 * pt_create_desc() takes a mutex. pt_issue_pending() starts the first
	 * submitted copy, but no later one.
	 */
	{ "ae4dma", "it may sleep in atomic context, and does not begin all submitted copies" },
};

/* Returns whether the driver of the channel is unfit; logs a driver once. */
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
 * Returns whether to take this channel. Channels that may complete copies out
 * of order are refused.
 *
 * The device of the chosen channel stays locked, so that its driver is not
 * unbound. If a driver is being bound or unbound, the device is locked already.
 * This must not wait for that lock, since the list of engines is locked; the
 * caller may request a channel again later.
 *
 * Context: the list of engines is locked, so calls do not overlap.
 */
static bool scif_may_take(struct dma_chan *chan, void *param)
{
	struct device **locked = param;

	if (dma_has_cap(DMA_COMPLETION_NO_ORDER, chan->device->cap_mask))
		return false;
	if (scif_is_unfit(chan))
		return false;
		/* Unlocks the device of an earlier choice, which could not be had. */
	if (*locked)
		device_unlock(*locked);
	*locked = NULL;
	if (!device_trylock(chan->device->dev))
		return false;
	*locked = chan->device->dev;
	return true;
}

/*
 * The driver of the returned channel stays bound until the caller has called
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

/* Copies the name for the caller, because the driver frees the original. */
void scif_helper_dma_copy_name(struct dma_chan *chan, char *name, size_t size)
{
	strscpy(name, dma_chan_name(chan), size);
}

struct device *scif_helper_dma_device(struct dma_chan *chan)
{
	return chan->device->dev;
}

/* Must be called for every mapping, or the DMA-API debug check warns. */
bool scif_helper_dma_mapping_failed(struct device *dev, dma_addr_t address)
{
	return dma_mapping_error(dev, address);
}

/*
 * Returns whether this device can only access mapped memory. An IOMMU in
 * passthrough mode does not count.
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
 * Returns whether the device has enough address bits for this memory. If it has
 * not, mapping the memory would make the kernel warn. An IOMMU gives the memory
 * other addresses.
 */
bool scif_helper_dma_reaches(struct device *dev, phys_addr_t phys, size_t len)
{
	u64 limit = min_not_zero(dma_get_mask(dev), dev->bus_dma_limit);

	if (scif_helper_has_iommu(dev) || dev->dma_range_map)
		return true;
	return len && phys <= limit && len - 1 <= limit - phys;
}

#if IS_ENABLED(CONFIG_IOMMU_API)
/* Bridges of the PCI bus do not count: nothing is mapped for them. */
static int scif_count_device(struct device *dev, void *count)
{
	if (!dev_is_pci(dev) || !pci_is_bridge(to_pci_dev(dev)))
		++*(unsigned int *)count;
	return 0;
}
#endif

/*
 * Returns whether the device is the only one in its IOMMU group. All devices of
 * a group can access memory that is mapped for one of them, and may access each
 * other.
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
 * Returns whether the device can only raise its own interrupts. An IOMMU lets
 * writes to the addresses of interrupts through, whatever is mapped.
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
 * Returns whether the device names all memory by its physical address. The test
 * maps a page for the device, which also shows whether the device is coherent.
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
 * Prepares and submits one copy. Some drivers (plx_dma) return from prep with a
 * spinlock held that only submit releases. So both are in one function, and
 * only the descriptor is filled in between them.
 *
 * Returns false if nothing was submitted; done() is not called then.
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
 * Some drivers report copies without DMA_PREP_INTERRUPT only when a caller
 * checks their state. plx_dma then takes its lock without disabling soft
 * interrupts, although a soft interrupt takes that lock, too. So this disables
 * them.
 */
void scif_helper_dma_reap(struct dma_chan *chan)
{
	local_bh_disable();
	/* Any cookie will do, so it may change meanwhile. */
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
 * Ranges of I/O addresses. All of these functions are static inline. In a
 * kernel whose IOMMUs do not serve the DMA API, they fail.
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

/* The IOTLB has been flushed when this returns. */
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

/* noaudit: most callers do not need the capability. */
bool scif_helper_has_no_share(void)
{
	return current->flags & PF_KTHREAD ||
	       ns_capable_noaudit(&init_user_ns, CAP_SYS_RESOURCE);
}

/* Returns the name of the calling task's process, padded with zeros. */
void scif_helper_current_name(char *name, size_t size)
{
	strscpy_pad(name, current->group_leader->comm, size);
}

/* Names the calling task's descriptor table; the pointer is never followed. */
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

/* Suspend and hibernation */

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
 * Returns whether no descriptor of the file is in that table. If the table is
 * not the caller's own, it is being destroyed with all its descriptors.
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

void scif_helper_disable_bottom_halves(bool disable)
{
	if (disable)
		local_bh_disable();
	else
		local_bh_enable();
}
