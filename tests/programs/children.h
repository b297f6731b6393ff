/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Processes that a program starts. They go with their parent.
 */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <stdbool.h>
#include <sys/types.h>

/* As fork(), which must work. */
pid_t new_child(void);
/* The status of one that ends sooner or later. */
int wait_for_child(pid_t child);
/* Whether one has ended before it was taken for hung; not if it can't be killed. */
bool ends(pid_t child, int *status);

#endif /* CHILDREN_H */
