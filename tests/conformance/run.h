/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the runner shares with the checks: where the process of a case is.
 */
#ifndef CONFORMANCE_RUN_H
#define CONFORMANCE_RUN_H

#include "suite.h"

struct progress {
	const char *file;
	int line;
	const char *text;
};

/* In memory shared by the runner and the processes of a case. */
extern struct progress *progress;

#endif
