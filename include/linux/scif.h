/* SPDX-License-Identifier: GPL-2.0 */
/*
 * SCIF, the Symmetric Communications Interface, for other kernel code:
 * connections to ports of nodes, and shared memory.
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
 * An endpoint is opened. Then it either listens on a port of this node, or
 * connects to a port of any node, including this one. A connection carries
 * bytes, in order, and transfers. A transfer copies to or from a window: memory
 * that the other end has registered. The code at the other end takes no part in
 * a transfer. Each end can be a kernel client or a program that uses /dev/scif.
 *
 * Symbols are exported with EXPORT_SYMBOL_GPL(). A module that uses them keeps
 * scif.ko from being unloaded.
 *
 * Contexts
 *	All functions may sleep: call them in process context, without a
 *	spinlock held. Functions that wait for a connection, for messages, for a
 *	fence or for an event can be interrupted (-EINTR) by a signal. In a
 *	kernel thread, kthread_stop() interrupts them, and every later wait,
 *	too. Other waits end when the answer of the other node's kernel arrives,
 *	the transfer completes, or the node is lost. Several threads may use an
 *	endpoint at a time.
 *
 * Errors
 *	Functions return a negative errno, except scif_open(), which returns
 *	NULL. Three errors are not repeated below. A function that needs a
 *	connection returns -ENOTCONN without one, -ECONNRESET after the other
 *	end was closed, and -ENODEV after the other node is lost.
 *
 * Closing
 *	A module must close each of its endpoints once, before it is unloaded.
 *	scif_close() wakes calls of other threads on the same endpoint, which
 *	end with an error. They keep the resources they need until they return.
 *	No call with an endpoint may begin after scif_close() of it has
 *	returned. So a thread that makes calls in a loop must be stopped by
 *	kthread_stop(), and must then close the endpoint itself.
 *
 * Memory
 *	Messages are in kernel memory. Windows and transfers use kernel memory
 *	or memory of the calling process.
 *
 *	Memory of the process is pinned, and charged to the process as with
 *	/dev/scif.
 *
 *	Kernel memory comes from the page allocator, kmalloc() or vmalloc(). It
 *	is neither pinned nor charged, so its owner must keep it while it is in
 *	use. A transfer uses it until it has completed, as SCIF_RMA_SYNC or a
 *	fence tells. A window uses it until it was unregistered and all uses
 *	that began earlier are over, but not after scif_close() has returned.
 *	Even then, a process at the other end that has mapped a window keeps the
 *	mapping. The pages are not reused before the process unmaps them. Memory
 *	of kmalloc() can't be mapped, because its pages have no reference
 *	counts: its windows are for transfers only.
 *
 * Nodes
 *	A client is told of nodes, including this one, by calls of its functions
 *	probe() and remove(). They are called in process context, one after
 *	another, also for nodes that existed before the client. When remove() is
 *	called, endpoints that are connected to that node already fail with
 *	-ENODEV or -ECONNRESET. A node that comes back is not announced before
 *	remove() has returned. scif_client_unregister() calls remove() for all
 *	present nodes.
 */

/* Flags of scif_accept(), scif_send() and scif_recv(): wait. */
#define SCIF_ACCEPT_SYNC	1
#define SCIF_SEND_BLOCK		1
#define SCIF_RECV_BLOCK		1

/* Binding a port below this one needs CAP_NET_BIND_SERVICE. */
#define SCIF_ADMIN_PORT_END	1024

/* First of the ports that scif_bind() chooses from. */
#define SCIF_PORT_RSVD		1088

/**
 * enum scif_prot - access to memory
 * @SCIF_PROT_READ: the memory may be read
 * @SCIF_PROT_WRITE: the memory may be written
 */
enum scif_prot {
	SCIF_PROT_READ = (1 << 0),
	SCIF_PROT_WRITE = (1 << 1),
};

/**
 * enum scif_map - flags for registering memory
 * @SCIF_MAP_FIXED: the window must be at the given offset
 * @SCIF_MAP_KERNEL: the address is an address of the kernel
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
 * @SCIF_RMA_USECPU: copy by CPU, not by DMA engine
 * @SCIF_RMA_USECACHE: keep memory of a process pinned for later transfers; has
 *	no effect for windows and kernel memory
 * @SCIF_RMA_SYNC: return when the transfer has completed
 * @SCIF_RMA_ORDERED: the last cache line of the source becomes visible last
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

/* Errors that functions of the user library return; those below do not. */
#define SCIF_OPEN_FAILED	((scif_epd_t)-1)
#define SCIF_REGISTER_FAILED	((off_t)-1)
#define SCIF_MMAP_FAILED	((void *)-1)

/**
 * struct scif_range - pages of the other end, from scif_get_pages()
 * @cookie: private to SCIF
 * @nr_pages: number of pages
 * @prot_flags: SCIF_PROT_READ and SCIF_PROT_WRITE, as the window was registered
 * @phys_addr: the physical address of each page, as this CPU sees it; for a
 *	device behind an IOMMU, map the page by dma_map_resource()
 * @va: the address of each page in the kernel
 *
 * The caller must not change anything in it. The addresses are valid until
 * scif_put_pages(), or until the node is lost, as remove() of a &struct
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
 * struct scif_pollepd - an endpoint that scif_poll() waits for
 * @epd: the endpoint
 * @events: requested events, POLLIN and POLLOUT
 * @revents: requested events that have occurred, and POLLERR, POLLHUP and
 *	POLLNVAL
 */
struct scif_pollepd {
	scif_epd_t epd;
	short events;
	short revents;
};

/**
 * struct scif_peer_dev - a node, as a device
 * @dev: the device. All clients share it, so no client may set its driver data.
 *	Its name serves for dev_info() and similar calls
 * @dnode: the node's id, with 16 bits; the original interface has 8
 */
struct scif_peer_dev {
	struct device dev;
	u16 dnode;
};

/**
 * struct scif_client - a client that is told of nodes
 * @name: its name
 * @probe: called when a node has come
 * @remove: called when a node has gone, or the client is unregistered. The
 *	client must not use the &struct scif_peer_dev after it has returned
 * @si: private to SCIF, filled in by scif_client_register()
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
 * The endpoint is neither bound nor connected, and must be closed by
 * scif_close().
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
 * @pn: the port, or 0 for any free port from SCIF_PORT_RSVD on
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
 * scif_listen() - allow connections to the port of an endpoint
 * @epd: the endpoint, which must be bound
 * @backlog: number of requests that may wait to be accepted; more are refused
 *
 * Return: 0, or
 *
 * * -EINVAL: the endpoint is not bound, or the backlog is not positive
 * * -EISCONN: the endpoint listens already, is connecting or connected
 */
int scif_listen(scif_epd_t epd, int backlog);

/**
 * scif_connect() - connect an endpoint to a port
 * @epd: the endpoint; if it is not bound, it gets a free port
 * @dst: node and port to connect to
 *
 * Waits until the other side has accepted the connection. A signal interrupts
 * the wait. After -ECONNREFUSED, -ENODEV, -EINTR and -ENOMEM, the caller can
 * try again with the same endpoint, which may be bound by then.
 *
 * Return: 0, or
 *
 * * -ECONNREFUSED: no endpoint listens on the port, or too many requests wait,
 *   or another thread has closed this endpoint
 * * -ENODEV: the node is not present
 * * -EINVAL: the port is 0
 * * -EISCONN: the endpoint is connected
 * * -EOPNOTSUPP: the endpoint listens
 * * -EINTR: a signal arrived; the request is withdrawn
 * * -ENOSPC: no port is free
 * * -ENOMEM: this or the other node has no memory
 */
int scif_connect(scif_epd_t epd, struct scif_port_id *dst);

/**
 * scif_accept() - accept the oldest request for a connection
 * @epd: an endpoint that listens; it keeps listening
 * @peer: where to store the port that has connected
 * @newepd: where to store the endpoint of the connection. It has the same port
 *	and the same owner as @epd, and must be closed separately
 * @flags: SCIF_ACCEPT_SYNC to wait for a request, or 0
 *
 * Return: 0, or
 *
 * * -EAGAIN: there is no request, and SCIF_ACCEPT_SYNC is not set
 * * -EINTR: a signal arrived, or another thread has closed the endpoint
 * * -EINVAL: @epd does not listen, @peer or @newepd is NULL, or @flags is
 *   invalid
 * * -ENOMEM: there is no memory
 */
int scif_accept(scif_epd_t epd, struct scif_port_id *peer, scif_epd_t *newepd,
		int flags);

/**
 * scif_close() - close an endpoint
 * @epd: the endpoint, which must not be used again
 *
 * Waits for transfers in flight, and unregisters the windows of both ends. The
 * other end can still receive all bytes that were sent. A listener refuses all
 * requests that wait.
 *
 * Transfers with kernel memory are waited for until they complete or the peer
 * counts as lost. Other transfers that need the peer are waited for at most two
 * seconds in a kernel thread. Afterwards they complete when the peer lets them,
 * and keep the memory of the process until then.
 *
 * Calls of other threads end with an error. Calls that wait for such a transfer
 * return when the transfer completes. Before scif_close(), put all pages that
 * scif_get_pages() has returned.
 *
 * Return: 0, or -EBADF if the endpoint is not open
 */
int scif_close(scif_epd_t epd);

/**
 * scif_send() - send bytes
 * @epd: an endpoint that is connected
 * @msg: kernel memory with the bytes
 * @len: number of bytes
 * @flags: SCIF_SEND_BLOCK to wait until all are sent, or 0
 *
 * A signal interrupts the call. If the call ends early after some bytes were
 * sent, the next call returns the error.
 *
 * Return: the number of sent bytes, which may be 0 without SCIF_SEND_BLOCK, or
 *
 * * -EINVAL: @len is negative, or @flags is invalid
 * * -ECONNRESET: the other end was closed, or its node is lost
 * * -EINTR: a signal arrived
 * * -ENOMEM: there is no memory
 */
int scif_send(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_recv() - receive bytes
 * @epd: an endpoint that is connected
 * @msg: kernel memory for the bytes
 * @len: number of bytes
 * @flags: SCIF_RECV_BLOCK to wait until all have arrived, or 0
 *
 * A signal interrupts the call. If the call ends early after some bytes were
 * received, the next call returns the error. After the other end was closed,
 * its last bytes can still be received; then -ECONNRESET follows.
 *
 * Return: the number of received bytes, which may be 0 without SCIF_RECV_BLOCK,
 * or
 *
 * * -EINVAL: @len is negative, or @flags is invalid
 * * -ECONNRESET: the other end was closed, or its node is lost
 * * -EINTR: a signal arrived
 */
int scif_recv(scif_epd_t epd, void *msg, int len, int flags);

/**
 * scif_register() - offer memory to the other end, as a window
 * @epd: an endpoint that is connected
 * @addr: address of the memory; a multiple of the page size
 * @len: bytes; a multiple of the page size
 * @offset: offset of the window; without SCIF_MAP_FIXED a hint, or 0
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE or both: access to the window
 * @map_flags: SCIF_MAP_FIXED; SCIF_MAP_KERNEL for kernel memory instead of
 *	memory of the calling process
 *
 * When this returns, the other end knows the window. Kernel memory must stay
 * until the window was unregistered and all uses that began earlier are over.
 * It can always be freed after scif_close().
 *
 * Return: the offset, or
 *
 * * -EINVAL: an argument is no multiple of the page size, 0 or negative; a flag
 *   is unknown; or @addr contradicts SCIF_MAP_KERNEL
 * * -EADDRINUSE: SCIF_MAP_FIXED is set, and another window is in the range. It
 *   may be unregistered but still in use
 * * -EAGAIN: the limit of the process for locked memory would be exceeded, or
 *   the other node can't reach the memory
 * * -EFAULT: a part of the range is not memory, does not allow the access, or
 *   can't be pinned
 * * -EOPNOTSUPP: the bridge or the engine is not coherent with the CPU's caches
 * * -ENOMEM: this or the other node has no memory
 */
off_t scif_register(scif_epd_t epd, void *addr, size_t len, off_t offset,
		    int prot_flags, int map_flags);

/**
 * scif_unregister() - unregister all windows in a range
 * @epd: an endpoint that is connected
 * @offset: begin of the range
 * @len: length of the range
 *
 * After this has returned, no new use of the windows begins. Earlier uses
 * continue: transfers, signals, mappings, scif_get_pages().
 *
 * Return: 0, or an error, after which all windows are unchanged
 *
 * * -EINVAL: the range is empty or negative, or contains only a part of a
 *   window
 * * -ENXIO: there is no window in the range
 */
int scif_unregister(scif_epd_t epd, off_t offset, size_t len);

/**
 * scif_readfrom() - copy from windows of the other end to own windows
 * @epd: an endpoint that is connected
 * @loffset: destination offset in the windows of this end
 * @len: bytes
 * @roffset: source offset in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Without SCIF_RMA_SYNC, the transfer may continue after the call. Transfers
 * may complete in any order; fences tell when they have completed. A range may
 * begin anywhere, and may span windows that follow each other without a gap.
 *
 * Return: 0, or
 *
 * * -EINVAL: @len is 0, or @rma_flags is invalid
 * * -ENXIO: a part of a range lies in no window
 * * -EACCES: a window does not allow the access
 * * -EIO: the engine has failed; reported once, by this call or by a fence
 * * -ENOMEM: there is no memory
 */
int scif_readfrom(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_writeto() - copy from own windows to windows of the other end
 * @epd: an endpoint that is connected
 * @loffset: source offset in the windows of this end
 * @len: bytes
 * @roffset: destination offset in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Return: as scif_readfrom()
 */
int scif_writeto(scif_epd_t epd, off_t loffset, size_t len, off_t roffset,
		 int rma_flags);

/**
 * scif_vreadfrom() - copy from windows of the other end to memory
 * @epd: an endpoint that is connected
 * @addr: destination: memory of the kernel or of the calling process, as its
 *	address tells
 * @len: bytes
 * @roffset: source offset in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Kernel memory must stay until the transfer has completed. Memory of the
 * process is pinned as long. Apart from the destination, this is
 * scif_readfrom().
 *
 * Return: as scif_readfrom(), or
 *
 * * -EFAULT: a part of the range is not memory, does not allow the access, or
 *   can't be pinned
 * * -EAGAIN: the limit of the process for locked memory would be exceeded
 */
int scif_vreadfrom(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		   int rma_flags);

/**
 * scif_vwriteto() - copy from memory to windows of the other end
 * @epd: an endpoint that is connected
 * @addr: source: memory of the kernel or of the calling process
 * @len: bytes
 * @roffset: destination offset in the windows of the other end
 * @rma_flags: of &enum scif_rma
 *
 * Return: as scif_vreadfrom()
 */
int scif_vwriteto(scif_epd_t epd, void *addr, size_t len, off_t roffset,
		  int rma_flags);

/**
 * scif_fence_mark() - mark all transfers that were started so far
 * @epd: an endpoint that is connected
 * @flags: SCIF_FENCE_INIT_SELF or SCIF_FENCE_INIT_PEER: transfers that this end
 *	or the other end has started
 * @mark: where to store the mark, which is positive
 *
 * With SCIF_FENCE_INIT_PEER, this waits for an answer of the other end. A
 * signal interrupts the wait.
 *
 * Return: 0, or
 *
 * * -EINVAL: @flags is invalid, or has both
 * * -EINTR: a signal arrived
 * * -ENOMEM: there is no memory
 */
int scif_fence_mark(scif_epd_t epd, int flags, int *mark);

/**
 * scif_fence_wait() - wait until transfers have completed
 * @epd: an endpoint that is connected
 * @mark: a mark of scif_fence_mark(), up to which to wait
 *
 * A signal interrupts the wait.
 *
 * Return: 0, or
 *
 * * -EINVAL: it is no mark of this endpoint
 * * -EIO: one of the transfers has failed, and the mark was made before the
 *   failure was reported
 * * -EINTR: a signal arrived
 * * -ENOMEM: there is no memory
 */
int scif_fence_wait(scif_epd_t epd, int mark);

/**
 * scif_fence_signal() - store values when transfers have completed
 * @epd: an endpoint that is connected
 * @loff: offset in the windows of this end
 * @lval: value to store at @loff, with SCIF_SIGNAL_LOCAL
 * @roff: offset in the windows of the other end
 * @rval: value to store at @roff, with SCIF_SIGNAL_REMOTE
 * @flags: SCIF_FENCE_INIT_SELF or SCIF_FENCE_INIT_PEER, for the transfers that
 *	this end or the other end has started so far; and SCIF_SIGNAL_LOCAL,
 *	SCIF_SIGNAL_REMOTE or both
 *
 * Does not wait for the transfers. A value has eight bytes, which are stored at
 * once if the offset is a multiple of 8. If one of the transfers fails, nothing
 * is stored.
 *
 * Return: 0, or
 *
 * * -EINVAL: @flags is invalid, an offset is no multiple of 4, or the eight
 *   bytes do not lie in one page
 * * -ENXIO: there is no window at an offset
 * * -EACCES: the window at an offset is not writable
 * * -ENOMEM: there is no memory, or too many signals wait
 */
int scif_fence_signal(scif_epd_t epd, off_t loff, u64 lval, off_t roff,
		      u64 rval, int flags);

/**
 * scif_get_node_ids() - get the ids of all present nodes
 * @nodes: where to store the ids, or NULL if @len is 0
 * @len: number of ids that fit in there
 * @self: where to store the id of this node, which is among them, or NULL
 *
 * Return: the number of nodes, which may be larger than @len, or -EINVAL if
 * @len is negative.
 */
int scif_get_node_ids(u16 *nodes, int len, u16 *self);

/**
 * __scif_pin_pages() - pin memory on behalf of a module
 * @addr: address of the memory; the rules of scif_pin_pages() apply to all
 *	arguments
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
 * @addr: address of the memory; a multiple of the page size
 * @len: bytes; a multiple of the page size
 * @prot_flags: SCIF_PROT_READ, SCIF_PROT_WRITE or both
 * @map_flags: SCIF_MAP_KERNEL for kernel memory instead of memory of the
 *	calling process
 * @pinned_pages: where to store the handle
 *
 * The memory stays pinned until scif_unpin_pages() was called and the last
 * window of the memory is gone. Kernel memory must stay as long.
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
 * scif_unpin_pages() - release a handle
 * @pinned_pages: a handle of scif_pin_pages(), which must not be used again
 *
 * Windows that were made of it stay.
 *
 * Return: 0, or -EINVAL if it is not a handle
 */
int scif_unpin_pages(scif_pinned_pages_t pinned_pages);

/**
 * scif_register_pinned_pages() - offer pinned memory to the other end
 * @epd: an endpoint that is connected
 * @pinned_pages: a handle of scif_pin_pages(); the window is all of its memory,
 *	with its protection
 * @offset: offset of the window; without SCIF_MAP_FIXED a hint, or 0
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
 * @offset: offset of the pages in the windows of the other end; a multiple of
 *	the page size
 * @len: bytes; a multiple of the page size. All are in one window
 * @pages: where to store the pages. Give them back by scif_put_pages() before
 *	the endpoint is closed
 *
 * The addresses are for another device, or for the CPU, as &struct scif_range
 * says. The window stays until scif_put_pages(), even if it is unregistered.
 *
 * Return: 0, or
 *
 * * -EINVAL: an argument is no multiple of the page size, 0 or negative
 * * -ENXIO: the range is not inside of one window
 * * -EOPNOTSUPP: the memory has no address here, because the aperture of the
 *   bridge is too small and writes go through copies
 * * -ENOMEM: there is no memory
 */
int scif_get_pages(scif_epd_t epd, off_t offset, size_t len,
		   struct scif_range **pages);

/**
 * scif_put_pages() - give back the pages of scif_get_pages()
 * @pages: the pages, which must not be used again
 *
 * Return: 0, or -EINVAL if it is NULL or not from scif_get_pages()
 */
int scif_put_pages(struct scif_range *pages);

/**
 * scif_poll() - wait for one of several endpoints
 * @epds: the endpoints and the requested events
 * @nepds: number of endpoints
 * @timeout: in milliseconds; negative: no timeout
 *
 * POLLIN: there are bytes to receive, or a request to accept. POLLOUT: there is
 * room to send. Three events are always reported. POLLHUP: the connection has
 * ended. POLLERR: there is no connection. POLLNVAL: @epd is NULL. A signal
 * interrupts the wait.
 *
 * Return: the number of endpoints with an event in @revents, 0 after the
 * timeout, -EINTR after a signal, -EINVAL if @nepds is too large, or -ENOMEM.
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
 * scif_client_register() - register a client for nodes
 * @client: the client; it must stay until it was unregistered
 *
 * Calls probe() for all present nodes. Do not call this in a function of a
 * client.
 *
 * Return: 0, or a negative errno
 */
static inline int scif_client_register(struct scif_client *client)
{
	return __scif_client_register(client, THIS_MODULE);
}

/**
 * scif_client_unregister() - unregister a client
 * @client: the client
 *
 * Calls remove() for all present nodes. When this has returned, none of the
 * client's functions runs. Do not call this in a function of a client.
 */
void scif_client_unregister(struct scif_client *client);

#endif /* _LINUX_SCIF_H */
