/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Numbers that the kernel shows in files with lines "NAME VALUE" or "NAME: VALUE".
 */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <stdbool.h>

/* Of the file, which must have it. */
long number_of(const char *path, const char *name);
/* The same, or another value if the file does not have it. */
long number_or(const char *path, const char *name, long otherwise);

/*
 * The module's, in debugfs. The file is root's: whoever is about to become somebody else has
 * it opened before, by asking for any of them.
 */
long counter(const char *name);
long counter_or(const char *name, long otherwise);

/* Adds up what each processor has counted for itself. Takes root. */
void refresh_counts(void);

/* Pages that are pinned for long, in all of the system. Takes root. */
long pinned_pages(void);
/* Pages that this process has pinned (VmPin). */
long own_pinned_pages(void);

/* What is given up some time soon. Says what it is instead if it is taken for hung. */
bool comes_to(long (*number)(void), long wanted);

#endif /* NUMBERS_H */
