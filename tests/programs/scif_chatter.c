// SPDX-License-Identifier: GPL-2.0
/*
 * Connections that use all features of the module, one after the other and some at once: messages
 * that fit into a ring and longer ones, windows, copies both ways, mappings, marks and signals. A
 * failed call ends the connection, and nothing else, because a peer may lie.
 *
 *	scif_chatter server PORT WINDOW
 *	scif_chatter client NODE PORT WINDOW
 *
 * WINDOW is the MiB that each end registers. All pages of a window are the same memory, so a window
 * that does not fit into the peer's aperture costs no memory. Both programs go on until they are
 * killed.
 */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "children.h"
#include "die.h"
#include "ends.h"

#define SERVERS		8
#define CLIENTS		3
#define ROUNDS		50
/* Seconds after which a connection ends, as promised events may never come from a liar. */
#define PATIENCE	5
/* Seconds after which a child of the server ends to which no client has written. */
#define NO_CLIENT	1
#define MIB		0x100000L
#define OFFSET		0x10000000L
#define COPIED		0x10000L
#define LARGEST		8192

struct request {
	__u32 len;
	__u32 answer;
};

static char data[LARGEST];
static long window_len;
static void *window;

/* Maps the same memory again and again. */
static void make_memory(void)
{
	int file = memfd_create("chatter", MFD_CLOEXEC);
	char *at;

	window = mmap(NULL, window_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (file < 0 || ftruncate(file, MIB) || window == MAP_FAILED)
		die("memory");
	for (at = window; at < (char *)window + window_len; at += MIB)
		if (mmap(at, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
		    MAP_FAILED)
			die("mmap");
}

static bool has_window(int fd)
{
	return scif_register(fd, window, window_len, OFFSET, SCIF_PROT_READ | SCIF_PROT_WRITE,
			     SCIF_MAP_FIXED) >= 0;
}

static bool send_all(int fd, const void *from, int len)
{
	return scif_send(fd, from, len, SCIF_SEND_BLOCK) == len;
}

static bool receive_all(int fd, void *to, int len)
{
	return scif_recv(fd, to, len, SCIF_RECV_BLOCK) == len;
}

static bool copy(int fd, unsigned long call, long at, long len, int flags)
{
	bool is_virtual = call == SCIF_VWRITETO || call == SCIF_VREADFROM;
	struct scifioctl_copy argument = {
		.loffset = OFFSET + at, .roffset = OFFSET + at, .len = len,
		.addr = is_virtual ? (unsigned long)window : 0,
		.flags = is_virtual ? flags : flags & ~SCIF_RMA_USECACHE,
	};

	return !ioctl(fd, call, &argument);
}

static bool signal_both(int fd, int flags, __u64 value)
{
	struct scifioctl_fence_signal argument = {
		.loff = OFFSET, .lval = value, .roff = OFFSET, .rval = value,
		.flags = flags | SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE,
	};

	return !ioctl(fd, SCIF_FENCE_SIGNAL, &argument);
}

static bool fence(int fd, int flags)
{
	__s32 mark;

	return !scif_fence_mark(fd, flags, &mark) && !scif_fence_wait(fd, mark);
}

static bool map_peer(int fd)
{
	volatile char *mapped = mmap(NULL, COPIED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, OFFSET);

	/* In some modes the peer's memory can't be mapped. */
	if (mapped == MAP_FAILED)
		return true;
	mapped[5] = mapped[3] + 1;
	return !munmap((void *)mapped, COPIED);
}

static bool talk(int fd)
{
	static const unsigned long calls[] = {
		SCIF_WRITETO, SCIF_VWRITETO, SCIF_READFROM, SCIF_VREADFROM,
	};
	struct request request = {
		.len = rand() % (rand() % 8 ? 300 : LARGEST), .answer = rand() % 300,
	};
	long at = rand() % 16 * 4096, len = 1 + rand() % COPIED;

	return send_all(fd, &request, sizeof(request)) && send_all(fd, data, request.len) &&
	       receive_all(fd, data, request.answer) &&
	       copy(fd, calls[rand() % 4], at, len, rand() % 16) &&
	       fence(fd, rand() % 2 ? SCIF_FENCE_INIT_SELF : SCIF_FENCE_INIT_PEER) &&
	       signal_both(fd, rand() % 2 ? SCIF_FENCE_INIT_SELF : SCIF_FENCE_INIT_PEER, rand());
}

static void ask(__u16 node, __u16 port)
{
	int fd = scif_open(), round;
	char ready;

	if (scif_connect(fd, node, port) < 0)
		return;
	if (!send_all(fd, "", 1) || !has_window(fd) || !receive_all(fd, &ready, 1) || !map_peer(fd))
		return;
	for (round = 0; round < ROUNDS && talk(fd); round++)
		;
	scif_unregister(fd, OFFSET, window_len);
}

static void answer(int listener)
{
	int fd = scif_accept(listener, NULL, SCIF_ACCEPT_SYNC);
	struct request request;
	char ready;

	alarm(NO_CLIENT);
	if (fd < 0 || !receive_all(fd, &ready, 1))
		return;
	alarm(PATIENCE);
	if (!has_window(fd) || !send_all(fd, "", 1))
		return;
	while (receive_all(fd, &request, sizeof(request))) {
		if (request.len > LARGEST || request.answer > LARGEST ||
		    !receive_all(fd, data, request.len) ||
		    !copy(fd, SCIF_WRITETO, 0, 1 + rand() % COPIED, 0) ||
		    !signal_both(fd, SCIF_FENCE_INIT_SELF, rand()) ||
		    !send_all(fd, data, request.answer))
			return;
	}
}

int main(int count, char **arguments)
{
	bool is_server = count == 4 && !strcmp(arguments[1], "server");
	bool is_client = count == 5 && !strcmp(arguments[1], "client");
	int children = is_server ? SERVERS : CLIENTS, listener = -1, seed = 0;
	__u16 port;

	if (!is_server && !is_client) {
		fprintf(stderr, "usage: scif_chatter server PORT WINDOW\n"
			"       scif_chatter client NODE PORT WINDOW\n");
		return 2;
	}
	port = atoi(arguments[count - 2]);
	window_len = atol(arguments[count - 1]) * MIB;
	make_memory();
	if (is_server)
		listener = listen_on(&port);
	/* A new child replaces each child that has ended. */
	for (;; seed++) {
		if (seed >= children)
			wait(NULL);
		if (new_child())
			continue;
		srand(seed);
		if (is_server) {
			answer(listener);
		} else {
			alarm(PATIENCE);
			ask(atoi(arguments[2]), port);
			/* The node may be offline for a while. */
			usleep(20000);
		}
		_exit(0);
	}
}
