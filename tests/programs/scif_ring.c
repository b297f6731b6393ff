// SPDX-License-Identifier: GPL-2.0
/*
 * The number of bytes that can be sent to a peer that does not receive: as much as its ring holds
 * once it has grown. The peer's node chooses that size (the module parameter ring_size).
 *
 *	scif_ring server PORT HERE THERE
 *	scif_ring client NODE PORT HERE THERE
 *	scif_ring loopback PORT SIZE		both, on this node
 *
 * Print TAP. HERE is the size of the rings of this node, THERE that of the other node's. There are
 * two connections: one is filled, and over the other one the programs tell each other their
 * progress.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

/* Size of a message for which an old program expects to block. */
#define MESSAGE		10000L
#define LARGEST		(1024 * 1024L)

static unsigned char data[3 * LARGEST + 1];

static void fill(unsigned char *bytes, long len, int side)
{
	long i;

	for (i = 0; i < len; i++)
		bytes[i] = (i * 2654435761UL + side * 97) >> (i % 13);
}

/* Returns whether the data is the pattern of the other side. */
static bool is_right(long len, int side)
{
	static unsigned char expected[sizeof(data)];

	fill(expected, len, side);
	return !memcmp(data, expected, len);
}

/* Waits until the other side has come as far as this one. */
static void meet(int control)
{
	char byte;

	if (scif_send(control, "", 1, SCIF_SEND_BLOCK) != 1 ||
	    scif_recv(control, &byte, 1, SCIF_RECV_BLOCK) != 1)
		die("a word with the other side");
}

/*
 * Sends as much as the ring takes while the peer does not receive. First a call waits until the
 * ring has grown, then calls do not wait at all.
 */
static void fill_ring(int fd, long there)
{
	long expected = there < MESSAGE ? there : MESSAGE;
	long total = scif_send(fd, data, expected, SCIF_SEND_BLOCK);
	long sent;

	test(total == expected, "%ld bytes are sent at once to a ring of %ld", total, there);
	do {
		sent = scif_send(fd, data + total, sizeof(data) - total, 0);
		total += sent > 0 ? sent : 0;
	} while (sent > 0 || (!sent && total < there && wait_for(fd, POLLOUT)));
	test(!sent && total == there, "it holds %ld bytes in all", total);
}

static void exchange(int fd, int control, int side, const long size[2])
{
	long here = size[side], there = size[!side], got;
	long more = 3 * there + 1, coming = 3 * here + 1;

	fill(data, sizeof(data), side);
	fill_ring(fd, there);
	test(!(events(fd, POLLOUT, 0) & POLLOUT), "poll: no room in it");
	meet(control);
	memset(data, 0, sizeof(data));
	got = scif_recv(fd, data, here, SCIF_RECV_BLOCK);
	test(got == here && is_right(here, !side), "the bytes of the own ring are received: %ld",
	     got);
	test(!scif_recv(fd, data, 1, 0), "no other byte is received");
	test(wait_for(fd, POLLOUT), "poll: there is room again");
	meet(control);
	/* Sends first in one direction, then in the other. */
	if (side) {
		fill(data, more, side);
		test(scif_send(fd, data, more, SCIF_SEND_BLOCK) == more,
		     "%ld bytes are sent to a receiver", more);
	}
	memset(data, 0, sizeof(data));
	test(scif_recv(fd, data, coming, SCIF_RECV_BLOCK) == coming && is_right(coming, !side),
	     "%ld bytes are received", coming);
	if (!side) {
		fill(data, more, side);
		test(scif_send(fd, data, more, SCIF_SEND_BLOCK) == more,
		     "%ld bytes are sent to a receiver", more);
	}
	meet(control);
}

static int be_the_server(int listener, long here, long there)
{
	int fd = accept_from(listener), control = accept_from(listener);

	exchange(fd, control, 0, (const long[]){ here, there });
	return finish_tests();
}

static int be_the_client(__u16 node, __u16 port, long here, long there)
{
	int fd = connected(node, port), control = connected(node, port);

	exchange(fd, control, 1, (const long[]){ there, here });
	return finish_tests();
}

static long size_of(const char *text)
{
	long size = atol(text);

	if (size >= 1 && size <= LARGEST)
		return size;
	fprintf(stderr, "scif_ring: %s is not a number from 1 to %ld\n", text, LARGEST);
	exit(2);
}

int main(int argc, char **argv)
{
	const char *role = argc > 1 ? argv[1] : "";
	int listener, status;
	pid_t child;
	__u16 port;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (argc == 5 && !strcmp(role, "server")) {
		port = atoi(argv[2]);
		listener = listen_on(&port);
		printf("# listening\n");
		fflush(stdout);
		return be_the_server(listener, size_of(argv[3]), size_of(argv[4]));
	}
	if (argc == 6 && !strcmp(role, "client"))
		return be_the_client(atoi(argv[2]), atoi(argv[3]), size_of(argv[4]),
				     size_of(argv[5]));
	if (argc == 4 && !strcmp(role, "loopback")) {
		port = atoi(argv[2]);
		listener = listen_on(&port);
		child = new_child();
		if (!child) {
			/* The parent prints the results. */
			dup2(2, 1);
			return be_the_client(own_node(), port, size_of(argv[3]), size_of(argv[3]));
		}
		status = be_the_server(listener, size_of(argv[3]), size_of(argv[3]));
		return wait_for_child(child) ? 1 : status;
	}
	fprintf(stderr, "usage: scif_ring server PORT HERE THERE\n"
		"       scif_ring client NODE PORT HERE THERE\n"
		"       scif_ring loopback PORT SIZE\n");
	return 2;
}
