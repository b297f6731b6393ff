// SPDX-License-Identifier: GPL-2.0
/*
 * A misc device whose open() does not return before its caller is killed. Meanwhile the kernel
 * holds its mutex of the misc devices.
 *
 *	insmod scif_slow_misc.ko
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/wait.h>

static uint opening;
module_param(opening, uint, 0444);
MODULE_PARM_DESC(opening, "Number of processes in open()");

static DECLARE_WAIT_QUEUE_HEAD(nothing);

static int slow_misc_open(struct inode *inode, struct file *file)
{
	opening++;
	wait_event_killable(nothing, false);
	opening--;
	return -EINTR;
}

static const struct file_operations slow_misc_operations = {
	.owner = THIS_MODULE,
	.open = slow_misc_open,
};

static struct miscdevice slow_misc_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "scif_slow_misc",
	.fops = &slow_misc_operations,
	.mode = 0600,
};

module_misc_device(slow_misc_device);

MODULE_DESCRIPTION("SCIF test: a misc device that takes for ever to open");
MODULE_LICENSE("GPL");
