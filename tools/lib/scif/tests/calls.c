// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the library without the device: the linker replaces functions of libc
 * by those below (--wrap), and the test compares each request of the library to
 * the kernel with the expected one. Errors that the driver gives rarely are easy
 * to make here.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/scif_ioctl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <scif.h>

static int failures;

#define check(condition)							\
	do {									\
		if (!(condition)) {						\
			printf("calls.c:%d: not so: %s\n", __LINE__, #condition);	\
			failures++;						\
		}								\
	} while (0)

/* The kernel, as far as the library can see it. */
static struct {
	int opens, open_flags, closes, ioctls, last_fd;
	bool wrong_path;
	/* Fails with this error, if it is not 0. */
	int open_error, close_error;
	/* The ioctl that fails, and its error. */
	unsigned long failing;
	int error;
	/* The last ioctl. */
	unsigned long number;
	long plain;
	union {
		struct scifioctl_connect connect;
		struct scifioctl_accept accept;
		struct scifioctl_msg msg;
		struct scifioctl_reg reg;
		struct scifioctl_unreg unreg;
		struct scifioctl_copy copy;
		struct scifioctl_fence_mark mark;
		struct scifioctl_fence_signal signal;
		struct scifioctl_node_ids nodes;
		__u64 endpoint;
		__u16 port;
	} argument;
	/* mmap; poll, whose milliseconds are put into tv_nsec, and ppoll. */
	size_t mapped_len;
	int mapped_prot, mapped_flags;
	off_t mapped_offset;
	struct timespec limit;
	void *polled;
} kernel;

#define NEW_FD 77

static void reset(void)
{
	memset(&kernel, 0, sizeof(kernel));
	errno = 0;
}

static int fail(int error)
{
	errno = error;
	return -1;
}

int __wrap_open(const char *path, int flags, ...)
{
	if (kernel.open_error)
		return fail(kernel.open_error);
	kernel.wrong_path |= strcmp(path, "/dev/scif") != 0;
	kernel.open_flags = flags & ~O_LARGEFILE;
	kernel.opens++;
	return NEW_FD;
}

int __wrap_open64(const char *path, int flags, ...)
{
	return __wrap_open(path, flags);
}

/* Descriptors are open unless they are NEW_FD and there was no open(). */
int __wrap_fcntl(int fd, int command, ...)
{
	if (command != F_GETFD)
		return fail(EINVAL);
	return fd == NEW_FD && kernel.opens == 0 ? fail(EBADF) : 0;
}

int __wrap_fcntl64(int fd, int command, ...)
{
	return __wrap_fcntl(fd, command);
}

int __wrap_close(int fd)
{
	kernel.closes++;
	kernel.last_fd = fd;
	return kernel.close_error ? fail(kernel.close_error) : 0;
}

/* Like the driver, writes back the fields that are results, and no others. */
int __wrap_ioctl(int fd, unsigned long number, ...)
{
	va_list arguments;
	void *pointer;

	va_start(arguments, number);
	pointer = va_arg(arguments, void *);
	va_end(arguments);
	kernel.ioctls++;
	kernel.last_fd = fd;
	kernel.number = number;
	kernel.plain = (long)pointer;
	if (number != SCIF_LISTEN && number != SCIF_FENCE_WAIT)
		memcpy(&kernel.argument, pointer, number == SCIF_BIND ? 2 : _IOC_SIZE(number));
	if (number == kernel.failing)
		return fail(kernel.error);
	switch (number) {
	case SCIF_BIND:
		*(__u16 *)pointer = 2000;
		break;
	case SCIF_CONNECT:
		((struct scifioctl_connect *)pointer)->self = (struct scif_port_id){ 3, 65535 };
		break;
	case SCIF_ACCEPTREQ:
		((struct scifioctl_accept *)pointer)->peer = (struct scif_port_id){ 4, 1089 };
		((struct scifioctl_accept *)pointer)->endpt = 0xfedcba9876543210ULL;
		break;
	case SCIF_SEND:
	case SCIF_RECV:
		((struct scifioctl_msg *)pointer)->out_len = 5;
		break;
	case SCIF_REG:
		((struct scifioctl_reg *)pointer)->out_offset = 0x123456789000LL;
		break;
	case SCIF_GET_NODEIDS:
		((struct scifioctl_node_ids *)pointer)->len = 3;
		break;
	}
	return 0;
}

void *__wrap_mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	kernel.mapped_len = len;
	kernel.mapped_prot = prot;
	kernel.mapped_flags = flags;
	kernel.mapped_offset = offset;
	kernel.last_fd = fd;
	return addr;
}

void *__wrap_mmap64(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
	return __wrap_mmap(addr, len, prot, flags, fd, offset);
}

int __wrap_munmap(void *addr, size_t len)
{
	kernel.mapped_len = len;
	return addr ? 0 : fail(EINVAL);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int limit)
{
	kernel.polled = fds;
	kernel.limit = (struct timespec){ .tv_nsec = limit };
	return count;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *limit,
		 const sigset_t *mask)
{
	kernel.polled = fds;
	if (!limit || mask)
		return fail(EINVAL);
	kernel.limit = *limit;
	return count;
}

static void test_open_and_close(void)
{
	reset();
	check(scif_open() == NEW_FD && !kernel.wrong_path);
	check(kernel.open_flags == O_RDWR);
	check(scif_get_fd(NEW_FD) == NEW_FD);
	check(scif_close(NEW_FD) == 0 && kernel.closes == 1 && kernel.last_fd == NEW_FD);
	kernel.open_error = ENOMEM;
	check(scif_open() == SCIF_OPEN_FAILED && errno == ENOMEM);
}

static void test_bind_and_listen(void)
{
	reset();
	check(scif_bind(9, 0xfffe) == 2000);
	check(kernel.number == SCIF_BIND && kernel.last_fd == 9 && kernel.argument.port == 0xfffe);
	kernel.failing = SCIF_BIND;
	kernel.error = ENOSPC;
	check(scif_bind(9, 1) == -1 && errno == ENOSPC);
	check(scif_listen(9, -5) == 0 && kernel.number == SCIF_LISTEN && kernel.plain == -5);
}

static void test_connect(void)
{
	struct scif_portID port = { 7, 8 };

	reset();
	check(scif_connect(9, &port) == 65535 && kernel.number == SCIF_CONNECT);
	check(kernel.argument.connect.peer.node == 7 && kernel.argument.connect.peer.port == 8);
	check(port.node == 7 && port.port == 8);
	kernel.failing = SCIF_CONNECT;
	kernel.error = EINPROGRESS;
	check(scif_connect(9, &port) == -1 && errno == EINPROGRESS);
	reset();
	check(scif_connect(9, NULL) == -1 && errno == EINVAL && kernel.ioctls == 0);
}

static void test_accept(void)
{
	static const unsigned long steps[] = { SCIF_ACCEPTREQ, SCIF_ACCEPTREG };
	struct scif_portID peer = { 0, 0 };
	scif_epd_t new = -5;
	size_t i;

	reset();
	check(scif_accept(9, &peer, &new, SCIF_ACCEPT_SYNC) == 0 && new == NEW_FD);
	check(peer.node == 4 && peer.port == 1089);
	check(kernel.open_flags == (O_RDWR | O_CLOEXEC) && !kernel.wrong_path);
	check(kernel.number == SCIF_ACCEPTREG && kernel.last_fd == NEW_FD);
	check(kernel.argument.endpoint == 0xfedcba9876543210ULL && kernel.closes == 0);

	/* Bad arguments cost neither a descriptor nor a request. */
	reset();
	check(scif_accept(9, NULL, &new, 0) == -1 && errno == EINVAL);
	errno = 0;
	check(scif_accept(9, &peer, NULL, 0) == -1 && errno == EINVAL);
	errno = 0;
	check(scif_accept(9, &peer, &new, 2) == -1 && errno == EINVAL);
	check(kernel.opens == 0 && kernel.ioctls == 0);

	/* A closed endpoint is not taken for the one that is opened. */
	reset();
	check(scif_accept(NEW_FD, &peer, &new, 0) == -1 && errno == EBADF && kernel.opens == 0);

	/* Without a descriptor, the request stays in the queue. */
	reset();
	kernel.open_error = EMFILE;
	check(scif_accept(9, &peer, &new, 0) == -1 && errno == EMFILE && kernel.ioctls == 0);

	/* After any failure no descriptor is left, errno is kept, results are untouched. */
	for (i = 0; i < 2; i++) {
		reset();
		kernel.failing = steps[i];
		kernel.error = EAGAIN;
		kernel.close_error = EIO;
		new = -5;
		peer.node = 0;
		check(scif_accept(9, &peer, &new, 0) == -1 && errno == EAGAIN);
		check(kernel.opens == 1 && kernel.closes == 1 && kernel.last_fd == NEW_FD);
		check(new == -5 && peer.node == 0);
	}
}

static void test_messages(void)
{
	char bytes[8];

	reset();
	check(scif_send(9, bytes, 8, SCIF_SEND_BLOCK) == 5 && kernel.number == SCIF_SEND);
	check(kernel.argument.msg.msg == (uintptr_t)bytes && kernel.argument.msg.len == 8 &&
	      kernel.argument.msg.flags == 1);
	check(scif_recv(9, bytes, -1, 0) == 5 && kernel.number == SCIF_RECV);
	check(kernel.argument.msg.len == -1 && kernel.argument.msg.flags == 0);
	kernel.failing = SCIF_RECV;
	kernel.error = ECONNRESET;
	check(scif_recv(9, bytes, 8, 0) == -1 && errno == ECONNRESET);
}

static void test_windows(void)
{
	static char memory[16];

	reset();
	check(scif_register(9, memory, 4096, 0x7fffffff000LL, 3, SCIF_MAP_FIXED) ==
	      0x123456789000LL);
	check(kernel.argument.reg.addr == (uintptr_t)memory && kernel.argument.reg.len == 4096 &&
	      kernel.argument.reg.offset == 0x7fffffff000LL && kernel.argument.reg.prot == 3 &&
	      kernel.argument.reg.flags == 0x10);
	kernel.failing = SCIF_REG;
	kernel.error = EADDRINUSE;
	check(scif_register(9, memory, 4096, 0, 3, 0) == SCIF_REGISTER_FAILED &&
	      errno == EADDRINUSE);
	check(scif_unregister(9, -1, 8192) == 0 && kernel.number == SCIF_UNREG);
	check(kernel.argument.unreg.offset == -1 && kernel.argument.unreg.len == 8192);

	check(scif_mmap(memory, 4096, 3, SCIF_MAP_FIXED, 9, 0x100000000LL) == memory);
	check(kernel.mapped_prot == (PROT_READ | PROT_WRITE) && kernel.last_fd == 9 &&
	      kernel.mapped_flags == (MAP_SHARED | MAP_FIXED) &&
	      kernel.mapped_offset == 0x100000000LL && kernel.mapped_len == 4096);
	check(scif_mmap(memory, 4096, 1, 0, 9, 0) == memory && kernel.mapped_flags == MAP_SHARED);
	errno = 0;
	check(scif_mmap(memory, 4096, PROT_EXEC, 0, 9, 0) == SCIF_MMAP_FAILED && errno == EINVAL);
	errno = 0;
	check(scif_mmap(memory, 4096, 1, SCIF_MAP_KERNEL, 9, 0) == SCIF_MMAP_FAILED &&
	      errno == EINVAL);
	errno = 0;
	check(scif_mmap(memory, 4096, 1, 0, 9, -4096) == SCIF_MMAP_FAILED && errno == ENXIO);
	check(scif_munmap(memory, 8192) == 0 && kernel.mapped_len == 8192);
	check(scif_munmap(NULL, 1) == -1 && errno == EINVAL);
}

static void test_transfers(void)
{
	char memory[1];

	reset();
	check(scif_readfrom(9, 1LL << 40, 3, -2, 4) == 0 && kernel.number == SCIF_READFROM);
	check(kernel.argument.copy.loffset == 1LL << 40 && kernel.argument.copy.len == 3 &&
	      kernel.argument.copy.roffset == -2 && kernel.argument.copy.flags == 4);
	check(scif_writeto(9, 1, 2, 3, 8) == 0 && kernel.number == SCIF_WRITETO);
	check(kernel.argument.copy.loffset == 1 && kernel.argument.copy.roffset == 3);
	check(scif_vreadfrom(9, memory, 2, 1LL << 50, 2) == 0 && kernel.number == SCIF_VREADFROM);
	check(kernel.argument.copy.addr == (uintptr_t)memory &&
	      kernel.argument.copy.roffset == 1LL << 50);
	check(scif_vwriteto(9, memory, 2, 3, 1) == 0 && kernel.number == SCIF_VWRITETO);
	kernel.failing = SCIF_VWRITETO;
	kernel.error = ENXIO;
	check(scif_vwriteto(9, memory, 2, 3, 1) == -1 && errno == ENXIO);
}

static void test_fences(void)
{
	int mark;

	reset();
	check(scif_fence_mark(9, SCIF_FENCE_INIT_PEER, &mark) == 0);
	check(kernel.number == SCIF_FENCE_MARK && kernel.argument.mark.flags == 2 &&
	      kernel.argument.mark.mark == (uintptr_t)&mark);
	check(scif_fence_wait(9, INT_MAX) == 0 && kernel.number == SCIF_FENCE_WAIT &&
	      kernel.plain == INT_MAX);
	check(scif_fence_signal(9, 8, ~0ULL, 1LL << 33, 1ULL << 63, 0x11) == 0 &&
	      kernel.number == SCIF_FENCE_SIGNAL);
	check(kernel.argument.signal.loff == 8 && kernel.argument.signal.lval == ~0ULL &&
	      kernel.argument.signal.roff == 1LL << 33 &&
	      kernel.argument.signal.rval == 1ULL << 63 && kernel.argument.signal.flags == 0x11);
}

static void test_nodes(void)
{
	uint16_t nodes[4], self;

	reset();
	check(scif_get_nodeIDs(nodes, 4, &self) == 3 && kernel.number == SCIF_GET_NODEIDS);
	check(kernel.argument.nodes.nodes == (uintptr_t)nodes && kernel.argument.nodes.len == 4 &&
	      kernel.argument.nodes.self == (uintptr_t)&self);
	check(kernel.opens == 1 && kernel.closes == 1);
	check(scif_get_node_ids(NULL, 0, &self) == 3 && kernel.argument.nodes.nodes == 0);
	reset();
	kernel.failing = SCIF_GET_NODEIDS;
	kernel.error = EINVAL;
	kernel.close_error = EIO;
	check(scif_get_nodeIDs(nodes, -1, &self) == -1 && errno == EINVAL && kernel.closes == 1);
	reset();
	kernel.open_error = ENOENT;
	check(scif_get_nodeIDs(nodes, 4, &self) == -1 && errno == ENOENT && kernel.closes == 0);
}

static void test_poll(void)
{
	struct scif_pollepd watched[2] = { { 3, POLLIN, 0 }, { 4, POLLOUT, 0 } };

	reset();
	check(scif_poll(watched, 2, -7) == 2 && kernel.polled == watched);
	check(kernel.limit.tv_sec == 0 && kernel.limit.tv_nsec == -1);
	check(scif_poll(watched, 2, 0) == 2 && kernel.limit.tv_nsec == 0);
	check(scif_poll(watched, 2, INT_MAX) == 2 && kernel.limit.tv_nsec == INT_MAX);
	/* A timeout above INT_MAX is not truncated. */
	check(scif_poll(watched, 2, LONG_MAX) == 2);
	if (LONG_MAX > INT_MAX)
		check(kernel.limit.tv_sec == LONG_MAX / 1000);
}

int main(void)
{
	test_open_and_close();
	test_bind_and_listen();
	test_connect();
	test_accept();
	test_messages();
	test_windows();
	test_transfers();
	test_fences();
	test_nodes();
	test_poll();
	return failures != 0;
}
