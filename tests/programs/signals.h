/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waiting for the word that a fence signal stores.
 */
#ifndef SIGNALS_H
#define SIGNALS_H

#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#include "hang_limits.h"

/*
 * Waits for a value that a fence signal stores. Returns true if it arrives before the hang limit.
 */
static bool comes(const __u64 *word, __u64 value)
{
	const __u32 *half = (const __u32 *)word;
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	__u64 now;

	do {
		now = __atomic_load_n(half, __ATOMIC_ACQUIRE);
		now |= (__u64)__atomic_load_n(half + 1, __ATOMIC_ACQUIRE) << 32;
		if (now == value)
			return true;
		usleep(1000);
	} while (time(NULL) <= end);
	return false;
}

#endif /* SIGNALS_H */
