// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of a doorbell: round trips between two kernels, by the doorbells of an NTB alone. Both
 * nodes load the module.
 *
 *	insmod raw_doorbell.ko
 *	echo "interrupt 1000" >/sys/kernel/debug/raw_doorbell/DEVICE/run
 *	cat /sys/kernel/debug/raw_doorbell/DEVICE/run
 *
 * rings a thousand times, and sleeps each time until the answer has arrived. The other side answers
 * from the interrupt, or with "thread" from a thread that the interrupt wakes. Nothing on the way
 * reads a register.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/wait.h>

#include "samples.h"

#define MAX_COUNT	1000000
#define TIMEOUT		(10 * HZ)

enum bell {
	ASK_INTERRUPT,
	ASK_THREAD,
	ANSWER,
	BELLS,
};

struct bridge {
	struct ntb_dev *ntb;
	struct dentry *folder;
	struct task_struct *thread;
	wait_queue_head_t asked;
	atomic_t asks;
	struct completion answered;
	struct mutex lock; /* one run at a time, and its samples */
	struct samples samples;
};

static struct dentry *root;

static int ring(struct bridge *bridge, enum bell bell)
{
	return ntb_peer_db_set(bridge->ntb, BIT_ULL(bell));
}

static void on_doorbell(void *context, int vector)
{
	struct bridge *bridge = context;
	u64 bells = ntb_db_vector_mask(bridge->ntb, vector) & GENMASK_ULL(BELLS - 1, 0);

	/* If a vector stands for several doorbells, a register has to tell which one rang. */
	if (hweight64(bells) != 1)
		bells &= ntb_db_read(bridge->ntb);
	if (!bells)
		return;
	ntb_db_clear(bridge->ntb, bells);
	if (bells & BIT_ULL(ASK_INTERRUPT))
		ring(bridge, ANSWER);
	if (bells & BIT_ULL(ASK_THREAD)) {
		atomic_inc(&bridge->asks);
		wake_up(&bridge->asked);
	}
	if (bells & BIT_ULL(ANSWER))
		complete(&bridge->answered);
}

static void on_link(void *context)
{
	struct bridge *bridge = context;

	/* The driver notices the link only when it is asked. */
	ntb_link_is_up(bridge->ntb, NULL, NULL);
}

static const struct ntb_ctx_ops bridge_operations = {
	.link_event = on_link,
	.db_event = on_doorbell,
};

static int answer(void *data)
{
	struct bridge *bridge = data;

	while (!kthread_should_stop()) {
		wait_event_interruptible(bridge->asked, atomic_read(&bridge->asks) ||
					 kthread_should_stop());
		if (atomic_xchg(&bridge->asks, 0))
			ring(bridge, ANSWER);
	}
	return 0;
}

static int run(struct bridge *bridge, enum bell bell, u32 count)
{
	struct samples *samples = &bridge->samples;
	u32 i;
	int err;

	if (ntb_link_is_up(bridge->ntb, NULL, NULL) != 1)
		return -ENOLINK;
	samples_free(samples);
	err = samples_init(samples, count);
	if (err)
		return err;
	for (i = 0; i < count; i++) {
		u64 started = ktime_get_ns();

		reinit_completion(&bridge->answered);
		err = ring(bridge, bell);
		if (err)
			return err;
		if (!wait_for_completion_timeout(&bridge->answered, TIMEOUT))
			return -ETIMEDOUT;
		samples->ns[samples->count++] = ktime_get_ns() - started;
	}
	return 0;
}

static ssize_t run_write(struct file *file, const char __user *user, size_t len, loff_t *pos)
{
	struct bridge *bridge = ((struct seq_file *)file->private_data)->private;
	char text[32] = "", who[10];
	enum bell bell;
	u32 count;
	int err;

	if (len >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, user, len))
		return -EFAULT;
	if (sscanf(text, "%9s %u", who, &count) != 2 || !count || count > MAX_COUNT)
		return -EINVAL;
	if (!strcmp(who, "interrupt"))
		bell = ASK_INTERRUPT;
	else if (!strcmp(who, "thread"))
		bell = ASK_THREAD;
	else
		return -EINVAL;

	mutex_lock(&bridge->lock);
	err = run(bridge, bell, count);
	mutex_unlock(&bridge->lock);
	return err ?: len;
}

static int run_show(struct seq_file *file, void *unused)
{
	struct bridge *bridge = file->private;

	mutex_lock(&bridge->lock);
	if (bridge->samples.count)
		samples_show(file, &bridge->samples);
	mutex_unlock(&bridge->lock);
	return 0;
}

static int run_open(struct inode *inode, struct file *file)
{
	return single_open(file, run_show, inode->i_private);
}

static const struct file_operations run_operations = {
	.owner = THIS_MODULE,
	.open = run_open,
	.read = seq_read,
	.write = run_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int bridge_probe(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct bridge *bridge;
	int err;

	bridge = kzalloc_obj(*bridge);
	if (!bridge)
		return -ENOMEM;
	bridge->ntb = ntb;
	init_waitqueue_head(&bridge->asked);
	init_completion(&bridge->answered);
	mutex_init(&bridge->lock);

	bridge->thread = kthread_run(answer, bridge, "raw_doorbell");
	if (IS_ERR(bridge->thread)) {
		err = PTR_ERR(bridge->thread);
		goto free;
	}
	err = ntb_set_ctx(ntb, bridge, &bridge_operations);
	if (err)
		goto stop;
	ntb_db_clear(ntb, GENMASK_ULL(BELLS - 1, 0));
	ntb_db_clear_mask(ntb, GENMASK_ULL(BELLS - 1, 0));
	ntb_link_enable(ntb, NTB_SPEED_AUTO, NTB_WIDTH_AUTO);

	bridge->folder = debugfs_create_dir(pci_name(ntb->pdev), root);
	debugfs_create_file("run", 0600, bridge->folder, bridge, &run_operations);
	return 0;

stop:
	kthread_stop(bridge->thread);
free:
	kfree(bridge);
	return err;
}

static void bridge_remove(struct ntb_client *client, struct ntb_dev *ntb)
{
	struct bridge *bridge = ntb->ctx;

	debugfs_remove(bridge->folder);
	ntb_link_disable(ntb);
	ntb_db_set_mask(ntb, GENMASK_ULL(BELLS - 1, 0));
	ntb_clear_ctx(ntb);
	kthread_stop(bridge->thread);
	samples_free(&bridge->samples);
	kfree(bridge);
}

static struct ntb_client raw_doorbell = {
	.ops = {
		.probe = bridge_probe,
		.remove = bridge_remove,
	},
};

static int __init raw_doorbell_init(void)
{
	int err;

	root = debugfs_create_dir(KBUILD_MODNAME, NULL);
	err = ntb_register_client(&raw_doorbell);
	if (err)
		debugfs_remove(root);
	return err;
}

static void __exit raw_doorbell_exit(void)
{
	ntb_unregister_client(&raw_doorbell);
	debugfs_remove(root);
}

module_init(raw_doorbell_init);
module_exit(raw_doorbell_exit);

MODULE_DESCRIPTION("Reference: round trips of NTB doorbells");
MODULE_LICENSE("GPL");
