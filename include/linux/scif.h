/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SCIF, the Symmetric Communications Interface, for other code of the kernel:
 * connections to ports of other nodes, and memory that they share.
 */
#ifndef _LINUX_SCIF_H
#define _LINUX_SCIF_H

#include <linux/compiler_types.h>
#include <linux/device.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/types.h>

#include <uapi/linux/scif_ioctl.h>

/**
 * DOC: SCIF for kernel clients
 *
 * An endpoint is opened, and then either listens on a port of this node or is
 * connected to a port of any node, this one included. Over a connection go
 * bytes, in order, and transfers: copies to and from windows, that is memory
 * that the other end has registered, at which its CPU need not look. Kernel
 * clients and programs that use /dev/scif can be at either end.
 *
 * Symbols are exported with EXPORT_SYMBOL_GPL(). A module that uses them cannot
 * outlive scif.ko, and keeps it from being unloaded.
 *
 * Contexts
 *	All functions may sleep: they are for process context, without a spinlock
 *	held. Those that wait for a connection, for messages, for a fence or for
 *	an event can be interrupted, with -EINTR: by a signal, and in a kernel
 *	thread by kthread_stop(), once and for all. Those that wait for the
 *	answer of the other node's kernel, or for the end of a transfer, wait
 *	until it is there or the node is lost. An endpoint may be used by several
 *	threads at a time.
 *
 * Errors
 *	Functions return a negative errno, but for scif_open(), which returns
 *	NULL. These three are not repeated below: what needs a connection says
 *	-ENOTCONN without one, -ECONNRESET after the other end was closed, and
 *	-ENODEV when its node is lost.
 *
 * Closing
 *	Each endpoint must be closed, once, before its module goes. Calls of
 *	other threads on the same endpoint are woken by that and end with an
 *	error; they keep what they need until they return. No call must begin
 *	with an endpoint when scif_close() of it has returned. So a thread whose
 *	loop makes one call after the other is not ended by closing its endpoint
 *	but by kthread_stop(), and closes the endpoint itself.
 *
 * Memory
 *	Messages are in kernel memory. Windows and transfers are of kernel
 *	memory, that is of the page allocator, kmalloc() or vmalloc(), or of
 *	memory of the calling process. The latter is pinned, and charged to the
 *	process as with /dev/scif. The former is neither: it has to stay until
 *	nobody uses it any more. For a transfer that is when it has ended, as
 *	SCIF_RMA_SYNC or a fence tells; for a window when it was unregistered
 *	and all uses that began earlier are over, and at the latest when
 *	scif_close() has returned. A process at the other end that has mapped a
 *	window keeps it, even then: its pages are not used for anything else
 *	before it lets go. Memory of kmalloc(), whose pages have no reference
 *	counts, can't be mapped: its windows are for transfers only.
 *
 * Nodes
 *	A client hears of nodes, this one among them, by its functions probe()
 *	and remove(). They are called in process context, one after another, also
 *	for nodes that were there before the client. When remove() is called, endpoints that
 *	are connected to that node fail already, with -ENODEV or -ECONNRESET; a
 *	node that comes back is not announced before remove() has returned.
 *	scif_client_unregister() calls remove() for all nodes that are there.
 */

/* For scif_accept(), scif_send() and scif_recv(): wait. */
#define SCIF_ACCEPT_SYNC	1
#define SCIF_SEND_BLOCK		1
#define SCIF_RECV_BLOCK		1

/* Ports below it are for the privileged. */
#define SCIF_ADMIN_PORT_END	1024

/* Ports from here on are given to those who do not choose. */
#define SCIF_PORT_RSVD		1088

/**
 * enum scif_prot - what may be done with memory
 * @SCIF_PROT_READ: it may be read
 * @SCIF_PROT_WRITE: it may be written
 */
enum scif_prot {
	SCIF_PROT_READ = (1 << 0),
	SCIF_PROT_WRITE = (1 << 1),
};

/**
 * enum scif_map - flags for registering memory
 * @SCIF_MAP_FIXED: the window is to be at the given offset and nowhere else
 * @SCIF_MAP_KERNEL: the address is one of the kernel
 */
enum scif_map {
	SCIF_MAP_FIXED = 0x10,
	SCIF_MAP_KERNEL = 0x20,
};

/**
 * enum scif_fence - flags for fences
 * @SCIF_FENCE_INIT_SELF: transfers that this end has started
 * @SCIF_FENCE_INIT_PEER: transfers that the other end has started
 * @SCIF_SIGNAL_LOCAL: store the local value in a window of this end
 * @SCIF_SIGNAL_REMOTE: store the remote value in a window of the other end
 */
enum scif_fence {
	SCIF_FENCE_INIT_SELF = (1 << 0),
	SCIF_FENCE_INIT_PEER = (1 << 1),
	SCIF_SIGNAL_LOCAL = (1 << 4),
	SCIF_SIGNAL_REMOTE = (1 << 5),
};

/**
 * enum scif_rma - flags for transfers
 * @SCIF_RMA_USECPU: by CPU, not by DMA engine
 * @SCIF_RMA_USECACHE: keep memory of a process pinned for later transfers;
 *	means nothing for windows and for kernel memory
 * @SCIF_RMA_SYNC: return when the transfer has ended
 * @SCIF_RMA_ORDERED: what lies in the last cache line of the source becomes
 *	visible last
 */
enum scif_rma {
	SCIF_RMA_USECPU = (1 << 0),
	SCIF_RMA_USECACHE = (1 << 1),
	SCIF_RMA_SYNC = (1 << 2),
	SCIF_RMA_ORDERED = (1 << 3),
};

/* An endpoint, and memory that was pinned by scif_pin_pages(). */
typedef struct scif_endpt *scif_epd_t;
typedef struct scif_pinned_pages *scif_pinned_pages_t;

/* What the functions of the library return; those below do not. */
#define SCIF_OPEN_FAILED	((scif_epd_t)-1)
#define SCIF_REGISTER_FAILED	((off_t)-1)
#define SCIF_MMAP_FAILED	((void *)-1)

/**
 * struct scif_range - pages of the other end, from scif_get_pages()
 * @cookie: SCIF's own
 * @nr_pages: how many pages there are
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE, as the window was registered
 * @phys_addr: for each page its physical address as this CPU sees it; for a
 *	device behind an IOMMU it has to be mapped by dma_map_resource()
 * @va: for each page its address in the kernel
 *
 * Nothing in it may be changed. The addresses can be used until
 * scif_put_pages(), or until the node is lost, of which remove() of a &struct
 * scif_client tells.
 */
struct scif_range {
	void *cookie;
	int nr_pages;
	int prot_flags;
	dma_addr_t *phys_addr;
	void __iomem **va;
};

/**
 * struct scif_pollepd - an endpoint for scif_poll() to watch
 * @epd: the endpoint
 * @events: POLLIN and POLLOUT, as is wanted
 * @revents: what has occurred of these, and POLLERR, POLLHUP and POLLNVAL
 */
struct scif_pollepd {
	scif_epd_t epd;
	short events;
	short revents;
};

/**
 * struct scif_peer_dev - a node, as a device
 * @dev: the device. All clients share it, so its driver data is nobody's; its
 *	name serves for dev_info() and the like
 * @dnode: the node's id, with 16 bits: more than the 8 of the original
 *	interface
 */
struct scif_peer_dev {
	struct device dev;
	u16 dnode;
};

/**
 * struct scif_client - who wants to hear of nodes
 * @name: its name
 * @probe: a node is there
 * @remove: a node is gone, or the client is; nothing of the client may use the
 *	&struct scif_peer_dev when it has returned
 * @si: SCIF's own, filled in by scif_client_register()
 */
struct scif_client {
	const char *name;
	void (*probe)(struct scif_peer_dev *spdev);
	void (*remove)(struct scif_peer_dev *spdev);
	struct subsys_interface si;
};

/**
 * __scif_open() - open an endpoint on behalf of a module
 * @owner: the module; the log names it if it is unloaded with open endpoints
 *
 * Return: the endpoint, or NULL if there is no memory.
 */
scif_epd_t __scif_open(struct module *owner);

/**
 * scif_open() - open an endpoint
 *
 * It is neither bound nor connected, and must be closed by scif_close().
 *
 * Return: the endpoint, or NULL if there is no memory.
 */
static inline scif_epd_t scif_open(void)
{
	return __scif_open(THIS_MODULE);
}

/**
 * scif_bind() - give an endpoint a port of this node
 * @epd: the endpoint
 * @pn: the port, or 0 for any one from SCIF_PORT_RSVD on that is free
 *
 * Return: the port, or
 *
 * * -EINVAL: the endpoint is bound already, or the port is taken
 * * -EISCONN: the endpoint listens, is connecting or connected
 * * -EACCES: the port is below SCIF_ADMIN_PORT_END, and the calling task has no
 *   CAP_NET_BIND_SERVICE (kernel threads have it)
 * * -ENOSPC: no port is free
 */
int scif_bind(scif_epd_t epd, u16 pn);

/**
 * scif_listen() - let others connect to the port of an endpoint
 * @epd: the endpoint, which must be bound
 * @backlog: how many requests may wait to be accepted; further ones are refused
 *
 * Return: 0, or
 *
 * * -EINVAL: the endpoint is not bound, or the backlog is not positive
 * * -EISCONN: the endpoint listens already, is connecting or connected
 */
int scif_listen(scif_epd_t epd, int backlog);

/**
 * scif_connect() - connect an endpoint to a port
 * @epd: the endpoint; if it is not bound, it gets any port
 * @dst: node and port to connect to
 *
 * Waits until the other side has accepted. Can be interrupted. After
 * -ECONNREFUSED, -ENODEV, -EINTR and -ENOMEM the endpoint can be used to try
 * again; it may be bound by then.
 *
 * Return: 0, or
 *
 * * -ECONNREFUSED: nobody listens there, or too many want to connect; or the
 *   endpoint was closed meanwhile
 * * -ENODEV: the node is not there
 * * -EINVAL: the port is 0
 * * -EISCONN: the endpoint is connected
 * * -EOPNOTSUPP: the endpoint listens
 * * -EINTR: a signal; the request is withdrawn
 * * -ENOSPC: no port is free
 * * -ENOMEM: no memory, here or there
 */
int scif_connect(scif_epd_t epd, struct scif_port_id *dst);

/**
 * scif_accept() - make a connection of the oldest request
 * @epd: an endpoint that listens, and goes on to
 * @peer: where to store who has connected
 * @newepd: where to store the endpoint of the connection; it has the same port,
 *	belongs to whom @epd belongs, and must be closed on its own
 * @flags: SCIF_ACCEPT_SYNC to wait for a request, or 0
 *
 * Return: 0, or
 *
 * * -EAGAIN: there is no request, and it was not to wait
 * * -EINTR: a signal, or the endpoint was closed meanwhile
 * * -EINVAL: @epd does not listen, @peer or @newepd is NULL, or other flags
 * * -ENOMEM: no memory
 */
int scif_accept(scif_epd_t epd, struct scif_port_id *peer, scif_epd_t *newepd,
		int flags);

/**
 * scif_close() - close an endpoint
 * @epd: the endpoint, which must not be used again
 *
 * Waits for transfers that are under way and unregisters the windows of both
 * ends; what was sent can still be received. For memory of the kernel it waits
 * as long as that takes, or until the peer counts as lost. For all other
 * transfers that the peer has to help with, it waits for two seconds in a kernel
 * thread: later they end as the peer lets them, and keep the memory of the
 * process until then. A listener refuses all requests that wait. Calls of other
 * threads end with an error, but those that wait for such a transfer return at
 * its end. All that scif_get_pages() has returned must have been put before.
 *
 * Return: 0, or -EBADF if it is not open
 */
int scif_close(scif_epd_t epd);

/**
 * scif_send() - send bytes
 * @epd: an endpoint that is connected
 * @msg: kernel memory with the bytes
 * @len: how many
 * @flags: SCIF_SEND_BLOCK to wait until all are sent, or 0
 *
 * Can be interrupted. What ends it after some bytes were sent is not an error
 * of this call but of the next.
 *
 * Return: how many bytes were sent, which without SCIF_SEND_BLOCK may be 0, or
 *
 * * -EINVAL: @len is negative, or other flags
 * * -ECONNRESET: the other end was closed, or its node is lost
 * * -EINTR: a signal
 * * -ENOMEM: no memory
 */
int scif_send(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_recv() - receive bytes
 * @epd: an endpoint that is connected
 * @msg: kernel memory for the bytes
 * @len: how many
 * @flags: SCIF_RECV_BLOCK to wait until all have arrived, or 0
 *
 * Can be interrupted. What ends it after some bytes were received is not an
 * error of this call but of the next. When the other end is closed, what it has
 * sent comes first, and then -ECONNRESET.
 *
 * Return: how many bytes were received, which without SCIF_RECV_BLOCK may be 0,
 * or
 *
 * * -EINVAL: @len is negative, or other flags
 * * -ECONNRESET: the other end was closed, or its node is lost
 * * -EINTR: a signal
 */
int scif_recv(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_register() - open memory to the other end, as a window
 * @epd: an endpoint that is connected
 * @addr: where the memory begins; a multiple of the page size
 * @len: bytes; a multiple of the page size
 * @offset: where the window is to be; without SCIF_MAP_FIXED a hint, or 0
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE or both: what the window can be
 *	used for
 * @map_flags: SCIF_MAP_FIXED; SCIF_MAP_KERNEL if it is kernel memory and not
 *	the calling process's
 *
 * When it returns, the other end knows the window. Kernel memory must stay
 * until the window was unregistered and all uses that began earlier are over;
 * free it after scif_close() at the latest.
 *
 * Return: the offset, or
 *
 * * -EINVAL: something is no multiple of the page size, 0 or negative, or other
 *   flags; or @addr is not what SCIF_MAP_KERNEL says
 * * -EADDRINUSE: SCIF_MAP_FIXED, and a part of the range is taken, by a window
 *   or by one that was unregistered and is still in use
 * * -EAGAIN: the limit of the process for locked memory would be exceeded, or
 *   the memory is out of the other node's reach
 * * -EFAULT: it is no memory, not with that access, or can't be pinned
 * * -EOPNOTSUPP: the bridge or the engine is not coherent with the caches
 * * -ENOMEM: no memory, here or there
 */
off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset,
		    int prot_flags, int map_flags);

/**
 * scif_unregister() - close all windows that lie in a range
 * @epd: an endpoint that is connected
 * @offset: where the range begins
 * @len: its length
 *
 * No new use of the windows begins after it has returned. Uses that began
 * before go on: transfers, signals, mappings, scif_get_pages().
 *
 * Return: 0, or, and nothing has changed,
 *
 * * -EINVAL: the range would cut a window, is empty or negative
 * * -ENXIO: there is no window in it
 */
int scif_unregister(scif_epd_t epd, off_t offset, size_t len);

/**
 * scif_readfrom() - copy from windows of the other end to windows of this
 * @epd: an endpoint that is connected
 * @loffset: to where in the windows of this end
 * @len: bytes
 * @roffset: from where in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Without SCIF_RMA_SYNC the transfer may go on after the call. Transfers are not
 * ordered among each other; fences tell when they have ended. Ranges may begin
 * anywhere, and span windows that follow each other without a gap.
 *
 * Return: 0, or
 *
 * * -EINVAL: @len is 0, or other flags
 * * -ENXIO: a part of a range lies in no window
 * * -EACCES: a window does not allow it
 * * -EIO: the engine has failed; said once, by this call or by a fence
 * * -ENOMEM: no memory
 */
int scif_readfrom(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_writeto() - copy from windows of this end to windows of the other
 * @epd: an endpoint that is connected
 * @loffset: from where in the windows of this end
 * @len: bytes
 * @roffset: to where in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Return: as scif_readfrom()
 */
int scif_writeto(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		 int rma_flags);

/**
 * scif_vreadfrom() - copy from windows of the other end to memory
 * @epd: an endpoint that is connected
 * @addr: to where: memory of the kernel or of the calling process, which the
 *	address tells apart
 * @len: bytes
 * @roffset: from where in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Kernel memory must stay until the transfer has ended. Memory of the process
 * is pinned as long. See scif_readfrom() for the rest.
 *
 * Return: as scif_readfrom(), or
 *
 * * -EFAULT: it is no memory, not with that access, or can't be pinned
 * * -EAGAIN: the limit of the process for locked memory would be exceeded
 */
int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		   int rma_flags);

/**
 * scif_vwriteto() - copy from memory to windows of the other end
 * @epd: an endpoint that is connected
 * @addr: from where: memory of the kernel or of the calling process
 * @len: bytes
 * @roffset: to where in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Return: as scif_vreadfrom()
 */
int scif_vwriteto(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_fence_mark() - mark all transfers that were started so far
 * @epd: an endpoint that is connected
 * @flags: SCIF_FENCE_INIT_SELF or SCIF_FENCE_INIT_PEER: started by whom
 * @mark: where to store the mark, which is positive
 *
 * With SCIF_FENCE_INIT_PEER it asks the other end, and can be interrupted.
 *
 * Return: 0, or
 *
 * * -EINVAL: other flags, or both
 * * -EINTR: a signal
 * * -ENOMEM: no memory
 */
int scif_fence_mark(scif_epd_t epd, int flags, int *mark);

/**
 * scif_fence_wait() - wait until transfers have ended
 * @epd: an endpoint that is connected
 * @mark: which ones: a mark of scif_fence_mark()
 *
 * Can be interrupted.
 *
 * Return: 0, or
 *
 * * -EINVAL: it is no mark of this endpoint
 * * -EIO: one of the transfers has failed, and the mark is from before that was said
 * * -EINTR: a signal
 * * -ENOMEM: no memory
 */
int scif_fence_wait(scif_epd_t epd, int mark);

/**
 * scif_fence_signal() - store values when transfers have ended
 * @epd: an endpoint that is connected
 * @loff: where in the windows of this end
 * @lval: what to store there, with SCIF_SIGNAL_LOCAL
 * @roff: where in the windows of the other end
 * @rval: what to store there, with SCIF_SIGNAL_REMOTE
 * @flags: SCIF_FENCE_INIT_SELF or SCIF_FENCE_INIT_PEER, whose transfers that
 *	were started so far; and SCIF_SIGNAL_LOCAL, SCIF_SIGNAL_REMOTE or both
 *
 * Does not wait for the transfers. Eight bytes are stored, at once if the offset
 * is a multiple of 8; nothing is stored if one of the transfers fails.
 *
 * Return: 0, or
 *
 * * -EINVAL: other flags; an offset is no multiple of 4, or the eight bytes do
 *   not lie in one page
 * * -ENXIO: there is no window at an offset
 * * -EACCES: the window there can't be written
 * * -ENOMEM: no memory, or too many signals wait
 */
int scif_fence_signal(scif_epd_t epd, off_t loff, u64 lval, off_t roff,
		      u64 rval, int flags);

/**
 * scif_get_node_ids() - which nodes are there
 * @nodes: where to store their ids, or NULL if @len is 0
 * @len: how many fit in there
 * @self: where to store the id of this node, which is among them, or NULL
 *
 * Return: how many nodes there are, however many fitted, or -EINVAL if @len is
 * negative.
 */
int scif_get_node_ids(u16 *nodes, int len, u16 *self);

/**
 * __scif_pin_pages() - pin memory on behalf of a module
 * @addr: as for scif_pin_pages(), like the rest
 * @len: bytes
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE or both
 * @map_flags: SCIF_MAP_KERNEL or 0
 * @owner: the module; the log names it if it is unloaded without unpinning
 * @pinned_pages: where to store the handle
 *
 * Return: as scif_pin_pages()
 */
int __scif_pin_pages(void *addr, size_t len, int prot_flags, int map_flags,
		     struct module *owner, scif_pinned_pages_t *pinned_pages);

/**
 * scif_pin_pages() - pin memory, for any number of windows
 * @addr: where the memory begins; a multiple of the page size
 * @len: bytes; a multiple of the page size
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE or both
 * @map_flags: SCIF_MAP_KERNEL if it is kernel memory and not the calling
 *	process's
 * @pinned_pages: where to store the handle
 *
 * The memory stays pinned until scif_unpin_pages() was called and the last
 * window that was made of it is gone. Kernel memory must stay as long.
 *
 * Return: 0, or -EINVAL, -EAGAIN, -EFAULT, -ENOMEM as scif_register()
 */
static inline int scif_pin_pages(void *addr, size_t len, int prot_flags,
				 int map_flags,
				 scif_pinned_pages_t *pinned_pages)
{
	return __scif_pin_pages(addr, len, prot_flags, map_flags, THIS_MODULE,
				pinned_pages);
}

/**
 * scif_unpin_pages() - give up a handle
 * @pinned_pages: a handle of scif_pin_pages(), which must not be used again
 *
 * Windows that were made of it stay.
 *
 * Return: 0, or -EINVAL if it is none
 */
int scif_unpin_pages(scif_pinned_pages_t pinned_pages);

/**
 * scif_register_pinned_pages() - open pinned memory to the other end
 * @epd: an endpoint that is connected
 * @pinned_pages: a handle of scif_pin_pages(); the window is all of its memory,
 *	with its protection
 * @offset: where the window is to be; without SCIF_MAP_FIXED a hint, or 0
 * @map_flags: SCIF_MAP_FIXED, or 0
 *
 * Return: the offset, or as scif_register()
 */
off_t scif_register_pinned_pages(scif_epd_t epd,
				 scif_pinned_pages_t pinned_pages,
				 off_t offset, int map_flags);

/**
 * scif_get_pages() - get the addresses of pages of the other end
 * @epd: an endpoint that is connected
 * @offset: where they begin in its windows; a multiple of the page size
 * @len: bytes; a multiple of the page size. All are of one window
 * @pages: where to store the pages, which are to be given back by
 *	scif_put_pages() before the endpoint is closed
 *
 * For another device, or for the CPU; see &struct scif_range. The window stays
 * as long, also when it is unregistered.
 *
 * Return: 0, or
 *
 * * -EINVAL: something is no multiple of the page size, 0 or negative
 * * -ENXIO: there is no such window, or the range is not in one alone
 * * -EOPNOTSUPP: the memory has no address here, because the bridge shows too
 *   little of it at a time and what is written has to be copied
 * * -ENOMEM: no memory
 */
int scif_get_pages(scif_epd_t epd, off_t offset, size_t len,
		   struct scif_range **pages);

/**
 * scif_put_pages() - give back what scif_get_pages() has returned
 * @pages: the pages, which must not be used again
 *
 * Return: 0, or -EINVAL if it is NULL or not of scif_get_pages()
 */
int scif_put_pages(struct scif_range *pages);

/**
 * scif_poll() - wait for one of several endpoints
 * @epds: the endpoints, and what to wait for
 * @nepds: how many
 * @timeout: at most how many milliseconds; negative: for ever
 *
 * POLLIN stands for bytes to receive, or for a request to accept; POLLOUT for
 * room to send. POLLHUP, the connection has ended, POLLERR, there is none, and
 * POLLNVAL, @epd is NULL, are always looked for. Can be interrupted.
 *
 * Return: how many endpoints have something in @revents, 0 if the time is over,
 * -EINTR after a signal, -EINVAL if @nepds is too large, or -ENOMEM.
 */
int scif_poll(struct scif_pollepd *epds, unsigned int nepds, long timeout);

/**
 * __scif_client_register() - register a client on behalf of a module
 * @client: the client
 * @owner: the module; the log names it if it is unloaded without unregistering
 *
 * Return: 0, or a negative errno
 */
int __scif_client_register(struct scif_client *client, struct module *owner);

/**
 * scif_client_register() - hear of nodes from now on
 * @client: the client; it must stay until it was unregistered
 *
 * Calls probe() for the nodes that are there. Not to be called by a function of
 * a client.
 *
 * Return: 0, or a negative errno
 */
static inline int scif_client_register(struct scif_client *client)
{
	return __scif_client_register(client, THIS_MODULE);
}

/**
 * scif_client_unregister() - hear no more of nodes
 * @client: the client
 *
 * Calls remove() for the nodes that are there. None of the client's functions
 * runs when it has returned. Not to be called by one of them.
 */
void scif_client_unregister(struct scif_client *client);

#endif /* _LINUX_SCIF_H */
