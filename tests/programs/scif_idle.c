// SPDX-License-Identifier: GPL-2.0
/*
 * Asks while processes of the lowest priority ask, too, which have next to nothing of the
 * processors.
 *
 *	scif_idle
 *
 * One process for each processor computes all the time. How long the slowest question took is
 * measured, first without those of the lowest priority, and then with them: whoever has what
 * others wait for must not lose the processor with it. On this node alone. Prints both in
 * milliseconds, and ends with an error if the second is much longer.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "die.h"
#include "ends.h"

#define QUESTIONS	3000
#define ASKERS		3
#define FACTOR		4
#define MILLISECONDS	250

static double milliseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static pid_t child(void (*run)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	_exit(0);
}

static void compute(void)
{
	for (;;)
		;
}

static void ask(int fd)
{
	__s32 mark;

	if (scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark))
		die("SCIF_FENCE_MARK");
}

static void ask_idly(void)
{
	struct sched_param param = { };
	struct pair pair = make_pair();

	if (sched_setscheduler(0, SCHED_IDLE, &param))
		die("sched_setscheduler");
	for (;;)
		ask(pair.fd[0]);
}

static double slowest(int fd)
{
	double worst = 0;

	for (int number = 0; number < QUESTIONS; number++) {
		double start = milliseconds(), took;

		ask(fd);
		took = milliseconds() - start;
		worst = took > worst ? took : worst;
	}
	return worst;
}

int main(void)
{
	struct pair pair = make_pair();
	double alone, beside;

	for (long number = sysconf(_SC_NPROCESSORS_ONLN); number > 0; number--)
		child(compute);
	alone = slowest(pair.fd[0]);
	for (int number = 0; number < ASKERS; number++)
		child(ask_idly);
	/* Until they have made their connections they are as all others. */
	sleep(1);
	beside = slowest(pair.fd[0]);
	printf("alone %.1f, beside %.1f ms\n", alone, beside);
	fflush(stdout);
	expect(beside <= FACTOR * alone + MILLISECONDS);
	drop_pair(&pair);
	return 0;
}
