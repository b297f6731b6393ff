// SPDX-License-Identifier: GPL-2.0
/*
 * An ordinary user of /dev/scif, written against linux/scif_ioctl.h only; the calls are in
 * ends.c.
 *
 *	scif_abi server PORT		serves clients, one after the other
 *	scif_abi client NODE PORT [MIB]	tests against a server; MIB per copy test
 *	scif_abi loopback PORT [MIB]	both, on this node
 *
 * The client prints TAP. What it writes to the server is checked by the server,
 * which is told what to expect in messages; what it reads, the server has
 * made up from a seed. Bytes around every copy are checked as well.
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

#include "children.h"
#include "ends.h"
#include "hang_limits.h"
#include "tap.h"

#define MIB			(1024 * 1024LL)
#define GUARD			256LL
#define NOBODY			65534

/*
 * The server's windows: WINDOWS of them without a gap, so that copies can span
 * several; then, each after a gap of a page, one that can only be read from and one
 * that can only be written to.
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

/* Bytes start, start + 1, ... of the endless pattern of a seed. */
static void fill(void *to, __u32 seed, __u64 start, __s64 len)
{
	unsigned char *byte = to;
	__u64 word = 0;
	__s64 i;

	for (i = 0; i < len; i++, start++) {
		if (i == 0 || start % 8 == 0)
			word = mix(((__u64)seed << 32) + start / 8);
		byte[i] = word >> (8 * (start % 8));
	}
}

/* The first byte that differs from the pattern, or -1. */
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

/* Memory between copies: the pattern of seed 0, by position in the area. */
static void background(unsigned char *area, __s64 at, __s64 len)
{
	fill(area + at, 0, at, len);
}

/* The first wrong byte of a copy to area + at or around it, or -1. */
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

/* A close may take its time on the way. */
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
	/* A child that got the pages would leave us with copies. */
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

/* Sends bytes of the pattern, in pieces of changing size. */
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

/* Receives as many, in other pieces; returns the first wrong one, -1, or -2 for an error. */
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

/* Serves one client; returns true if that was to be the last one. */
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
			/* Left to the client's fence. */
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

static __u16 absent_node(void)
{
	__u16 nodes[1024], self, id = 65000;
	int fd = scif_open();
	int count = scif_nodes(fd, nodes, 1024, &self);
	int i;

	close(fd);
	for (i = 0; i < count && i < 1024; i++) {
		if (nodes[i] == id) {
			id--;
			i = -1;
		}
	}
	return id;
}

static void test_nodes(const struct client *client)
{
	__u16 nodes[1024], self = 0xffff;
	bool found_self = false, found_peer = false;
	int fd = scif_open();
	int count, i;

	count = scif_nodes(fd, nodes, 1024, &self);
	for (i = 0; i < count && i < 1024; i++) {
		found_self |= nodes[i] == self;
		found_peer |= nodes[i] == client->node;
	}
	test(count > 0 && found_self, "nodes: the own one is listed");
	test(found_peer, "nodes: the server's is listed");
	test(scif_nodes(fd, NULL, 0, &self) == count, "nodes: can be counted without an array");
	test_errno(scif_nodes(fd, nodes, -1, &self), EINVAL, "nodes: negative length");
	test_errno(scif_nodes(fd, (void *)1, 16, &self), EFAULT, "nodes: bad address");
	test_errno(ioctl(fd, _IO('s', 99), 0), ENOTTY, "unknown ioctl");
	close(fd);
}

static void test_bind(void)
{
	__u16 port[4] = { 0, 0xabcd, 0xabcd, 0xabcd };
	__u16 low = 1000, other;
	int fd = scif_open(), second = scif_open();

	test(events(fd, POLLIN | POLLOUT, 0) & POLLERR, "poll: POLLERR when unbound");
	test(!scif_bind(fd, port) && port[0] >= SCIF_PORT_RSVD, "bind: port 0 gives a free one");
	test(port[1] == 0xabcd && port[2] == 0xabcd && port[3] == 0xabcd,
	     "bind: two bytes are written, not eight");
	test(events(fd, POLLIN | POLLOUT, 0) & POLLERR, "poll: POLLERR when only bound");
	other = 0;
	test_errno(scif_bind(fd, &other), EINVAL, "bind: bound already");
	other = port[0];
	test_errno(scif_bind(second, &other), EINVAL, "bind: port taken");
	test_errno(scif_bind(second, NULL), EFAULT, "bind: bad address");
	close(fd);
	other = port[0];
	test(!scif_bind(second, &other) && other == port[0],
	     "bind: a port is free again after close");
	close(second);

	fd = scif_open();
	if (!geteuid() && seteuid(NOBODY))
		die("seteuid");
	test_errno(scif_bind(fd, &low), EACCES, "bind: port below 1024 without privilege");
	other = 1030;
	test(!scif_bind(fd, &other), "bind: port 1030 without privilege");
	if (!getuid() && seteuid(0))
		die("seteuid");
	close(fd);
	if (getuid())
		return;
	fd = scif_open();
	test(!scif_bind(fd, &low), "bind: port below 1024 with privilege");
	close(fd);
}

static void test_listen_accept(void)
{
	struct pair pair = make_pair();
	struct scif_port_id peer;
	__u64 bogus = 0x123456789abcdefULL;
	__u16 port = 0;
	int fd = scif_open(), first, second;

	test_errno(ioctl(fd, SCIF_LISTEN, 1UL), EINVAL, "listen: unbound");
	test_errno(scif_accept(fd, &peer, 0), EINVAL, "accept: not listening");
	if (scif_bind(fd, &port))
		die("SCIF_BIND");
	test_errno(ioctl(fd, SCIF_LISTEN, 0UL), EINVAL, "listen: backlog 0");
	test_errno(ioctl(fd, SCIF_LISTEN, -1L), EINVAL, "listen: backlog -1");
	test(!ioctl(fd, SCIF_LISTEN, 1UL), "listen: bound");
	test_errno(ioctl(fd, SCIF_LISTEN, 1UL), EISCONN, "listen: listening already");
	test_errno(ioctl(pair.fd[0], SCIF_LISTEN, 1UL), EISCONN, "listen: connected");
	test_errno(scif_bind(fd, &port), EISCONN, "bind: listening");
	test_errno(scif_bind(pair.fd[0], &port), EISCONN, "bind: connected");
	test_errno(scif_connect(fd, own_node(), pair.port), EOPNOTSUPP, "connect: listening");
	test_errno(scif_accept(fd, &peer, 0), EAGAIN, "accept: nothing queued");
	test_errno(scif_accept(fd, &peer, 2), EINVAL, "accept: unknown flag");
	test(!events(fd, POLLIN | POLLOUT, 0), "poll: nothing on an idle listener");

	first = scif_open();
	test(!start_connect(first, port), "connect: O_NONBLOCK");
	test(events(fd, POLLIN, 10000) == POLLIN, "poll: POLLIN on a listener with a request");
	second = scif_open();
	test_errno(scif_connect(second, own_node(), port), ECONNREFUSED, "connect: backlog full");
	close(second);
	second = scif_accept(fd, &peer, 0);
	test(second >= 0 && peer.node == own_node(), "accept: tells who connects");
	test(!finish_connect(first, port), "connect: the second call collects the result");
	test_errno(scif_connect(first, own_node(), port), EISCONN, "connect: connected");
	close(first);
	close(second);

	second = scif_open();
	test(ioctl(second, SCIF_ACCEPTREG, &bogus) < 0, "accept: a made-up handle is refused");
	close(second);

	first = scif_open();
	if (start_connect(first, port) || events(fd, POLLIN, 10000) != POLLIN)
		die("a pending connection");
	close(fd);
	test_errno(finish_connect(first, port), ECONNREFUSED,
		   "close: a listener refuses what is pending");
	close(first);
	drop_pair(&pair);
}

static void test_connect(const struct client *client)
{
	__u16 port = 0;
	int fd = scif_open();

	test_errno(scif_connect(fd, client->node, 0), EINVAL, "connect: port 0");
	test_errno(scif_connect(fd, absent_node(), client->port), ENODEV, "connect: no such node");
	test_errno(scif_connect(fd, client->node, 65534), ECONNREFUSED, "connect: nobody listens");
	test_errno(scif_bind(fd, &port), EINVAL, "connect: a refused endpoint stays bound");
	test_errno(scif_connect(fd, client->node, 65534), ECONNREFUSED,
		   "connect: nobody listens, again");
	test(scif_connect(fd, client->node, client->port) >= SCIF_PORT_RSVD,
	     "connect: works after refusals and gives the local port");
	test_errno(scif_connect(fd, client->node, client->port), EISCONN,
		   "connect: connected to the server");
	close(fd);
}

static void test_not_connected(void)
{
	void *area = allocate(PAGE);
	int fd = scif_open();
	int mark;

	test_errno(scif_send(fd, "x", 1, 0), ENOTCONN, "send: not connected");
	test_errno(scif_recv(fd, area, 1, 0), ENOTCONN, "recv: not connected");
	test_errno(scif_register(fd, area, PAGE, 0, SCIF_PROT_READ, 0), ENOTCONN,
		   "register: not connected");
	test_errno(scif_unregister(fd, 0, PAGE), ENOTCONN, "unregister: not connected");
	test_errno(copy(fd, SCIF_READFROM, 0, 1, 0, SCIF_RMA_SYNC), ENOTCONN,
		   "readfrom: not connected");
	test_errno(copy(fd, SCIF_WRITETO, 0, 1, 0, SCIF_RMA_SYNC), ENOTCONN,
		   "writeto: not connected");
	test_errno(scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark), ENOTCONN,
		   "fence_mark: not connected");
	test_errno(scif_fence_wait(fd, 1), ENOTCONN, "fence_wait: not connected");
	close(fd);
	munmap(area, PAGE);
}

static void test_messages(void)
{
	struct pair pair = make_pair();
	int *fd = pair.fd;
	char data[64];
	__s64 sent = 0;
	int size;

	test(events(fd[0], POLLIN | POLLOUT, 0) == POLLOUT, "poll: POLLOUT when connected");
	test_errno(scif_send(fd[0], "x", -1, 0), EINVAL, "send: negative length");
	test_errno(scif_send(fd[0], "x", 1, 2), EINVAL, "send: unknown flag");
	test_errno(scif_send(fd[0], (void *)1, 1, 0), EFAULT, "send: bad address");
	test(!scif_send(fd[0], NULL, 0, SCIF_SEND_BLOCK), "send: nothing");
	test_errno(scif_recv(fd[0], data, -1, 0), EINVAL, "recv: negative length");
	test_errno(scif_recv(fd[0], data, 1, 2), EINVAL, "recv: unknown flag");
	test(!scif_recv(fd[0], NULL, 0, SCIF_RECV_BLOCK), "recv: nothing");
	test(!scif_recv(fd[0], data, sizeof(data), 0), "recv: 0 when nothing is there");

	test(scif_send(fd[0], "hello", 5, 0) == 5, "send: non-blocking");
	test(events(fd[1], POLLIN, 10000) == POLLIN, "poll: POLLIN when data is there");
	test(scif_recv(fd[1], data, sizeof(data), 0) == 5 && !memcmp(data, "hello", 5),
	     "recv: what is there");

	memset(data, 'x', sizeof(data));
	/* It may have become larger by itself a moment after it was full. */
	do {
		size = scif_send(fd[0], data, sizeof(data), 0);
		sent += size > 0 ? size : 0;
	} while (size > 0 || (!size && events(fd[0], POLLOUT, 300) == POLLOUT));
	test(!size && sent > 0, "send: 0 when the ring is full (after %lld bytes)", sent);
	test(!events(fd[0], POLLOUT, 0), "poll: no POLLOUT when the ring is full");
	for (; sent > 0; sent -= size) {
		size = scif_recv(fd[1], data, sizeof(data), 0);
		if (size <= 0)
			break;
	}
	test(!sent, "recv: all of a full ring");
	test(events(fd[0], POLLOUT, 10000) == POLLOUT, "poll: POLLOUT when there is room again");

	if (scif_send(fd[0], "last words", 10, SCIF_SEND_BLOCK) != 10)
		die("SCIF_SEND");
	close(fd[0]);
	wait_for_hangup(fd[1]);
	test(events(fd[1], POLLIN | POLLOUT, 0) == (POLLIN | POLLHUP),
	     "poll: POLLHUP and POLLIN when data is left after a close");
	test_errno(scif_send(fd[1], "x", 1, 0), ECONNRESET, "send: after the peer's close");
	test(scif_recv(fd[1], data, 4, SCIF_RECV_BLOCK) == 4 &&
	     scif_recv(fd[1], data + 4, 60, SCIF_RECV_BLOCK) == 6 &&
	     !memcmp(data, "last words", 10), "recv: drains after the peer's close");
	test_errno(scif_recv(fd[1], data, 1, SCIF_RECV_BLOCK), ECONNRESET, "recv: when drained");
	test_errno(scif_recv(fd[1], data, 1, 0), ECONNRESET, "recv: when drained, non-blocking");
	test(events(fd[1], POLLIN | POLLOUT, 0) == POLLHUP, "poll: POLLHUP when drained");
	fd[0] = scif_open();
	drop_pair(&pair);
}

static void test_register(void)
{
	struct pair pair = make_pair();
	int *fd = pair.fd, rw = SCIF_PROT_READ | SCIF_PROT_WRITE;
	unsigned char *area = allocate(4 * PAGE);
	unsigned char *frozen = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	__s64 offset;

	test_errno(scif_register(fd[0], area + 1, PAGE, 0, rw, 0), EINVAL,
		   "register: address not of a page");
	test_errno(scif_register(fd[0], area, PAGE - 1, 0, rw, 0), EINVAL,
		   "register: length not of pages");
	test_errno(scif_register(fd[0], area, 0, 0, rw, 0), EINVAL, "register: length 0");
	test_errno(scif_register(fd[0], area, PAGE, 0, 4, 0), EINVAL,
		   "register: unknown protection");
	test_errno(scif_register(fd[0], area, PAGE, 0, rw, 0x100), EINVAL,
		   "register: unknown flag");
	test_errno(scif_register(fd[0], area, PAGE, 0, rw, SCIF_MAP_KERNEL), EINVAL,
		   "register: SCIF_MAP_KERNEL from user space");
	test_errno(scif_register(fd[0], area, PAGE, PAGE + 1, rw, SCIF_MAP_FIXED), EINVAL,
		   "register: offset not of a page");
	test_errno(scif_register(fd[0], area, PAGE, -PAGE, rw, SCIF_MAP_FIXED), EINVAL,
		   "register: negative offset");
	test(scif_register(fd[0], area, PAGE, INT64_MAX - PAGE + 1, rw, SCIF_MAP_FIXED) < 0 ||
	     !scif_unregister(fd[0], INT64_MAX - PAGE + 1, PAGE),
	     "register: the end of the address space is survived");
	test(scif_register(fd[0], (void *)PAGE, PAGE, 0, rw, 0) < 0, "register: no memory there");
	test(scif_register(fd[0], frozen, PAGE, 0, SCIF_PROT_WRITE, 0) < 0,
	     "register: read-only memory is not made writable");
	test(scif_register(fd[0], frozen, PAGE, 0, SCIF_PROT_READ, 0) >= 0,
	     "register: read-only memory for reading");

	offset = 0x40000000;
	test(scif_register(fd[0], area, 2 * PAGE, offset, rw, SCIF_MAP_FIXED) == offset,
	     "register: SCIF_MAP_FIXED");
	test_errno(scif_register(fd[0], area, PAGE, offset, rw, SCIF_MAP_FIXED), EADDRINUSE,
		   "register: same offset");
	test_errno(scif_register(fd[0], area, 2 * PAGE, offset + PAGE, rw, SCIF_MAP_FIXED),
		   EADDRINUSE, "register: overlap at the end");
	test_errno(scif_register(fd[0], area, 4 * PAGE, offset - PAGE, rw, SCIF_MAP_FIXED),
		   EADDRINUSE, "register: overlap around");
	test(scif_register(fd[1], area, PAGE, offset, rw, SCIF_MAP_FIXED) == offset,
	     "register: the two sides have address spaces of their own");
	test(scif_register(fd[0], area + 2 * PAGE, PAGE, offset + 2 * PAGE, rw,
			   SCIF_MAP_FIXED) == offset + 2 * PAGE, "register: right behind another");

	test_errno(scif_unregister(fd[0], offset, PAGE), EINVAL, "unregister: start of a window");
	test_errno(scif_unregister(fd[0], offset + PAGE, 2 * PAGE), EINVAL,
		   "unregister: end of one window and all of the next");
	test_errno(scif_unregister(fd[0], offset, 0), EINVAL, "unregister: length 0");
	test_errno(scif_unregister(fd[0], offset + 1, PAGE), EINVAL,
		   "unregister: offset not of a page");
	test_errno(scif_unregister(fd[0], -PAGE, PAGE), EINVAL, "unregister: negative offset");
	test_errno(scif_unregister(fd[0], offset + 16 * PAGE, PAGE), ENXIO,
		   "unregister: nothing there");
	fill(area, 3, 0, PAGE);
	test(!copy(fd[1], SCIF_WRITETO, offset, 1, offset + PAGE, SCIF_RMA_SYNC) &&
	     !copy(fd[1], SCIF_WRITETO, offset, 1, offset + 2 * PAGE, SCIF_RMA_SYNC),
	     "unregister: what fails unregisters nothing");
	test(!scif_unregister(fd[0], offset, 3 * PAGE), "unregister: two windows at once");
	test_errno(copy(fd[1], SCIF_WRITETO, offset, 1, offset + PAGE, SCIF_RMA_SYNC), ENXIO,
		   "unregister: the peer cannot write there any more");
	test(scif_register(fd[0], area, PAGE, offset, rw, SCIF_MAP_FIXED) == offset,
	     "unregister: the offset can be used again");
	drop_pair(&pair);
	munmap(area, 4 * PAGE);
	munmap(frozen, PAGE);
}

static void test_copy_errors(const struct client *client)
{
	const int bad = 0x100, sync = SCIF_RMA_SYNC;
	unsigned char *area = allocate(PAGE);
	__s64 local = client->offset, readable = local + AREA + PAGE, writable;
	int fd = client->fd;

	/* Gaps around them: windows without a gap may be copied over the edge of. */
	writable = readable + 2 * PAGE;
	test(scif_register(fd, area, PAGE, readable, SCIF_PROT_READ, SCIF_MAP_FIXED) == readable &&
	     scif_register(fd, area, PAGE, writable, SCIF_PROT_WRITE, SCIF_MAP_FIXED) == writable,
	     "register: the same memory twice");
	test_errno(copy(fd, SCIF_WRITETO, local, 0, AREA_OFFSET, sync), EINVAL, "writeto: nothing");
	test_errno(copy(fd, SCIF_READFROM, local, 0, AREA_OFFSET, sync), EINVAL,
		   "readfrom: nothing");
	test_errno(copy(fd, SCIF_WRITETO, local, 1, AREA_OFFSET, bad), EINVAL,
		   "writeto: unknown flag");
	test_errno(copy(fd, SCIF_READFROM, local, 1, AREA_OFFSET, bad), EINVAL,
		   "readfrom: unknown flag");
	test_errno(copy(fd, SCIF_WRITETO, local, 1, NOWHERE_OFFSET, sync), ENXIO,
		   "writeto: no window at the peer");
	test_errno(copy(fd, SCIF_READFROM, local, 1, NOWHERE_OFFSET, sync), ENXIO,
		   "readfrom: no window at the peer");
	test_errno(copy(fd, SCIF_WRITETO, local, 2, AREA_OFFSET + AREA - 1, sync), ENXIO,
		   "writeto: over the end at the peer");
	test_errno(copy(fd, SCIF_WRITETO, local, 2, AREA_OFFSET - 1, sync), ENXIO,
		   "writeto: before the start at the peer");
	test_errno(copy(fd, SCIF_WRITETO, local + AREA - 1, 2, AREA_OFFSET, sync), ENXIO,
		   "writeto: over the end here");
	test_errno(copy(fd, SCIF_READFROM, local + AREA - 1, 2, AREA_OFFSET, sync), ENXIO,
		   "readfrom: over the end here");
	test_errno(copy(fd, SCIF_WRITETO, local, 2 * PAGE, AREA_OFFSET + AREA - PAGE, sync),
		   ENXIO, "writeto: into a gap");
	test_errno(copy(fd, SCIF_WRITETO, -1, 1, AREA_OFFSET, sync), ENXIO,
		   "writeto: negative offset here");
	test_errno(copy(fd, SCIF_WRITETO, local, 1, -1, sync), ENXIO,
		   "writeto: negative offset at the peer");
	test(copy(fd, SCIF_WRITETO, local, INT64_MAX, AREA_OFFSET, sync) < 0,
	     "writeto: a length that overflows");
	test(copy(fd, SCIF_READFROM, local, -1, AREA_OFFSET, sync) < 0,
	     "readfrom: a length that is negative");
	test_errno(copy(fd, SCIF_WRITETO, local, 1, READ_ONLY_OFFSET, sync), EACCES,
		   "writeto: a read-only window of the peer");
	test_errno(copy(fd, SCIF_READFROM, local, 1, WRITE_ONLY_OFFSET, sync), EACCES,
		   "readfrom: a write-only window of the peer");
	test_errno(copy(fd, SCIF_WRITETO, writable, 1, AREA_OFFSET, sync), EACCES,
		   "writeto: from a write-only window");
	test_errno(copy(fd, SCIF_READFROM, readable, 1, AREA_OFFSET, sync), EACCES,
		   "readfrom: into a read-only window");
	test(!copy(fd, SCIF_WRITETO, local, 1, WRITE_ONLY_OFFSET, sync), "writeto: write-only");
	test(!copy(fd, SCIF_READFROM, local, 1, READ_ONLY_OFFSET, sync), "readfrom: read-only");
	background(client->area, 0, 1);
	test(ask(client, OP_CHECK, 0, AREA_OFFSET, AREA) < 0,
	     "writeto: what fails writes nothing");
	test(!scif_unregister(fd, readable, PAGE) && !scif_unregister(fd, writable, PAGE),
	     "unregister: the same memory twice");
	munmap(area, PAGE);
}

static void test_fences(const struct client *client)
{
	const __s64 piece = 65521, count = 64;
	int fd = client->fd;
	__s64 i, wrong = -1;
	int mark, later;

	test_errno(scif_fence_mark(fd, 0, &mark), EINVAL, "fence_mark: no side");
	test_errno(scif_fence_mark(fd, 3, &mark), EINVAL, "fence_mark: both sides");
	test_errno(scif_fence_mark(fd, 4, &mark), EINVAL, "fence_mark: unknown flag");
	test_errno(scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, (void *)1), EFAULT,
		   "fence_mark: bad address");
	test_errno(scif_fence_wait(fd, 0x7ffffff0), EINVAL, "fence_wait: unknown mark");
	test_errno(scif_fence_wait(fd, -1), EINVAL, "fence_wait: negative mark");
	test(!scif_fence_mark(fd, SCIF_FENCE_INIT_SELF, &mark) && mark > 0 &&
	     !scif_fence_wait(fd, mark), "fence: with nothing to wait for");

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
	     !scif_fence_wait(fd, later), "fence: marks in any order, and again");
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
	     "fence: SCIF_FENCE_INIT_PEER waits for what the peer has started");
	ask(client, OP_RESTORE, 0, AREA_OFFSET, MIB + 1);
	background(client->area, 0, AREA);
}

static int scif_fence_signal(int fd, __s64 loff, __u64 lval, __s64 roff, __u64 rval, int flags)
{
	struct scifioctl_fence_signal argument = {
		.loff = loff, .lval = lval, .roff = roff, .rval = rval, .flags = flags,
	};

	return ioctl(fd, SCIF_FENCE_SIGNAL, &argument);
}

/* Spins on a word, as programs do; true if the value came within a minute. */
static bool comes(const unsigned char *word, __u64 value)
{
	time_t end = time(NULL) + 60;
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

	test_errno(scif_fence_signal(fd, here, 1, there, 1, self), EINVAL, "signal: no side");
	test_errno(scif_fence_signal(fd, here, 1, there, 1, local), EINVAL, "signal: no fence");
	test_errno(scif_fence_signal(fd, here, 1, there, 1, self | peer | local), EINVAL,
		   "signal: two fences");
	test_errno(scif_fence_signal(fd, here, 1, there, 1, self | local | 4), EINVAL,
		   "signal: unknown flag");
	test_errno(scif_fence_signal(fd, here + 2, 1, 0, 0, self | local), EINVAL,
		   "signal: not aligned here");
	test_errno(scif_fence_signal(fd, 0, 0, there + 1, 1, self | remote), EINVAL,
		   "signal: not aligned there");
	test_errno(scif_fence_signal(fd, here + PAGE - 4, 1, 0, 0, self | local), EINVAL,
		   "signal: over the edge of a page here");
	test_errno(scif_fence_signal(fd, 0, 0, there + PAGE - 4, 1, peer | remote), EINVAL,
		   "signal: over the edge of a page there");
	test_errno(scif_fence_signal(fd, 0, 0, NOWHERE_OFFSET, 1, self | remote), ENXIO,
		   "signal: no window there");
	test_errno(scif_fence_signal(fd, NOWHERE_OFFSET, 1, 0, 0, peer | local), ENXIO,
		   "signal: no window here");
	test_errno(scif_fence_signal(fd, 0, 0, READ_ONLY_OFFSET, 1, self | remote), EACCES,
		   "signal: a read-only window there");

	fill(area, 31, 0, len);
	test(!copy(fd, SCIF_WRITETO, here, len, there, 0) &&
	     !scif_fence_signal(fd, here + word, one, there + word, two, self | local | remote) &&
	     comes(area + word, one), "signal: comes here");
	test(differs(area + word - 64, 0, word - 64, 64) < 0 &&
	     differs(area + word + 8, 0, word + 8, 64) < 0, "signal: changes nothing around it");
	test(ask(client, OP_CHECK, 31, there, len) < 0, "signal: does not overtake the data");
	test(!copy(fd, SCIF_READFROM, here + 2 * word, 24, there + word - 8, SCIF_RMA_SYNC) &&
	     comes(area + 2 * word + 8, two) &&
	     differs(area + 2 * word, 0, word - 8, 8) < 0 &&
	     differs(area + 2 * word + 16, 0, word + 8, 8) < 0,
	     "signal: comes there, and changes nothing around it");
	background(area, 0, AREA);
	ask(client, OP_RESTORE, 0, there, AREA);

	test(!ask(client, OP_PEER_WRITE, 32, here, len) &&
	     !scif_fence_signal(fd, here + word + 4, two, there + word + 12, one,
				peer | local | remote) &&
	     comes(area + word + 4, two), "signal: of the peer's transfers, 4 bytes off");
	test(check(area, word, 0, len, 32) < 0, "signal: does not overtake what the peer writes");
	test(!copy(fd, SCIF_READFROM, here + word + 64, 8, there + word + 12, SCIF_RMA_SYNC) &&
	     comes(area + word + 64, one), "signal: the peer gives it in its window, too");
	background(area, 0, AREA);
	ask(client, OP_RESTORE, 0, there, AREA);
}

/* Lengths and places of the copies: first all alignments, then all sizes. */
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

/* Local memory by its offset, or by its address for the calls that take one. */
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

/* One copy and its check; true if all was right. */
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

/* What the calls that take addresses say to addresses that are none. */
static void test_memory_errors(const struct client *client)
{
	struct scifioctl_copy argument = {
		.len = PAGE, .roffset = AREA_OFFSET, .flags = SCIF_RMA_SYNC,
	};
	char *read_only = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	test_errno(ioctl(client->fd, SCIF_VWRITETO, &argument), EFAULT,
		   "vwriteto: from where nothing is mapped");
	argument.addr = -(__u64)PAGE;
	test_errno(ioctl(client->fd, SCIF_VREADFROM, &argument), EFAULT,
		   "vreadfrom: to addresses of the kernel");
	argument.addr = (uintptr_t)read_only;
	test_errno(ioctl(client->fd, SCIF_VREADFROM, &argument), EFAULT,
		   "vreadfrom: to memory that is read-only");
	test(!ioctl(client->fd, SCIF_VWRITETO, &argument),
	     "vwriteto: from memory that is read-only");
	ask(client, OP_RESTORE, 0, AREA_OFFSET, PAGE);
	argument.addr = (uintptr_t)client->area;
	argument.len = 0;
	test_errno(ioctl(client->fd, SCIF_VWRITETO, &argument), EINVAL, "vwriteto: nothing");
	argument.len = 1;
	argument.roffset = NOWHERE_OFFSET;
	test_errno(ioctl(client->fd, SCIF_VWRITETO, &argument), ENXIO,
		   "vwriteto: no window at the peer");
	argument.roffset = READ_ONLY_OFFSET;
	test_errno(ioctl(client->fd, SCIF_VWRITETO, &argument), EACCES,
		   "vwriteto: a read-only window of the peer");
	munmap(read_only, PAGE);
}

static void test_close(struct client *client)
{
	const __s64 len = 3000;
	char data[16];

	ask(client, OP_CLOSE, 9, 0, len);
	/* Drained only after the close has been seen. */
	wait_for_hangup(client->fd);
	test(take(client->fd, 9, len) == -1, "recv: what the server sent before it closed");
	test_errno(scif_recv(client->fd, data, 1, SCIF_RECV_BLOCK), ECONNRESET,
		   "recv: when the server's data is drained");
	test_errno(copy(client->fd, SCIF_WRITETO, client->offset, 1, AREA_OFFSET, SCIF_RMA_SYNC),
		   ECONNRESET, "writeto: after the server's close");
	test_errno(copy(client->fd, SCIF_READFROM, client->offset, 1, AREA_OFFSET, SCIF_RMA_SYNC),
		   ECONNRESET, "readfrom: after the server's close");
	close(client->fd);
	client->fd = connected(client->node, client->port);
	test(ask(client, OP_FIRST_WINDOW, 0, 0, 0) >= 0, "connect: the server serves the next one");
}

static void run_client(__u16 node, __u16 port, __s64 total)
{
	struct client client = { .node = node, .port = port };
	__s64 offset;

	test_nodes(&client);
	test_bind();
	test_connect(&client);
	test_listen_accept();
	test_not_connected();
	test_messages();
	test_register();

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
	test_copy_errors(&client);
	test_copies(&client, SCIF_WRITETO, 0, total);
	test_copies(&client, SCIF_READFROM, 0, total);
	test_copies(&client, SCIF_WRITETO, SCIF_RMA_USECPU, total);
	test_copies(&client, SCIF_READFROM, SCIF_RMA_USECPU, total);
	test_copies(&client, SCIF_VWRITETO, 0, total / 4);
	test_copies(&client, SCIF_VREADFROM, 0, total / 4);
	test_copies(&client, SCIF_VWRITETO, SCIF_RMA_USECPU, total / 4);
	test_copies(&client, SCIF_VREADFROM, SCIF_RMA_USECPU, total / 4);
	test_memory_errors(&client);
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

	/* A test that hangs is a test that fails. */
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
