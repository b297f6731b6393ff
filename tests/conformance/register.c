// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of register: placement, arguments, memory of all kinds, and charges.
 */
#include <fcntl.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "../harness/suite.h"

/* Memory that a page of page tables maps, on x86-64 and arm64. */
#define HUGE	(PAGE / 8 * PAGE)

/* Registers a page for reading and writing. */
static long register_page(int endpoint, void *memory, off_t offset, int flags)
{
	return scif_register(endpoint, memory, PAGE, offset, READ_WRITE, flags);
}

/* --- Placement --- */

static void register_returns_offset(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(8);
	off_t offset[8];
	int i, j;

	for (i = 0; i < 8; i++) {
		offset[i] = expect_ok(register_page(pair.here, memory + i * PAGE, 0, 0));
		expect(offset[i] % PAGE == 0);
		for (j = 0; j < i; j++)
			expect(offset[j] != offset[i]);
	}
}

static void register_hint(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(4);
	off_t fixed = 0x40000000, near, far, odd;

	expect_value(scif_register(pair.here, memory, 2 * PAGE, fixed, READ_WRITE,
				   SCIF_MAP_FIXED), fixed);
	/* Offsets inside the existing window, behind it, and unaligned ones. */
	near = expect_ok(register_page(pair.here, memory, fixed + PAGE, 0));
	expect(near % PAGE == 0 && (near + PAGE <= fixed || near >= fixed + 2 * PAGE));
	far = expect_ok(register_page(pair.here, memory, 0x7fffffff0000, 0));
	expect(far % PAGE == 0 && far != near);
	odd = expect_ok(register_page(pair.here, memory, 0x50000123, 0));
	expect(odd % PAGE == 0);
}

static void register_fixed(void)
{
	struct pair pair = connected();
	void *memory = pages(1);

	expect_value(register_page(pair.here, memory, 0x123450000, SCIF_MAP_FIXED), 0x123450000);
	expect_value(register_page(pair.here, memory, 0, SCIF_MAP_FIXED), 0);
	expect_value(register_page(pair.here, memory, PAGE, SCIF_MAP_FIXED), PAGE);
	expect_value(scif_unregister(pair.here, 0, 2 * PAGE), 0);
}

static void register_fixed_unaligned(void)
{
	struct pair pair = connected();
	void *memory = pages(1);

	expect_error(register_page(pair.here, memory, 1, SCIF_MAP_FIXED), EINVAL);
	expect_error(register_page(pair.here, memory, PAGE + 2048, SCIF_MAP_FIXED), EINVAL);
}

static void register_fixed_overlap(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(8);
	off_t at = 0x100000;
	int first, count;

	expect_ok(scif_register(pair.here, memory, 2 * PAGE, at, READ_WRITE, SCIF_MAP_FIXED));
	for (first = -3; first <= 2; first++) {
		for (count = 1; count <= 4; count++) {
			off_t start = at + first * PAGE;

			if (first < 2 && first + count > 0) {
				expect_error(scif_register(pair.here, memory, count * PAGE, start,
							   READ_WRITE, SCIF_MAP_FIXED), EADDRINUSE);
			} else {
				expect_ok(scif_register(pair.here, memory, count * PAGE, start,
							READ_WRITE, SCIF_MAP_FIXED));
				expect_value(scif_unregister(pair.here, start, count * PAGE), 0);
			}
		}
	}
	/* The window is unchanged. */
	expect_value(scif_unregister(pair.here, at, 2 * PAGE), 0);
}

static void register_symmetric(void)
{
	struct pair pair = connected();
	__s64 there = ask(pair.peer, DO_PAGES, 64);
	unsigned char *memory = pages(64);
	off_t first, second;

	first = expect_ok(scif_register(pair.here, memory, 16 * PAGE, 0, READ_WRITE, 0));
	expect_value(ask(pair.peer, DO_REGISTER, pair.there, there, 16 * PAGE, 0, READ_WRITE, 0),
		     first);
	/* The offsets stay equal as long as both ends make the same calls. */
	second = expect_ok(scif_register(pair.here, memory, 3 * PAGE, 0, SCIF_PROT_READ, 0));
	expect_value(ask(pair.peer, DO_REGISTER, pair.there, there, 3 * PAGE, 0, SCIF_PROT_READ, 0),
		     second);
}

static void register_per_connection(void)
{
	struct peer *peer = new_peer();
	struct pair one = connected_to(peer), two = connected_to(peer);
	__s64 there = ask(peer, DO_PAGES, 2);
	char data[2];

	expect_value(ask(peer, DO_REGISTER, one.there, there, PAGE, 0x10000, READ_WRITE,
			 SCIF_MAP_FIXED), 0x10000);
	expect_value(ask(peer, DO_REGISTER, two.there, there + PAGE, PAGE, 0x10000, READ_WRITE,
			 SCIF_MAP_FIXED), 0x10000);
	expect_value(scif_vwriteto(one.here, "1", 1, 0x10000, SYNC), 0);
	expect_value(scif_vwriteto(two.here, "2", 1, 0x10000, SYNC), 0);
	expect_value(scif_vreadfrom(one.here, data, 1, 0x10000, SYNC), 0);
	expect_value(scif_vreadfrom(two.here, data + 1, 1, 0x10000, SYNC), 0);
	expect(data[0] == '1' && data[1] == '2');
}

static void register_many_windows(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(600);
	__s64 there = ask(pair.peer, DO_PAGES, 1);
	off_t at;
	int i;

	for (i = 0; i < 300; i++) {
		/* The windows have gaps between them, and no order. */
		at = (i * 7 % 300) * 3 * PAGE;
		fill(memory + (i * 7 % 300) * 2 * PAGE, i * 7 % 300, 2 * PAGE);
		expect_value(scif_register(pair.here, memory + (i * 7 % 300) * 2 * PAGE, 2 * PAGE,
					   at, READ_WRITE, SCIF_MAP_FIXED), at);
	}
	for (i = 0; i < 300; i += 50) {
		expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 100, i * 3 * PAGE,
				 SYNC), 0);
		expect_value(ask(pair.peer, DO_DIFFERS, there, i, 100), -1);
	}
	expect_value(scif_unregister(pair.here, 0, 900 * PAGE), 0);
	expect_value(locked(), 0);
}

/* --- Arguments --- */

static void register_alignment(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(4);

	expect_error(scif_register(pair.here, memory + 1, PAGE, 0, READ_WRITE, 0), EINVAL);
	expect_error(scif_register(pair.here, memory + 2048, PAGE, 0, READ_WRITE, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, 1, 0, READ_WRITE, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, PAGE + 1, 0, READ_WRITE, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, 0, 0, READ_WRITE, 0), EINVAL);
	expect_value(locked(), 0);
}

static void register_overflow(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(4);

	/* The calls fail with any error. */
	expect(scif_register(pair.here, memory, -PAGE, 0, READ_WRITE, 0) == -1);
	expect(scif_register(pair.here, memory, 1UL << 63, 0, READ_WRITE, 0) == -1);
	expect(scif_register(pair.here, memory, 2 * PAGE, INT64_MAX & -PAGE, READ_WRITE,
			     SCIF_MAP_FIXED) == -1);
	expect(scif_register(pair.here, (void *)-PAGE, 2 * PAGE, 0, READ_WRITE, 0) == -1);
	expect_value(locked(), 0);
}

static void register_prot_invalid(void)
{
	struct pair pair = connected();
	void *memory = pages(1);

	expect_error(scif_register(pair.here, memory, PAGE, 0, 0, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, PAGE, 0, 4, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, PAGE, 0, READ_WRITE | 8, 0), EINVAL);
	expect_error(scif_register(pair.here, memory, PAGE, 0, -1, 0), EINVAL);
	expect_ok(scif_register(pair.here, memory, PAGE, 0, SCIF_PROT_READ, 0));
	expect_ok(scif_register(pair.here, memory, PAGE, 0, SCIF_PROT_WRITE, 0));
}

static void register_flags_invalid(void)
{
	struct pair pair = connected();
	void *memory = pages(1);

	expect_error(register_page(pair.here, memory, 0, 1), EINVAL);
	expect_error(register_page(pair.here, memory, 0, SCIF_MAP_FIXED | 0x40), EINVAL);
	expect_error(register_page(pair.here, memory, 0, -1), EINVAL);
	expect_error(register_page(pair.here, memory, 0, SCIF_MAP_KERNEL), EINVAL);
	expect_error(register_page(pair.here, memory, 0, SCIF_MAP_KERNEL | SCIF_MAP_FIXED),
		     EINVAL);
}

static void register_offset_negative(void)
{
	struct pair pair = connected();
	void *memory = pages(1);

	expect_error(register_page(pair.here, memory, -PAGE, 0), EINVAL);
	expect_error(register_page(pair.here, memory, -PAGE, SCIF_MAP_FIXED), EINVAL);
	expect_error(register_page(pair.here, memory, INT64_MIN, SCIF_MAP_FIXED), EINVAL);
	expect_error(register_page(pair.here, memory, -1, 0), EINVAL);
}

static void register_not_connected(void)
{
	int endpoint = expect_ok(scif_open());
	void *memory = pages(1);

	expect_error(register_page(endpoint, memory, 0, 0), ENOTCONN);
	expect_ok(scif_bind(endpoint, 0));
	expect_error(register_page(endpoint, memory, 0, 0), ENOTCONN);
	expect_error(scif_unregister(endpoint, 0, PAGE), ENOTCONN);
}

static void register_visible_after(void)
{
	struct pair pair = connected();
	__s64 there = ask(pair.peer, DO_PAGES, 1);
	unsigned char *memory = pages(1);
	off_t offset;
	int i;

	for (i = 0; i < 50; i++) {
		offset = expect_ok(register_page(pair.here, memory, 0, 0));
		memory[0] = i;
		expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 1, offset, SYNC), 0);
		expect_value(ask(pair.peer, DO_DIFFERS_FROM_BYTE, there, i, 1), -1);
		expect_value(scif_unregister(pair.here, offset, PAGE), 0);
	}
}

/* --- Charges --- */

static void memlock_exceeded(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(32);
	off_t offset;

	drop_privileges(16 * PAGE);
	expect_error(scif_register(pair.here, memory, 17 * PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_value(locked(), 0);
	offset = expect_ok(scif_register(pair.here, memory, 16 * PAGE, 0, READ_WRITE, 0));
	expect_error(register_page(pair.here, memory, 0, 0), EAGAIN);
	expect_value(locked(), 16 * PAGE);
	expect_value(scif_unregister(pair.here, offset, 16 * PAGE), 0);
	wait_until(!locked());
	expect_ok(scif_register(pair.here, memory, 16 * PAGE, 0, READ_WRITE, 0));
}

static void memlock_exact(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(16);
	off_t offset[16];
	int i;

	drop_privileges(16 * PAGE);
	for (i = 0; i < 16; i++) {
		offset[i] = expect_ok(register_page(pair.here, memory + i * PAGE, 0, 0));
		expect_value(locked(), (i + 1) * PAGE);
	}
	expect_error(register_page(pair.here, memory, 0, 0), EAGAIN);
	/* A call that fails for another reason is not charged. */
	expect_error(register_page(pair.here, memory, offset[0], SCIF_MAP_FIXED), EADDRINUSE);
	expect_value(locked(), 16 * PAGE);
	for (i = 15; i >= 0; i--) {
		expect_value(scif_unregister(pair.here, offset[i], PAGE), 0);
		wait_until(locked() == i * PAGE);
	}
}

static void memlock_transfers(void)
{
	struct windows windows = connected_windows(4);
	unsigned char *memory = pages(64);
	int i;

	/* Memory that is pinned only for a copy is not charged for long. */
	for (i = 0; i < 20; i++)
		expect_value(scif_vwriteto(windows.pair.here, memory, 4 * PAGE,
					   windows.peer_offset, SYNC), 0);
	wait_until(locked() == 4 * PAGE);
}

static void memlock_capability(void)
{
	struct rlimit none = { 0, 0 };
	struct pair pair = connected();

	expect_value(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	expect_ok(scif_register(pair.here, pages(16), 16 * PAGE, 0, READ_WRITE, 0));
}

/* --- Memory --- */

/* Lets the peer write to the memory and read from it, as protection allows. */
static void peer_reaches(struct pair *pair, void *memory, long len, int prot)
{
	off_t offset = expect_ok(scif_register(pair->here, memory, len, 0, prot, 0));
	__s64 there = ask(pair->peer, DO_PAGES, len / PAGE);

	if (prot & SCIF_PROT_WRITE) {
		ask(pair->peer, DO_FILL, there, 21, len);
		expect_value(ask(pair->peer, DO_VWRITETO, pair->there, there, len, offset, SYNC),
			     0);
		expect_value(differs(memory, 21, len), -1);
	}
	if (prot & SCIF_PROT_READ) {
		ask(pair->peer, DO_FILL, there, 0, len);
		expect_value(ask(pair->peer, DO_VREADFROM, pair->there, there, len, offset, SYNC),
			     0);
		expect_value(ask(pair->peer, DO_DIFFERS, there, 21, len), -1);
	}
	expect_value(scif_unregister(pair->here, offset, len), 0);
}

static void register_untouched(void)
{
	struct pair pair = connected();

	peer_reaches(&pair, pages(32), 32 * PAGE, READ_WRITE);
}

static void register_read_only_memory(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(2);

	fill(memory, 21, 2 * PAGE);
	expect_value(mprotect(memory, 2 * PAGE, PROT_READ), 0);
	expect(scif_register(pair.here, memory, PAGE, 0, READ_WRITE, 0) == -1);
	expect(scif_register(pair.here, memory, PAGE, 0, SCIF_PROT_WRITE, 0) == -1);
	expect_value(locked(), 0);
	peer_reaches(&pair, memory, 2 * PAGE, SCIF_PROT_READ);
	expect_value(differs(memory, 21, 2 * PAGE), -1);
}

static void register_no_access(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(4);

	expect_value(mprotect(memory + PAGE, PAGE, PROT_NONE), 0);
	expect_error(scif_register(pair.here, memory + PAGE, PAGE, 0, SCIF_PROT_READ, 0), EFAULT);
	expect_error(scif_register(pair.here, memory, 4 * PAGE, 0, READ_WRITE, 0), EFAULT);
	expect_value(locked(), 0);
}

static void register_unmapped(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(1100);

	/* This holds also if many pages precede the hole. */
	munmap(memory + 1090 * PAGE, PAGE);
	expect_error(scif_register(pair.here, memory, 1100 * PAGE, 0, READ_WRITE, 0), EFAULT);
	expect_error(scif_register(pair.here, memory + 1090 * PAGE, PAGE, 0, READ_WRITE, 0),
		     EFAULT);
	expect_error(scif_register(pair.here, NULL, PAGE, 0, READ_WRITE, 0), EFAULT);
	expect_error(scif_register(pair.here, (void *)(1UL << 63), PAGE, 0, READ_WRITE, 0),
		     EFAULT);
	expect_value(locked(), 0);
}

static int file_with_pages(int count)
{
	int file = expect_ok(memfd_create("conformance", 0));
	unsigned char page[PAGE];
	int i;

	for (i = 0; i < count; i++) {
		memset(page, i + 1, sizeof(page));
		expect_value(write(file, page, PAGE), PAGE);
	}
	return file;
}

static void register_read_only_file(void)
{
	struct pair pair = connected();
	int file = file_with_pages(2), reading;
	unsigned char *memory, page[PAGE];
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	reading = expect_ok(open(path, O_RDONLY));
	memory = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, reading, 0);
	expect(memory != MAP_FAILED);
	expect(scif_register(pair.here, memory, PAGE, 0, READ_WRITE, 0) == -1);
	expect(scif_register(pair.here, memory, PAGE, 0, SCIF_PROT_WRITE, 0) == -1);
	/* A transfer into the memory fails in the same way. */
	expect_value(ask(pair.peer, DO_REGISTER, pair.there, ask(pair.peer, DO_PAGES, 1), PAGE,
			 0x10000, READ_WRITE, SCIF_MAP_FIXED), 0x10000);
	expect(scif_vreadfrom(pair.here, memory, PAGE, 0x10000, SYNC) == -1);
	expect_value(pread(file, page, PAGE, 0), PAGE);
	expect_value(differs_from_byte(page, 1, PAGE), -1);
	expect_value(differs_from_byte(memory, 1, PAGE), -1);
}

static void register_private_file(void)
{
	struct pair pair = connected();
	int file = file_with_pages(2);
	unsigned char *memory, page[PAGE];

	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	expect(memory != MAP_FAILED);
	peer_reaches(&pair, memory, 2 * PAGE, READ_WRITE);
	/* The write has changed the process's copy, not the file. */
	expect_value(pread(file, page, PAGE, 0), PAGE);
	expect_value(differs_from_byte(page, 1, PAGE), -1);
}

static void register_shared_memory(void)
{
	struct pair pair = connected();
	int file = file_with_pages(2);
	unsigned char *memory, *other;

	memory = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	other = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, file, 0);
	expect(memory != MAP_FAILED && other != MAP_FAILED);
	peer_reaches(&pair, memory, 2 * PAGE, READ_WRITE);
	expect_value(differs(other, 21, 2 * PAGE), -1);
}

/* Maps a page of some device's registers or memory. Returns NULL if there is none. */
static void *device_page(void)
{
	void *memory = MAP_FAILED;
	size_t i;
	glob_t found;
	int file;

	if (glob("/sys/bus/pci/devices/*/resource[0-5]", 0, NULL, &found))
		return NULL;
	for (i = 0; i < found.gl_pathc && memory == MAP_FAILED; i++) {
		file = open(found.gl_pathv[i], O_RDWR);
		if (file < 0)
			continue;
		memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		close(file);
	}
	globfree(&found);
	return memory == MAP_FAILED ? NULL : memory;
}

static void register_device_memory(void)
{
	struct pair pair = connected();
	void *memory = device_page();

	expect(memory);
	expect_error(scif_register(pair.here, memory, PAGE, 0, SCIF_PROT_READ, 0), EFAULT);
	expect_error(scif_register(pair.here, memory, PAGE, 0, READ_WRITE, 0), EFAULT);
	expect_value(locked(), 0);
}

static void set_number(const char *path, int number)
{
	FILE *file = fopen(path, "w");

	expect(file && fprintf(file, "%d", number) > 0);
	fclose(file);
}

static void set_huge_pages(int count)
{
	/* On a node that has run for a while, free memory is fragmented. */
	if (count)
		set_number("/proc/sys/vm/compact_memory", 1);
	set_number("/proc/sys/vm/nr_hugepages", count);
}

static void register_hugetlb(void)
{
	struct pair pair = connected();
	unsigned char *memory;

	set_huge_pages(4);
	memory = mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	expect(memory != MAP_FAILED);
	peer_reaches(&pair, memory, 2 * HUGE, READ_WRITE);
	/* The range crosses the border of two huge pages, from the middle. */
	peer_reaches(&pair, memory + HUGE - 3 * PAGE, 7 * PAGE, READ_WRITE);
	expect_value(munmap(memory, 2 * HUGE), 0);
	set_huge_pages(0);
}

static void register_transparent_huge(void)
{
	struct pair pair = connected();
	unsigned char *memory = mmap(NULL, 3 * HUGE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(memory != MAP_FAILED);
	memory = (unsigned char *)(((unsigned long)memory + HUGE - 1) & -HUGE);
	/* If there are no huge pages, these are ordinary ones. */
	madvise(memory, 2 * HUGE, MADV_HUGEPAGE);
	memset(memory, 1, 2 * HUGE);
	peer_reaches(&pair, memory + 5 * PAGE, HUGE, READ_WRITE);
}

static void register_same_pages_twice(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(2);
	__s64 there = ask(pair.peer, DO_PAGES, 1);
	off_t one = expect_ok(scif_register(pair.here, memory, 2 * PAGE, 0, READ_WRITE, 0));
	off_t two = expect_ok(scif_register(pair.here, memory + PAGE, PAGE, 0, READ_WRITE, 0));

	ask(pair.peer, DO_FILL, there, 5, PAGE);
	expect_value(ask(pair.peer, DO_VWRITETO, pair.there, there, PAGE, one + PAGE, SYNC), 0);
	ask(pair.peer, DO_FILL, there, 6, PAGE);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, PAGE, two, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 5, PAGE), -1);
	/* One window is unregistered, and the other one stays. */
	expect_value(scif_unregister(pair.here, one, 2 * PAGE), 0);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, PAGE, two, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 5, PAGE), -1);
}

static void register_pages_stay(void)
{
	struct pair pair = connected();
	unsigned char *memory = pages(2);
	__s64 there = ask(pair.peer, DO_PAGES, 2);
	off_t offset = expect_ok(scif_register(pair.here, memory, 2 * PAGE, 0, READ_WRITE, 0));

	fill(memory, 31, 2 * PAGE);
	expect_value(munmap(memory, 2 * PAGE), 0);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 2 * PAGE, offset, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 31, 2 * PAGE), -1);
	/* New memory at the same address does not belong to the window. */
	expect(mmap(memory, 2 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
	memset(memory, 0x77, 2 * PAGE);
	ask(pair.peer, DO_FILL, there, 32, 2 * PAGE);
	expect_value(ask(pair.peer, DO_VWRITETO, pair.there, there, 2 * PAGE, offset, SYNC), 0);
	expect_value(differs_from_byte(memory, 0x77, 2 * PAGE), -1);
	ask(pair.peer, DO_FILL, there, 33, 2 * PAGE);
	expect_value(ask(pair.peer, DO_VREADFROM, pair.there, there, 2 * PAGE, offset, SYNC), 0);
	expect_value(ask(pair.peer, DO_DIFFERS, there, 32, 2 * PAGE), -1);
}

const struct test_case register_cases[] = {
	PAIR(register_returns_offset, "register.returns-offset"),
	PAIR(register_hint, "register.hint"),
	PAIR(register_fixed, "register.fixed register.fixed-zero"),
	PAIR(register_fixed_unaligned, "register.fixed-unaligned"),
	PAIR(register_fixed_overlap, "register.fixed-overlap"),
	PAIR(register_symmetric, "register.symmetric"),
	PAIR(register_per_connection, "register.per-connection"),
	PAIR(register_many_windows, "register.many-windows"),
	PAIR(register_alignment,
	     "register.addr-unaligned register.len-unaligned register.len-zero"),
	PAIR(register_overflow, "register.len-overflow"),
	PAIR(register_prot_invalid, "register.prot-invalid"),
	PAIR(register_flags_invalid, "register.flags-invalid register.map-kernel"),
	PAIR(register_offset_negative, "register.offset-negative"),
	ALONE(register_not_connected, "register.not-connected unregister.not-connected"),
	PAIR(register_visible_after, "register.visible-after"),
	PAIR(memlock_exceeded, "register.memlock-exceeded register.memlock-returned"),
	PAIR(memlock_exact, "register.memlock-exact register.memlock-returned"),
	PAIR(memlock_transfers, "register.memlock-exact"),
	PAIR(memlock_capability, "register.memlock-capability"),
	PAIR(register_untouched, "register.untouched-memory"),
	PAIR(register_read_only_memory, "register.read-only-memory"),
	PAIR(register_no_access, "register.no-access-memory"),
	PAIR(register_unmapped, "register.unmapped-memory"),
	PAIR(register_read_only_file, "register.read-only-file rma.v-read-only"),
	PAIR(register_private_file, "register.read-only-file register.shared-memory"),
	PAIR(register_shared_memory, "register.shared-memory"),
	PAIR(register_device_memory, "register.device-memory"),
	PAIR(register_hugetlb, "register.huge-pages"),
	PAIR(register_transparent_huge, "register.huge-pages"),
	PAIR(register_same_pages_twice, "register.same-pages-twice rma.same-window"),
	PAIR(register_pages_stay, "register.pages-stay"),
	{ }
};
