/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The exit of a program that can't continue.
 */
#ifndef DIE_H
#define DIE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
	exit(1);
}

#endif /* DIE_H */
