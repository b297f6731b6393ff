// SPDX-License-Identifier: GPL-2.0
/*
 * A program as its user would build it. It may find no device here.
 */
#include <stdio.h>
#include <string.h>
#include <scif.h>

int main(void)
{
	uint16_t self = 0;
	int count = scif_get_nodeIDs(NULL, 0, &self);

	if (count < 0) {
		count = errno;
		fprintf(stderr, "scif_get_nodeIDs: %s\n", strerror(count));
		return count == ENOENT ? 0 : 1;
	}
	printf("node %u of %d\n", self, count);
	return 0;
}
