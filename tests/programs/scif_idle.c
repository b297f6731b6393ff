// SPDX-License-Identifier: GPL-2.0
/*
 * Sends requests while processes of the lowest priority send requests and copy, too, and get hardly
 * any CPU time.
 *
 *	scif_idle
 *
 * One process for each CPU computes all the time. The program measures the slowest request, first
 * without the processes of the lowest priority, and then with them. A process that holds what
 * others wait for must not lose the CPU. Uses this node alone. Prints both times in milliseconds,
 * and ends with an error if the second is much longer.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "die.h"
#include "ends.h"
#include "window_memory.h"

#define QUESTIONS	3000
#define ASKERS		3
#define COPIED		(64 << 10)
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

static void be_idle(void)
{
	struct sched_param param = { };

	if (sched_setscheduler(0, SCHED_IDLE, &param))
		die("sched_setscheduler");
}

static void ask_idly(void)
{
	struct pair pair = make_pair();

	be_idle();
	for (;;)
		ask(pair.fd[0]);
}

static __s64 register_at(int fd, void *memory, long len)
{
	__s64 offset = scif_register(fd, memory, len, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);

	if (offset < 0)
		die("SCIF_REG");
	return offset;
}

/* The connection of copy_idly(). */
static struct pair copying;

static void change_windows(void)
{
	void *memory = memory_of(4096);

	for (;;) {
		__s64 offset = register_at(copying.fd[1], memory, 4096);

		if (scif_unregister(copying.fd[1], offset, 4096))
			die("SCIF_UNREG");
	}
}

/* Copies at an end whose windows come and go meanwhile, which involves the control work. */
static void copy_idly(void)
{
	struct pair pair = make_pair();
	struct scifioctl_copy copy = {
		.len = COPIED,
		.addr = (unsigned long)memory_of(COPIED),
	};

	copy.roffset = register_at(pair.fd[1], memory_of(COPIED), COPIED);
	copying = pair;
	child(change_windows);
	be_idle();
	for (;;)
		if (ioctl(pair.fd[0], SCIF_VWRITETO, &copy))
			die("SCIF_VWRITETO");
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
	for (int number = 0; number < ASKERS; number++) {
		child(ask_idly);
		child(copy_idly);
	}
	/* The processes have the normal priority until they have made their connections. */
	sleep(1);
	beside = slowest(pair.fd[0]);
	printf("alone %.1f, beside %.1f ms\n", alone, beside);
	fflush(stdout);
	expect(beside <= FACTOR * alone + MILLISECONDS);
	drop_pair(&pair);
	return 0;
}
