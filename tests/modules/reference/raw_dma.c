// SPDX-License-Identifier: GPL-2.0
/*
 * The performance of a DMA engine: memcpy between pages of this node and an address on the bus,
 * such as one in the aperture of a bridge, by the kernel's dmaengine alone.
 *
 *	insmod raw_dma.ko address=0x... length=0x...
 *	echo "write 65536 8 1000" >/sys/kernel/debug/raw_dma/run
 *	cat /sys/kernel/debug/raw_dma/run
 *
 * copies 65536 bytes a thousand times to that address ("read": from there), with eight copies in
 * flight, and prints the time. A further number limits the bytes of one descriptor, as if memory
 * were scattered. The engine interrupts once for each half of the copies in flight, so that the
 * other half goes on meanwhile. The module takes a channel that has no other user.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/seq_file.h>
#include <linux/sizes.h>
#include <linux/slab.h>

/* The local memory consists of pieces, each of which is contiguous. */
#define PIECE_ORDER	get_order(SZ_4M)
#define PIECES		16
#define LARGEST		((u64)SZ_4M * PIECES)

#define MAX_DEPTH	64
#define MAX_DESCRIPTORS	1024
#define MAX_GROUPS	3
#define TIMEOUT		(30 * HZ)

static ulong address;
module_param(address, ulong, 0444);
MODULE_PARM_DESC(address, "Bus address to copy to and from");

static ulong length;
module_param(length, ulong, 0444);
MODULE_PARM_DESC(length, "Number of bytes at that address");

/* A group of copies, of which the last one interrupts. */
struct group {
	struct completion done;
	int error;
};

static struct dma_chan *channel;
static dma_addr_t remote;
static void *pieces[PIECES];
static dma_addr_t local[PIECES];
static struct dentry *folder;

/* The samples of the last run, and a lock that keeps out a second one. */
static DEFINE_MUTEX(run_lock);
static struct group groups[MAX_GROUPS];
static u64 last_bytes, last_ns;

static struct device *engine(void)
{
	return channel->device->dev;
}

static void group_done(void *context, const struct dmaengine_result *result)
{
	struct group *group = context;

	if (result->result != DMA_TRANS_NOERROR)
		group->error = -EIO;
	complete(&group->done);
}

/* Must not sleep between the preparation and the submission, as plx_dma holds a lock meanwhile. */
static int copy_piece(bool write, u64 offset, u64 at, size_t size, struct group *last)
{
	struct dma_async_tx_descriptor *copy;
	dma_addr_t here = local[offset / SZ_4M] + offset % SZ_4M;
	dma_addr_t there = remote + at;

	copy = dmaengine_prep_dma_memcpy(channel, write ? there : here, write ? here : there,
					 size, last ? DMA_PREP_INTERRUPT : 0);
	if (!copy)
		return -EBUSY;
	if (last) {
		copy->callback_result = group_done;
		copy->callback_param = last;
	}
	return dma_submit_error(dmaengine_submit(copy));
}

/* Submits one copy, in pieces that do not cross a 4 MiB boundary. `last` completes with it. */
static int copy_once(bool write, u32 size, u32 most, u64 place, struct group *last)
{
	u64 start = place, done = 0;
	int err = 0;

	while (done < size && !err) {
		u64 offset = start + done;
		size_t piece = min3((u64)size - done, SZ_4M - offset % SZ_4M, (u64)most);

		err = copy_piece(write, offset, offset, piece, done + piece == size ? last : NULL);
		done += piece;
	}
	dma_async_issue_pending(channel);
	return err;
}

static int await(struct group *group)
{
	if (!wait_for_completion_timeout(&group->done, TIMEOUT))
		return -ETIMEDOUT;
	return group->error;
}

static int run(bool write, u32 size, u32 depth, u32 count, u32 most)
{
	u32 each = max(depth / 2, 1u), in_flight = min(depth / each, (u32)MAX_GROUPS);
	u64 step = ALIGN((u64)size, 64), room = min_t(u64, LARGEST, length);
	u32 places = clamp_t(u64, div64_u64(room, step), 1, depth);
	u32 group_count = DIV_ROUND_UP(count, each), i, waited = 0;
	u64 started = ktime_get_ns();
	int err = 0;

	for (i = 0; i < count && !err; i++) {
		u32 number = i / each;
		bool last = i % each == each - 1 || i == count - 1;
		struct group *group = &groups[number % in_flight];

		if (i % each == 0) {
			if (number >= in_flight) {
				err = await(group);
				waited++;
			}
			if (err)
				break;
			init_completion(&group->done);
			group->error = 0;
		}
		err = copy_once(write, size, most, (i % places) * step, last ? group : NULL);
	}
	while (!err && waited < group_count)
		err = await(&groups[waited++ % in_flight]);
	last_ns = ktime_get_ns() - started;
	last_bytes = (u64)size * count;
	/* Copies that are in flight would complete a group that is reused. */
	if (err)
		dmaengine_synchronize(channel);
	return err;
}

static ssize_t run_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	u32 size, depth, count, most = SZ_4M;
	char text[64] = "", way[6];
	int err;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, len))
		return -EFAULT;
	if (sscanf(text, "%5s %u %u %u %u", way, &size, &depth, &count, &most) < 4)
		return -EINVAL;
	if (strcmp(way, "write") && strcmp(way, "read"))
		return -EINVAL;
	if (!size || size > min_t(u64, LARGEST, length) || !count || !depth || depth > MAX_DEPTH)
		return -EINVAL;
	/* More copies in flight would not fit into the engine's ring. */
	if (!most || (u64)depth * DIV_ROUND_UP(size, most) > MAX_DESCRIPTORS)
		return -EINVAL;

	mutex_lock(&run_lock);
	err = run(!strcmp(way, "write"), size, depth, count, most);
	mutex_unlock(&run_lock);
	return err ?: len;
}

static int run_show(struct seq_file *file, void *unused)
{
	mutex_lock(&run_lock);
	seq_printf(file, "bytes %llu\nns %llu\n", last_bytes, last_ns);
	mutex_unlock(&run_lock);
	return 0;
}

static int run_open(struct inode *inode, struct file *file)
{
	return single_open(file, run_show, NULL);
}

static const struct file_operations run_operations = {
	.owner = THIS_MODULE,
	.open = run_open,
	.read = seq_read,
	.write = run_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static void give_back(void)
{
	int i;

	for (i = 0; i < PIECES && pieces[i]; i++) {
		if (local[i])
			dma_unmap_single(engine(), local[i], SZ_4M, DMA_BIDIRECTIONAL);
		free_pages((unsigned long)pieces[i], PIECE_ORDER);
	}
	if (remote)
		dma_unmap_resource(engine(), remote, length, DMA_BIDIRECTIONAL, 0);
	dma_release_channel(channel);
}

static int take(void)
{
	int i, at;

	for (i = 0; i < PIECES; i++) {
		dma_addr_t mapped;

		pieces[i] = (void *)__get_free_pages(GFP_KERNEL, PIECE_ORDER);
		if (!pieces[i])
			return -ENOMEM;
		/* Avoids zeroes, which some CPUs copy in a special way. */
		for (at = 0; at < SZ_4M; at++)
			((u8 *)pieces[i])[at] = at % 251;
		mapped = dma_map_single(engine(), pieces[i], SZ_4M, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(engine(), mapped))
			return -EIO;
		local[i] = mapped;
	}
	remote = dma_map_resource(engine(), address, length, DMA_BIDIRECTIONAL, 0);
	if (dma_mapping_error(engine(), remote)) {
		remote = 0;
		return -EIO;
	}
	return 0;
}

static int __init raw_dma_init(void)
{
	dma_cap_mask_t mask;
	int err;

	if (!address || !length)
		return -EINVAL;
	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	channel = dma_request_channel(mask, NULL, NULL);
	if (!channel)
		return -ENODEV;
	err = take();
	if (err) {
		give_back();
		return err;
	}
	folder = debugfs_create_dir(KBUILD_MODNAME, NULL);
	debugfs_create_file("run", 0600, folder, NULL, &run_operations);
	pr_info("using the DMA channel %s\n", dma_chan_name(channel));
	return 0;
}

static void __exit raw_dma_exit(void)
{
	debugfs_remove(folder);
	dmaengine_synchronize(channel);
	give_back();
}

module_init(raw_dma_init);
module_exit(raw_dma_exit);

MODULE_DESCRIPTION("Reference: DMA to an address on the bus");
MODULE_LICENSE("GPL");
