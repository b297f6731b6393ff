// SPDX-License-Identifier: GPL-2.0
/*
 * What happens when the aperture, through which the peer reaches what is registered, is full.
 *
 *	scif_full NODE PORT	registers at a connection to a listener there until there is no room
 *
 * Prints TAP. Nobody else must register on this node.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ends.h"
#include "tap.h"

#define SIZE	(1024 * 1024L)
/* More than fit. */
#define MOST	4096
#define ACCESS	(SCIF_PROT_READ | SCIF_PROT_WRITE)

static __s64 offsets[MOST];

int main(int argc, char **argv)
{
	unsigned char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd, other, error = 0, count = 0;

	if (argc != 3) {
		fprintf(stderr, "usage: %s NODE PORT\n", argv[0]);
		return 2;
	}
	if (memory == MAP_FAILED)
		die("mmap");
	fd = connected(atoi(argv[1]), atoi(argv[2]));
	/* The same memory over and over: it is the place that counts. */
	while (count < MOST) {
		offsets[count] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
		if (offsets[count] < 0) {
			error = errno;
			break;
		}
		count++;
	}
	test(count > 0 && error == ENOSPC, "register: ENOSPC after %d windows", count);
	test_errno(scif_register(fd, memory, SIZE, 0, ACCESS, 0), ENOSPC, "register: and again");
	test(!scif_unregister(fd, offsets[1], SIZE), "unregister one");
	offsets[1] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
	test(offsets[1] >= 0, "register: there is room for one");
	test_errno(scif_register(fd, memory, SIZE, 0, ACCESS, 0), ENOSPC,
		   "register: and for no more");
	/* Others lose nothing by it: they have smaller things. */
	other = connected(atoi(argv[1]), atoi(argv[2]));
	test(other >= 0, "connect: a ring still fits");
	close(other);
	close(fd);
	fd = connected(atoi(argv[1]), atoi(argv[2]));
	offsets[0] = scif_register(fd, memory, SIZE, 0, ACCESS, 0);
	test(offsets[0] >= 0, "register: all is given back by close");
	return finish_tests();
}
