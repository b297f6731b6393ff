// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps all CPUs busy for a while, so that they handle only interrupts.
 *
 *	scif_hog MILLISECONDS	says "soon", and begins a little later
 *
 * There is one thread for each CPU, with a real-time priority. The program has to run as root.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

static double milliseconds;
static pthread_barrier_t ready;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static void *spin(void *number)
{
	struct sched_param param = { .sched_priority = 50 };
	cpu_set_t set;
	double end;

	CPU_ZERO(&set);
	CPU_SET((long)number, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		die("sched_setscheduler");
	pthread_barrier_wait(&ready);
	for (end = now() + milliseconds; now() < end;)
		;
	return NULL;
}

int main(int argc, char **argv)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[count];

	if (argc != 2) {
		fprintf(stderr, "usage: %s MILLISECONDS\n", argv[0]);
		return 2;
	}
	milliseconds = atof(argv[1]);
	pthread_barrier_init(&ready, NULL, count);
	printf("soon\n");
	fflush(stdout);
	usleep(200000);
	for (long number = 0; number < count; number++)
		if (pthread_create(&threads[number], NULL, spin, (void *)number))
			die("pthread_create");
	for (long number = 0; number < count; number++)
		pthread_join(threads[number], NULL);
	return 0;
}
