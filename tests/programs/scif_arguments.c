// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments of /dev/scif at awkward addresses. At the end of the mapped memory, the driver may
 * touch nothing behind them. In read-only memory, the error must lose neither data nor a
 * connection. Other arguments are at invalid addresses.
 *
 *	scif_arguments
 *
 * Needs no second node. Prints TAP. Meant to be built for 32 bits, too.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>
#include <linux/scif_services.h>

#include "checks.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "signals.h"

#define PAGE			sysconf(_SC_PAGESIZE)
#define OFFSET			0x40000000LL

#define IS_32_BIT		(sizeof(long) == 4)
/* Whether 64-bit numbers are aligned to four bytes, as on 32-bit x86, but not on 32-bit ARM. */
#define IS_PACKED		(offsetof(struct { char c; __u64 number; }, number) == 4)

/* The driver is written for these layouts. A call's number contains the argument's size. */
static_assert(SCIF_BIND == 0xc0087301 && SCIF_LISTEN == 0x40047302, "bind, listen");
static_assert(SCIF_CONNECT == 0xc0087303 && SCIF_ACCEPTREQ == 0xc0107304, "connect, accept");
static_assert(SCIF_ACCEPTREG == 0xc0087305 && SCIF_REG == 0xc0287308, "accept, register");
static_assert(SCIF_UNREG == 0xc0107309 && SCIF_FENCE_WAIT == 0xc0047310, "unregister, wait");
static_assert(SCIF_SEND == (IS_PACKED ? 0xc0147306 : 0xc0187306), "send");
static_assert(SCIF_RECV == (IS_PACKED ? 0xc0147307 : 0xc0187307), "recv");
static_assert(SCIF_READFROM == (IS_PACKED ? 0xc024730a : 0xc028730a), "readfrom");
static_assert(SCIF_WRITETO == (IS_PACKED ? 0xc024730b : 0xc028730b), "writeto");
static_assert(SCIF_VREADFROM == (IS_PACKED ? 0xc024730c : 0xc028730c), "vreadfrom");
static_assert(SCIF_VWRITETO == (IS_PACKED ? 0xc024730d : 0xc028730d), "vwriteto");
static_assert(SCIF_GET_NODEIDS == (IS_PACKED ? 0xc014730e : 0xc018730e), "nodes");
static_assert(SCIF_FENCE_MARK == (IS_PACKED ? 0xc00c730f : 0xc010730f), "fence_mark");
static_assert(SCIF_FENCE_SIGNAL == (IS_PACKED ? 0xc0247311 : 0xc0287311), "fence_signal");
static_assert(offsetof(struct scifioctl_fence_mark, mark) == (IS_PACKED ? 4 : 8), "mark");

/* Two pages, followed by a page that no access may touch. */
static unsigned char *edge;
/* A page that is writable only while the test puts an argument there. */
static unsigned char *frozen;

static void *map(size_t len)
{
	void *area = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		die("mmap");
	return area;
}

static void prepare(void)
{
	edge = map(3 * PAGE);
	if (mprotect(edge + 2 * PAGE, PAGE, PROT_NONE))
		die("mprotect");
	frozen = map(PAGE);
}

/* Puts the argument directly before the page that no access may touch. */
static void *at_edge(const void *argument, size_t size)
{
	return memcpy(edge + 2 * PAGE - size, argument, size);
}

/* Puts the argument into read-only memory. */
static void *in_frozen(const void *argument, size_t size)
{
	if (mprotect(frozen, PAGE, PROT_READ | PROT_WRITE))
		die("mprotect");
	memcpy(frozen, argument, size);
	if (mprotect(frozen, PAGE, PROT_READ))
		die("mprotect");
	return frozen;
}

#define AT_EDGE(argument)	at_edge(&(argument), sizeof(argument))
#define IN_FROZEN(argument)	in_frozen(&(argument), sizeof(argument))

/* Collects the result of a connect, with the argument where the caller has put it. */
static int collect(int fd, struct scifioctl_connect *argument)
{
	if (!wait_for(fd, POLLOUT))
		die("no answer to a connection request");
	return ioctl(fd, SCIF_CONNECT, argument);
}

/* Makes a pair, and closes its listener. */
static void connect_pair(int fd[2])
{
	struct pair pair = make_pair();

	memcpy(fd, pair.fd, sizeof(pair.fd));
	close(pair.listener);
}

static int take_over(__u64 *handle)
{
	int fd = scif_open();

	return ioctl(fd, SCIF_ACCEPTREG, handle) ? -1 : fd;
}

/* Returns the number of bytes that can be received at once. */
static int waiting(int fd)
{
	static unsigned char data[1 << 20];

	return scif_recv(fd, data, sizeof(data), 0);
}

static void test_bind(void)
{
	__u16 port = 0, *place = AT_EDGE(port);
	int fd = scif_open(), second;

	test(!ioctl(fd, SCIF_BIND, place) && *place, "bind: exactly two bytes are accessed");
	close(fd);
	fd = scif_open();
	test_errno(ioctl(fd, SCIF_BIND, IN_FROZEN(port)), EFAULT, "bind: read-only memory");
	test_errno(ioctl(fd, SCIF_BIND, edge + 2 * PAGE - 1), EFAULT, "bind: half a port");
	test(!ioctl(fd, SCIF_BIND, &port), "bind: an error binds nothing");
	second = scif_open();
	test_errno(ioctl(second, SCIF_LISTEN, 0xffffffffUL), EINVAL, "listen: the value itself");
	close(second);
	close(fd);
}

static void test_connect(void)
{
	struct scifioctl_accept accept = { .flags = 0 }, *accepted;
	struct scifioctl_connect argument = { 0 }, *place;
	__u16 port = 0;
	int listener = listen_on(&port);
	int fd = scif_open(), other;

	if (start_connect(fd, port))
		die("SCIF_CONNECT");
	wait_for(listener, POLLIN);
	test_errno(ioctl(listener, SCIF_ACCEPTREQ, IN_FROZEN(accept)), EFAULT,
		   "accept: read-only memory");
	test_errno(ioctl(listener, SCIF_ACCEPTREQ, NULL), EFAULT, "accept: no memory");
	test_errno(ioctl(listener, SCIF_ACCEPTREQ, edge + 2 * PAGE - 8), EFAULT,
		   "accept: half of the argument");
	test(wait_for(listener, POLLIN), "accept: an error loses no request");
	accepted = AT_EDGE(accept);
	test(!ioctl(listener, SCIF_ACCEPTREQ, accepted),
	     "accept: no byte behind the argument is accessed");
	test(accepted->flags == accept.flags && accepted->peer.node == own_node(),
	     "accept: flags stay, and the peer is returned");
	test_errno(ioctl(fd, SCIF_ACCEPTREG, &accepted->endpt), EINVAL,
		   "accept: onto an endpoint in use");
	test_errno(take_over((void *)1), EFAULT, "accept: a handle that cannot be read");
	other = take_over(&accepted->endpt);
	test(other >= 0, "accept: errors cost no connection");
	test_errno(take_over(&accepted->endpt), EINVAL, "accept: a handle is valid once");
	place = AT_EDGE(argument);
	test_errno(collect(fd, IN_FROZEN(argument)), EFAULT, "connect: read-only memory");
	place->peer.port = port;
	test(!collect(fd, place) && place->self.port, "connect: the result can still be collected");
	test(!place->peer.node && place->peer.port == port, "connect: the peer stays as it was");
	test(scif_send(fd, "x", 1, SCIF_SEND_BLOCK) == 1 && wait_for(other, POLLIN) &&
	     waiting(other) == 1, "connect: the accepted endpoint is connected");
	close(fd);
	close(other);
	close(listener);
}

static void test_messages(void)
{
	struct scifioctl_msg argument = {
		.msg = (uintptr_t)"hello", .len = 5, .out_len = -7,
	};
	struct scifioctl_msg *place;
	unsigned char data[8] = { 0 };
	int fd[2], sent, got;

	connect_pair(fd);
	test_errno(ioctl(fd[0], SCIF_SEND, IN_FROZEN(argument)), EFAULT, "send: read-only memory");
	test(!waiting(fd[1]), "send: an error sends no byte");
	place = AT_EDGE(argument);
	test(!ioctl(fd[0], SCIF_SEND, place) && place->out_len == 5,
	     "send: no byte behind the argument is accessed");
	test(place->msg == argument.msg && place->len == 5 && !place->flags,
	     "send: other fields stay");
	argument.msg = (uintptr_t)data;
	wait_for(fd[1], POLLIN);
	test_errno(ioctl(fd[1], SCIF_RECV, IN_FROZEN(argument)), EFAULT, "recv: read-only memory");
	test_errno(scif_recv(fd[1], NULL, 5, 0), EFAULT, "recv: to NULL");
	test_errno(scif_recv(fd[1], frozen, 5, SCIF_RECV_BLOCK), EFAULT,
		   "recv: to read-only memory");
	place = AT_EDGE(argument);
	test(!ioctl(fd[1], SCIF_RECV, place) && place->out_len == 5 && !memcmp(data, "hello", 5),
	     "recv: errors lose no byte");
	test_errno(scif_send(fd[0], NULL, 5, 0), EFAULT, "send: from NULL");
	test_errno(scif_send(fd[0], NULL, INT_MAX, SCIF_SEND_BLOCK), EFAULT,
		   "send: the largest length, from NULL");
	test_errno(scif_send(fd[0], NULL, INT_MIN, 0), EINVAL, "send: a negative length");
	test(!waiting(fd[1]), "send: errors send no byte");

	sent = scif_send(fd[0], edge, INT_MAX, SCIF_SEND_BLOCK);
	test(sent > 0 && sent <= 2 * PAGE, "send: from memory with an end: a partial count (%d)",
	     sent);
	wait_for(fd[1], POLLIN);
	got = waiting(fd[1]);
	test(got == sent, "send: the partial count has been sent (%d)", got);
	if (scif_send(fd[0], edge, 100, SCIF_SEND_BLOCK) != 100)
		die("SCIF_SEND");
	wait_for(fd[1], POLLIN);
	test(scif_recv(fd[1], edge + PAGE, INT_MAX, 0) == 100,
	     "recv: beyond the end of memory, with fewer bytes in the ring");
	if (scif_send(fd[0], edge, 100, SCIF_SEND_BLOCK) != 100)
		die("SCIF_SEND");
	wait_for(fd[1], POLLIN);
	test_errno(scif_recv(fd[1], edge + 2 * PAGE - 50, INT_MAX, 0), EFAULT,
		   "recv: beyond the end of memory");
	test(waiting(fd[1]) == 100, "recv: the error loses no byte");
	close(fd[0]);
	close(fd[1]);
}

static void test_memory(void)
{
	struct scifioctl_reg argument = {
		.len = PAGE, .offset = OFFSET, .prot = SCIF_PROT_READ | SCIF_PROT_WRITE,
		.flags = SCIF_MAP_FIXED, .out_offset = -7,
	};
	struct scifioctl_unreg range = { .offset = OFFSET, .len = PAGE };
	struct scifioctl_copy copy = {
		.loffset = OFFSET, .len = 8, .roffset = OFFSET + 64, .flags = SCIF_RMA_SYNC,
	};
	struct scifioctl_reg *place;
	unsigned char *area = map(PAGE);
	int fd[2];

	connect_pair(fd);
	argument.addr = (uintptr_t)area;
	test_errno(ioctl(fd[0], SCIF_REG, IN_FROZEN(argument)), EFAULT,
		   "register: read-only memory");
	place = AT_EDGE(argument);
	test(!ioctl(fd[0], SCIF_REG, place) && place->out_offset == OFFSET,
	     "register: the error registers nothing, and accesses no byte behind the argument");
	place->out_offset = -7;
	test(!memcmp(place, &argument, sizeof(argument)), "register: other fields stay");
	if (ioctl(fd[1], SCIF_REG, place))
		die("SCIF_REG");

	memcpy(area, "some data", 10);
	test(!ioctl(fd[0], SCIF_WRITETO, AT_EDGE(copy)) && !memcmp(area + 64, "some dat", 9),
	     "writeto: no byte behind the argument is accessed");
	copy.roffset = OFFSET + 128;
	copy.addr = (uintptr_t)(area + 64);
	test(!ioctl(fd[0], SCIF_VWRITETO, IN_FROZEN(copy)) && !memcmp(area + 128, "some dat", 9),
	     "vwriteto: the argument may be read-only");
	copy.addr |= 0xffffffffULL << 32;
	copy.roffset = OFFSET + 192;
	if (IS_32_BIT)
		test(!ioctl(fd[0], SCIF_VWRITETO, &copy) && !memcmp(area + 192, "some dat", 9),
		     "vwriteto: a pointer may be sign-extended");
	else
		test_errno(ioctl(fd[0], SCIF_VWRITETO, &copy), EFAULT,
			   "vwriteto: no address of user space");
	test_errno(ioctl(fd[0], SCIF_WRITETO, edge + 2 * PAGE - sizeof(copy) + 8), EFAULT,
		   "writeto: half of the argument");
	test(!ioctl(fd[0], SCIF_UNREG, AT_EDGE(range)),
	     "unregister: no byte behind the argument is accessed");
	close(fd[0]);
	close(fd[1]);
	munmap(area, PAGE);
}

static void test_fences(void)
{
	__s32 mark = -7, *out;
	struct scifioctl_fence_mark argument = { .flags = SCIF_FENCE_INIT_SELF };
	struct scifioctl_fence_signal signal = {
		.loff = OFFSET, .lval = 0x1122334455667788,
		.flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL,
	};
	struct scifioctl_reg registration = {
		.len = PAGE, .offset = OFFSET, .prot = SCIF_PROT_WRITE, .flags = SCIF_MAP_FIXED,
	};
	__u64 *area = map(PAGE);
	int fd[2];

	connect_pair(fd);
	registration.addr = (uintptr_t)area;
	if (ioctl(fd[0], SCIF_REG, &registration))
		die("SCIF_REG");
	argument.mark = (uintptr_t)IN_FROZEN(mark);
	test_errno(ioctl(fd[0], SCIF_FENCE_MARK, &argument), EFAULT,
		   "fence_mark: read-only memory");
	argument.mark = 0;
	argument.flags = SCIF_FENCE_INIT_PEER;
	test_errno(ioctl(fd[0], SCIF_FENCE_MARK, &argument), EFAULT,
		   "fence_mark: NULL for the mark");
	argument.mark = (uintptr_t)&mark;
	test(!ioctl(fd[0], SCIF_FENCE_MARK, AT_EDGE(argument)) && mark > 0,
	     "fence_mark: no byte behind the argument is accessed");
	out = AT_EDGE(mark);
	argument.mark = (uintptr_t)out;
	argument.flags = SCIF_FENCE_INIT_SELF;
	test(!ioctl(fd[0], SCIF_FENCE_MARK, &argument) && *out > 0,
	     "fence_mark: a mark has four bytes");
	test(!ioctl(fd[0], SCIF_FENCE_WAIT, (unsigned long)*out), "fence_wait: the value itself");
	test_errno(ioctl(fd[0], SCIF_FENCE_WAIT, 0xffffffffUL), EINVAL, "fence_wait: negative");
	test(!ioctl(fd[0], SCIF_FENCE_SIGNAL, AT_EDGE(signal)) && comes(area, signal.lval),
	     "fence_signal: no byte behind the argument is accessed");
	close(fd[0]);
	close(fd[1]);
	munmap(area, PAGE);
}

static void test_nodes(void)
{
	__u16 nodes[64], self = 0xabcd, *out;
	struct scifioctl_node_ids argument = { .self = (uintptr_t)&self };
	int fd = scif_open(), count;

	count = ioctl(fd, SCIF_GET_NODEIDS, AT_EDGE(argument));
	test(count >= 1 && self == own_node(), "nodes: no byte behind the argument is accessed");
	memset(nodes, 0xff, sizeof(nodes));
	argument.nodes = (uintptr_t)nodes;
	argument.len = 64;
	argument.self = 0;
	test_errno(ioctl(fd, SCIF_GET_NODEIDS, &argument), EFAULT,
		   "nodes: a bad address for the own id");
	test(nodes[0] == 0xffff, "nodes: the error writes nothing");
	self = 0xabcd;
	argument.self = (uintptr_t)&self;
	argument.nodes = 0;
	test_errno(ioctl(fd, SCIF_GET_NODEIDS, &argument), EFAULT,
		   "nodes: a bad address for the ids");
	argument.nodes = (uintptr_t)nodes;
	argument.len = INT_MIN;
	test_errno(ioctl(fd, SCIF_GET_NODEIDS, &argument), EINVAL, "nodes: a negative length");
	test(self == 0xabcd && nodes[0] == 0xffff, "nodes: errors write nothing");
	argument.len = INT_MAX;
	test(ioctl(fd, SCIF_GET_NODEIDS, &argument) == count && self == own_node() &&
	     nodes[count - 1] != 0xffff && nodes[count] == 0xffff,
	     "nodes: exactly the ids of all nodes");
	/* The old library reads the number from the argument. */
	test(argument.len == count, "nodes: the argument has the count, too");
	out = (__u16 *)(edge + 2 * PAGE) - count;
	argument.nodes = (uintptr_t)out;
	test(ioctl(fd, SCIF_GET_NODEIDS, &argument) == count &&
	     !memcmp(out, nodes, count * sizeof(*out)), "nodes: an array at the end of memory");
	argument.nodes = (uintptr_t)nodes;
	argument.len = 0;
	memset(nodes, 0xff, sizeof(nodes));
	test(ioctl(fd, SCIF_GET_NODEIDS, &argument) == count && nodes[0] == 0xffff,
	     "nodes: an array without room");
	close(fd);
}

/* Converts a pointer to 64 bits through a signed number, which extends the sign. */
static __u64 sign_extended(const void *pointer)
{
	return (__s64)(intptr_t)pointer;
}

/* Tests addresses in the upper half, where 32-bit programs have their memory. */
static void test_signs(void)
{
	char here[] = "sign", there[sizeof(here)] = "";
	struct scif_send_all message = {
		.size = sizeof(message), .flags = SCIF_SEND_ALL_BLOCK,
		.msg = sign_extended(here), .len = sizeof(here),
	};
	struct scif_memory_create memory = {
		.size = sizeof(memory), .address = sign_extended(map(PAGE)), .len = PAGE,
		.prot = SCIF_PROT_READ,
	};
	int fd[2];

	connect_pair(fd);
	test(ioctl(fd[0], SCIF_SEND_ALL, &message) == 0 &&
	     scif_recv(fd[1], there, sizeof(there), SCIF_RECV_BLOCK) == sizeof(there) &&
	     !strcmp(here, there), "send all: a sign-extended pointer");
	test(ioctl(fd[0], SCIF_MEMORY_CREATE, &memory) == 0 && memory.fd >= 0,
	     "memory: a sign-extended pointer");
	close(memory.fd);
	close(fd[0]);
	close(fd[1]);
}

int main(void)
{
	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	prepare();
	test_nodes();
	test_bind();
	test_connect();
	test_messages();
	test_signs();
	test_memory();
	test_fences();
	return finish_tests();
}
