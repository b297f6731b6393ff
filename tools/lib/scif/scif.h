/* SPDX-License-Identifier: LGPL-2.1 */
/*
 * scif.h - the user interface of SCIF, the Symmetric Communications Interface
 *
 * Programs include this and link with -lscif; scif(7) is where to start
 * reading. Source and binary compatible with the library that this replaces:
 * names, types and values below are fixed.
 *
 * The header stands for itself: it needs nothing from <linux/scif_ioctl.h>, and
 * a program may include that, too, before or after. It compiles as C89 and
 * later and as C++.
 */
#ifndef __SCIF_H__
#define __SCIF_H__

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The kernel's headers and documentation name two things differently. The newer
 * name of the function can always be used. Both names of the structure become
 * one type if SCIF_NEW_NAMES is defined. This is not the default: it brings the
 * macros of <linux/scif_ioctl.h> (SCIF_SEND, SCIF_BIND, ...), and programs have
 * such names themselves.
 */
#ifdef SCIF_NEW_NAMES
#include <linux/scif_ioctl.h>
#define scif_portID scif_port_id
#else
/* A port of a node. */
struct scif_portID {
	uint16_t node;
	uint16_t port;
};
#endif

#define scif_get_node_ids(nodes, len, self) scif_get_nodeIDs(nodes, len, self)

/* An endpoint: a file descriptor of /dev/scif. */
typedef int scif_epd_t;

/* An endpoint to watch; has the layout of struct pollfd. */
struct scif_pollepd {
	scif_epd_t epd;
	short events;
	short revents;
};

/* The error values of functions that do not return -1. */
#define SCIF_OPEN_FAILED	((scif_epd_t)-1)
#define SCIF_REGISTER_FAILED	((off_t)-1)
#define SCIF_MMAP_FAILED	((void *)-1)

/* Flags of scif_accept, scif_send, scif_recv: wait. */
#define SCIF_ACCEPT_SYNC	1
#define SCIF_SEND_BLOCK		1
#define SCIF_RECV_BLOCK		1

/* Ports below it are for privileged programs. */
#define SCIF_ADMIN_PORT_END	1024
/* The first port that an endpoint gets which does not choose one. */
#define SCIF_PORT_RSVD		1088

/* Events of scif_poll. */
#define SCIF_POLLIN		POLLIN
#define SCIF_POLLOUT		POLLOUT
#define SCIF_POLLERR		POLLERR
#define SCIF_POLLHUP		POLLHUP
#define SCIF_POLLNVAL		POLLNVAL

/* Protection of windows and mappings; the values are PROT_READ's and so on. */
enum {
	SCIF_PROT_READ = (1 << 0),
	SCIF_PROT_WRITE = (1 << 1)
};

/* Flags of scif_register and scif_mmap. MAP_KERNEL is for kernel clients. */
enum {
	SCIF_MAP_FIXED = 0x10,
	SCIF_MAP_KERNEL = 0x20
};

/* Flags of scif_fence_mark and scif_fence_signal. */
enum {
	SCIF_FENCE_INIT_SELF = (1 << 0),
	SCIF_FENCE_INIT_PEER = (1 << 1),
	SCIF_SIGNAL_LOCAL = (1 << 4),
	SCIF_SIGNAL_REMOTE = (1 << 5)
};

/* Flags of transfers. */
enum {
	SCIF_RMA_USECPU = (1 << 0),
	SCIF_RMA_USECACHE = (1 << 1),
	SCIF_RMA_SYNC = (1 << 2),
	SCIF_RMA_ORDERED = (1 << 3)
};

/*
 * Offsets are always 64 bits wide in the library. In 32-bit programs that were
 * not compiled with -D_FILE_OFFSET_BITS=64, off_t is narrower. Offsets of such
 * programs are widened on the way in. If an offset does not fit on the way out,
 * scif_register fails with EOVERFLOW and never cuts it. By itself the driver
 * places windows from 4 GiB on, so the library tells it where to begin.
 */
#if defined(__LP64__) || defined(_LP64) || defined(__USE_FILE_OFFSET64) || !defined(__GLIBC__) || \
	defined(__OFF_T_MATCHES_OFF64_T)
typedef off_t __scif_off_t;
#else
typedef int64_t __scif_off_t;
#define __SCIF_SMALL_OFF_T
#define __SCIF_SMALL_FIRST_OFFSET	0x10000000
#endif

/* A compiler that stops here has an off_t that the lines above do not know. */
typedef char __scif_offsets_have_64_bits[sizeof(__scif_off_t) == 8 ? 1 : -1];

scif_epd_t scif_open(void);
int scif_bind(scif_epd_t epd, uint16_t pn);
int scif_listen(scif_epd_t epd, int backlog);
int scif_connect(scif_epd_t epd, struct scif_portID *dst);
int scif_accept(scif_epd_t epd, struct scif_portID *peer, scif_epd_t *newepd, int flags);
int scif_close(scif_epd_t epd);
int scif_send(scif_epd_t epd, void *msg, int len, int flags);
int scif_recv(scif_epd_t epd, void *msg, int len, int flags);
#ifndef __SCIF_SMALL_OFF_T
off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset, int prot_flags,
		    int map_flags);
#endif
int scif_unregister(scif_epd_t epd, __scif_off_t offset, size_t len);
void *scif_mmap(void *addr, size_t len, int prot_flags, int map_flags, scif_epd_t epd,
		__scif_off_t offset);
int scif_munmap(void *addr, size_t len);
int scif_readfrom(scif_epd_t epd, __scif_off_t loffset, size_t len, __scif_off_t roffset,
		  int rma_flags);
int scif_writeto(scif_epd_t epd, __scif_off_t loffset, size_t len, __scif_off_t roffset,
		 int rma_flags);
int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len, __scif_off_t roffset, int rma_flags);
int scif_vwriteto(scif_epd_t epd, void *addr, size_t len, __scif_off_t roffset, int rma_flags);
int scif_fence_mark(scif_epd_t epd, int flags, int *mark);
int scif_fence_wait(scif_epd_t epd, int mark);
int scif_fence_signal(scif_epd_t epd, __scif_off_t loff, uint64_t lval, __scif_off_t roff,
		      uint64_t rval, int flags);
int scif_get_nodeIDs(uint16_t *nodes, int len, uint16_t *self);
int scif_poll(struct scif_pollepd *epds, unsigned int nepds, long timeout);
int scif_get_fd(scif_epd_t epd);

#ifdef __SCIF_SMALL_OFF_T
__scif_off_t __scif_register_64(scif_epd_t epd, void *addr, size_t len, __scif_off_t offset,
				int prot_flags, int map_flags) __asm__("scif_register");

/* Has another name for the assembler: with its own it would call itself. */
static __inline__ off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset,
				      int prot_flags, int map_flags)
	__asm__("__scif_register_small_off_t");

static __inline__ off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset,
				      int prot_flags, int map_flags)
{
	__scif_off_t placed;

	if (!offset && !(map_flags & SCIF_MAP_FIXED))
		offset = __SCIF_SMALL_FIRST_OFFSET;
	placed = __scif_register_64(epd, addr, len, offset, prot_flags, map_flags);
	if (placed == (off_t)placed)
		return (off_t)placed;
	scif_unregister(epd, placed, len);
	errno = EOVERFLOW;
	return SCIF_REGISTER_FAILED;
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* __SCIF_H__ */
