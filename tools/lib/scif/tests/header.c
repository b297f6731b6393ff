// SPDX-License-Identifier: GPL-2.0
/*
 * Compiled, never run: <scif.h> as programs know it, in every dialect of C and
 * C++. Names, types, values and signatures; another include order or the newer
 * names by macros on the command line.
 */
#ifdef IOCTL_FIRST
#include <linux/scif_ioctl.h>
#endif
#include <scif.h>
#ifdef IOCTL_AFTER
#include <linux/scif_ioctl.h>
#endif
#include <scif.h>

#define SAME(name, condition) extern char name[(condition) ? 1 : -1]

/* Plain defines work in #if. */
#if SCIF_ACCEPT_SYNC != 1 || SCIF_SEND_BLOCK != 1 || SCIF_RECV_BLOCK != 1 || \
	SCIF_ADMIN_PORT_END != 1024 || SCIF_PORT_RSVD != 1088
#error "a constant has another value"
#endif

SAME(protection, SCIF_PROT_READ == 1 && SCIF_PROT_WRITE == 2);
SAME(mapping, SCIF_MAP_FIXED == 0x10 && SCIF_MAP_KERNEL == 0x20);
SAME(fence, SCIF_FENCE_INIT_SELF == 1 && SCIF_FENCE_INIT_PEER == 2);
SAME(signal, SCIF_SIGNAL_LOCAL == 0x10 && SCIF_SIGNAL_REMOTE == 0x20);
SAME(rma_cpu, SCIF_RMA_USECPU == 1 && SCIF_RMA_USECACHE == 2);
SAME(rma_order, SCIF_RMA_SYNC == 4 && SCIF_RMA_ORDERED == 8);
SAME(events, SCIF_POLLIN == POLLIN && SCIF_POLLOUT == POLLOUT);
SAME(bad_events, SCIF_POLLERR == POLLERR && SCIF_POLLHUP == POLLHUP);
SAME(no_event, SCIF_POLLNVAL == POLLNVAL);
SAME(port, sizeof(struct scif_portID) == 4 && sizeof(((struct scif_portID *)0)->node) == 2);
SAME(port_fields, offsetof(struct scif_portID, node) + 2 == offsetof(struct scif_portID, port));
SAME(watched, sizeof(struct scif_pollepd) == sizeof(struct pollfd));
SAME(watched_epd, offsetof(struct scif_pollepd, epd) == offsetof(struct pollfd, fd));
SAME(watched_events, offsetof(struct scif_pollepd, events) == offsetof(struct pollfd, events));
SAME(watched_revents, offsetof(struct scif_pollepd, revents) == offsetof(struct pollfd, revents));

int types(void)
{
	scif_epd_t epd = SCIF_OPEN_FAILED;
	off_t offset = SCIF_REGISTER_FAILED;
	void *mapping = SCIF_MMAP_FAILED;
	struct scif_portID port = { 1, 2 };
	struct scif_pollepd watched = { 0, POLLIN, 0 };
	int *descriptor = &epd;

	port.node = 3;
	port.port = SCIF_PORT_RSVD;
	watched.epd = epd;
	watched.events |= POLLOUT;
	watched.revents = 0;
	return port.node + port.port + watched.epd + (int)offset + (mapping ? 1 : 0) + *descriptor;
}

struct functions {
	scif_epd_t (*open)(void);
	int (*bind)(scif_epd_t epd, uint16_t pn);
	int (*listen)(scif_epd_t epd, int backlog);
	int (*connect)(scif_epd_t epd, struct scif_portID *dst);
	int (*accept)(scif_epd_t epd, struct scif_portID *peer, scif_epd_t *newepd, int flags);
	int (*close)(scif_epd_t epd);
	int (*send)(scif_epd_t epd, void *msg, int len, int flags);
	int (*recv)(scif_epd_t epd, void *msg, int len, int flags);
	off_t (*register_window)(scif_epd_t epd, void *addr, size_t len, off_t offset,
				 int prot_flags, int map_flags);
	int (*munmap)(void *addr, size_t len);
	int (*fence_mark)(scif_epd_t epd, int flags, int *mark);
	int (*fence_wait)(scif_epd_t epd, int mark);
	int (*get_nodes)(uint16_t *nodes, int len, uint16_t *self);
	int (*poll)(struct scif_pollepd *epds, unsigned int nepds, long timeout);
	int (*get_fd)(scif_epd_t epd);
#ifndef SMALL_OFF_T
	int (*unregister)(scif_epd_t epd, off_t offset, size_t len);
	void *(*mmap)(void *addr, size_t len, int prot_flags, int map_flags, scif_epd_t epd,
		      off_t offset);
	int (*readfrom)(scif_epd_t epd, off_t loffset, size_t len, off_t roffset, int rma_flags);
	int (*writeto)(scif_epd_t epd, off_t loffset, size_t len, off_t roffset, int rma_flags);
	int (*vreadfrom)(scif_epd_t epd, void *addr, size_t len, off_t roffset, int rma_flags);
	int (*vwriteto)(scif_epd_t epd, void *addr, size_t len, off_t roffset, int rma_flags);
	int (*fence_signal)(scif_epd_t epd, off_t loff, uint64_t lval, off_t roff, uint64_t rval,
			    int flags);
#endif
};

const struct functions *signatures(void)
{
	static const struct functions functions = {
		scif_open, scif_bind, scif_listen, scif_connect, scif_accept, scif_close,
		scif_send, scif_recv, scif_register, scif_munmap, scif_fence_mark,
		scif_fence_wait, scif_get_nodeIDs, scif_poll, scif_get_fd,
#ifndef SMALL_OFF_T
		scif_unregister, scif_mmap, scif_readfrom, scif_writeto, scif_vreadfrom,
		scif_vwriteto, scif_fence_signal,
#endif
	};

	return &functions;
}

/* Calls as programs make them, with every offset an off_t. */
int calls(scif_epd_t epd, void *memory, size_t len)
{
	uint16_t nodes[4], self;
	off_t offset = scif_register(epd, memory, len, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
	void *mapped = scif_mmap(NULL, len, SCIF_PROT_READ, 0, epd, offset);

	scif_munmap(mapped, len);
	scif_writeto(epd, offset, len, offset, SCIF_RMA_SYNC);
	scif_readfrom(epd, offset, len, offset, SCIF_RMA_USECPU | SCIF_RMA_ORDERED);
	scif_vwriteto(epd, memory, len, offset, SCIF_RMA_USECACHE);
	scif_vreadfrom(epd, memory, len, offset, 0);
	scif_fence_signal(epd, offset, 1, offset, 2, SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL);
	scif_unregister(epd, offset, len);
	return scif_get_nodeIDs(nodes, 4, &self) + scif_get_node_ids(NULL, 0, &self);
}

#ifdef SCIF_NEW_NAMES
int new_names(scif_epd_t epd)
{
	struct scif_port_id port = { 0, 1 };
	struct scif_portID *same = &port;

	return scif_connect(epd, &port) + scif_connect(epd, same);
}
#endif
