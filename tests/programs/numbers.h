/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Numbers that the kernel shows in files with lines "NAME VALUE" or "NAME: VALUE".
 */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdbool.h>

/* Returns a number of the file, which must contain it. */
long number_of(const char *path, const char *name);
/* Returns a number of the file, or `otherwise` if the file does not contain it. */
long number_or(const char *path, const char *name, long otherwise);

/*
 * Returns a counter of the module in debugfs. Only root may open the file. A program that changes
 * its user must read any counter before, which opens the file.
 */
long counter(const char *name);
long counter_or(const char *name, long otherwise);

/* Adds up the counts of all CPUs. This requires root. */
void refresh_counts(void);

/* Returns the number of long-term pinned pages of the system. This requires root. */
long pinned_pages(void);
/* Returns the number of pages that this process has pinned (VmPin). */
long own_pinned_pages(void);

/*
 * Waits for a number that becomes `wanted` some time soon. If it does not within the hang limit,
 * prints it.
 */
bool comes_to(long (*number)(void), long wanted);

#endif /* NUMBERS_H */
