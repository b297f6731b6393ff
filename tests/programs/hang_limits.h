/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Times after which a program regards an operation as hung. They are generous, as machines may be
 * busy and kernels slow. Such a limit proves nothing.
 */
#ifndef HANG_LIMITS_H
#define HANG_LIMITS_H

/* Limit of an operation that takes less than a minute on an idle machine. */
#define HANG_LIMIT_SECONDS	600

/*
 * Limit of the whole program, for alarm(), because a test that hangs has to fail. The lab knows its
 * kernel, and has its own limit, which is mostly shorter.
 */
#define PROGRAM_LIMIT_SECONDS	(8 * 3600)

#endif /* HANG_LIMITS_H */
