// SPDX-License-Identifier: GPL-2.0
/*
 * An ordinary user of /dev/scif, written against linux/scif_ioctl.h only, also for 32 bits. The
 * functions for the calls are in ends.c. The conformance suite tests the promises of each call,
 * through the library. This program tests the plain ioctl numbers: data at all alignments, marks
 * and signals, wrong arguments.
 *
 *	scif_abi server PORT		serves clients, one after the other
 *	scif_abi client NODE PORT [MIB]	tests against a server; MIB per copy test
 *	scif_abi loopback PORT [MIB]	both, on this node
 *
 * The client prints TAP. The server checks the data that the client writes, and gets the expected
 * content in messages. The data that the client reads is made by the server from a seed. Bytes
 * around every copy are checked as well.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

#define MIB			(1024 * 1024LL)
#define GUARD			256LL

/*
 * The server's windows: WINDOWS of them without a gap, so that copies can span several. Then follow
 * a read-only and a write-only window, each after a gap of a page.
 */
#define WINDOWS			4
#define WINDOW_SIZE		(2 * MIB)
#define AREA			(WINDOWS * WINDOW_SIZE)
#define AREA_OFFSET		0x10000000LL
#define PAGE			sysconf(_SC_PAGESIZE)
#define READ_ONLY_OFFSET	(AREA_OFFSET + AREA + PAGE)
#define WRITE_ONLY_OFFSET	(READ_ONLY_OFFSET + 2 * PAGE)
#define NOWHERE_OFFSET		(WRITE_ONLY_OFFSET + 2 * PAGE)

enum operation {
	OP_FIRST_WINDOW = 1,	/* register anywhere, reply with the offset */
	OP_WINDOWS,		/* register the windows above */
	OP_TAKE,		/* receive len bytes of the pattern, reply if right */
	OP_GIVE,		/* send len bytes of the pattern */
	OP_FILL,		/* put the pattern at offset */
	OP_RESTORE,		/* put the background at offset */
	OP_CHECK,		/* compare with pattern, and around with background; restore */
	OP_PEER_WRITE,		/* write len bytes of the pattern to the client's offset */
	OP_CLOSE,		/* send len bytes of the pattern, then close */
	OP_BYE,			/* close and end the server */
};

struct command {
	__u32 operation;
	__u32 seed;
	__s64 offset;
	__s64 len;
};

/* --- Content --- */

static __u64 mix(__u64 value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

static __u64 random_state = 0x5c1f;

static __u64 random_below(__u64 end)
{
	random_state += 0x9e3779b97f4a7c15ULL;
	return mix(random_state) % end;
}

/* Writes bytes start, start + 1, ... of a seed's endless pattern, in whole words. */
static void fill(void *to, __u32 seed, __u64 start, __s64 len)
{
	unsigned char *byte = to;
	__u64 word;
	__s64 i, size;

	for (i = 0; i < len; i += size, start += size) {
		word = mix(((__u64)seed << 32) + start / 8);
		if (start % 8 == 0 && len - i >= 8) {
			size = 8;
			memcpy(byte + i, &word, 8);
		} else {
			size = 1;
			byte[i] = word >> (8 * (start % 8));
		}
	}
}

/* Returns the index of the first byte that differs from the pattern, or -1. */
static __s64 differs(const void *from, __u32 seed, __u64 start, __s64 len)
{
	const unsigned char *byte = from;
	unsigned char expected[4096];
	__s64 done, i, piece;

	for (done = 0; done < len; done += piece) {
		piece = len - done < (__s64)sizeof(expected) ? len - done : (__s64)sizeof(expected);
		fill(expected, seed, start + done, piece);
		if (!memcmp(byte + done, expected, piece))
			continue;
		for (i = 0; i < piece; i++) {
			if (byte[done + i] != expected[i])
				return done + i;
		}
	}
	return -1;
}

/* Fills memory between copies with the pattern of seed 0, by position in the area. */
static void background(unsigned char *area, __s64 at, __s64 len)
{
	fill(area + at, 0, at, len);
}

/* Returns the first wrong byte of a copy to area + at, or around it, or -1. */
static __s64 check(const unsigned char *area, __s64 size, __s64 at, __s64 len, __u32 seed)
{
	__s64 before = at < GUARD ? at : GUARD;
	__s64 after = size - at - len < GUARD ? size - at - len : GUARD;
	__s64 wrong;

	wrong = differs(area + at, seed, 0, len);
	if (wrong >= 0)
		return at + wrong;
	wrong = differs(area + at - before, 0, at - before, before);
	if (wrong >= 0)
		return at - before + wrong;
	wrong = differs(area + at + len, 0, at + len, after);
	return wrong >= 0 ? at + len + wrong : -1;
}

/* --- The calls --- */

static int copy(int fd, unsigned long call, __s64 local, __s64 len, __s64 remote, int flags)
{
	struct scifioctl_copy argument = {
		.loffset = local, .len = len, .roffset = remote, .flags = flags,
	};

	return ioctl(fd, call, &argument);
}

/* Waits for the peer's close, which may take time to arrive. */
static void wait_for_hangup(int fd)
{
	while (!(events(fd, 0, 10000) & POLLHUP))
		;
}

/* --- Server --- */

static void *allocate(__s64 len)
{
	void *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	/* A forked child that gets the pages would leave this process with copies. */
	if (madvise(area, len, MADV_DONTFORK))
		die("madvise");
	return area;
}

static int serve_windows(int fd, unsigned char *area)
{
	int i;

	for (i = 0; i < WINDOWS; i++) {
		if (scif_register(fd, area + i * WINDOW_SIZE, WINDOW_SIZE,
				  AREA_OFFSET + i * WINDOW_SIZE,
				  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) < 0)
			return -1;
	}
	if (scif_register(fd, area + AREA, PAGE, READ_ONLY_OFFSET, SCIF_PROT_READ,
			  SCIF_MAP_FIXED) < 0)
		return -1;
	return scif_register(fd, area + AREA + PAGE, PAGE, WRITE_ONLY_OFFSET, SCIF_PROT_WRITE,
			     SCIF_MAP_FIXED) < 0 ? -1 : 0;
}

/* Sends bytes of the pattern, in pieces of varying size. */
static int give(int fd, __u32 seed, __s64 len)
{
	unsigned char piece[9973];
	__s64 done, size;

	for (done = 0; done < len; done += size) {
		size = 1 + mix(done) % sizeof(piece);
		if (size > len - done)
			size = len - done;
		fill(piece, seed, done, size);
		if (scif_send(fd, piece, size, SCIF_SEND_BLOCK) != size)
			return -1;
	}
	return 0;
}

/*
 * Receives len bytes in pieces of other sizes. Returns the first wrong byte, -1, or -2 for an
 * error.
 */
static __s64 take(int fd, __u32 seed, __s64 len)
{
	unsigned char piece[7919];
	__s64 done, size, wrong;

	for (done = 0; done < len; done += size) {
		size = 1 + mix(~done) % sizeof(piece);
		if (size > len - done)
			size = len - done;
		if (scif_recv(fd, piece, size, SCIF_RECV_BLOCK) != size)
			return -2;
		wrong = differs(piece, seed, done, size);
		if (wrong >= 0)
			return done + wrong;
	}
	return -1;
}

/* Serves one client. Returns true if the client has asked the server to end. */
static bool serve(int fd, unsigned char *area)
{
	struct command command;
	__s64 reply;
	__s64 at;

	background(area, 0, AREA);
	while (scif_recv(fd, &command, sizeof(command), SCIF_RECV_BLOCK) == sizeof(command)) {
		at = command.offset - AREA_OFFSET;
		reply = 0;
		switch (command.operation) {
		case OP_FIRST_WINDOW:
			reply = scif_register(fd, area, MIB, 0, SCIF_PROT_READ, 0);
			if (reply >= 0 && scif_unregister(fd, reply, MIB))
				reply = -1;
			break;
		case OP_WINDOWS:
			reply = serve_windows(fd, area);
			break;
		case OP_TAKE:
			reply = take(fd, command.seed, command.len);
			break;
		case OP_GIVE:
			reply = give(fd, command.seed, command.len);
			break;
		case OP_FILL:
			fill(area + at, command.seed, 0, command.len);
			break;
		case OP_RESTORE:
			background(area, at, command.len);
			break;
		case OP_CHECK:
			reply = check(area, AREA, at, command.len, command.seed);
			background(area, at, command.len);
			break;
		case OP_PEER_WRITE:
			/* The client's fence waits for this copy. */
			fill(area, command.seed, 0, command.len);
			reply = copy(fd, SCIF_WRITETO, AREA_OFFSET, command.len, command.offset, 0);
			break;
		case OP_CLOSE:
			give(fd, command.seed, command.len);
			return false;
		case OP_BYE:
			return true;
		default:
			fprintf(stderr, "scif_abi: unknown operation %u\n", command.operation);
			return false;
		}
		if (scif_send(fd, &reply, sizeof(reply), SCIF_SEND_BLOCK) != sizeof(reply))
			break;
	}
	return false;
}

static void run_server(int listener)
{
	unsigned char *area = allocate(AREA + 2 * PAGE);
	bool last = false;
	int fd;

	while (!last) {
		fd = accept_from(listener);
		last = serve(fd, area);
		close(fd);
	}
}

/* --- Client --- */

struct client {
	int fd;
	__u16 node;
	__u16 port;
	unsigned char *area;
	__s64 offset;
};

static __s64 ask(const struct client *client, __u32 operation, __u32 seed, __s64 offset, __s64 len)
{
	struct command command = {
		.operation = operation, .seed = seed, .offset = offset, .len = len,
	};
	__s64 wrong = -1;
	__s64 reply;

	if (scif_send(client->fd, &command, sizeof(command), SCIF_SEND_BLOCK) != sizeof(command))
		die("cannot send to the server");
	if (operation == OP_TAKE && give(client->fd, seed, len))
		die("cannot send to the server");
	if (operation == OP_GIVE)
		wrong = take(client->fd, seed, len);
	if (wrong == -2)
		die("cannot receive from the server");
	if (operation == OP_CLOSE || operation == OP_BYE)
		return 0;
	if (scif_recv(client->fd, &reply, sizeof(reply), SCIF_RECV_BLOCK) != sizeof(reply))
		die("cannot receive from the server");
	return operation == OP_GIVE ? wrong : reply;
}

/*
 * Wrong arguments, and the driver's errors. The conformance suite tests all of them through the
 * library. These are numbers that a 32-bit program passes in another form, or whose sign has to
 * survive.
 */
static void test_wrong_copies(const struct client *client)
{
	const __s64 here = client->offset, there = AREA_OFFSET;
	const struct {
		unsigned long call;
		__s64 local, len, remote;
		int flags, error;
		const char *what;
	} wrong[] = {
		{ SCIF_WRITETO, here, 0, there, 0, EINVAL, "writeto: no bytes" },
		{ SCIF_READFROM, here, 1, there, 0x100, EINVAL, "readfrom: unknown flag" },
		{ SCIF_WRITETO, here, 1, NOWHERE_OFFSET, 0, ENXIO,
		  "writeto: no window of the peer" },
		{ SCIF_READFROM, here, 1, -1, 0, ENXIO, "readfrom: negative offset of the peer" },
		{ SCIF_WRITETO, -1, 1, there, 0, ENXIO, "writeto: negative own offset" },
		{ SCIF_WRITETO, here, 1, there + (1LL << 32), 0, ENXIO,
		  "writeto: peer's offset 4 GiB too large" },
		{ SCIF_READFROM, here + (1LL << 32), 1, there, 0, ENXIO,
		  "readfrom: own offset 4 GiB too large" },
		{ SCIF_WRITETO, here, 1LL << 32, there, 0, ENXIO, "writeto: a length of 4 GiB" },
		{ SCIF_READFROM, here, 2, there + AREA - 1, 0, ENXIO, "readfrom: over the end" },
		{ SCIF_WRITETO, here, 1, READ_ONLY_OFFSET, 0, EACCES,
		  "writeto: a read-only window" },
		{ SCIF_READFROM, here, 1, WRITE_ONLY_OFFSET, 0, EACCES,
		  "readfrom: a write-only window" },
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		test_errno(copy(client->fd, wrong[i].call, wrong[i].local, wrong[i].len,
				wrong[i].remote, wrong[i].flags | SCIF_RMA_SYNC),
			   wrong[i].error, "%s", wrong[i].what);
	test(copy(client->fd, SCIF_WRITETO, here, INT64_MAX, there, SCIF_RMA_SYNC) < 0 &&
	     copy(client->fd, SCIF_READFROM, here, -1, there, SCIF_RMA_SYNC) < 0,
	     "copies: lengths that overflow or are negative");
	test(ask(client, OP_CHECK, 0, there, AREA) < 0, "writeto: failed calls write no byte");
}

static void test_wrong_registrations(const struct client *client)
{
	const int rw = SCIF_PROT_READ | SCIF_PROT_WRITE, fixed = SCIF_MAP_FIXED;
	const __s64 page = PAGE;
	unsigned char *area = client->area;
	const struct {
		void *memory;
		__s64 len, offset;
		int prot, flags, error;
		const char *what;
	} wrong[] = {
		{ area + 1, page, 0, rw, 0, EINVAL, "register: unaligned address" },
		{ area, page - 1, 0, rw, 0, EINVAL, "register: unaligned length" },
		{ area, 0, 0, rw, 0, EINVAL, "register: length 0" },
		{ area, page, 0, 4, 0, EINVAL, "register: unknown protection" },
		{ area, page, 0, rw, SCIF_MAP_KERNEL, EINVAL, "register: a flag of the kernel" },
		{ area, page, -page, rw, fixed, EINVAL, "register: negative offset" },
		{ area, page, client->offset, rw, fixed, EADDRINUSE, "register: same offset" },
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		test_errno(scif_register(client->fd, wrong[i].memory, wrong[i].len, wrong[i].offset,
					 wrong[i].prot, wrong[i].flags),
			   wrong[i].error, "%s", wrong[i].what);
	test_errno(scif_unregister(client->fd, -page, page), EINVAL, "unregister: negative offset");
	test_errno(scif_unregister(client->fd, client->offset, page), EINVAL,
		   "unregister: start of a window");
}

/* Wrong numbers that are the argument itself, and pointers that lead nowhere. */
static void test_wrong_numbers(const struct client *client)
{
	struct scif_port_id peer;
	__u16 nodes[16], self, port = 0;
	int fd = scif_open(), mark;
	char data[16];

	test_errno(ioctl(fd, _IO('s', 99), 0), ENOTTY, "unknown ioctl");
	if (scif_bind(fd, &port))
		die("SCIF_BIND");
	test_errno(ioctl(fd, SCIF_LISTEN, 0UL), EINVAL, "listen: backlog 0");
	test_errno(ioctl(fd, SCIF_LISTEN, -1L), EINVAL, "listen: backlog -1");
	if (scif_listen(fd, 1))
		die("SCIF_LISTEN");
	test_errno(scif_accept(fd, &peer, 2), EINVAL, "accept: unknown flag");
	test_errno(scif_nodes(fd, nodes, -1, &self), EINVAL, "nodes: negative length");
	test_errno(scif_nodes(fd, (void *)1, 16, &self), EFAULT, "nodes: bad address");
	test_errno(scif_bind(fd, NULL), EFAULT, "bind: bad address");
	close(fd);
	test_errno(scif_send(client->fd, "x", -1, 0), EINVAL, "send: negative length");
	test_errno(scif_recv(client->fd, data, -1, 0), EINVAL, "recv: negative length");
	test_errno(scif_send(client->fd, (void *)1, 1, 0), EFAULT, "send: bad address");
	test_errno(scif_fence_mark(client->fd, SCIF_FENCE_INIT_SELF, (void *)1), EFAULT,
		   "fence_mark: bad address");
	test_errno(scif_fence_mark(client->fd, 4, &mark), EINVAL, "fence_mark: unknown flag");
	test_errno(scif_fence_wait(client->fd, 0x7ffffff0), EINVAL, "fence_wait: unknown mark");
	test_errno(scif_fence_wait(client->fd, -1), EINVAL, "fence_wait: negative mark");
}

static int scif_fence_signal(int fd, __s64 loff, __u64 lval, __s64 roff, __u64 rval, int flags)
{
	struct scifioctl_fence_signal argument = {
		.loff = loff, .lval = lval, .roff = roff, .rval = rval, .flags = flags,
	};

	return ioctl(fd, SCIF_FENCE_SIGNAL, &argument);
}

static void test_wrong_signals(const struct client *client)
{
	const int self = SCIF_FENCE_INIT_SELF, peer = SCIF_FENCE_INIT_PEER;
	const int local = SCIF_SIGNAL_LOCAL, remote = SCIF_SIGNAL_REMOTE;
	const __s64 here = client->offset, there = AREA_OFFSET;
	const struct {
		__s64 here, there;
		int flags, error;
		const char *what;
	} wrong[] = {
		{ here, there, self, EINVAL, "signal: no side" },
		{ here, there, self | peer | local, EINVAL, "signal: two fences" },
		{ here, there, self | local | 4, EINVAL, "signal: unknown flag" },
		{ here + 2, 0, self | local, EINVAL, "signal: unaligned own offset" },
		{ 0, there + PAGE - 4, peer | remote, EINVAL, "signal: over the edge of a page" },
		{ 0, NOWHERE_OFFSET, self | remote, ENXIO, "signal: no window of the peer" },
		{ NOWHERE_OFFSET, 0, peer | local, ENXIO, "signal: no own window" },
		{ 0, READ_ONLY_OFFSET, self | remote, EACCES,
		  "signal: a read-only window of the peer" },
	};
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		test_errno(scif_fence_signal(client->fd, wrong[i].here, 1, wrong[i].there, 1,
					     wrong[i].flags), wrong[i].error, "%s", wrong[i].what);
}

static void test_fences(const struct client *client)
{
	const __s64 piece = 65521, count = 64;
	int fd = client->fd;
	__s64 i, wrong = -1;
	int mark, later;

	test(!scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark) && mark > 0 &&
	     !scif_fence_wait(fd, mark), "fence: without copies in flight");

	for (i = 0; i < count; i++) {
		fill(client->area + i * piece, 100 + i, 0, piece);
		if (copy(fd, SCIF_WRITETO, client->offset + i * piece, piece,
			 AREA_OFFSET + (count - 1 - i) * piece, i % 5 ? 0 : SCIF_RMA_USECPU))
			break;
	}
	test(i == count, "writeto: %lld at once without waiting", count);
	test(!scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark) &&
	     !scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &later) &&
	     !scif_fence_wait(fd, later) && !scif_fence_wait(fd, mark) &&
	     !scif_fence_wait(fd, later), "fence: marks in any order, and twice");
	for (i = 0; i < count && wrong < 0; i++) {
		if (copy(fd, SCIF_READFROM, client->offset + AREA - piece, piece,
			 AREA_OFFSET + (count - 1 - i) * piece, SCIF_RMA_SYNC))
			die("SCIF_READFROM");
		wrong = differs(client->area + AREA - piece, 100 + i, 0, piece);
	}
	test(wrong < 0, "fence: all content has arrived");
	ask(client, OP_RESTORE, 0, AREA_OFFSET, count * piece);
	background(client->area, 0, AREA);

	test(!ask(client, OP_PEER_WRITE, 77, client->offset + 12345, MIB + 1) &&
	     !scif_fence_mark(fd, SCIF_FENCE_INIT_PEER, &mark) && !scif_fence_wait(fd, mark) &&
	     check(client->area, AREA, 12345, MIB + 1, 77) < 0,
	     "fence: SCIF_FENCE_INIT_PEER waits for the peer's copies");
	ask(client, OP_RESTORE, 0, AREA_OFFSET, MIB + 1);
	background(client->area, 0, AREA);
}

/* Spins on a word, as programs do. Returns true if the value arrives before the hang limit. */
static bool comes(const unsigned char *word, __u64 value)
{
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	__u64 now;

	do {
		now = __atomic_load_n((const __u32 *)word, __ATOMIC_ACQUIRE);
		now |= (__u64)__atomic_load_n((const __u32 *)(word + 4), __ATOMIC_ACQUIRE) << 32;
		if (now == value)
			return true;
	} while (time(NULL) < end);
	return false;
}

static void test_signals(const struct client *client)
{
	const int self = SCIF_FENCE_INIT_SELF, peer = SCIF_FENCE_INIT_PEER;
	const int local = SCIF_SIGNAL_LOCAL, remote = SCIF_SIGNAL_REMOTE;
	const __u64 one = 0x1122334455667788, two = 0x99aabbccddeeff00;
	const __s64 len = 2 * MIB, word = 3 * MIB;
	unsigned char *area = client->area;
	__s64 here = client->offset, there = AREA_OFFSET;
	int fd = client->fd;

	fill(area, 31, 0, len);
	test(!copy(fd, SCIF_WRITETO, here, len, there, 0) &&
	     !scif_fence_signal(fd, here + word, one, there + word, two, self | local | remote) &&
	     comes(area + word, one), "signal: arrives in the own window");
	test(differs(area + word - 64, 0, word - 64, 64) < 0 &&
	     differs(area + word + 8, 0, word + 8, 64) < 0,
	     "signal: changes no byte around the own word");
	test(ask(client, OP_CHECK, 31, there, len) < 0, "signal: does not overtake the data");
	test(!copy(fd, SCIF_READFROM, here + 2 * word, 24, there + word - 8, SCIF_RMA_SYNC) &&
	     comes(area + 2 * word + 8, two) &&
	     differs(area + 2 * word, 0, word - 8, 8) < 0 &&
	     differs(area + 2 * word + 16, 0, word + 8, 8) < 0,
	     "signal: arrives at the peer, and changes no byte around it");
	background(area, 0, AREA);
	ask(client, OP_RESTORE, 0, there, AREA);

	test(!ask(client, OP_PEER_WRITE, 32, here, len) &&
	     !scif_fence_signal(fd, here + word + 4, two, there + word + 12, one,
				peer | local | remote) &&
	     comes(area + word + 4, two), "signal: of the peer's transfers, 4 bytes off");
	test(check(area, word, 0, len, 32) < 0, "signal: does not overtake the peer's copies");
	test(!copy(fd, SCIF_READFROM, here + word + 64, 8, there + word + 12, SCIF_RMA_SYNC) &&
	     comes(area + word + 64, one),
	     "signal: SCIF_FENCE_INIT_PEER stores it in the peer's window, too");
	background(area, 0, AREA);
	ask(client, OP_RESTORE, 0, there, AREA);
}

/* Chooses lengths and places of the copies: first all alignments, then all sizes. */
static void choose(__s64 number, __s64 *local, __s64 *remote, __s64 *len)
{
	static const __s64 longest[] = { 300, 5000, 70000, MIB, 5 * MIB };

	if (number < 256) {
		*len = 1 + random_below(longest[0]);
		*local = 64 * random_below(1000) + number % 64;
		*remote = 64 * random_below(1000) + (number * 5 + number / 64) % 64;
	} else {
		*len = 1 + random_below(longest[random_below(5)]);
		*local = random_below(AREA - *len + 1);
		*remote = random_below(AREA - *len + 1);
	}
}

/* Copies local memory, given by its offset, or by its address for the calls that take one. */
static int copy_area(const struct client *client, unsigned long call, __s64 local, __s64 len,
		     __s64 remote, int flags)
{
	struct scifioctl_copy argument = {
		.len = len, .roffset = remote, .flags = flags,
	};

	if (call == SCIF_VWRITETO || call == SCIF_VREADFROM)
		argument.addr = (uintptr_t)(client->area + local);
	else
		argument.loffset = client->offset + local;
	return ioctl(client->fd, call, &argument);
}

/* Makes one copy and checks it. Returns true if it was right. */
static bool one_copy(const struct client *client, unsigned long call, int flags, __u32 seed,
		     __s64 local, __s64 remote, __s64 len)
{
	bool write = call == SCIF_WRITETO || call == SCIF_VWRITETO;
	__s64 wrong;
	int mark;

	if (write)
		fill(client->area + local, seed, 0, len);
	else
		ask(client, OP_FILL, seed, AREA_OFFSET + remote, len);
	if (copy_area(client, call, local, len, AREA_OFFSET + remote, flags) ||
	    (!(flags & SCIF_RMA_SYNC) &&
	     (scif_fence_mark(client->fd, SCIF_FENCE_INIT_SELF, &mark) ||
	      scif_fence_wait(client->fd, mark)))) {
		printf("# %lld bytes from %lld to %lld: %s\n", len, local, remote, strerror(errno));
		return false;
	}
	if (write)
		wrong = ask(client, OP_CHECK, seed, AREA_OFFSET + remote, len);
	else
		wrong = check(client->area, AREA, local, len, seed);
	background(client->area, local, len);
	if (!write)
		ask(client, OP_RESTORE, 0, AREA_OFFSET + remote, len);
	if (wrong >= 0)
		printf("# %lld bytes, here %lld, there %lld: byte %lld of the area is wrong\n",
		       len, local, remote, wrong);
	return wrong < 0;
}

static void test_copies(const struct client *client, unsigned long call, int engine, __s64 total)
{
	static const int flags[] = { SCIF_RMA_SYNC, 0, SCIF_RMA_SYNC | SCIF_RMA_ORDERED };
	const char *name = call == SCIF_WRITETO ? "writeto" :
			   call == SCIF_READFROM ? "readfrom" :
			   call == SCIF_VWRITETO ? "vwriteto" : "vreadfrom";
	const char *by = engine ? "CPU" : "DMA";
	__s64 local, remote, len, moved = 0, number;
	bool ok = true;

	for (number = 0; ok && (moved < total || number < 300); number++) {
		choose(number, &local, &remote, &len);
		ok = one_copy(client, call, engine | flags[number % 3], 1000 + number,
			      local, remote, len);
		moved += len;
	}
	test(ok, "%s: %lld bytes by %s in %lld copies of any alignment", name, moved, by, number);
	test(one_copy(client, call, engine | SCIF_RMA_SYNC, 1, 0, 0, AREA),
	     "%s: by %s over all windows", name, by);
	test(one_copy(client, call, engine, 2, 3, WINDOW_SIZE - 1, 2),
	     "%s: by %s over the edge of two windows", name, by);
}

/* The errors of calls that take addresses, for invalid addresses. */
static void test_wrong_addresses(const struct client *client)
{
	char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const struct {
		unsigned long call;
		__u64 address;
		__s64 remote;
		int error;
		const char *what;
	} wrong[] = {
		{ SCIF_VWRITETO, 0, AREA_OFFSET, EFAULT, "vwriteto: from unmapped memory" },
		{ SCIF_VREADFROM, -(__u64)PAGE, AREA_OFFSET, EFAULT,
		  "vreadfrom: to addresses of the kernel" },
		{ SCIF_VREADFROM, (uintptr_t)read_only, AREA_OFFSET, EFAULT,
		  "vreadfrom: to read-only memory" },
		{ SCIF_VWRITETO, (uintptr_t)client->area, NOWHERE_OFFSET, ENXIO,
		  "vwriteto: no window at the peer" },
	};
	struct scifioctl_copy argument = { .len = PAGE, .flags = SCIF_RMA_SYNC };
	size_t i;

	for (i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		argument.addr = wrong[i].address;
		argument.roffset = wrong[i].remote;
		test_errno(ioctl(client->fd, wrong[i].call, &argument), wrong[i].error, "%s",
			   wrong[i].what);
	}
	argument.addr = (uintptr_t)read_only;
	argument.roffset = AREA_OFFSET;
	test(!ioctl(client->fd, SCIF_VWRITETO, &argument),
	     "vwriteto: from read-only memory");
	ask(client, OP_RESTORE, 0, AREA_OFFSET, PAGE);
	munmap(read_only, PAGE);
}

static void test_close(struct client *client)
{
	const __s64 len = 3000;
	char data[16];

	ask(client, OP_CLOSE, 9, 0, len);
	/* Receives the data only after the close was seen. */
	wait_for_hangup(client->fd);
	test(take(client->fd, 9, len) == -1, "recv: the bytes sent before the server closed");
	test_errno(scif_recv(client->fd, data, 1, SCIF_RECV_BLOCK), ECONNRESET,
		   "recv: when the server's data is drained");
	test_errno(copy(client->fd, SCIF_WRITETO, client->offset, 1, AREA_OFFSET, SCIF_RMA_SYNC),
		   ECONNRESET, "writeto: after the server's close");
	test_errno(copy(client->fd, SCIF_READFROM, client->offset, 1, AREA_OFFSET, SCIF_RMA_SYNC),
		   ECONNRESET, "readfrom: after the server's close");
	close(client->fd);
	client->fd = connected(client->node, client->port);
	test(ask(client, OP_FIRST_WINDOW, 0, 0, 0) >= 0,
	     "connect: the server serves the next connection");
}

static void run_client(__u16 node, __u16 port, __s64 total)
{
	struct client client = { .node = node, .port = port };
	__s64 offset;

	client.fd = connected(client.node, client.port);
	client.area = allocate(AREA);
	background(client.area, 0, AREA);
	test(ask(&client, OP_TAKE, 5, 0, MIB) == -1, "messages: 1 MiB to the server");
	test(ask(&client, OP_GIVE, 6, 0, MIB) == -1, "messages: 1 MiB from the server");
	offset = scif_register(client.fd, client.area, MIB, 0, SCIF_PROT_READ, 0);
	test(offset >= 0 && ask(&client, OP_FIRST_WINDOW, 0, 0, 0) == offset,
	     "register: equal first registrations get equal offsets");
	if (scif_unregister(client.fd, offset, MIB))
		die("SCIF_UNREG");
	client.offset = scif_register(client.fd, client.area, AREA, 0,
				      SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
	if (client.offset < 0)
		die("SCIF_REG");
	if (ask(&client, OP_WINDOWS, 0, 0, 0))
		die("the server cannot register its windows");
	test_wrong_numbers(&client);
	test_wrong_registrations(&client);
	test_wrong_copies(&client);
	test_wrong_signals(&client);
	test_copies(&client, SCIF_WRITETO, 0, total);
	test_copies(&client, SCIF_READFROM, 0, total);
	test_copies(&client, SCIF_WRITETO, SCIF_RMA_USECPU, total);
	test_copies(&client, SCIF_READFROM, SCIF_RMA_USECPU, total);
	test_copies(&client, SCIF_VWRITETO, 0, total / 4);
	test_copies(&client, SCIF_VREADFROM, 0, total / 4);
	test_copies(&client, SCIF_VWRITETO, SCIF_RMA_USECPU, total / 4);
	test_copies(&client, SCIF_VREADFROM, SCIF_RMA_USECPU, total / 4);
	test_wrong_addresses(&client);
	test_fences(&client);
	test_signals(&client);
	test_close(&client);
	ask(&client, OP_BYE, 0, 0, 0);
	close(client.fd);
}

static __s64 parse(const char *text, __s64 least, __s64 most)
{
	char *end;
	__s64 value = strtol(text, &end, 0);

	if (!*text || *end || value < least || value > most) {
		fprintf(stderr, "scif_abi: %s is not a number from %lld to %lld\n", text, least,
			most);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	__s64 total = 64 * MIB;
	__u16 node, port;
	int listener;
	pid_t server;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	if (!strcmp(mode, "server") && argc == 3) {
		port = parse(argv[2], 1, 65535);
		listener = listen_on(&port);
		printf("listening on port %u\n", port);
		fflush(stdout);
		run_server(listener);
		return 0;
	}
	if (!strcmp(mode, "client") && (argc == 4 || argc == 5)) {
		node = parse(argv[2], 0, 65535);
		port = parse(argv[3], 1, 65535);
		if (argc == 5)
			total = parse(argv[4], 0, 1 << 20) * MIB;
		run_client(node, port, total);
	} else if (!strcmp(mode, "loopback") && (argc == 3 || argc == 4)) {
		port = parse(argv[2], 1, 65535);
		if (argc == 4)
			total = parse(argv[3], 0, 1 << 20) * MIB;
		listener = listen_on(&port);
		server = new_child();
		if (!server) {
			run_server(listener);
			return 0;
		}
		close(listener);
		run_client(own_node(), port, total);
		test(!wait_for_child(server), "the server ended well");
	} else {
		fprintf(stderr, "usage: scif_abi server PORT\n"
			"       scif_abi client NODE PORT [MIB]\n"
			"       scif_abi loopback PORT [MIB]\n");
		return 2;
	}
	return finish_tests();
}
