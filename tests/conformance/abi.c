// SPDX-License-Identifier: GPL-2.0
/*
 * The raw interface, without the library: numbers, layouts, results that are written back, and the
 * errors of hostile or mistaken callers.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <linux/scif_ioctl.h>

#include "../harness/suite.h"

static const unsigned long numbers[] = {
	0xc0087301, 0x40047302, 0xc0087303, 0xc0107304, 0xc0087305, 0xc0187306, 0xc0187307,
	0xc0287308, 0xc0107309, 0xc028730a, 0xc028730b, 0xc028730c, 0xc028730d, 0xc018730e,
	0xc010730f, 0xc0047310, 0xc0287311,
};

static void abi_numbers(void)
{
	static const unsigned long of_header[] = {
		SCIF_BIND, SCIF_LISTEN, SCIF_CONNECT, SCIF_ACCEPTREQ, SCIF_ACCEPTREG, SCIF_SEND,
		SCIF_RECV, SCIF_REG, SCIF_UNREG, SCIF_READFROM, SCIF_WRITETO, SCIF_VREADFROM,
		SCIF_VWRITETO, SCIF_GET_NODEIDS, SCIF_FENCE_MARK, SCIF_FENCE_WAIT,
		SCIF_FENCE_SIGNAL,
	};
	int endpoint = expect_ok(scif_open());
	size_t i;

	for (i = 0; i < ARRAY_SIZE(numbers); i++) {
		expect(numbers[i] == of_header[i]);
		/* The driver knows the number, whatever it returns for such an argument. */
		expect(ioctl(endpoint, numbers[i], 0) != -1 || errno != ENOTTY);
	}
}

static void abi_unknown(void)
{
	int endpoint = expect_ok(scif_open());
	char argument[256] = { 0 };

	expect_error(ioctl(endpoint, _IO('s', 99), argument), ENOTTY);
	expect_error(ioctl(endpoint, _IO('s', 0), argument), ENOTTY);
	expect_error(ioctl(endpoint, _IOWR('s', 18, __u64), argument), ENOTTY);
	expect_error(ioctl(endpoint, _IOWR('s', 200, __u64), argument), ENOTTY);
	/* The number of another driver, and known numbers with other sizes. */
	expect_error(ioctl(endpoint, 0x5401, argument), ENOTTY);
	expect_error(ioctl(endpoint, _IOWR('s', 3, char[200]), argument), ENOTTY);
}

static void abi_no_read_write(void)
{
	struct pair pair = connected();
	char byte = 0;

	expect(read(pair.here, &byte, 1) == -1);
	expect(write(pair.here, &byte, 1) == -1);
	expect_value(poll_for(pair.here, POLLIN | POLLOUT, 0), POLLOUT);
}

/* An argument with a canary on both sides. */
union guarded {
	unsigned char byte[256];
	struct {
		unsigned char before[64];
		union {
			__u16 port;
			__u64 handle;
			struct scifioctl_connect connect;
			struct scifioctl_accept accept;
			struct scifioctl_msg message;
			struct scifioctl_reg reg;
			unsigned char bytes[128];
		};
	};
};

static void guard(union guarded *guarded)
{
	memset(guarded, 0xcd, sizeof(*guarded));
}

/* Checks that only the given part of the argument has changed. */
static void expect_only(const union guarded *now_there, const union guarded *before, size_t start,
			size_t len)
{
	size_t i, at = offsetof(union guarded, bytes) + start;

	for (i = 0; i < sizeof(*before); i++) {
		if ((i < at || i >= at + len) && now_there->byte[i] != before->byte[i])
			fail("byte %ld of the argument has changed",
			     (long)i - (long)offsetof(union guarded, bytes));
	}
}

static void abi_bind_two_bytes(void)
{
	union guarded argument, before;
	int endpoint = expect_ok(scif_open());

	guard(&argument);
	argument.port = 0;
	before = argument;
	expect_value(ioctl(endpoint, SCIF_BIND, &argument.port), 0);
	expect(argument.port >= SCIF_PORT_RSVD);
	expect_only(&argument, &before, 0, 2);
}

static void abi_connect_self(void)
{
	struct peer *peer = new_peer();
	int listener = expect_ok(ask(peer, DO_LISTENER, 1));
	int endpoint = expect_ok(scif_open());
	union guarded argument, before;

	guard(&argument);
	argument.connect.peer.node = peer_node(peer);
	argument.connect.peer.port = answer(peer, 0);
	before = argument;
	begin(peer, DO_ACCEPT, listener, SCIF_ACCEPT_SYNC);
	expect_value(ioctl(endpoint, SCIF_CONNECT, &argument.connect), 0);
	expect_ok(end(peer));
	expect(argument.connect.self.node == own_node());
	expect(argument.connect.self.port == answer(peer, 1));
	expect_only(&argument, &before, offsetof(struct scifioctl_connect, self),
		    sizeof(struct scif_port_id));
}

/* A request that waits for accept at a listener of this process. */
struct incoming {
	struct peer *peer;
	long endpoint;
	int listener;
	__u16 port;
};

static struct incoming new_incoming(void)
{
	struct incoming incoming = { .peer = new_peer() };

	incoming.listener = listening(&incoming.port, 8);
	incoming.endpoint = expect_ok(ask(incoming.peer, DO_OPEN));
	expect_ok(ask(incoming.peer, DO_SET_NONBLOCK, incoming.endpoint, true));
	expect_error(ask(incoming.peer, DO_CONNECT, incoming.endpoint, own_node(), incoming.port),
		     EINPROGRESS);
	return incoming;
}

static __u64 accept_request(const struct incoming *incoming)
{
	struct scifioctl_accept argument = { .flags = SCIF_ACCEPT_SYNC };

	expect_value(ioctl(incoming->listener, SCIF_ACCEPTREQ, &argument), 0);
	return argument.endpt;
}

static void abi_accept_fields(void)
{
	struct incoming incoming = new_incoming();
	union guarded argument, before;

	guard(&argument);
	argument.accept.flags = SCIF_ACCEPT_SYNC;
	before = argument;
	expect_value(ioctl(incoming.listener, SCIF_ACCEPTREQ, &argument.accept), 0);
	expect(argument.accept.peer.node == peer_node(incoming.peer));
	before.accept.endpt = argument.accept.endpt;
	expect_only(&argument, &before, offsetof(struct scifioctl_accept, peer),
		    sizeof(struct scif_port_id));
	/* ACCEPTREG changes nothing in its argument. */
	before = argument;
	expect_value(ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, &argument.accept.endpt), 0);
	expect_only(&argument, &before, 0, 0);
}

static void abi_message_fields(void)
{
	struct pair pair = connected();
	__s64 memory = ask(pair.peer, DO_PAGES, 1);
	union guarded argument, before;
	char data[16];

	guard(&argument);
	argument.message.msg = (__u64)(unsigned long)data;
	argument.message.len = 10;
	argument.message.flags = SCIF_SEND_BLOCK;
	before = argument;
	expect_value(ioctl(pair.here, SCIF_SEND, &argument.message), 0);
	expect_value(argument.message.out_len, 10);
	expect_only(&argument, &before, offsetof(struct scifioctl_msg, out_len), 4);

	expect_value(ask(pair.peer, DO_SEND, pair.there, memory, 10, SCIF_SEND_BLOCK), 10);
	argument = before;
	expect_value(ioctl(pair.here, SCIF_RECV, &argument.message), 0);
	expect_value(argument.message.out_len, 10);
	expect_only(&argument, &before, offsetof(struct scifioctl_msg, out_len), 4);
}

static void abi_register_fields(void)
{
	struct pair pair = connected();
	union guarded argument, before;

	guard(&argument);
	argument.reg.addr = (__u64)(unsigned long)pages(1);
	argument.reg.len = PAGE;
	argument.reg.offset = 0;
	argument.reg.prot = READ_WRITE;
	argument.reg.flags = 0;
	before = argument;
	expect_value(ioctl(pair.here, SCIF_REG, &argument.reg), 0);
	expect(argument.reg.out_offset % PAGE == 0);
	expect_only(&argument, &before, offsetof(struct scifioctl_reg, out_offset), 8);
}

/* --- Handles --- */

static void abi_handle_opaque(void)
{
	struct peer *peer = new_peer();
	__u16 port = 0;
	int listener = listening(&port, 8), i, j;
	struct scifioctl_accept argument;
	__u64 handle[16];
	long endpoint;

	for (i = 0; i < 16; i++) {
		endpoint = expect_ok(ask(peer, DO_OPEN));
		expect_ok(ask(peer, DO_SET_NONBLOCK, endpoint, true));
		expect_error(ask(peer, DO_CONNECT, endpoint, own_node(), port), EINPROGRESS);
		memset(&argument, 0, sizeof(argument));
		argument.flags = SCIF_ACCEPT_SYNC;
		expect_value(ioctl(listener, SCIF_ACCEPTREQ, &argument), 0);
		handle[i] = argument.endpt;
		/* Kernel addresses begin with 17 ones. */
		expect((handle[i] >> 47) != 0x1ffff);
		for (j = 0; j < i; j++)
			expect(handle[j] != handle[i]);
	}
	/* The handles can be used in any order. */
	for (i = 15; i >= 0; i--)
		expect_value(ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, &handle[i]), 0);
}

static void abi_handle_unknown(void)
{
	struct incoming incoming = new_incoming();
	__u64 handle = accept_request(&incoming), wrong;
	int endpoint = expect_ok(scif_open()), i;

	for (i = 0; i < 64; i++) {
		wrong = handle ^ (1ULL << i);
		expect_error(ioctl(endpoint, SCIF_ACCEPTREG, &wrong), EINVAL);
	}
	wrong = 0;
	expect_error(ioctl(endpoint, SCIF_ACCEPTREG, &wrong), EINVAL);
	wrong = -1;
	expect_error(ioctl(endpoint, SCIF_ACCEPTREG, &wrong), EINVAL);
	expect_value(ioctl(endpoint, SCIF_ACCEPTREG, &handle), 0);
}

static void abi_handle_once(void)
{
	struct incoming incoming = new_incoming();
	__u64 handle = accept_request(&incoming);
	int first = expect_ok(scif_open()), second = expect_ok(scif_open());

	expect_value(ioctl(first, SCIF_ACCEPTREG, &handle), 0);
	expect_error(ioctl(second, SCIF_ACCEPTREG, &handle), EINVAL);
	expect_error(ioctl(first, SCIF_ACCEPTREG, &handle), EINVAL);
	expect_value(scif_close(first), 0);
	expect_error(ioctl(second, SCIF_ACCEPTREG, &handle), EINVAL);
}

static void take_foreign_handle(void *data)
{
	expect_error(ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, data), EINVAL);
}

static void abi_handle_process(void)
{
	struct incoming incoming = new_incoming();
	__u64 handle = accept_request(&incoming);

	/* A child is another process, although it has the listener, too. */
	child_passed(in_child(take_foreign_handle, &handle));
	expect_value(ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, &handle), 0);
}

static void *take_handle(void *data)
{
	return (void *)(long)ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, data);
}

static void abi_handle_thread(void)
{
	struct incoming incoming = new_incoming();
	__u64 handle = accept_request(&incoming);

	/* All threads belong to the same process. */
	expect(!thread_result(in_thread(take_handle, &handle)));
}

static void abi_handle_fresh(void)
{
	struct incoming incoming = new_incoming();
	__u64 handle = accept_request(&incoming);
	int bound = expect_ok(scif_open());
	struct pair pair = connected();

	expect_ok(scif_bind(bound, 0));
	expect_error(ioctl(bound, SCIF_ACCEPTREG, &handle), EINVAL);
	expect_error(ioctl(incoming.listener, SCIF_ACCEPTREG, &handle), EINVAL);
	expect_error(ioctl(pair.here, SCIF_ACCEPTREG, &handle), EINVAL);
	expect_value(ioctl(expect_ok(scif_open()), SCIF_ACCEPTREG, &handle), 0);
	expect_value(poll_for(pair.here, POLLIN | POLLOUT, 0), POLLOUT);
}

/* --- Addresses --- */

static void abi_bad_address(void)
{
	static const int by_address[] = { 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16 };
	struct pair pair = connected();
	int endpoint = expect_ok(scif_open());
	size_t i;

	for (i = 0; i < ARRAY_SIZE(by_address); i++) {
		expect_error(ioctl(endpoint, numbers[by_address[i]], NULL), EFAULT);
		expect_error(ioctl(endpoint, numbers[by_address[i]], (void *)8), EFAULT);
		expect_error(ioctl(pair.here, numbers[by_address[i]], (void *)(1UL << 63)),
			     EFAULT);
		expect_error(ioctl(pair.here, numbers[by_address[i]], (void *)-4096L), EFAULT);
	}
	/* Neither endpoint has changed. */
	expect_ok(scif_bind(endpoint, 0));
	expect_value(poll_for(pair.here, POLLIN | POLLOUT, 0), POLLOUT);
}

/* Returns an address for an argument that ends where the memory ends. */
static void *at_end_of_memory(size_t size)
{
	unsigned char *memory = pages(2);

	munmap(memory + PAGE, PAGE);
	return memory + PAGE - size;
}

static void abi_short_structure(void)
{
	struct windows windows = connected_windows(1);
	int endpoint = expect_ok(scif_open());
	__u16 *port = at_end_of_memory(sizeof(*port));
	struct scifioctl_msg *message = at_end_of_memory(sizeof(*message));
	struct scifioctl_unreg *unregister = at_end_of_memory(sizeof(*unregister));
	struct scifioctl_copy *copy = at_end_of_memory(sizeof(*copy));
	struct scifioctl_fence_signal *signal = at_end_of_memory(sizeof(*signal));
	char byte = 1;

	*port = 0;
	expect_value(ioctl(endpoint, SCIF_BIND, port), 0);
	message->msg = (__u64)(unsigned long)&byte;
	message->len = 1;
	expect_value(ioctl(windows.pair.here, SCIF_SEND, message), 0);
	expect_value(message->out_len, 1);
	copy->loffset = windows.offset;
	copy->roffset = windows.peer_offset;
	copy->len = 8;
	copy->flags = SYNC;
	expect_value(ioctl(windows.pair.here, SCIF_WRITETO, copy), 0);
	signal->loff = windows.offset;
	signal->lval = 5;
	signal->flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL;
	expect_value(ioctl(windows.pair.here, SCIF_FENCE_SIGNAL, signal), 0);
	wait_until(windows.memory[0] == 5);
	unregister->offset = windows.offset;
	unregister->len = PAGE;
	expect_value(ioctl(windows.pair.here, SCIF_UNREG, unregister), 0);
}

/* An argument that is readable but not writable: the result can't be returned. */
static void abi_unwritable_result(void)
{
	struct incoming incoming = new_incoming();
	struct pair pair = connected();
	struct scifioctl_accept *request = pages(1);
	struct scifioctl_reg *window = pages(1);
	struct scif_port_id from;
	int accepted;

	window->addr = (__u64)(unsigned long)pages(1);
	window->len = PAGE;
	window->prot = READ_WRITE;
	expect_value(mprotect(window, PAGE, PROT_READ), 0);
	expect_error(ioctl(pair.here, SCIF_REG, window), EFAULT);
	/* A window whose offset the caller does not get would be lost. */
	wait_until(!locked());
	request->flags = SCIF_ACCEPT_SYNC;
	expect_value(mprotect(request, PAGE, PROT_READ), 0);
	expect_error(ioctl(incoming.listener, SCIF_ACCEPTREQ, request), EFAULT);
	/* The same holds for a connection: the next call accepts it, or its other end is reset. */
	if (!scif_accept(incoming.listener, &from, &accepted, 0))
		return;
	expect(ask(incoming.peer, DO_POLL, incoming.endpoint, POLLOUT, -1) & POLLOUT);
	if (ask(incoming.peer, DO_CONNECT, incoming.endpoint, own_node(), incoming.port) < 0)
		return;
	expect(ask(incoming.peer, DO_POLL, incoming.endpoint, 0, -1) & POLLHUP);
}

static void abi_by_value(void)
{
	struct pair pair = connected();
	int endpoint = expect_ok(scif_open()), mark;
	__u16 port = 0;

	expect_value(ioctl(endpoint, SCIF_BIND, &port), 0);
	expect_error(ioctl(endpoint, SCIF_LISTEN, 0UL), EINVAL);
	expect_value(ioctl(endpoint, SCIF_LISTEN, 5UL), 0);
	expect_value(scif_fence_mark(pair.here, SCIF_FENCE_INIT_SELF, &mark), 0);
	expect_value(ioctl(pair.here, SCIF_FENCE_WAIT, (unsigned long)mark), 0);
	expect_error(ioctl(pair.here, SCIF_FENCE_WAIT, &mark), EINVAL);
}

const struct test_case abi_cases[] = {
	ALONE(abi_numbers, "abi.numbers"),
	ALONE(abi_unknown, "abi.unknown"),
	PAIR(abi_no_read_write, "abi.no-read-write"),
	ALONE(abi_bind_two_bytes, "abi.bind-two-bytes"),
	PAIR(abi_connect_self, "abi.connect-self"),
	PAIR(abi_accept_fields, "abi.accept-fields"),
	PAIR(abi_message_fields, "abi.message-fields"),
	PAIR(abi_register_fields, "abi.register-fields"),
	PAIR(abi_handle_opaque, "abi.handle-opaque"),
	PAIR(abi_handle_unknown, "abi.handle-unknown"),
	PAIR(abi_handle_once, "abi.handle-once"),
	PAIR(abi_handle_process, "abi.handle-process"),
	PAIR(abi_handle_thread, "abi.handle-process"),
	PAIR(abi_handle_fresh, "abi.handle-fresh"),
	PAIR(abi_bad_address, "abi.bad-address"),
	PAIR(abi_short_structure, "abi.short-structure abi.bind-two-bytes"),
	PAIR(abi_unwritable_result, "abi.bad-address close.unaccepted"),
	PAIR(abi_by_value, "abi.backlog-value"),
	{ }
};
