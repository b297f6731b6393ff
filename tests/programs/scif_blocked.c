// SPDX-License-Identifier: GPL-2.0
/*
 * Waits in every call that can wait for the peer, to check that each call returns when the peer is
 * lost.
 *
 *	scif_blocked peer PORT		what to wait for: says nothing, reads nothing
 *	scif_blocked wait NODE PORT	waits for that in all ways at once
 *
 * The latter prints "waiting" before it waits, and a line "CALL RESULT" for each call that has
 * returned. RESULT is the name of an error, or the events of poll(). The program ends when all
 * calls have returned.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>

#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

#define WINDOW			0x10000000L
#define WINDOW_SIZE		(4L << 20)

static char buffer[1 << 16];

static void *allocate(void)
{
	void *area = mmap(NULL, WINDOW_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	return area;
}

static void be_the_peer(__u16 port)
{
	__u16 silent = port + 1;
	int fd = listen_on(&port);
	void *area = allocate();

	/* No process accepts at this port. */
	listen_on(&silent);
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		/* The endpoint stays open until this process ends. */
		int accepted = accept_from(fd);

		if (scif_register(accepted, area, WINDOW_SIZE, WINDOW, SCIF_PROT_READ,
				  SCIF_MAP_FIXED) < 0)
			die("SCIF_REG");
		/* The client waits for the byte that announces its window. */
		if (scif_send(accepted, buffer, 1, SCIF_SEND_BLOCK) != 1)
			die("SCIF_SEND");
	}
}

/* --- Calls that wait --- */

static int wait_in_recv(int fd)
{
	return scif_recv(fd, buffer, 1, SCIF_RECV_BLOCK);
}

static int wait_in_send(int fd)
{
	int sent;

	do
		sent = scif_send(fd, buffer, sizeof(buffer), SCIF_SEND_BLOCK);
	while (sent > 0);
	return sent;
}

static int wait_in_poll(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	if (poll(&pollfd, 1, -1) != 1)
		return -1;
	/* If neither event is set, the next call has to return the reason. */
	if (!(pollfd.revents & (POLLHUP | POLLERR))) {
		errno = EBUSY;
		return -1;
	}
	return scif_recv(fd, buffer, 1, SCIF_RECV_BLOCK);
}

/* Makes one transfer after the other, so that one of them is in flight at the loss. */
static int wait_in_readfrom(int fd)
{
	struct scifioctl_copy argument = {
		.loffset = WINDOW, .len = WINDOW_SIZE, .roffset = WINDOW,
		.flags = SCIF_RMA_SYNC,
	};

	if (scif_register(fd, allocate(), WINDOW_SIZE, WINDOW, SCIF_PROT_READ | SCIF_PROT_WRITE,
			  SCIF_MAP_FIXED) < 0)
		return -1;
	while (!ioctl(fd, SCIF_READFROM, &argument))
		;
	return -1;
}

/* Sends requests to the peer, one after the other. One of them gets no answer. */
static int wait_in_fence(int fd)
{
	__s32 mark;

	while (!scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark) && !scif_fence_wait(fd, mark))
		;
	return -1;
}

/* Makes transfers for which only a fence waits. */
static int wait_in_own_fence(int fd)
{
	struct scifioctl_copy copy = {
		.addr = (uintptr_t)allocate(), .len = WINDOW_SIZE, .roffset = WINDOW,
	};
	__s32 mark;

	while (!ioctl(fd, SCIF_VREADFROM, &copy) &&
	       !scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark) && !scif_fence_wait(fd, mark))
		;
	return -1;
}

/* Makes offers of windows, which the peer has to answer. */
static int wait_in_register(int fd)
{
	void *area = allocate();

	while (scif_register(fd, area, WINDOW_SIZE, WINDOW, SCIF_PROT_READ, SCIF_MAP_FIXED) >= 0 &&
	       !scif_unregister(fd, WINDOW, WINDOW_SIZE))
		;
	return -1;
}

static sigjmp_buf hit;

static void on_bus_error(int signal)
{
	siglongjmp(hit, 1);
}

/* Makes a load that the compiler may not remove, although its value is unused. */
static void load(const char *at)
{
	__atomic_load_n(at, __ATOMIC_RELAXED);
}

/* Loads from the peer's memory until that is gone: SIGBUS, reported as EFAULT. */
static int wait_in_mapping(int fd)
{
	struct sigaction action = { .sa_handler = on_bus_error };
	const char *area = mmap(NULL, WINDOW_SIZE, PROT_READ, MAP_SHARED,
					 fd, WINDOW);
	size_t i;

	if (area == MAP_FAILED)
		return -1;
	if (sigaction(SIGBUS, &action, NULL))
		die("sigaction");
	if (sigsetjmp(hit, 1)) {
		errno = EFAULT;
		return -1;
	}
	/* Makes few loads at a time, as other processes need the CPU, too. */
	for (i = 0;; i = (i + 4096) % WINDOW_SIZE) {
		load(&area[i]);
		sched_yield();
	}
}

/* Loads from a mapping that outlives its endpoint, and from a part of it. */
static int wait_in_orphan(int fd)
{
	struct sigaction action = { .sa_handler = on_bus_error };
	char *area = mmap(NULL, WINDOW_SIZE, PROT_READ, MAP_SHARED, fd,
				   WINDOW);

	if (area == MAP_FAILED)
		return -1;
	if (sigaction(SIGBUS, &action, NULL))
		die("sigaction");
	load(&area[WINDOW_SIZE / 2]);
	if (munmap(area, WINDOW_SIZE / 2))
		die("munmap");
	close(fd);
	if (sigsetjmp(hit, 1)) {
		errno = EFAULT;
		return -1;
	}
	for (;;) {
		load(&area[WINDOW_SIZE / 2]);
		load(&area[WINDOW_SIZE - 1]);
		sched_yield();
	}
}

struct call {
	const char *name;
	int (*wait)(int fd);
};

static const struct call calls[] = {
	{ "recv", wait_in_recv },
	{ "send", wait_in_send },
	{ "poll", wait_in_poll },
	{ "readfrom", wait_in_readfrom },
	{ "fence", wait_in_fence },
	{ "own_fence", wait_in_own_fence },
	{ "register", wait_in_register },
	{ "mapping", wait_in_mapping },
	{ "orphan", wait_in_orphan },
	{ NULL },
};

static void report(const char *name, int result)
{
	if (result >= 0)
		printf("%s returned %d\n", name, result);
	else
		printf("%s %s\n", name, strerrorname_np(errno));
	fflush(stdout);
}

static void wait_in_all(__u16 node, __u16 port)
{
	const struct call *call;
	int fd;

	for (call = calls; call->name; call++) {
		fd = connected(node, port);
		if (scif_recv(fd, buffer, 1, SCIF_RECV_BLOCK) != 1)
			die("SCIF_RECV");
		if (!new_child()) {
			report(call->name, call->wait(fd));
			exit(0);
		}
		close(fd);
	}
	if (!new_child()) {
		report("connect", scif_connect(scif_open(), node, port + 1));
		exit(0);
	}
	printf("waiting\n");
	fflush(stdout);
	while (wait(NULL) > 0)
		;
}

int main(int argc, char **argv)
{
	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 3 && !strcmp(argv[1], "peer")) {
		be_the_peer(atoi(argv[2]));
	} else if (argc == 4 && !strcmp(argv[1], "wait")) {
		wait_in_all(atoi(argv[2]), atoi(argv[3]));
	} else {
		fprintf(stderr, "usage: scif_blocked peer PORT\n"
			"       scif_blocked wait NODE PORT\n");
		return 2;
	}
	return 0;
}
