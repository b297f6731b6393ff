// SPDX-License-Identifier: GPL-2.0
/*
 * A server for the disk sample (samples/scif/kernel/scif_blk.c) that provides memory, and does not
 * answer any message.
 *
 *	scif_mute_disk PORT
 */
#define _GNU_SOURCE
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../samples/scif/kernel/scif_blk.h"
#include "die.h"
#include "ends.h"

#define SIZE	(4L << 20)

int main(int argc, char **argv)
{
	void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	__u16 port = argc == 2 ? atoi(argv[1]) : 0;
	int listener;

	if (!port || memory == MAP_FAILED)
		die("scif_mute_disk PORT");
	listener = listen_on(&port);
	printf("listening\n");
	fflush(stdout);
	for (;;) {
		int fd = scif_accept(listener, NULL, SCIF_ACCEPT_SYNC);
		struct scif_blk_hello hello = {
			.magic = htole32(SCIF_BLK_MAGIC),
			.version = htole32(SCIF_BLK_VERSION),
			.size = htole64(SIZE),
		};
		__s64 offset;

		if (fd < 0)
			die("accept");
		offset = scif_register(fd, memory, SIZE, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
		hello.offset = htole64(offset);
		if (offset < 0 || scif_send(fd, &hello, sizeof(hello), SCIF_SEND_BLOCK) < 0)
			die("a client");
		/* The endpoint stays open, so that the client has to notice by itself. */
	}
}
