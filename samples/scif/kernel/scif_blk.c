// SPDX-License-Identifier: GPL-2.0
/*
 * One-sided transfers of kernel memory: a block device whose memory is on
 * another node, where scif_blk_server.ko offers it.
 *
 *	insmod scif_blk.ko node=1[,2...] [port=3002] [depth=32] [on_loss=error|wait]
 *	       [patience=30]
 *
 * /dev/scifblk0 is there when the first node has answered, which may be later;
 * it stays until the module is unloaded. When the connection is lost, requests
 * fail (on_loss=error), or wait until the node is back (on_loss=wait). What is
 * there then is up to the server: if its node was started anew, zeroes. A server
 * that leaves a message without an answer for so long (patience) counts as lost.
 *
 * Each disk has a thread, its keeper, which connects, waits for the end of the
 * connection, and connects again; and a workqueue for its requests. The endpoint
 * is exchanged only while the queue is quiesced and the workqueue is empty, so
 * requests take no lock for it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/blk-mq.h>
#include <linux/bvec.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/scif.h>
#include <linux/sched/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "scif_blk.h"

#define MAX_DISKS	8
#define MAX_DEPTH	256

/* How often a wait looks whether it is still wanted. */
#define LOOK_MS		500

/* Of a request: more is split. */
#define LARGEST		SZ_512K

static ushort nodes[MAX_DISKS];
static uint nr_disks;
module_param_array_named(node, nodes, ushort, &nr_disks, 0444);
MODULE_PARM_DESC(node, "Nodes whose memory to use, one disk for each");

static ushort port = 3002;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "The port of the servers");

static uint depth = 32;
module_param(depth, uint, 0444);
MODULE_PARM_DESC(depth, "How many requests of a disk are under way at a time");

static char *on_loss = "error";
module_param(on_loss, charp, 0444);
MODULE_PARM_DESC(on_loss, "What becomes of requests without a connection: error or wait");

static uint patience = 30;
module_param(patience, uint, 0444);
MODULE_PARM_DESC(patience, "Seconds that an answer of the server may take");

struct disk {
	int index;
	u16 node;
	struct task_struct *keeper;
	struct workqueue_struct *requests;
	struct blk_mq_tag_set tags;
	struct gendisk *gendisk;	/* NULL until the server was there once */
	bool waits;		/* requests without a connection do */
	bool quiesced;
	bool silent;		/* the server does not answer */
	bool stopping;
	scif_epd_t epd;		/* NULL without a connection */
	off_t window;		/* where it begins */
	u64 size;
	char *staging;		/* LARGEST for each request */
	off_t staged;		/* where it is registered */
	struct mutex messages;	/* a request and its answer */
};

static struct disk disks[MAX_DISKS];

/* Nodes that have come so far, so that a keeper need not wait for its next try. */
static atomic_t arrivals;
static DECLARE_WAIT_QUEUE_HEAD(arrival);

/*
 * Receives all of it. A worker gets no signal, so it looks itself whether the
 * module goes, and how long it takes.
 */
static int receive(struct disk *disk, void *to, int len)
{
	unsigned long limit = jiffies + patience * HZ;
	int done = 0, got;

	for (;;) {
		struct scif_pollepd watched = { .epd = disk->epd, .events = POLLIN };

		got = scif_recv(disk->epd, to + done, len - done, 0);
		if (got < 0)
			return got;
		done += got;
		if (done == len)
			return 0;
		if (READ_ONCE(disk->stopping))
			return -ESHUTDOWN;
		if (time_after(jiffies, limit)) {
			/* Its answer could be taken for the next one's. */
			WRITE_ONCE(disk->silent, true);
			return -ECONNRESET;
		}
		if (scif_poll(&watched, 1, LOOK_MS) < 0)
			msleep(LOOK_MS);
	}
}

static int zero(struct disk *disk, struct request *request)
{
	struct scif_blk_zero range = {
		.offset = cpu_to_le64(blk_rq_pos(request) << SECTOR_SHIFT),
		.len = cpu_to_le64(blk_rq_bytes(request)),
	};
	struct scif_blk_zeroed answer;
	int len, err;

	guard(mutex)(&disk->messages);
	if (disk->silent)
		return -ECONNRESET;
	/* There is room: no other one is under way. */
	len = scif_send(disk->epd, &range, sizeof(range), SCIF_SEND_BLOCK);
	if (len < 0)
		return len;
	/* The rest can't be sent any more. */
	if (len != sizeof(range))
		return -ECONNRESET;
	err = receive(disk, &answer, sizeof(answer));
	if (err)
		return err;
	return answer.failed ? -EIO : 0;
}

/*
 * By a window of this disk's own, in which each request has its place: one
 * transfer, however many pages the request has, and nothing is mapped for it.
 * SCIF_RMA_SYNC, because the place is the next request's when this has ended;
 * and because errors are this call's then, while a fence would tell of those of
 * other requests, too.
 */
static int transfer(struct disk *disk, struct request *request)
{
	off_t offset = disk->window + (blk_rq_pos(request) << SECTOR_SHIFT);
	size_t place = (size_t)request->tag * LARGEST;
	size_t len = blk_rq_bytes(request);
	char *at = disk->staging + place;
	struct req_iterator iter;
	struct bio_vec bvec;
	int err;

	if (req_op(request) == REQ_OP_WRITE) {
		rq_for_each_segment(bvec, request, iter) {
			memcpy_from_bvec(at, &bvec);
			at += bvec.bv_len;
		}
		return scif_writeto(disk->epd, disk->staged + place, len, offset, SCIF_RMA_SYNC);
	}
	err = scif_readfrom(disk->epd, disk->staged + place, len, offset, SCIF_RMA_SYNC);
	if (err)
		return err;
	rq_for_each_segment(bvec, request, iter) {
		memcpy_to_bvec(&bvec, at);
		at += bvec.bv_len;
	}
	return 0;
}

static void handle(struct work_struct *work)
{
	struct request *request = blk_mq_rq_from_pdu(work);
	struct disk *disk = request->q->queuedata;
	/* Memory must not be waited for that a write to this disk is to free. */
	unsigned int noio = memalloc_noio_save();
	int err;

	switch (req_op(request)) {
	case REQ_OP_READ:
	case REQ_OP_WRITE:
		err = transfer(disk, request);
		break;
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		err = zero(disk, request);
		break;
	default:
		err = -EOPNOTSUPP;
	}
	memalloc_noio_restore(noio);

	if ((err == -ECONNRESET || err == -ENODEV) && READ_ONCE(disk->waits)) {
		/* The keeper sees that the connection has ended, too, and starts it again. */
		blk_mq_requeue_request(request, false);
	} else if (err == -ENOMEM) {
		/* Not to be touched afterwards: it may run, and end, at once. */
		blk_mq_requeue_request(request, true);
	} else {
		blk_mq_end_request(request, err ? BLK_STS_IOERR : BLK_STS_OK);
	}
}

/*
 * In the task of whoever waits for the request, if it comes to that, where a
 * signal could interrupt a transfer: it is left to a worker, who gets none.
 */
static blk_status_t queue_rq(struct blk_mq_hw_ctx *hctx, const struct blk_mq_queue_data *queued)
{
	struct work_struct *work = blk_mq_rq_to_pdu(queued->rq);
	struct disk *disk = hctx->queue->queuedata;

	if (!disk->epd)
		return BLK_STS_IOERR;
	blk_mq_start_request(queued->rq);
	INIT_WORK(work, handle);
	queue_work(disk->requests, work);
	return BLK_STS_OK;
}

static const struct blk_mq_ops queue_ops = {
	.queue_rq = queue_rq,
};

static const struct block_device_operations disk_ops = {
	.owner = THIS_MODULE,
};

static void quiesce(struct disk *disk)
{
	if (!disk->quiesced)
		blk_mq_quiesce_queue(disk->gendisk->queue);
	disk->quiesced = true;
	/* Those that fail because of the connection are all to be started again then. */
	flush_workqueue(disk->requests);
}

static void unquiesce(struct disk *disk)
{
	if (disk->quiesced)
		blk_mq_unquiesce_queue(disk->gendisk->queue);
	disk->quiesced = false;
	blk_mq_kick_requeue_list(disk->gendisk->queue);
}

/* Without flushes: what was written is where all others see it. */
static int make_gendisk(struct disk *disk)
{
	struct queue_limits limits = {
		.physical_block_size = PAGE_SIZE,
		.max_hw_sectors = LARGEST >> SECTOR_SHIFT,
		.max_hw_discard_sectors = SZ_1G >> SECTOR_SHIFT,
		.discard_granularity = PAGE_SIZE,
		.max_write_zeroes_sectors = SZ_1G >> SECTOR_SHIFT,
	};
	struct gendisk *gendisk;
	int err;

	gendisk = blk_mq_alloc_disk(&disk->tags, &limits, disk);
	if (IS_ERR(gendisk))
		return PTR_ERR(gendisk);
	gendisk->fops = &disk_ops;
	snprintf(gendisk->disk_name, DISK_NAME_LEN, "scifblk%d", disk->index);
	set_capacity(gendisk, disk->size >> SECTOR_SHIFT);
	/* Reads the partitions: until that is over, the keeper could not connect again. */
	err = add_disk(gendisk);
	if (err) {
		put_disk(gendisk);
		return err;
	}
	disk->gendisk = gendisk;
	WRITE_ONCE(disk->waits, !strcmp(on_loss, "wait"));
	return 0;
}

static int connect_disk(struct disk *disk, scif_epd_t epd)
{
	struct scif_port_id server = { .node = disk->node, .port = port };
	struct scif_blk_hello hello;
	int err, len;
	u64 size;

	err = scif_connect(epd, &server);
	if (err)
		return err;
	len = scif_recv(epd, &hello, sizeof(hello), SCIF_RECV_BLOCK);
	if (len < 0)
		return len;
	size = le64_to_cpu(hello.size);
	if (len != sizeof(hello) || le32_to_cpu(hello.magic) != SCIF_BLK_MAGIC ||
	    le32_to_cpu(hello.version) != SCIF_BLK_VERSION ||
	    !size || !PAGE_ALIGNED(size) || (disk->gendisk && size != disk->size)) {
		pr_warn_once("node %u, port %u: not what is expected there\n", disk->node, port);
		return -EPROTO;
	}
	disk->staged = scif_register(epd, disk->staging, (size_t)depth * LARGEST, 0,
				     SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_KERNEL);
	if (disk->staged < 0)
		return disk->staged;
	disk->size = size;
	disk->window = le64_to_cpu(hello.offset);
	return 0;
}

/* Takes the endpoint over, unless it fails. */
static int attach(struct disk *disk, scif_epd_t epd)
{
	int err;

	if (disk->gendisk) {
		quiesce(disk);
		disk->epd = epd;
		disk->silent = false;
		unquiesce(disk);
		return 0;
	}
	disk->epd = epd;
	err = make_gendisk(disk);
	if (err)
		disk->epd = NULL;
	return err;
}

static void detach(struct disk *disk)
{
	scif_epd_t epd = disk->epd;

	quiesce(disk);
	disk->epd = NULL;
	scif_close(epd);
	if (!disk->waits)
		unquiesce(disk);
}

/* Returns at the end of the connection, or when there is to be one. */
static void watch(struct disk *disk)
{
	struct scif_pollepd watched = { .epd = disk->epd };
	int ended;

	do {
		/* No events: only the end is one. */
		ended = scif_poll(&watched, 1, LOOK_MS);
		/* No memory, say, which tells nothing of the connection. */
		if (ended < 0)
			msleep_interruptible(LOOK_MS);
	} while (ended <= 0 && !READ_ONCE(disk->silent) && !kthread_should_stop());
}

static int keep(void *data)
{
	struct disk *disk = data;

	/* As in handle(): requests may wait for what this does. */
	memalloc_noio_save();
	while (!kthread_should_stop()) {
		scif_epd_t epd = scif_open();
		int seen = atomic_read(&arrivals);

		if (epd && !connect_disk(disk, epd) && !attach(disk, epd)) {
			pr_info("scifblk%d: node %u is there\n", disk->index, disk->node);
			watch(disk);
			if (kthread_should_stop())
				break;
			pr_info("scifblk%d: node %u %s\n", disk->index, disk->node,
				disk->silent ? "does not answer" : "is lost");
			detach(disk);
		} else if (epd) {
			scif_close(epd);
		}
		wait_event_interruptible_timeout(arrival, atomic_read(&arrivals) != seen ||
						 kthread_should_stop(), HZ);
	}
	return 0;
}

static void node_has_come(struct scif_peer_dev *spdev)
{
	atomic_inc(&arrivals);
	wake_up_interruptible(&arrival);
}

/* The connections end by themselves. */
static void node_goes(struct scif_peer_dev *spdev)
{
}

static struct scif_client client = {
	.name = KBUILD_MODNAME,
	.probe = node_has_come,
	.remove = node_goes,
};

static int start_disk(struct disk *disk, int index)
{
	int err;

	disk->index = index;
	disk->node = nodes[index];
	mutex_init(&disk->messages);
	disk->staging = vmalloc(array_size(depth, LARGEST));
	if (!disk->staging)
		return -ENOMEM;
	disk->requests = alloc_workqueue("scifblk%d", WQ_UNBOUND | WQ_MEM_RECLAIM, depth, index);
	err = -ENOMEM;
	if (!disk->requests)
		goto free_staging;
	disk->tags.ops = &queue_ops;
	disk->tags.nr_hw_queues = 1;
	disk->tags.queue_depth = depth;
	disk->tags.numa_node = NUMA_NO_NODE;
	disk->tags.cmd_size = sizeof(struct work_struct);
	disk->tags.flags = BLK_MQ_F_NO_SCHED_BY_DEFAULT;
	err = blk_mq_alloc_tag_set(&disk->tags);
	if (err)
		goto destroy_requests;
	disk->keeper = kthread_run(keep, disk, "scifblk%d", index);
	err = PTR_ERR_OR_ZERO(disk->keeper);
	if (err)
		goto free_tags;
	return 0;

free_tags:
	blk_mq_free_tag_set(&disk->tags);
destroy_requests:
	destroy_workqueue(disk->requests);
free_staging:
	vfree(disk->staging);
	return err;
}

static void stop_disk(struct disk *disk)
{
	WRITE_ONCE(disk->stopping, true);
	kthread_stop(disk->keeper);
	if (disk->gendisk) {
		/* What waits, or would, fails now: nobody connects again. */
		WRITE_ONCE(disk->waits, false);
		flush_workqueue(disk->requests);
		unquiesce(disk);
		del_gendisk(disk->gendisk);
		put_disk(disk->gendisk);
	}
	if (disk->epd)
		scif_close(disk->epd);
	blk_mq_free_tag_set(&disk->tags);
	destroy_workqueue(disk->requests);
	vfree(disk->staging);
}

static void stop_disks(int count)
{
	while (count--)
		stop_disk(&disks[count]);
}

static int __init blk_init(void)
{
	int i, err;

	if (!nr_disks || !depth || depth > MAX_DEPTH)
		return -EINVAL;
	if (strcmp(on_loss, "error") && strcmp(on_loss, "wait"))
		return -EINVAL;
	for (i = 0; i < nr_disks; i++) {
		err = start_disk(&disks[i], i);
		if (err)
			goto stop;
	}
	err = scif_client_register(&client);
	if (err)
		goto stop;
	return 0;

stop:
	stop_disks(i);
	return err;
}

static void __exit blk_exit(void)
{
	scif_client_unregister(&client);
	stop_disks(nr_disks);
}

module_init(blk_init);
module_exit(blk_exit);

MODULE_DESCRIPTION("SCIF sample: a disk in another node's memory");
MODULE_LICENSE("GPL");
