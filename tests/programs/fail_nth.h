/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Makes the n-th allocation, or copy from or to user space, of a thread fail: /proc/.../fail-nth.
 * The settings in debugfs decide which of them count (failslab, fail_page_alloc, fail_usercopy).
 * The caller has made them before.
 */
#ifndef FAIL_NTH_H
#define FAIL_NTH_H

#include <stdbool.h>

/* Sets n for this thread. 0 ends the failures. */
void fail_own_nth(long n);
/* Returns whether the failure has occurred, and ends it. */
bool has_own_failed(void);

/* Do the same for all kernel threads. */
void fail_kernels_nth(long n);
bool has_kernels_failed(void);

#endif /* FAIL_NTH_H */
