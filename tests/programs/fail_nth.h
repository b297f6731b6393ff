/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The n-th allocation, or copy from or to user space, of a thread fails: /proc/.../fail-nth.
 * Which of them count is in debugfs (failslab, fail_page_alloc, fail_usercopy), which is set
 * before.
 */
#ifndef FAIL_NTH_H
#define FAIL_NTH_H

#include <stdbool.h>

/* Of this thread; 0 ends it. */
void fail_own_nth(long n);
/* Whether it has failed; ends it. */
bool has_own_failed(void);

/* The same for each thread of the kernel that there is. */
void fail_kernels_nth(long n);
bool has_kernels_failed(void);

#endif /* FAIL_NTH_H */
