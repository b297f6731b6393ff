// SPDX-License-Identifier: GPL-2.0
/*
 * A program that transfers until it is killed, against the server of the module scif_churn
 * (tests/modules/churn), with messages, copies and fences in flight.
 *
 *	scif_churn NODE PORT
 *
 * Prints a line for each round. If the server has ended the connection, the program connects again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>

#include "die.h"
#include "ends.h"

/* The same sizes as in churn.h of the module. */
#define PART	65536L
#define WINDOW	0x1000000L
#define LOOSE	(WINDOW + PART)

static int copy(int fd, unsigned long call, void *at, __s64 local, int flags)
{
	struct scifioctl_copy argument = {
		.loffset = local,
		.len = PART,
		.roffset = LOOSE,
		.addr = (uintptr_t)at,
		.flags = flags,
	};

	return ioctl(fd, call, &argument);
}

/* Does a round of all operations. Returns true as long as the connection exists. */
static int round_of_all(int fd, char *memory)
{
	__u64 word = 1;
	__s32 mark;

	return scif_send(fd, &word, sizeof(word), SCIF_SEND_BLOCK) == sizeof(word) &&
	       !copy(fd, SCIF_WRITETO, NULL, LOOSE, 0) &&
	       !copy(fd, SCIF_VWRITETO, memory, 0, SCIF_RMA_USECACHE) &&
	       !copy(fd, SCIF_READFROM, NULL, LOOSE, SCIF_RMA_SYNC) &&
	       !copy(fd, SCIF_VREADFROM, memory, 0, 0) &&
	       scif_recv(fd, &word, sizeof(word), SCIF_RECV_BLOCK) == sizeof(word) &&
	       !scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark) &&
	       !scif_fence_wait(fd, mark);
}

int main(int argc, char **argv)
{
	char *memory = mmap(NULL, 3 * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	char hello;
	int fd;

	if (argc != 3 || memory == MAP_FAILED)
		die("scif_churn NODE PORT");
	for (;; usleep(10000)) {
		fd = scif_open();
		if (scif_connect(fd, atoi(argv[1]), atoi(argv[2])) >= 0 &&
		    scif_register(fd, memory, 2 * PART, WINDOW,
				  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) >= 0 &&
		    scif_recv(fd, &hello, 1, SCIF_RECV_BLOCK) == 1)
			while (round_of_all(fd, memory + 2 * PART))
				if (write(1, ".\n", 2) != 2)
					die("stdout");
		if (errno != ECONNREFUSED && errno != ECONNRESET && errno != ENODEV && errno)
			die("a round");
		close(fd);
	}
}
