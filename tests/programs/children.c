// SPDX-License-Identifier: GPL-2.0
/*
 * Child processes (children.h).
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "children.h"
#include "die.h"
#include "hang_limits.h"

pid_t new_child(void)
{
	pid_t child;

	/* Otherwise the child would print the content of the buffer again. */
	fflush(stdout);
	child = fork();
	if (child < 0)
		die("fork");
	if (!child && prctl(PR_SET_PDEATHSIG, SIGKILL))
		die("prctl");
	return child;
}

int wait_for_child(pid_t child)
{
	int status;

	if (waitpid(child, &status, 0) != child)
		die("waitpid");
	return status;
}

bool ends(pid_t child, int *status)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	pid_t found;

	while (!(found = waitpid(child, status, WNOHANG))) {
		if (time(NULL) > end)
			return false;
		usleep(1000);
	}
	if (found != child)
		die("waitpid");
	return true;
}
