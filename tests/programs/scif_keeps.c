// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps an end of a connection open until it is killed, whatever happens to the other end.
 *
 *	scif_keeps server PORT
 *	scif_keeps client NODE PORT
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ends.h"

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "server")) {
		__u16 port = atoi(argv[2]);
		int listener = listen_on(&port);

		puts("listening");
		fflush(stdout);
		accept_from(listener);
	} else if (argc == 4 && !strcmp(argv[1], "client")) {
		connected(atoi(argv[2]), atoi(argv[3]));
		puts("connected");
		fflush(stdout);
	} else {
		fputs("scif_keeps server PORT | client NODE PORT\n", stderr);
		return 2;
	}
	for (;;)
		pause();
}
