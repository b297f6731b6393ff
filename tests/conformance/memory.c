// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of memory descriptors: memory that is pinned once, and registered by many connections. The
 * cases make raw calls of linux/scif_services.h.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <linux/scif_services.h>

#include "../harness/suite.h"

/* Bytes of the memory in most cases. */
#define LEN	(8 * PAGE)

/* Creates a memory descriptor, and returns it. */
static int create(int endpoint, const void *address, long len, __u32 prot)
{
	struct scif_memory_create argument = {
		.size = sizeof(argument),
		.address = (uintptr_t)address,
		.len = len,
		.prot = prot,
		.fd = -1,
	};

	return ioctl(endpoint, SCIF_MEMORY_CREATE, &argument) ? -1 : argument.fd;
}

/* Registers a part of the memory, and returns the offset of the window. */
static long register_part(int endpoint, int fd, __u64 from, __u64 len, off_t offset, __u32 prot,
			  __u32 flags)
{
	struct scif_memory_register argument = {
		.size = sizeof(argument),
		.flags = flags,
		.fd = fd,
		.prot = prot,
		.from = from,
		.len = len,
		.offset = offset,
	};

	return ioctl(endpoint, SCIF_MEMORY_REGISTER, &argument) ? -1 : argument.offset;
}

static long register_all(int endpoint, int fd)
{
	return register_part(endpoint, fd, 0, LEN, 0, READ_WRITE, 0);
}

/* The setting of most cases: a peer with two connections, memory, and its descriptor. */
struct shared {
	struct peer *peer;
	struct pair one, two;
	unsigned char *memory;
	/* Address of LEN bytes of the peer, for copies. */
	__s64 there;
	int fd;
};

static struct shared shared_memory(void)
{
	struct shared shared = { .peer = new_peer(), .memory = pages(LEN / PAGE) };

	shared.one = connected_to(shared.peer);
	shared.two = connected_to(shared.peer);
	shared.there = ask(shared.peer, DO_PAGES, LEN / PAGE);
	fill(shared.memory, 1, LEN);
	shared.fd = expect_ok(create(shared.one.here, shared.memory, LEN, READ_WRITE));
	return shared;
}

/* Checks that the peer reads the bytes at `here` at that offset. */
static void expect_seen(struct shared *shared, struct pair *pair, off_t offset, const void *here,
			long len)
{
	__s64 first;

	memcpy(&first, here, sizeof(first));
	expect_value(ask(shared->peer, DO_VREADFROM, pair->there, shared->there, len, offset,
			 SYNC), 0);
	expect_value(ask(shared->peer, DO_PEEK, shared->there), 0);
	expect(answer(shared->peer, 0) == first);
}

/* --- Windows of the memory --- */

static void memory_many_connections(void)
{
	struct shared shared = shared_memory();
	struct pair pair[8];
	off_t offset[8];
	int i;

	for (i = 0; i < 8; i++) {
		pair[i] = connected_to(shared.peer);
		offset[i] = expect_ok(register_all(pair[i].here, shared.fd));
	}
	/* Bytes written through one window are read through the others. */
	for (i = 0; i < 8; i++) {
		ask(shared.peer, DO_FILL, shared.there, 10 + i, LEN);
		expect_value(ask(shared.peer, DO_VWRITETO, pair[i].there, shared.there, LEN,
				 offset[i], SYNC), 0);
		expect_value(differs(shared.memory, 10 + i, LEN), -1);
		ask(shared.peer, DO_FILL, shared.there, 1, LEN);
		expect_value(ask(shared.peer, DO_VREADFROM, pair[(i + 5) % 8].there, shared.there,
				 LEN, offset[(i + 5) % 8], SYNC), 0);
		expect_value(ask(shared.peer, DO_DIFFERS, shared.there, 10 + i, LEN), -1);
	}
	/* Windows can be unregistered in any order. The others stay. */
	for (i = 0; i < 8; i += 2)
		expect_value(scif_unregister(pair[i].here, offset[i], LEN), 0);
	for (i = 0; i < 8; i++) {
		if (i % 2)
			expect_seen(&shared, &pair[i], offset[i], shared.memory, LEN);
		else
			expect_error(ask(shared.peer, DO_VREADFROM, pair[i].there, shared.there, 1,
					 offset[i], SYNC), ENXIO);
	}
}

static void memory_charged_once(void)
{
	struct shared shared = shared_memory();
	long before = pinned();
	off_t one, two;

	expect_value(locked(), LEN);
	one = expect_ok(register_all(shared.one.here, shared.fd));
	two = expect_ok(register_all(shared.two.here, shared.fd));
	expect_ok(register_part(shared.one.here, shared.fd, PAGE, PAGE, 0, SCIF_PROT_READ, 0));
	expect_value(locked(), LEN);
	expect_value(pinned(), before);
	expect_value(scif_unregister(shared.one.here, one, LEN), 0);
	expect_value(scif_unregister(shared.two.here, two, LEN), 0);
	expect_value(locked(), LEN);
}

static void memory_part(void)
{
	struct shared shared = shared_memory();
	off_t offset;
	long i;

	/* Registers each page by itself, and all but the outer pages. */
	for (i = 0; i < LEN / PAGE; i++) {
		offset = expect_ok(register_part(shared.one.here, shared.fd, i * PAGE, PAGE, 0,
						 READ_WRITE, 0));
		expect_seen(&shared, &shared.one, offset, shared.memory + i * PAGE, PAGE);
		expect_error(ask(shared.peer, DO_VREADFROM, shared.one.there, shared.there,
				 PAGE + 1, offset, SYNC), ENXIO);
		expect_value(scif_unregister(shared.one.here, offset, PAGE), 0);
	}
	offset = expect_ok(register_part(shared.two.here, shared.fd, PAGE, LEN - 2 * PAGE, 0,
					 READ_WRITE, 0));
	ask(shared.peer, DO_FILL, shared.there, 2, LEN);
	expect_value(ask(shared.peer, DO_VWRITETO, shared.two.there, shared.there, LEN - 2 * PAGE,
			 offset, SYNC), 0);
	expect_value(differs(shared.memory + PAGE, 2, LEN - 2 * PAGE), -1);
	expect_value(differs(shared.memory, 1, PAGE), -1);
}

static void memory_part_invalid(void)
{
	static const struct {
		__u64 from, len;
	} wrong[] = {
		{ 0, 0 }, { 0, 1 }, { 1, 1 }, { 0, ~0ULL }, { ~0ULL, 1 },
		{ 1ULL << 63, 1ULL << 63 },
	};
	struct shared shared = shared_memory();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		expect_error(register_part(shared.one.here, shared.fd, wrong[i].from, wrong[i].len,
					   0, READ_WRITE, 0), EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, 0, LEN + PAGE, 0, READ_WRITE, 0),
		     EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, LEN, PAGE, 0, READ_WRITE, 0),
		     EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, 1, PAGE, 0, READ_WRITE, 0), EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, 0, PAGE + 1, 0, READ_WRITE, 0),
		     EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, -PAGE, 2 * PAGE, 0, READ_WRITE, 0),
		     EINVAL);
	expect_ok(register_all(shared.one.here, shared.fd));
}

static void memory_fixed(void)
{
	struct shared shared = shared_memory();
	off_t at = 0x123450000;

	expect_value(register_part(shared.one.here, shared.fd, 0, LEN, at, READ_WRITE,
				   SCIF_MAP_FIXED), at);
	expect_error(register_part(shared.one.here, shared.fd, 0, PAGE, at + LEN - PAGE, READ_WRITE,
				   SCIF_MAP_FIXED), EADDRINUSE);
	/* The second connection uses another offset. */
	expect_value(register_part(shared.two.here, shared.fd, 0, LEN, at, READ_WRITE,
				   SCIF_MAP_FIXED), at);
	expect_error(register_part(shared.one.here, shared.fd, 0, PAGE, at + 1, READ_WRITE,
				   SCIF_MAP_FIXED), EINVAL);
	expect_error(register_part(shared.one.here, shared.fd, 0, PAGE, -PAGE, READ_WRITE, 0),
		     EINVAL);
	/* If a wanted offset is in use, the call does not fail. */
	expect(expect_ok(register_part(shared.one.here, shared.fd, 0, PAGE, at, READ_WRITE, 0)) !=
	       at);
}

static void memory_protection(void)
{
	struct shared shared = shared_memory();
	int reading = expect_ok(create(shared.one.here, shared.memory, LEN, SCIF_PROT_READ));
	int writing = expect_ok(create(shared.one.here, shared.memory, LEN, SCIF_PROT_WRITE));
	off_t offset;

	expect_error(register_part(shared.one.here, reading, 0, LEN, 0, READ_WRITE, 0), EACCES);
	expect_error(register_part(shared.one.here, reading, 0, LEN, 0, SCIF_PROT_WRITE, 0),
		     EACCES);
	expect_error(register_part(shared.one.here, writing, 0, LEN, 0, SCIF_PROT_READ, 0), EACCES);
	expect_ok(register_part(shared.one.here, writing, 0, LEN, 0, SCIF_PROT_WRITE, 0));
	offset = expect_ok(register_part(shared.one.here, reading, 0, LEN, 0, SCIF_PROT_READ, 0));
	expect_seen(&shared, &shared.one, offset, shared.memory, LEN);
	expect_error(ask(shared.peer, DO_VWRITETO, shared.one.there, shared.there, 1, offset, SYNC),
		     EACCES);
}

/* A window may have fewer rights than its memory. */
static void memory_protection_less(void)
{
	struct shared shared = shared_memory();
	off_t reading, writing;

	reading = expect_ok(register_part(shared.one.here, shared.fd, 0, LEN, 0, SCIF_PROT_READ,
					  0));
	writing = expect_ok(register_part(shared.two.here, shared.fd, 0, LEN, 0, SCIF_PROT_WRITE,
					  0));
	expect_error(ask(shared.peer, DO_VWRITETO, shared.one.there, shared.there, 1, reading,
			 SYNC), EACCES);
	expect_error(ask(shared.peer, DO_VREADFROM, shared.two.there, shared.there, 1, writing,
			 SYNC), EACCES);
	ask(shared.peer, DO_FILL, shared.there, 3, LEN);
	expect_value(ask(shared.peer, DO_VWRITETO, shared.two.there, shared.there, LEN, writing,
			 SYNC), 0);
	expect_value(differs(shared.memory, 3, LEN), -1);
	expect_seen(&shared, &shared.one, reading, shared.memory, LEN);
}

/* Read-only memory can be shared for reading. */
static void memory_read_only(void)
{
	struct pair pair = connected();
	void *memory = pages(2);

	expect_value(mprotect(memory, 2 * PAGE, PROT_READ), 0);
	expect_error(create(pair.here, memory, 2 * PAGE, READ_WRITE), EFAULT);
	expect_ok(create(pair.here, memory, 2 * PAGE, SCIF_PROT_READ));
}

/* --- The local side of transfers --- */

static void memory_transfers(void)
{
	struct shared shared = shared_memory();
	off_t one = expect_ok(register_all(shared.one.here, shared.fd));
	off_t two = expect_ok(register_all(shared.two.here, shared.fd));
	off_t there_one, there_two;
	__s64 other = ask(shared.peer, DO_PAGES, LEN / PAGE);

	there_one = expect_ok(ask(shared.peer, DO_REGISTER, shared.one.there, shared.there, LEN, 0,
				  READ_WRITE, 0));
	there_two = expect_ok(ask(shared.peer, DO_REGISTER, shared.two.there, other, LEN, 0,
				  READ_WRITE, 0));
	expect_value(scif_writeto(shared.one.here, one, LEN, there_one, SYNC), 0);
	expect_value(scif_writeto(shared.two.here, two, LEN, there_two, SYNC), 0);
	expect_value(ask(shared.peer, DO_DIFFERS, shared.there, 1, LEN), -1);
	expect_value(ask(shared.peer, DO_DIFFERS, other, 1, LEN), -1);
	/*
	 * With the first window unregistered, engines still reach the memory through the second
	 * one.
	 */
	expect_value(scif_unregister(shared.one.here, one, LEN), 0);
	ask(shared.peer, DO_FILL, other, 4, LEN);
	expect_value(scif_readfrom(shared.two.here, two, LEN, there_two, SYNC), 0);
	expect_value(differs(shared.memory, 4, LEN), -1);
	one = expect_ok(register_all(shared.one.here, shared.fd));
	expect_value(scif_writeto(shared.one.here, one, LEN, there_one, SYNC), 0);
	expect_value(ask(shared.peer, DO_DIFFERS, shared.there, 4, LEN), -1);
}

static void memory_mapped(void)
{
	struct shared shared = shared_memory();
	off_t one = expect_ok(register_all(shared.one.here, shared.fd));
	off_t two = expect_ok(register_part(shared.two.here, shared.fd, PAGE, PAGE, 0, READ_WRITE,
					    0));
	long first, second;
	volatile __u64 *here = (__u64 *)(shared.memory + PAGE);

	first = expect_ok(ask(shared.peer, DO_MMAP, shared.one.there, one, LEN,
			      PROT_READ | PROT_WRITE));
	second = expect_ok(ask(shared.peer, DO_MMAP, shared.two.there, two, PAGE,
			       PROT_READ | PROT_WRITE));
	expect_value(ask(shared.peer, DO_POKE, first + PAGE, 77), 0);
	wait_until(*here == 77);
	/* A mapping keeps only its own window. */
	expect_value(scif_unregister(shared.one.here, one, LEN), 0);
	expect_value(ask(shared.peer, DO_MUNMAP, first, LEN), 0);
	expect_value(ask(shared.peer, DO_POKE, second, 78), 0);
	wait_until(*here == 78);
	expect_value(scif_unregister(shared.two.here, two, PAGE), 0);
	expect_value(close(shared.fd), 0);
	expect_value(ask(shared.peer, DO_POKE, second, 79), 0);
	wait_until(*here == 79);
	expect_value(locked(), LEN);
	expect_value(ask(shared.peer, DO_MUNMAP, second, PAGE), 0);
	wait_until(!locked());
}

/* The windows together exceed a small aperture, unless they share their place in it. */
static void memory_mapped_once(void)
{
	long len = 4 * MIB, mapped[8];
	unsigned char *memory = pages(len / PAGE);
	struct peer *peer = new_peer();
	struct pair pair[8];
	off_t offset[8];
	int fd, i;

	pair[0] = connected_to(peer);
	fd = expect_ok(create(pair[0].here, memory, len, READ_WRITE));
	for (i = 0; i < 8; i++) {
		if (i)
			pair[i] = connected_to(peer);
		offset[i] = expect_ok(register_part(pair[i].here, fd, 0, len, 0, READ_WRITE, 0));
	}
	for (i = 0; i < 8; i++) {
		mapped[i] = expect_ok(ask(peer, DO_MMAP, pair[i].there, offset[i], len,
					  PROT_READ | PROT_WRITE));
		expect_value(ask(peer, DO_POKE, mapped[i] + len - PAGE, 100 + i), 0);
		wait_until(*(volatile __u64 *)(memory + len - PAGE) == 100u + i);
	}
}

/* --- Lifetime of the memory --- */

static void memory_outlives_windows(void)
{
	struct shared shared = shared_memory();
	off_t offset = expect_ok(register_all(shared.one.here, shared.fd));

	expect_value(scif_unregister(shared.one.here, offset, LEN), 0);
	expect_value(scif_close(shared.one.here), 0);
	expect_value(locked(), LEN);
	offset = expect_ok(register_all(shared.two.here, shared.fd));
	expect_seen(&shared, &shared.two, offset, shared.memory, LEN);
	expect_value(scif_close(shared.two.here), 0);
	expect_value(locked(), LEN);
	expect_value(close(shared.fd), 0);
	wait_until(!locked());
}

static void memory_windows_outlive(void)
{
	struct shared shared = shared_memory();
	off_t one = expect_ok(register_all(shared.one.here, shared.fd));
	off_t two = expect_ok(register_all(shared.two.here, shared.fd));
	__u64 word;

	memcpy(&word, shared.memory, sizeof(word));
	expect_value(close(shared.fd), 0);
	/* The process's own mapping need not stay either. */
	expect_value(munmap(shared.memory, LEN), 0);
	expect_value(locked(), LEN);
	expect_seen(&shared, &shared.one, one, &word, LEN);
	expect_seen(&shared, &shared.two, two, &word, LEN);
	expect_value(scif_unregister(shared.one.here, one, LEN), 0);
	expect_value(locked(), LEN);
	expect_seen(&shared, &shared.two, two, &word, LEN);
	expect_value(scif_close(shared.two.here), 0);
	wait_until(!locked());
}

static void memory_peer_gone(void)
{
	struct shared shared = shared_memory();
	struct pair pair;
	off_t offset;

	expect_ok(register_all(shared.one.here, shared.fd));
	begin(shared.peer, DO_DIE);
	wait_for_hangup(shared.one.here);
	expect_errors(register_all(shared.one.here, shared.fd), ECONNRESET, ENODEV);
	expect_value(locked(), LEN);
	/* The memory can be registered with another connection. */
	pair = connected();
	offset = expect_ok(register_all(pair.here, shared.fd));
	shared.peer = pair.peer;
	shared.there = ask(pair.peer, DO_PAGES, LEN / PAGE);
	expect_seen(&shared, &pair, offset, shared.memory, LEN);
}

/* --- Owners and charges --- */

static void memory_limit_exact(void)
{
	struct shared shared = shared_memory();
	unsigned char *more = pages(32);
	int fd;

	expect_value(close(shared.fd), 0);
	wait_until(!locked());
	drop_privileges(16 * PAGE);
	expect_error(create(shared.one.here, more, 17 * PAGE, READ_WRITE), EAGAIN);
	expect_value(locked(), 0);
	fd = expect_ok(create(shared.one.here, more, 16 * PAGE, READ_WRITE));
	/* The limit is reached, but windows need none of it. */
	expect_ok(register_part(shared.one.here, fd, 0, 16 * PAGE, 0, READ_WRITE, 0));
	expect_ok(register_part(shared.two.here, fd, 0, 16 * PAGE, 0, READ_WRITE, 0));
	expect_error(create(shared.one.here, shared.memory, PAGE, READ_WRITE), EAGAIN);
	expect_value(locked(), 16 * PAGE);
}

/* Number of windows for a user with PAGES of memory (Documentation/abi.rst). */
#define MOST_WINDOWS		16384
#define WINDOWS_PER_PAGE	256
#define MOST_PAGES_IN_PARTS(pages)	(4 * (pages) + 64)

static void memory_many_windows(void)
{
	struct shared shared = shared_memory();
	int fd, i, one = shared.one.here, two = shared.two.here;
	off_t offset[WINDOWS_PER_PAGE];

	/* Other users have limits of their own. Pages pinned before stay pinned. */
	become(NOBODY - 1, LEN + 2 * PAGE);
	fd = expect_ok(create(one, pages(1), PAGE, READ_WRITE));
	for (i = 0; i < WINDOWS_PER_PAGE; i++)
		offset[i] = expect_ok(register_part(i % 2 ? one : two, fd, 0, PAGE, 0, READ_WRITE,
						    0));
	expect_error(register_part(one, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_error(register_part(two, fd, 0, PAGE, 0, SCIF_PROT_READ, 0), EAGAIN);
	/* A failed call has taken nothing, and an unregistered window makes room for one. */
	expect_value(scif_unregister(two, offset[0], PAGE), 0);
	wait_until((offset[0] = register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0)) != -1 ||
		   errno != EAGAIN);
	expect_ok(offset[0]);
	expect_error(register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	/* A call that fails for another reason takes nothing either. */
	expect_value(scif_unregister(two, offset[0], PAGE), 0);
	wait_until(register_part(two, fd, 0, PAGE, offset[2], READ_WRITE, SCIF_MAP_FIXED) != -1 ||
		   errno != EAGAIN);
	for (i = 0; i < 3; i++)
		expect_error(register_part(two, fd, 0, PAGE, offset[2], READ_WRITE,
					   SCIF_MAP_FIXED), EADDRINUSE);
	offset[0] = expect_ok(register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0));
	/* The owner of the memory counts, and not the process that registers it. */
	expect_ok(register_all(two, shared.fd));
	/* All windows of a connection are closed with it. */
	expect_value(scif_close(one), 0);
	for (i = 0; i < WINDOWS_PER_PAGE / 2; i++) {
		wait_until((offset[i] = register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0)) != -1 ||
			   errno != EAGAIN);
		expect_ok(offset[i]);
	}
	expect_error(register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	/* The limit is for the sum of what the user has pinned. */
	expect_ok(create(two, pages(1), PAGE, READ_WRITE));
	expect_ok(register_part(two, fd, 0, PAGE, 0, READ_WRITE, 0));
}

static void memory_many_parts(void)
{
	const long size = 64;
	struct shared shared = shared_memory();
	int fd, one = shared.one.here, two = shared.two.here;
	long len, left = MOST_PAGES_IN_PARTS(size);
	off_t whole, again;

	become(NOBODY - 2, LEN + size * PAGE);
	fd = expect_ok(create(one, pages(size), size * PAGE, READ_WRITE));
	whole = expect_ok(register_part(one, fd, 0, size * PAGE, 0, READ_WRITE, 0));
	left -= size;
	for (len = size - 1; len <= left; len--) {
		expect_ok(register_part(one, fd, 0, len * PAGE, 0, READ_WRITE, 0));
		left -= len;
	}
	expect(left > 0);
	expect_error(register_part(one, fd, 0, len * PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_error(register_part(one, fd, 0, size * PAGE, 0, SCIF_PROT_READ, 0), EAGAIN);
	/* The limit is exact to the page. */
	expect_error(register_part(one, fd, 0, (left + 1) * PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_ok(register_part(one, fd, 0, left * PAGE, 0, READ_WRITE, 0));
	expect_error(register_part(one, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	/* The windows share these pages, which are released with the last window. */
	again = expect_ok(register_part(two, fd, 0, size * PAGE, 0, READ_WRITE, 0));
	expect_value(scif_unregister(one, whole, size * PAGE), 0);
	expect_error(register_part(one, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_value(scif_unregister(two, again, size * PAGE), 0);
	wait_until(register_part(two, fd, 0, size * PAGE, 0, SCIF_PROT_READ, 0) != -1 ||
		   errno != EAGAIN);
	expect_error(register_part(one, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
}

/* The case runs as root, to which the limits do not apply. */
static void memory_not_bounded(void)
{
	struct shared shared = shared_memory();
	int fd = expect_ok(create(shared.one.here, pages(1), PAGE, READ_WRITE)), i;

	for (i = 0; i < 2 * WINDOWS_PER_PAGE; i++)
		expect_ok(register_part(shared.one.here, fd, 0, PAGE, 0, READ_WRITE, 0));
}

static void memory_most_windows(void)
{
	const long size = MOST_WINDOWS / WINDOWS_PER_PAGE + 1;
	struct pair pair = connected_here();
	int fd, i;

	become(NOBODY - 3, size * PAGE);
	fd = expect_ok(create(pair.here, pages(size), size * PAGE, READ_WRITE));
	for (i = 0; i < MOST_WINDOWS; i++)
		expect_ok(register_part(pair.here, fd, 0, PAGE, 0, READ_WRITE, 0));
	expect_error(register_part(pair.here, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
	expect_error(register_part(pair.there, fd, 0, PAGE, 0, READ_WRITE, 0), EAGAIN);
}

static void send_descriptor(int socket, int fd)
{
	char byte = 0, control[CMSG_SPACE(sizeof(fd))] = { 0 };
	struct iovec vector = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	expect_value(sendmsg(socket, &message, 0), 1);
}

static int receive_descriptor(int socket)
{
	char byte, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec vector = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header;
	int fd;

	expect_value(recvmsg(socket, &message, 0), 1);
	header = CMSG_FIRSTHDR(&message);
	expect(header && header->cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

struct handed {
	struct shared *shared;
	int socket;
};

/* Runs in a process that has only the descriptor, and no right to pin a page. */
static void use_handed(void *data)
{
	struct handed *handed = data;
	int fd = receive_descriptor(handed->socket);
	struct pair pair;
	off_t offset;

	drop_privileges(0);
	expect_error(create(handed->shared->two.here, pages(1), PAGE, READ_WRITE), EAGAIN);
	pair = handed->shared->two;
	offset = expect_ok(register_part(pair.here, fd, 0, LEN, 0x40000, READ_WRITE,
					 SCIF_MAP_FIXED));
	expect_value(offset, 0x40000);
	expect_value(locked(), 0);
}

static void memory_handed_on(void)
{
	struct shared shared = shared_memory();
	struct handed handed = { .shared = &shared };
	int sockets[2];
	pid_t child;

	expect_value(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	handed.socket = sockets[1];
	child = in_child(use_handed, &handed);
	send_descriptor(sockets[0], shared.fd);
	child_passed(child);
	/* The window belongs to the endpoint, which this process has, too. */
	expect_seen(&shared, &shared.two, 0x40000, shared.memory, LEN);
	ask(shared.peer, DO_FILL, shared.there, 6, LEN);
	expect_value(ask(shared.peer, DO_VWRITETO, shared.two.there, shared.there, LEN, 0x40000,
			 SYNC), 0);
	expect_value(differs(shared.memory, 6, LEN), -1);
	expect_value(locked(), LEN);
	expect_value(close(shared.fd), 0);
	expect_value(locked(), LEN);
	expect_value(scif_unregister(shared.two.here, 0x40000, LEN), 0);
	wait_until(!locked());
}

static void create_and_hand_on(void *data)
{
	struct handed *handed = data;
	unsigned char *memory = pages(LEN / PAGE);
	int fd;

	fill(memory, 9, LEN);
	fd = expect_ok(create(handed->shared->one.here, memory, LEN, READ_WRITE));
	expect_value(locked(), LEN);
	send_descriptor(handed->socket, fd);
}

/* Memory whose process has ended. */
static void memory_creator_gone(void)
{
	struct shared shared = shared_memory();
	struct handed handed = { .shared = &shared };
	int sockets[2], fd;
	off_t offset;
	pid_t child;

	expect_value(close(shared.fd), 0);
	wait_until(!locked());
	expect_value(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	handed.socket = sockets[1];
	child = in_child(create_and_hand_on, &handed);
	fd = receive_descriptor(sockets[0]);
	child_passed(child);
	/* The holder of the descriptor is not charged. */
	expect_value(locked(), 0);
	offset = expect_ok(register_all(shared.two.here, fd));
	expect_value(ask(shared.peer, DO_VREADFROM, shared.two.there, shared.there, LEN, offset,
			 SYNC), 0);
	expect_value(ask(shared.peer, DO_DIFFERS, shared.there, 9, LEN), -1);
	expect_value(locked(), 0);
}

/* Pins as much as the user may, and leaves the descriptor to the parent. */
static void create_as_nobody(void *data)
{
	struct handed *handed = data;

	drop_privileges(LEN);
	create_and_hand_on(handed);
}

static void fail_as_nobody(void *data)
{
	struct handed *handed = data;

	drop_privileges(LEN);
	expect_error(create(handed->shared->one.here, pages(1), PAGE, READ_WRITE), EAGAIN);
}

static void succeed_as_nobody(void *data)
{
	struct handed *handed = data;
	struct waiting waiting = start_waiting();

	drop_privileges(LEN);
	while (create(handed->shared->one.here, pages(1), PAGE, READ_WRITE) < 0)
		go_on_waiting(&waiting);
}

/* The user stays charged until the descriptor is closed, whichever process has it. */
static void memory_user_charged(void)
{
	struct shared shared = shared_memory();
	struct handed handed = { .shared = &shared };
	int sockets[2], fd;
	pid_t child;

	expect_value(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
	handed.socket = sockets[1];
	child = in_child(create_as_nobody, &handed);
	fd = receive_descriptor(sockets[0]);
	child_passed(child);
	child_passed(in_child(fail_as_nobody, &handed));
	expect_value(close(fd), 0);
	child_passed(in_child(succeed_as_nobody, &handed));
}

static void use_inherited(void *data)
{
	struct shared *shared = data;

	expect_value(register_part(shared->two.here, shared->fd, 0, LEN, 0x50000, READ_WRITE,
				   SCIF_MAP_FIXED), 0x50000);
	expect_value(locked(), 0);
	expect_value(close(shared->fd), 0);
}

static void memory_forked(void)
{
	struct shared shared = shared_memory();

	child_passed(in_child(use_inherited, &shared));
	expect_seen(&shared, &shared.two, 0x50000, shared.memory, LEN);
	/* The child has closed its own descriptor only. */
	expect_ok(register_all(shared.one.here, shared.fd));
}

static void memory_close_on_exec(void)
{
	struct shared shared = shared_memory();

	expect_value(fcntl(shared.fd, F_GETFD), FD_CLOEXEC);
}

/* --- The descriptor, and arguments --- */

static void memory_bad_descriptor(void)
{
	struct shared shared = shared_memory();
	int null = expect_ok(open("/dev/null", O_RDWR)), pipes[2];

	expect_value(pipe(pipes), 0);
	expect_error(register_all(shared.one.here, -1), EBADF);
	expect_error(register_all(shared.one.here, 1 << 30), EBADF);
	expect_error(register_all(shared.one.here, -0x7fffffff), EBADF);
	expect_error(register_all(shared.one.here, null), EINVAL);
	expect_error(register_all(shared.one.here, pipes[0]), EINVAL);
	expect_error(register_all(shared.one.here, shared.one.here), EINVAL);
	expect_value(close(shared.fd), 0);
	expect_error(register_all(shared.one.here, shared.fd), EBADF);
}

static void memory_nothing_else(void)
{
	struct shared shared = shared_memory();
	char bytes[64] = { 0 };

	expect(read(shared.fd, bytes, 1) == -1);
	expect(write(shared.fd, bytes, 1) == -1);
	expect_error(ioctl(shared.fd, SCIF_MEMORY_CREATE, bytes), ENOTTY);
	expect(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, shared.fd, 0) == MAP_FAILED);
}

static void memory_no_descriptor_left(void)
{
	struct shared shared = shared_memory();
	struct rlimit before, limit;

	expect_value(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	limit.rlim_cur = 0;
	expect_value(setrlimit(RLIMIT_NOFILE, &limit), 0);
	expect_error(create(shared.one.here, shared.memory, LEN, READ_WRITE), EMFILE);
	expect_value(setrlimit(RLIMIT_NOFILE, &before), 0);
	wait_until(locked() == LEN);
}

static void memory_not_connected(void)
{
	struct shared shared = shared_memory();
	int endpoint = expect_ok(scif_open());
	__u16 port = 0;
	int listener = listening(&port, 1);

	expect_error(register_all(endpoint, shared.fd), ENOTCONN);
	expect_error(register_all(listener, shared.fd), ENOTCONN);
	/* Invalid arguments have precedence. */
	expect_error(register_part(endpoint, shared.fd, 1, PAGE, 0, READ_WRITE, 0), EINVAL);
	/* Creating memory takes no connection. */
	expect_ok(create(endpoint, shared.memory, LEN, READ_WRITE));
	expect_value(ask(shared.peer, DO_CLOSE, shared.one.there), 0);
	wait_for_hangup(shared.one.here);
	expect_error(register_all(shared.one.here, shared.fd), ECONNRESET);
}

/* A structure as large as that of a later version may be. */
struct larger {
	unsigned char bytes[256];
};

static void memory_sizes(void)
{
	struct shared shared = shared_memory();
	struct scif_memory_create creation = {
		.size = sizeof(creation),
		.address = (uintptr_t)shared.memory,
		.len = LEN,
		.prot = READ_WRITE,
	};
	struct scif_memory_register registration = {
		.size = sizeof(registration),
		.fd = shared.fd,
		.prot = READ_WRITE,
		.len = LEN,
	};
	struct larger larger = { 0 };
	int endpoint = shared.one.here;
	__u32 size;

	expect_value(sizeof(creation), 40);
	expect_value(sizeof(registration), 48);
	for (size = 0; size < sizeof(creation); size++) {
		creation.size = size;
		expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &creation), EINVAL);
	}
	for (size = 0; size < sizeof(registration); size++) {
		registration.size = size;
		expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &registration), EINVAL);
	}
	creation.size = sizeof(larger);
	memcpy(&larger, &creation, sizeof(creation));
	expect_value(ioctl(endpoint, SCIF_MEMORY_CREATE, &larger), 0);
	larger.bytes[255] = 1;
	expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &larger), E2BIG);
	memset(&larger, 0, sizeof(larger));
	registration.size = sizeof(larger);
	memcpy(&larger, &registration, sizeof(registration));
	expect_value(ioctl(endpoint, SCIF_MEMORY_REGISTER, &larger), 0);
	larger.bytes[sizeof(registration)] = 1;
	expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &larger), E2BIG);
	/* Failed calls have pinned nothing. */
	expect_value(locked(), 2 * LEN);
}

static void memory_arguments(void)
{
	struct shared shared = shared_memory();
	struct scif_memory_create creation = {
		.size = sizeof(creation),
		.address = (uintptr_t)shared.memory,
		.len = LEN,
		.prot = READ_WRITE,
	};
	struct scif_memory_register registration = {
		.size = sizeof(registration),
		.fd = shared.fd,
		.prot = READ_WRITE,
		.len = LEN,
	};
	int endpoint = shared.one.here, bit;

	for (bit = 1; bit < 32; bit++) {
		creation.flags = 1U << bit;
		expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &creation), EINVAL);
	}
	creation.flags = 0;
	for (bit = 0; bit < 32; bit++) {
		registration.flags = 1U << bit;
		if (registration.flags != SCIF_MAP_FIXED)
			expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &registration), EINVAL);
	}
	registration.flags = 0;
	for (bit = 2; bit < 32; bit++) {
		creation.prot = 1U << bit | SCIF_PROT_READ;
		expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &creation), EINVAL);
		registration.prot = creation.prot;
		expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &registration), EINVAL);
	}
	creation.prot = 0;
	registration.prot = 0;
	expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &creation), EINVAL);
	expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &registration), EINVAL);
	creation.prot = READ_WRITE;
	registration.prot = READ_WRITE;
	creation.reserved = 1;
	registration.reserved = 1ULL << 63;
	expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, &creation), EINVAL);
	expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, &registration), EINVAL);
	expect_value(locked(), LEN);
}

static void memory_bad_address(void)
{
	struct shared shared = shared_memory();
	unsigned char *memory = pages(4);
	struct scif_memory_create *creation = (void *)(memory + 3 * PAGE);
	struct scif_memory_register *registration = (void *)creation;
	int endpoint = shared.one.here;

	expect_error(create(endpoint, memory + 1, PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, memory, PAGE + 1, READ_WRITE), EINVAL);
	expect_error(create(endpoint, memory, 0, READ_WRITE), EINVAL);
	expect_errors(create(endpoint, (void *)-PAGE, 4 * PAGE, READ_WRITE), EFAULT, EINVAL);
	expect_value(munmap(memory + PAGE, PAGE), 0);
	expect_error(create(endpoint, memory, 3 * PAGE, READ_WRITE), EFAULT);
	/* The argument itself, and the address of the result. */
	expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, memory + PAGE), EFAULT);
	expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, memory + PAGE), EFAULT);
	*creation = (struct scif_memory_create) {
		.size = sizeof(*creation),
		.address = (uintptr_t)memory,
		.len = PAGE,
		.prot = READ_WRITE,
	};
	expect_value(mprotect(creation, PAGE, PROT_READ), 0);
	expect_error(ioctl(endpoint, SCIF_MEMORY_CREATE, creation), EFAULT);
	expect_value(mprotect(creation, PAGE, PROT_READ | PROT_WRITE), 0);
	*registration = (struct scif_memory_register) {
		.size = sizeof(*registration),
		.fd = shared.fd,
		.prot = READ_WRITE,
		.len = LEN,
		.offset = 0x60000,
		.flags = SCIF_MAP_FIXED,
	};
	expect_value(mprotect(registration, PAGE, PROT_READ), 0);
	expect_error(ioctl(endpoint, SCIF_MEMORY_REGISTER, registration), EFAULT);
	/* No window exists whose offset the caller does not know. */
	expect_error(scif_unregister(endpoint, 0x60000, LEN), ENXIO);
	expect_value(locked(), LEN);
}

#define THREADS	4

struct busy {
	struct shared *shared;
	struct pair pair;
};

static void *register_busily(void *data)
{
	struct busy *busy = data;
	off_t offset;
	int i;

	for (i = 0; i < 100; i++) {
		offset = expect_ok(register_all(busy->pair.here, busy->shared->fd));
		expect_value(scif_unregister(busy->pair.here, offset, LEN), 0);
	}
	return NULL;
}

static void memory_at_the_same_time(void)
{
	struct shared shared = shared_memory();
	struct busy busy[THREADS];
	pthread_t thread[THREADS];
	off_t offset;
	int i;

	for (i = 0; i < THREADS; i++) {
		busy[i] = (struct busy) { &shared, connected_to(shared.peer) };
		thread[i] = in_thread(register_busily, &busy[i]);
	}
	for (i = 0; i < THREADS; i++)
		thread_result(thread[i]);
	offset = expect_ok(register_all(shared.one.here, shared.fd));
	expect_seen(&shared, &shared.one, offset, shared.memory, LEN);
	expect_value(close(shared.fd), 0);
	expect_value(scif_unregister(shared.one.here, offset, LEN), 0);
	wait_until(!locked());
}

const struct test_case memory_cases[] = {
	PAIR(memory_many_connections, "memory.shared memory.unregister"),
	PAIR(memory_charged_once, "memory.charged-once"),
	PAIR(memory_part, "memory.part"),
	PAIR(memory_part_invalid, "memory.part-invalid"),
	PAIR(memory_fixed, "memory.place"),
	PAIR(memory_protection, "memory.protection"),
	PAIR(memory_protection_less, "memory.protection-less"),
	PAIR(memory_read_only, "memory.read-only"),
	PAIR(memory_transfers, "memory.local-side"),
	PAIR_MAPPING_US(memory_mapped, "memory.shared memory.outlived"),
	PAIR_MAPPING_US(memory_mapped_once, "memory.mapped-once"),
	PAIR(memory_outlives_windows, "memory.outlives-windows"),
	PAIR(memory_windows_outlive, "memory.outlived"),
	PAIR(memory_peer_gone, "memory.peer-gone"),
	PAIR(memory_limit_exact, "memory.limit memory.charged-once"),
	PAIR(memory_many_windows, "memory.windows-bounded"),
	PAIR(memory_many_parts, "memory.parts-bounded"),
	PAIR(memory_not_bounded, "memory.not-bounded"),
	ALONE_LONG(memory_most_windows, "memory.windows-bounded"),
	PAIR(memory_handed_on, "memory.handed-on"),
	PAIR(memory_creator_gone, "memory.creator-charged"),
	PAIR(memory_user_charged, "memory.creator-charged"),
	PAIR(memory_forked, "memory.handed-on"),
	PAIR(memory_close_on_exec, "memory.close-on-exec"),
	PAIR(memory_bad_descriptor, "memory.bad-descriptor"),
	PAIR(memory_nothing_else, "memory.nothing-else"),
	PAIR(memory_no_descriptor_left, "memory.descriptors"),
	PAIR(memory_not_connected, "memory.not-connected"),
	PAIR(memory_sizes, "services.size"),
	PAIR(memory_arguments, "services.reserved memory.arguments"),
	PAIR(memory_bad_address, "memory.address memory.fault"),
	PAIR(memory_at_the_same_time, "memory.shared"),
	{ }
};
