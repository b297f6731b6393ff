/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory for windows, and whether the peer reaches them.
 */
#ifndef WINDOW_MEMORY_H
#define WINDOW_MEMORY_H

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "die.h"

static inline void *memory_of(long len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

/* Returns the number of this node's windows that the peer does not reach directly. */
static inline int count_unreached(void)
{
	FILE *file = fopen("/sys/kernel/debug/scif/windows", "r");
	char line[256];
	int count = 0;

	if (!file)
		die("/sys/kernel/debug/scif/windows");
	while (fgets(line, sizeof(line), file))
		count += strlen(line) > 3 && !strcmp(line + strlen(line) - 3, " 0\n");
	fclose(file);
	return count;
}

#endif
