// SPDX-License-Identifier: GPL-2.0
/*
 * Calls that wait in accept while a descriptor of the listener is closed. The calls of the closing
 * process return, even if another process closes a descriptor at the same time. Calls of other
 * processes go on.
 *
 *	scif_flushed
 *
 * Prints TAP. Uses this node alone. Requires root, as the program chooses which thread runs first.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

static int listener;
static __u16 port;

/* A thread that accepts. */
struct acceptor {
	pthread_t thread;
	pid_t id;
	/* The error, or 0. */
	int result;
};

static void *accept_one(void *argument)
{
	struct scifioctl_accept call = { .flags = SCIF_ACCEPT_SYNC };
	struct acceptor *acceptor = argument;

	__atomic_store_n(&acceptor->id, syscall(SYS_gettid), __ATOMIC_RELEASE);
	acceptor->result = ioctl(listener, SCIF_ACCEPTREQ, &call) ? errno : 0;
	return NULL;
}

static bool is_asleep(pid_t thread)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		die(path);
	fclose(file);
	return state == 'S';
}

/* Starts the thread, and returns when it waits. */
static void start(struct acceptor *acceptor)
{
	acceptor->id = 0;
	if (pthread_create(&acceptor->thread, NULL, accept_one, acceptor))
		die("pthread_create");
	while (!__atomic_load_n(&acceptor->id, __ATOMIC_ACQUIRE) || !is_asleep(acceptor->id))
		usleep(1000);
}

/* Returns whether the call returns within the hang limit. */
static bool returns(struct acceptor *acceptor)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HANG_LIMIT_SECONDS;
	return !pthread_timedjoin_np(acceptor->thread, NULL, &end);
}

/* Lets the calling thread run on the first CPU with a priority that keeps all others from it. */
static void go_first(void)
{
	struct sched_param priority = { .sched_priority = 1 };
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (sched_setaffinity(0, sizeof(first), &first) ||
	    sched_setscheduler(0, SCHED_FIFO, &priority))
		die("sched_setscheduler");
}

static void pass(int fd)
{
	if (write(fd, "", 1) != 1)
		die("write");
}

static void await(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		die("read");
}

int main(void)
{
	struct acceptor acceptor;
	int to[2], from[2], other, fd;
	cpu_set_t first;
	pid_t child;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	listener = listen_on(&port);
	if (pipe(to) || pipe(from))
		die("pipe");
	child = new_child();
	if (!child) {
		go_first();
		/* The child closes twice: after its parent has closed a descriptor, and alone. */
		other = dup(listener);
		pass(from[1]);
		await(to[0]);
		close(other);
		pass(from[1]);
		await(to[0]);
		close(listener);
		_exit(0);
	}
	await(from[0]);

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	/* The thread inherits the CPU, and has to wait until it is free. */
	if (sched_setaffinity(0, sizeof(first), &first))
		die("sched_setaffinity");
	start(&acceptor);
	other = dup(listener);
	go_first();
	close(other);
	/* The child runs before the thread does. */
	pass(to[1]);
	await(from[0]);
	test(returns(&acceptor) && acceptor.result == EINTR,
	     "a descriptor is closed, and another process closes one before the call continues: %s",
	     strerror(acceptor.result));

	start(&acceptor);
	pass(to[1]);
	test(!wait_for_child(child), "another process closes its last descriptor");
	fd = connected(own_node(), port);
	test(returns(&acceptor) && !acceptor.result, "the call has continued, and accepts: %s",
	     strerror(acceptor.result));
	close(fd);
	return finish_tests();
}
