/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Child processes of a program. They are killed when their parent ends.
 */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* Forks a child. A failure ends the program. */
pid_t new_child(void);
/* Waits for a child, and returns its status. */
int wait_for_child(pid_t child);
/*
 * Waits for a child within the hang limit. Returns false if the child has not ended by then, as one
 * that can't be killed.
 */
bool ends(pid_t child, int *status);

#endif /* CHILDREN_H */
