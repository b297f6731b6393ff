// SPDX-License-Identifier: GPL-2.0
/*
 * The peer bus: sends a number to each online node every second, and receives it back.
 *
 *	insmod scif_heartbeat.ko [port=3001]	on all nodes, in any order
 *
 * The log shows the nodes and heartbeats that come and go. With dynamic debug it shows each beat
 * and its time.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/scif.h>
#include <linux/slab.h>

#include "service.h"

#define SECOND	1000	/* in milliseconds */

static ushort port = 3001;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "Port of this sample, the same on all nodes");

/* A node that is online. */
struct heart {
	struct list_head list;
	struct scif_peer_dev *spdev;
	struct task_struct *task;
};

/* The list needs no lock, as the bus calls probe() and remove() one after another. */
static LIST_HEAD(hearts);

static int exchange(scif_epd_t epd, struct device *dev, u64 number)
{
	ktime_t start = ktime_get();
	u64 answer;
	int len;

	len = scif_send(epd, &number, sizeof(number), SCIF_SEND_BLOCK);
	if (len == sizeof(number))
		len = scif_recv(epd, &answer, sizeof(answer), SCIF_RECV_BLOCK);
	if (len < 0)
		return len;
	/* The connection has ended in the middle. The next call would return the reason. */
	if (len != sizeof(answer))
		return -ECONNRESET;
	if (answer != number)
		return -EPROTO;
	dev_dbg(dev, "beat %llu took %lld us\n", number, ktime_us_delta(ktime_get(), start));
	return 0;
}

/*
 * Exchanges numbers with a node. All waits in this function end when the node is lost, and by
 * kthread_stop().
 */
static int hear(void *data)
{
	struct heart *heart = data;
	struct device *dev = &heart->spdev->dev;
	struct scif_port_id there = { .node = heart->spdev->dnode, .port = port };
	scif_epd_t epd;
	u64 number;
	int err;

	for (; !kthread_should_stop(); msleep_interruptible(SECOND)) {
		epd = scif_open();
		if (!epd)
			continue;
		err = scif_connect(epd, &there);
		/*
		 * -ECONNREFUSED means that the module is not loaded on that node, which may change.
		 */
		if (!err) {
			dev_info(dev, "connected, sending a beat each second\n");
			for (number = 0; !kthread_should_stop(); number++) {
				err = exchange(epd, dev, number);
				if (err)
					break;
				msleep_interruptible(SECOND);
			}
			dev_info(dev, "the heartbeat has stopped after %llu beats (%d)\n",
				 number, err);
		}
		scif_close(epd);
	}
	return 0;
}

static void heartbeat_probe(struct scif_peer_dev *spdev)
{
	struct heart *heart = kzalloc_obj(*heart);

	dev_info(&spdev->dev, "node %u is online\n", spdev->dnode);
	if (!heart)
		return;
	heart->spdev = spdev;
	heart->task = kthread_run(hear, heart, "scif_heart/%u", spdev->dnode);
	if (IS_ERR(heart->task)) {
		kfree(heart);
		return;
	}
	list_add(&heart->list, &hearts);
}

static void heartbeat_remove(struct scif_peer_dev *spdev)
{
	struct heart *heart;

	dev_info(&spdev->dev, "node %u is lost, or this module is unloaded\n", spdev->dnode);
	list_for_each_entry(heart, &hearts, list) {
		if (heart->spdev == spdev) {
			list_del(&heart->list);
			kthread_stop(heart->task);
			kfree(heart);
			return;
		}
	}
}

static struct scif_client heartbeat_client = {
	.name = KBUILD_MODNAME,
	.probe = heartbeat_probe,
	.remove = heartbeat_remove,
};

static void answer(scif_epd_t epd, const struct scif_port_id *peer)
{
	u64 number;

	while (!kthread_should_stop() &&
	       scif_recv(epd, &number, sizeof(number), SCIF_RECV_BLOCK) == sizeof(number) &&
	       scif_send(epd, &number, sizeof(number), SCIF_SEND_BLOCK) == sizeof(number))
		;
}

static struct service heartbeat_service = {
	.name = "scif_heartbeat",
	.serve = answer,
};

static int __init heartbeat_init(void)
{
	int err = service_start(&heartbeat_service, port);

	if (err)
		return err;
	err = scif_client_register(&heartbeat_client);
	if (err)
		service_stop(&heartbeat_service);
	return err;
}

static void __exit heartbeat_exit(void)
{
	scif_client_unregister(&heartbeat_client);
	service_stop(&heartbeat_service);
}

module_init(heartbeat_init);
module_exit(heartbeat_exit);

MODULE_DESCRIPTION("SCIF sample: a counter between all nodes");
MODULE_LICENSE("GPL");
