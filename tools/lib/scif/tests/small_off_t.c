// SPDX-License-Identifier: GPL-2.0
/*
 * A 32-bit program whose off_t has 32 bits: an offset from the library that does
 * not fit is an error, and its window goes. Negative offsets arrive as such. A
 * caller that leaves the choice to the library gets an offset that fits.
 */
#include <stdio.h>
#include <scif.h>

/* The library, by the names that its functions have for the linker. */
long long real_register(int epd, void *addr, size_t len, long long offset, int prot, int flags)
	__asm__("scif_register");
int real_unregister(int epd, long long offset, size_t len) __asm__("scif_unregister");

static long long placed, asked, removed;

long long real_register(int epd, void *addr, size_t len, long long offset, int prot, int flags)
{
	asked = offset;
	return placed;
}

int real_unregister(int epd, long long offset, size_t len)
{
	removed = offset;
	return 0;
}

int main(void)
{
	int failures = 0;

	failures += sizeof(off_t) != 4;
	placed = 0x7ffff000;
	failures += scif_register(3, NULL, 4096, -2, 3, 0) != 0x7ffff000 || asked != -2;
	failures += scif_register(3, NULL, 4096, 0, 3, 0) != 0x7ffff000 || asked != 0x10000000;
	failures += scif_register(3, NULL, 4096, 8192, 3, 0) != 0x7ffff000 || asked != 8192;
	failures += scif_register(3, NULL, 4096, 0, 3, SCIF_MAP_FIXED) != 0x7ffff000 || asked != 0;
	placed = -1;
	errno = EBADF;
	failures += scif_register(3, NULL, 4096, 0, 3, 0) != SCIF_REGISTER_FAILED;
	failures += errno != EBADF || removed != 0;
	placed = 0x100000000LL;
	failures += scif_register(3, NULL, 4096, 0, 3, 0) != SCIF_REGISTER_FAILED;
	failures += errno != EOVERFLOW || removed != placed;
	failures += scif_unregister(3, (off_t)-4096, 4096) != 0 || removed != -4096;
	if (failures)
		printf("small_off_t.c: %d failures\n", failures);
	return failures != 0;
}
