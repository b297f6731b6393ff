// SPDX-License-Identifier: GPL-2.0
/*
 * The cost of pinning memory: pin_user_pages() and unpin_user_pages() on the caller's buffer, as
 * every registration needs them. See raw_pin.h for the interface.
 *
 *	insmod raw_pin.ko
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "raw_pin.h"

#define LARGEST	SZ_64M

static int pin(struct raw_pin *what, struct page **pages, int count)
{
	u64 started = ktime_get_ns();
	int pinned;

	pinned = pin_user_pages_fast(what->address, count, FOLL_WRITE | FOLL_LONGTERM, pages);
	what->pin_ns = ktime_get_ns() - started;
	if (pinned < 0)
		return pinned;
	started = ktime_get_ns();
	unpin_user_pages(pages, pinned);
	what->unpin_ns = ktime_get_ns() - started;
	return pinned == count ? 0 : -EFAULT;
}

static long raw_pin_ioctl(struct file *file, unsigned int code, unsigned long argument)
{
	struct raw_pin __user *user = (void __user *)argument;
	struct page **pages;
	struct raw_pin what;
	int count, err;

	if (code != RAW_PIN)
		return -ENOTTY;
	if (copy_from_user(&what, user, sizeof(what)))
		return -EFAULT;
	if (!what.length || what.length > LARGEST ||
	    !PAGE_ALIGNED(what.address) || !PAGE_ALIGNED(what.length))
		return -EINVAL;
	count = what.length >> PAGE_SHIFT;
	pages = kvmalloc_array(count, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return -ENOMEM;
	err = pin(&what, pages, count);
	kvfree(pages);
	if (!err && copy_to_user(user, &what, sizeof(what)))
		err = -EFAULT;
	return err;
}

static const struct file_operations raw_pin_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = raw_pin_ioctl,
};

static struct miscdevice raw_pin_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "raw_pin",
	.fops = &raw_pin_operations,
	.mode = 0600,
};

module_misc_device(raw_pin_device);

MODULE_DESCRIPTION("Reference: pinning and unpinning memory");
MODULE_LICENSE("GPL");
