// SPDX-License-Identifier: GPL-2.0
/*
 * A software DMA engine that behaves like existing drivers:
 *
 * - tx_status checks the progress of the hardware, completes copies, and begins the next one. No
 *   two callers may call it at the same time, as with ptdma. The parameter "overlaps" counts such
 *   calls.
 * - It has one copy in flight, and begins the next when a caller has seen the completion.
 * - A completion has no result.
 *
 * Each completion interrupts, and the interrupt handler waits for callers of tx_status. The
 * interrupt of ptdma comes at the same time as such callers, or not at all after they have polled.
 *
 *	insmod scif_toy_engine.ko [driver=NAME] [early=1]
 *
 * NAME is the name of its driver. With "early" the interrupt comes at the beginning of a copy, and
 * not at its completion. When 1 is written to the parameter "narrow", the engine reaches only the
 * lowest 16 MiB of memory.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

static char *driver = "scif_toy_engine";
module_param(driver, charp, 0444);
MODULE_PARM_DESC(driver, "Name of the driver that the engine pretends to have");

static bool early;
module_param(early, bool, 0444);
MODULE_PARM_DESC(early, "Whether the engine interrupts when a copy begins, and not when it completes");

static unsigned int overlaps;
module_param(overlaps, uint, 0444);
MODULE_PARM_DESC(overlaps, "Number of tx_status calls that overlapped another one");

struct toy_copy {
	struct dma_async_tx_descriptor tx;
	struct list_head node;
	dma_addr_t dst, src;
	size_t len;
};

static struct toy {
	struct dma_device dma;
	struct dma_chan chan;
	struct platform_device *device;
	/* Protects the lists and the running copy. Nests inside @ending. */
	spinlock_t lock;
	/* Serializes completions, so that the interrupt handler is correct. */
	spinlock_t ending;
	struct list_head submitted, issued;
	struct toy_copy *running;
	/* The hardware: copies, and sets @done. */
	struct work_struct work;
	atomic_t done, callers;
	void *buffer;
} toy;

/* --- The hardware --- */

static bool toy_is_memory(dma_addr_t address, size_t len)
{
	return region_intersects(address, len, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) ==
	       REGION_INTERSECTS;
}

static void toy_load(dma_addr_t address, size_t len)
{
	void __iomem *device;

	if (toy_is_memory(address, len)) {
		memcpy(toy.buffer, phys_to_virt(address), len);
		return;
	}
	device = ioremap_wc(address, len);
	if (WARN_ON(!device))
		return;
	memcpy_fromio(toy.buffer, device, len);
	iounmap(device);
}

static void toy_store(dma_addr_t address, size_t len)
{
	void __iomem *device;

	if (toy_is_memory(address, len)) {
		memcpy(phys_to_virt(address), toy.buffer, len);
		return;
	}
	device = ioremap_wc(address, len);
	if (WARN_ON(!device))
		return;
	memcpy_toio(device, toy.buffer, len);
	/* The load makes sure that the data has arrived. */
	mb();
	readb(device);
	iounmap(device);
}

static void toy_check_status(void);

static void toy_work(struct work_struct *work)
{
	struct toy_copy *copy = READ_ONCE(toy.running);
	size_t at, step;

	if (early)
		toy_check_status();
	for (at = 0; at < copy->len; at += step) {
		step = min_t(size_t, copy->len - at, PAGE_SIZE);
		toy_load(copy->src + at, step);
		toy_store(copy->dst + at, step);
	}
	/* From here on a caller of tx_status may complete the copy. */
	atomic_set_release(&toy.done, 1);
	if (!early)
		toy_check_status();
}

/* --- The driver --- */

/* Begins the next copy. The caller holds the lock. */
static void toy_begin_next(void)
{
	toy.running = list_first_entry_or_null(&toy.issued, struct toy_copy, node);
	if (!toy.running)
		return;
	list_del(&toy.running->node);
	schedule_work(&toy.work);
}

static void toy_check_status(void)
{
	struct toy_copy *copy;

	spin_lock_bh(&toy.ending);
	if (!atomic_xchg(&toy.done, 0)) {
		spin_unlock_bh(&toy.ending);
		return;
	}
	spin_lock(&toy.lock);
	copy = toy.running;
	toy.chan.completed_cookie = copy->tx.cookie;
	toy_begin_next();
	spin_unlock(&toy.lock);
	if (copy->tx.callback_result)
		copy->tx.callback_result(copy->tx.callback_param, NULL);
	else if (copy->tx.callback)
		copy->tx.callback(copy->tx.callback_param);
	spin_unlock_bh(&toy.ending);
	kfree(copy);
}

static enum dma_status toy_tx_status(struct dma_chan *chan, dma_cookie_t cookie,
				     struct dma_tx_state *state)
{
	if (atomic_inc_return(&toy.callers) != 1)
		overlaps++;
	toy_check_status();
	/* A read of a device register takes a while. */
	udelay(1);
	atomic_dec(&toy.callers);
	return dma_async_is_complete(cookie, chan->completed_cookie, chan->cookie);
}

static dma_cookie_t toy_submit(struct dma_async_tx_descriptor *tx)
{
	struct toy_copy *copy = container_of(tx, struct toy_copy, tx);
	dma_cookie_t cookie;

	spin_lock_bh(&toy.lock);
	cookie = toy.chan.cookie + 1;
	if (cookie < DMA_MIN_COOKIE)
		cookie = DMA_MIN_COOKIE;
	tx->cookie = cookie;
	toy.chan.cookie = cookie;
	list_add_tail(&copy->node, &toy.submitted);
	spin_unlock_bh(&toy.lock);
	return cookie;
}

static struct dma_async_tx_descriptor *toy_prep(struct dma_chan *chan, dma_addr_t dst,
						dma_addr_t src, size_t len, unsigned long flags)
{
	struct toy_copy *copy = kzalloc(sizeof(*copy), GFP_NOWAIT);

	if (!copy)
		return NULL;
	dma_async_tx_descriptor_init(&copy->tx, chan);
	copy->tx.flags = flags;
	copy->tx.tx_submit = toy_submit;
	copy->dst = dst;
	copy->src = src;
	copy->len = len;
	return &copy->tx;
}

static void toy_issue_pending(struct dma_chan *chan)
{
	spin_lock_bh(&toy.lock);
	list_splice_tail_init(&toy.submitted, &toy.issued);
	if (!toy.running)
		toy_begin_next();
	spin_unlock_bh(&toy.lock);
}

static int toy_terminate(struct dma_chan *chan)
{
	struct toy_copy *copy, *next;
	LIST_HEAD(left);

	spin_lock_bh(&toy.lock);
	list_splice_init(&toy.submitted, &left);
	list_splice_tail_init(&toy.issued, &left);
	spin_unlock_bh(&toy.lock);
	list_for_each_entry_safe(copy, next, &left, node)
		kfree(copy);
	return 0;
}

static void toy_synchronize(struct dma_chan *chan)
{
	flush_work(&toy.work);
}

static int toy_alloc(struct dma_chan *chan)
{
	return 0;
}

static void toy_free(struct dma_chan *chan)
{
	toy_terminate(chan);
	flush_work(&toy.work);
	kfree(toy.running);
	toy.running = NULL;
	atomic_set(&toy.done, 0);
}

static int toy_set_narrow(const char *value, const struct kernel_param *parameter)
{
	bool narrow;
	int err = kstrtobool(value, &narrow);

	if (err || !toy.device)
		return err ?: -ENODEV;
	return dma_set_mask_and_coherent(&toy.device->dev, DMA_BIT_MASK(narrow ? 24 : 64));
}

static const struct kernel_param_ops toy_narrow = { .set = toy_set_narrow };
module_param_cb(narrow, &toy_narrow, NULL, 0200);
MODULE_PARM_DESC(narrow, "Whether the engine reaches the lowest 16 MiB only");

static int toy_probe(struct platform_device *device)
{
	struct dma_device *dma = &toy.dma;
	int err;

	err = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	dma->dev = &device->dev;
	dma_cap_set(DMA_MEMCPY, dma->cap_mask);
	dma_cap_set(DMA_PRIVATE, dma->cap_mask);
	dma->directions = BIT(DMA_MEM_TO_MEM);
	dma->residue_granularity = DMA_RESIDUE_GRANULARITY_DESCRIPTOR;
	dma->device_alloc_chan_resources = toy_alloc;
	dma->device_free_chan_resources = toy_free;
	dma->device_prep_dma_memcpy = toy_prep;
	dma->device_issue_pending = toy_issue_pending;
	dma->device_tx_status = toy_tx_status;
	dma->device_terminate_all = toy_terminate;
	dma->device_synchronize = toy_synchronize;
	INIT_LIST_HEAD(&dma->channels);
	toy.chan.device = dma;
	toy.chan.cookie = DMA_MIN_COOKIE;
	toy.chan.completed_cookie = DMA_MIN_COOKIE;
	list_add_tail(&toy.chan.device_node, &dma->channels);
	return dma_async_device_register(dma);
}

static void toy_remove(struct platform_device *device)
{
	dma_async_device_unregister(&toy.dma);
}

static struct platform_driver toy_driver = {
	.probe = toy_probe,
	.remove = toy_remove,
};

static int __init toy_init(void)
{
	int err;

	spin_lock_init(&toy.lock);
	spin_lock_init(&toy.ending);
	INIT_LIST_HEAD(&toy.submitted);
	INIT_LIST_HEAD(&toy.issued);
	INIT_WORK(&toy.work, toy_work);
	toy.buffer = kmalloc(PAGE_SIZE, GFP_KERNEL);
	if (!toy.buffer)
		return -ENOMEM;
	toy_driver.driver.name = driver;
	err = platform_driver_register(&toy_driver);
	if (err)
		goto free;
	toy.device = platform_device_register_simple(driver, PLATFORM_DEVID_NONE, NULL, 0);
	if (!IS_ERR(toy.device))
		return 0;
	err = PTR_ERR(toy.device);
	platform_driver_unregister(&toy_driver);
free:
	kfree(toy.buffer);
	return err;
}
module_init(toy_init);

static void __exit toy_exit(void)
{
	platform_device_unregister(toy.device);
	platform_driver_unregister(&toy_driver);
	kfree(toy.buffer);
}
module_exit(toy_exit);

MODULE_DESCRIPTION("SCIF test: a DMA engine in software, which behaves as known drivers do");
MODULE_LICENSE("GPL");
