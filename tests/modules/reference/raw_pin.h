/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface of raw_pin.ko.
 */
#ifndef RAW_PIN_H
#define RAW_PIN_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Pins memory of the caller, and unpins it. */
struct raw_pin {
	__u64 address;
	__u64 length;
	__u64 pin_ns;	/* so long took the one */
	__u64 unpin_ns;	/* and the other */
};

#define RAW_PIN _IOWR('r', 1, struct raw_pin)

#endif /* RAW_PIN_H */
