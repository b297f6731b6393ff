// SPDX-License-Identifier: GPL-2.0
/*
 * One-sided transfers of kernel memory: a block device whose memory is on
 * another node, where scif_blk_server.ko offers it.
 *
 *	insmod scif_blk.ko node=1[,2...] [port=3002] [depth=32] [on_loss=error|wait]
 *	       [patience=30]
 *
 * /dev/scifblk0 appears when the first node has answered, which may be later. It stays until the
 * module is unloaded. When the connection is lost, requests fail (on_loss=error), or wait until the
 * node is back (on_loss=wait). The server determines the content of the disk then: zeroes if its
 * node has restarted. A server that does not answer a message within `patience` seconds counts as
 * lost.
 *
 * Each disk has a thread, its keeper, and a workqueue for its requests. The keeper connects, waits
 * for the end of the connection, and connects again. It exchanges the endpoint only while the queue
 * is quiesced and the workqueue is empty, so requests need no lock for the endpoint.
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

/* Interval at which waits check whether to go on. */
#define LOOK_MS		500

/* Largest size of a request. The block layer splits larger ones. */
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
MODULE_PARM_DESC(depth, "Number of requests of a disk in flight at a time");

static char *on_loss = "error";
module_param(on_loss, charp, 0444);
MODULE_PARM_DESC(on_loss, "error: requests fail without a connection; wait: they wait for one");

static uint patience = 30;
module_param(patience, uint, 0444);
MODULE_PARM_DESC(patience, "Seconds after which a server that does not answer is given up");

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

/* Number of nodes that have come online so far, so that a keeper need not wait for its next try. */
static atomic_t arrivals;
static DECLARE_WAIT_QUEUE_HEAD(arrival);

/*
 * Receives len bytes. A worker gets no signals, so this function checks whether the module is being
 * unloaded, and limits the time.
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
			/* The late answer could be taken for that of the next message. */
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
	/* There is room in the ring, as no other message is in flight. */
	len = scif_send(disk->epd, &range, sizeof(range), SCIF_SEND_BLOCK);
	if (len < 0)
		return len;
	/* The rest of the message can't be sent any more. */
	if (len != sizeof(range))
		return -ECONNRESET;
	err = receive(disk, &answer, sizeof(answer));
	if (err)
		return err;
	return answer.failed ? -EIO : 0;
}

/*
 * Copies through a window of this disk, in which each request has its own place. So a request is
 * one transfer, however many pages it has, and no pages are mapped for it. SCIF_RMA_SYNC is
 * necessary because the next request uses the place as soon as this one has completed. It also
 * returns the errors of this transfer, while a fence would report those of other requests, too.
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
	/* An allocation must not wait for memory that a write to this disk would free. */
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
		/* The keeper also sees that the connection has ended, and restarts the request. */
		blk_mq_requeue_request(request, false);
	} else if (err == -ENOMEM) {
		/*
		 * The request must not be touched afterwards, as it may run and complete at once.
		 */
		blk_mq_requeue_request(request, true);
	} else {
		blk_mq_end_request(request, err ? BLK_STS_IOERR : BLK_STS_OK);
	}
}

/*
 * Hands the request to a worker, which gets no signals. This function may run in the task that
 * waits for the request, where a signal could interrupt a transfer.
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
	/* Requests that fail because of the connection have to be requeued before the restart. */
	flush_workqueue(disk->requests);
}

static void unquiesce(struct disk *disk)
{
	if (disk->quiesced)
		blk_mq_unquiesce_queue(disk->gendisk->queue);
	disk->quiesced = false;
	blk_mq_kick_requeue_list(disk->gendisk->queue);
}

/* Makes the disk, without flushes: written data is at once where all other users see it. */
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
	/*
	 * add_disk() reads the partitions. Until that is over, the keeper could not connect again.
	 */
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
		pr_warn_once("node %u, port %u: no scif_blk_server, or its memory has another size now\n",
			     disk->node, port);
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

/* Takes over the endpoint, unless it returns an error. */
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

/* Returns when the connection has ended, or when it has to be closed. */
static void watch(struct disk *disk)
{
	struct scif_pollepd watched = { .epd = disk->epd };
	int ended;

	do {
		/* With no events requested, only the end of the connection is reported. */
		ended = scif_poll(&watched, 1, LOOK_MS);
		/* An error, such as a lack of memory, says nothing about the connection. */
		if (ended < 0)
			msleep_interruptible(LOOK_MS);
	} while (ended <= 0 && !READ_ONCE(disk->silent) && !kthread_should_stop());
}

static int keep(void *data)
{
	struct disk *disk = data;

	/*
	 * As in handle(), requests may wait for this thread, so it must not wait for memory that
	 * they would free.
	 */
	memalloc_noio_save();
	while (!kthread_should_stop()) {
		scif_epd_t epd = scif_open();
		int seen = atomic_read(&arrivals);

		if (epd && !connect_disk(disk, epd) && !attach(disk, epd)) {
			pr_info("scifblk%d: connected to node %u\n", disk->index, disk->node);
			watch(disk);
			if (kthread_should_stop())
				break;
			pr_info("scifblk%d: the server on node %u %s\n", disk->index, disk->node,
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

/* Does nothing, as the connections end by themselves. */
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
		/* Waiting requests, and later ones, fail now, because no keeper connects again. */
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
