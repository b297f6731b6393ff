/* SPDX-License-Identifier: GPL-2.0 */
/* Headers and names that the examples of the man pages assume. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <scif.h>
