/* SPDX-License-Identifier: GPL-2.0 */
/*
 * How long a program waits before it takes something for hung. Generous, as
 * machines may be busy and kernels slow: such a limit proves nothing.
 */
#ifndef HANG_LIMITS_H
#define HANG_LIMITS_H

/* Of something that takes less than a minute on an idle machine. */
#define HANG_LIMIT_SECONDS	600

/*
 * Of the whole program, for alarm(): a test that hangs is a test that fails. The
 * lab, which knows its kernel, has a limit of its own, and mostly a shorter one.
 */
#define PROGRAM_LIMIT_SECONDS	(8 * 3600)

#endif /* HANG_LIMITS_H */
