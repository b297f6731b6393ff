// SPDX-License-Identifier: LGPL-2.1
/*
 * libscif: the functions of <scif.h>, each a system call on /dev/scif or little
 * more. The driver does all of the work; this library has no state or policy.
 *
 * Errors: -1 (or the function's own *_FAILED) and errno, as the driver sets it.
 * The library checks the pointers that it follows itself (EINVAL). The kernel
 * checks the pointers that it follows (EFAULT).
 *
 * Descriptors: the one of scif_open() survives exec, as it always has, because
 * programs hand endpoints over in this way. The one of scif_accept() does not.
 */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/scif_ioctl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Only the functions of the header are exported (-fvisibility=hidden). */
#pragma GCC visibility push(default)
#include "scif.h"
#pragma GCC visibility pop

#define DEVICE "/dev/scif"

static_assert(sizeof(off_t) == 8, "offsets have 64 bits");
static_assert(sizeof(struct scif_portID) == sizeof(struct scif_port_id), "the kernel's port");
static_assert(sizeof(struct scif_pollepd) == sizeof(struct pollfd) &&
	      offsetof(struct scif_pollepd, epd) == offsetof(struct pollfd, fd) &&
	      offsetof(struct scif_pollepd, events) == offsetof(struct pollfd, events) &&
	      offsetof(struct scif_pollepd, revents) == offsetof(struct pollfd, revents),
	      "scif_poll() hands its array to the kernel");
static_assert(SCIF_PROT_READ == PROT_READ && SCIF_PROT_WRITE == PROT_WRITE,
	      "scif_mmap() hands them to the kernel");

/* The kernel takes pointers as 64-bit numbers. */
static __u64 address(const void *pointer)
{
	return (uintptr_t)pointer;
}

/* Closes the endpoint of a call that fails, and keeps errno. */
static int fail_and_close(scif_epd_t epd)
{
	int saved = errno;

	close(epd);
	errno = saved;
	return -1;
}

scif_epd_t scif_open(void)
{
	return open(DEVICE, O_RDWR);
}

int scif_close(scif_epd_t epd)
{
	return close(epd);
}

int scif_get_fd(scif_epd_t epd)
{
	return epd;
}

int scif_bind(scif_epd_t epd, uint16_t pn)
{
	/* The number of the ioctl says 8 bytes; the port is in the first two. */
	union {
		uint16_t port;
		__u64 all;
	} argument = { .all = 0 };

	argument.port = pn;
	if (ioctl(epd, SCIF_BIND, &argument) < 0)
		return -1;
	return argument.port;
}

int scif_listen(scif_epd_t epd, int backlog)
{
	return ioctl(epd, SCIF_LISTEN, (long)backlog);
}

int scif_connect(scif_epd_t epd, struct scif_portID *dst)
{
	struct scifioctl_connect request = { 0 };

	if (!dst) {
		errno = EINVAL;
		return -1;
	}
	request.peer.node = dst->node;
	request.peer.port = dst->port;
	if (ioctl(epd, SCIF_CONNECT, &request) < 0)
		return -1;
	return request.self.port;
}

/*
 * The driver gives a connection in two steps: ACCEPTREQ takes a request from the
 * listener's queue and returns a handle, ACCEPTREG makes an unused descriptor
 * its endpoint. This function opens the descriptor first: if there is none left,
 * the request is still in the queue, and the peer waits for the next accept
 * instead of being connected to no endpoint. From ACCEPTREG on, the driver drops
 * the handle: on failure at once, and at the latest with the listener.
 */
int scif_accept(scif_epd_t epd, struct scif_portID *peer, scif_epd_t *newepd, int flags)
{
	struct scifioctl_accept request = { .flags = flags };
	scif_epd_t accepted;

	if (!peer || !newepd || (flags & ~SCIF_ACCEPT_SYNC)) {
		errno = EINVAL;
		return -1;
	}
	/* If epd is closed, the new descriptor may get the number of epd. */
	if (fcntl(epd, F_GETFD) < 0)
		return -1;
	accepted = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (accepted < 0)
		return -1;
	if (ioctl(epd, SCIF_ACCEPTREQ, &request) < 0 ||
	    ioctl(accepted, SCIF_ACCEPTREG, &request.endpt) < 0)
		return fail_and_close(accepted);
	peer->node = request.peer.node;
	peer->port = request.peer.port;
	*newepd = accepted;
	return 0;
}

static int message(scif_epd_t epd, unsigned long number, void *msg, int len, int flags)
{
	struct scifioctl_msg request = {
		.msg = address(msg),
		.len = len,
		.flags = flags,
	};

	if (ioctl(epd, number, &request) < 0)
		return -1;
	return request.out_len;
}

int scif_send(scif_epd_t epd, void *msg, int len, int flags)
{
	return message(epd, SCIF_SEND, msg, len, flags);
}

int scif_recv(scif_epd_t epd, void *msg, int len, int flags)
{
	return message(epd, SCIF_RECV, msg, len, flags);
}

off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset, int prot_flags,
		    int map_flags)
{
	struct scifioctl_reg request = {
		.addr = address(addr),
		.len = len,
		.offset = offset,
		.prot = prot_flags,
		.flags = map_flags,
	};

	if (ioctl(epd, SCIF_REG, &request) < 0)
		return SCIF_REGISTER_FAILED;
	return request.out_offset;
}

int scif_unregister(scif_epd_t epd, off_t offset, size_t len)
{
	struct scifioctl_unreg request = {
		.offset = offset,
		.len = len,
	};

	return ioctl(epd, SCIF_UNREG, &request);
}

void *scif_mmap(void *addr, size_t len, int prot_flags, int map_flags, scif_epd_t epd, off_t offset)
{
	int flags = MAP_SHARED;

	if ((prot_flags & ~(SCIF_PROT_READ | SCIF_PROT_WRITE)) || (map_flags & ~SCIF_MAP_FIXED)) {
		errno = EINVAL;
		return SCIF_MMAP_FAILED;
	}
	/* mmap(2) has an error of its own for some of these. */
	if (offset < 0) {
		errno = ENXIO;
		return SCIF_MMAP_FAILED;
	}
	if (map_flags & SCIF_MAP_FIXED)
		flags |= MAP_FIXED;
	return mmap(addr, len, prot_flags, flags, epd, offset);
}

int scif_munmap(void *addr, size_t len)
{
	return munmap(addr, len);
}

/* Copies between windows use @loffset, between memory and a window @addr. */
static int transfer(scif_epd_t epd, unsigned long number, off_t loffset, void *addr, size_t len,
		    off_t roffset, int rma_flags)
{
	struct scifioctl_copy request = {
		.loffset = loffset,
		.len = len,
		.roffset = roffset,
		.addr = address(addr),
		.flags = rma_flags,
	};

	return ioctl(epd, number, &request);
}

int scif_readfrom(scif_epd_t epd, off_t loffset, size_t len, off_t roffset, int rma_flags)
{
	return transfer(epd, SCIF_READFROM, loffset, NULL, len, roffset, rma_flags);
}

int scif_writeto(scif_epd_t epd, off_t loffset, size_t len, off_t roffset, int rma_flags)
{
	return transfer(epd, SCIF_WRITETO, loffset, NULL, len, roffset, rma_flags);
}

int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len, off_t roffset, int rma_flags)
{
	return transfer(epd, SCIF_VREADFROM, 0, addr, len, roffset, rma_flags);
}

int scif_vwriteto(scif_epd_t epd, void *addr, size_t len, off_t roffset, int rma_flags)
{
	return transfer(epd, SCIF_VWRITETO, 0, addr, len, roffset, rma_flags);
}

int scif_fence_mark(scif_epd_t epd, int flags, int *mark)
{
	struct scifioctl_fence_mark request = {
		.flags = flags,
		.mark = address(mark),
	};

	return ioctl(epd, SCIF_FENCE_MARK, &request);
}

int scif_fence_wait(scif_epd_t epd, int mark)
{
	return ioctl(epd, SCIF_FENCE_WAIT, (long)mark);
}

int scif_fence_signal(scif_epd_t epd, off_t loff, uint64_t lval, off_t roff, uint64_t rval,
		      int flags)
{
	struct scifioctl_fence_signal request = {
		.loff = loff,
		.lval = lval,
		.roff = roff,
		.rval = rval,
		.flags = flags,
	};

	return ioctl(epd, SCIF_FENCE_SIGNAL, &request);
}

/* The caller has no endpoint, so this opens one for the time of the call. */
int scif_get_nodeIDs(uint16_t *nodes, int len, uint16_t *self)
{
	struct scifioctl_node_ids request = {
		.nodes = address(nodes),
		.self = address(self),
		.len = len,
	};
	scif_epd_t epd = open(DEVICE, O_RDWR | O_CLOEXEC);

	if (epd < 0)
		return -1;
	if (ioctl(epd, SCIF_GET_NODEIDS, &request) < 0)
		return fail_and_close(epd);
	close(epd);
	/* The original driver reports the number of nodes nowhere else. */
	return request.len;
}

/*
 * poll(2) takes the time as an int, which a long may not fit in. ppoll(2) takes a
 * struct timespec, whose 32-bit layout a kernel may not know. So each is used
 * where it fits.
 */
int scif_poll(struct scif_pollepd *epds, unsigned int nepds, long timeout)
{
	struct pollfd *fds = (struct pollfd *)epds;

#if LONG_MAX > INT_MAX
	if (timeout > INT_MAX) {
		struct timespec limit = {
			.tv_sec = timeout / 1000,
			.tv_nsec = timeout % 1000 * 1000000,
		};

		return ppoll(fds, nepds, &limit, NULL);
	}
#endif
	return poll(fds, nepds, timeout < 0 ? -1 : timeout);
}
