// SPDX-License-Identifier: GPL-2.0
/*
 * The rules: every sentence of the specification that can be tested, in our own words, and
 * where it is said.
 *
 * Sources: "scif.md" are the project's notes on the interface, by section; "scif.h" is the
 * documentation in the header of the original kernel interface, by function; scif_writeto(3)
 * the original manual page; Documentation/ what was decided where these leave
 * something open or contradict each other.
 */
#include "suite.h"

const struct rule rules[] = {
	/* Open, nodes */
	{ "open.endpoint", "scif.h open",
	  "opening gives a new endpoint, as many as wanted, each with a state of its own" },
	{ "open.out-of-memory", "scif.h open",
	  "the only error of the device itself is ENOMEM",
	  .untested = "allocations can't be made to fail from a case" },
	{ "nodes.count-includes-self", "scif.h get_node_ids",
	  "the result is the number of nodes online, this one included" },
	{ "nodes.self", "scif.h get_node_ids",
	  "the own node's id is returned at self" },
	{ "nodes.null-array", "scif.md 1",
	  "get_nodeIDs(NULL, 0, &self) works" },
	{ "nodes.short-array", "scif.h get_node_ids",
	  "a short array gets the ids that fit, nothing behind it, and the count of all" },
	{ "nodes.no-uninitialised", "scif.md 2 get_node_ids",
	  "what is behind the ids in a long array is not touched" },
	{ "nodes.invalid", "scif.md 2 get_node_ids",
	  "a negative length is EINVAL, a bad address EFAULT" },
	{ "nodes.connected-listed", "scif.h get_node_ids",
	  "each node that can be connected to is listed, once" },
	{ "nodes.absent-not-listed", "scif.h get_node_ids",
	  "a node that was lost is not counted any more, and one that comes back is",
	  .lab_test = "scif_node_loss::unload" },

	/* Bind */
	{ "bind.returns-port", "scif.h bind",
	  "bind returns the port that it was asked for" },
	{ "bind.port-zero", "scif.md 2 bind",
	  "port 0 gets an unused port, 1088 or above" },
	{ "bind.port-zero-distinct", "scif.md 2 bind",
	  "ports given out for 0 are not in use by anybody" },
	{ "bind.privileged", "scif.md 2 bind",
	  "a port below 1024 without privilege is EACCES" },
	{ "bind.privileged-allowed", "scif.h bind",
	  "a port below 1024 can be bound by root" },
	{ "bind.reserved-for-anybody", "scif.md 2 bind",
	  "the ports 1024 to 1087 can be asked for by anybody" },
	{ "bind.highest-port", "scif.h bind",
	  "the highest port, 65535, can be bound" },
	{ "bind.already-bound", "scif.md 2 bind",
	  "an endpoint that is bound is EINVAL, and keeps its port" },
	{ "bind.port-taken", "scif.md 2 bind",
	  "a port that is taken is EINVAL, and the endpoint stays unbound" },
	{ "bind.listening", "scif.md 2 bind",
	  "a listening endpoint is EISCONN" },
	{ "bind.connected", "scif.md 2 bind",
	  "a connected endpoint is EISCONN, on both sides" },
	{ "bind.free-after-close", "scif.h bind",
	  "a port can be bound again after its endpoint was closed" },
	{ "bind.ports-exhausted", "scif.md 2 bind",
	  "ENOSPC when no port is left, and a port again after one was closed" },
	{ "bind.bad-descriptor", "scif.h bind",
	  "a descriptor that is none is EBADF, one of another device ENOTTY, in every call" },

	/* Listen */
	{ "listen.unbound", "scif.md 2 listen",
	  "an unbound endpoint is EINVAL" },
	{ "listen.listening", "scif.md 2 listen",
	  "a listening endpoint is EISCONN" },
	{ "listen.connected", "scif.md 2 listen",
	  "a connected endpoint is EISCONN" },
	{ "listen.backlog-invalid", "scif.md 2 listen",
	  "a backlog of 0 or less is EINVAL, and the endpoint can still listen afterwards" },
	{ "listen.backlog-clamped", "scif.md 2 listen",
	  "a huge backlog is accepted, and clamped" },
	{ "listen.backlog-limits", "scif.h listen",
	  "with the backlog full, a further request is refused" },
	{ "listen.not-a-connection", "scif.h listen",
	  "a listening endpoint can't be used as one of a connection: ENOTCONN" },

	/* Connect */
	{ "connect.returns-own-port", "scif.h connect",
	  "connect returns the local port" },
	{ "connect.auto-bind", "scif.h connect",
	  "an unbound endpoint is bound to an unused port, 1088 or above" },
	{ "connect.bound-keeps-port", "scif.h connect",
	  "an endpoint that is bound keeps its port, which the acceptor sees" },
	{ "connect.absent-node", "scif.md 2 connect",
	  "a node that is not there is ENODEV, and the endpoint can be used afterwards" },
	{ "connect.port-zero", "scif.md 2 connect",
	  "port 0 of the peer is EINVAL" },
	{ "connect.listening", "scif.md 2 connect",
	  "a listening endpoint is EOPNOTSUPP" },
	{ "connect.connected", "scif.md 2 connect",
	  "a connected endpoint is EISCONN, on both sides" },
	{ "connect.no-listener", "scif.md 2 connect",
	  "a port on which nobody listens is ECONNREFUSED, whether or not it is bound" },
	{ "connect.refused-stays-bound", "scif.md 2 connect",
	  "after a refusal the endpoint is bound to the same port and can try again" },
	{ "connect.retry-succeeds", "scif.md 2 connect",
	  "who tries until the listener is there is connected, on the same endpoint" },
	{ "connect.waits-for-accept", "scif.md 2 connect",
	  "connect completes when the peer accepts, not before" },
	{ "connect.interrupted", "Documentation/abi.rst",
	  "a signal ends a waiting connect with EINTR; it can be tried again" },
	{ "connect.gives-up", "scif.md 2 connect",
	  "a connector that was killed while it waited does not wedge a later accept" },
	{ "connect.own-node", "scif.md 2 loopback",
	  "an endpoint can connect to a listener of its own node" },
	{ "connect.ports-exhausted", "scif.h connect",
	  "ENOSPC when no local port is left" },
	{ "connect.no-memory", "scif.h connect",
	  "ENOMEM when there is no memory for a connection",
	  .untested = "allocations can't be made to fail from a case" },
	{ "connect.same-destination", "scif.h connect",
	  "many endpoints can be connected to one port of a node at a time" },
	{ "connect.crossing", "scif.h connect",
	  "two nodes can connect to each other's listeners at the same time" },
	{ "connect.nonblock-in-progress", "scif.md 2 connect",
	  "with O_NONBLOCK connect is EINPROGRESS, each time until somebody has accepted" },
	{ "connect.nonblock-pollout", "scif.md 2 connect",
	  "POLLOUT says that a non-blocking connect has ended, not before" },
	{ "connect.nonblock-collect", "scif.md 2 connect",
	  "a second connect collects the result: the local port" },
	{ "connect.nonblock-refused", "scif.md 2 connect",
	  "a refusal is collected likewise, as ECONNREFUSED, and the endpoint can try again" },
	{ "connect.nonblock-only", "scif.md 2 connect",
	  "no other call honours O_NONBLOCK" },
	{ "connect.node-lost", "scif.md 2 node loss",
	  "a connect that waits ends with an error when the node is lost",
	  .lab_test = "scif_node_loss::hang" },

	/* Accept */
	{ "accept.flags", "scif.md 2 accept",
	  "flags other than 0 and SYNC are EINVAL" },
	{ "accept.null", "scif.h accept",
	  "NULL for the peer or the new endpoint is EINVAL" },
	{ "accept.not-listening", "scif.md 2 accept",
	  "an endpoint that does not listen is EINVAL" },
	{ "accept.empty", "scif.md 2 accept",
	  "with nothing queued and no SYNC: EAGAIN" },
	{ "accept.sync-waits", "scif.h accept",
	  "with SYNC accept waits for a request" },
	{ "accept.tells-peer", "scif.h accept",
	  "peer is the node and port that have asked" },
	{ "accept.order", "scif.h accept",
	  "requests are accepted in the order in which they came" },
	{ "accept.same-port", "scif.md 2 accept",
	  "the new endpoint shares the port of the listener" },
	{ "accept.listener-unaffected", "scif.h accept",
	  "the listener goes on listening" },
	{ "accept.interrupted", "scif.md 2 accept",
	  "a signal ends a waiting accept with EINTR" },
	{ "accept.closed-meanwhile", "scif.md 2 accept",
	  "closing the listener in another thread ends a waiting accept with EINTR" },
	{ "accept.several-threads", "scif.h accept",
	  "several threads can wait in accept: each request goes to one of them" },
	{ "accept.withdrawn", "scif.md 2 connect",
	  "a request that was withdrawn is not accepted" },
	{ "accept.outlives-listener", "scif.h accept",
	  "an accepted connection goes on after its listener was closed" },
	{ "accept.port-stays-taken", "scif.md 2 accept",
	  "the port stays in use as long as an accepted endpoint has it" },
	{ "accept.many", "scif.h accept",
	  "the number of connections accepted on a listener is not bounded by its backlog" },

	/* Send and recv */
	{ "send.zero", "scif.md 2 send",
	  "length 0 returns 0" },
	{ "send.negative", "scif.md 2 send",
	  "a negative length is EINVAL" },
	{ "send.flags", "scif.md 2 send",
	  "unknown flags are EINVAL" },
	{ "send.not-connected", "scif.md 2 send",
	  "an endpoint that was never connected is ENOTCONN" },
	{ "send.bytes", "scif.h send",
	  "the bytes arrive as sent, in order, whatever the sizes of the pieces on both sides" },
	{ "send.block-all", "scif.h send",
	  "a blocking send returns after all bytes are sent, also if they don't fit at once" },
	{ "send.nonblock-partial", "scif.h send",
	  "a non-blocking send takes what fits and returns that count" },
	{ "send.nonblock-full", "scif.md 2 send",
	  "a non-blocking send to a full ring returns 0, not EAGAIN" },
	{ "send.room-again", "scif.h send",
	  "when the peer has received, there is room again" },
	{ "send.largest", "scif.h send",
	  "of the largest length, 2^31-1, a non-blocking send takes what fits" },
	{ "send.interrupted-partial", "scif.md 2 send",
	  "a signal after some bytes were sent ends a blocking send with their count" },
	{ "send.interrupted-none", "scif.h send",
	  "a signal before any byte was sent ends it with EINTR, or goes on with SA_RESTART" },
	{ "send.reset-partial", "scif.md 2 send",
	  "if the peer goes after some bytes were sent, their count is returned" },
	{ "send.reset", "scif.md 2 send",
	  "after the peer has closed: ECONNRESET" },
	{ "send.close-wakes", "scif.h send",
	  "a blocked send ends when the peer closes" },
	{ "send.both-ways", "scif.h send",
	  "both sides can fill their rings at a time without disturbing each other" },
	{ "send.atomic", "scif.h send",
	  "messages that threads send at a time to one endpoint do not mix" },
	{ "send.bad-address", "scif.h send",
	  "a bad address is EFAULT, or the count of the bytes before it; none is lost" },
	{ "send.node-lost", "scif.md 2 node loss",
	  "a send that waits when the node is lost ends",
	  .lab_test = "scif_node_loss::hang" },
	{ "recv.zero", "scif.h recv",
	  "length 0 returns 0" },
	{ "recv.negative", "scif.h recv",
	  "a negative length is EINVAL" },
	{ "recv.flags", "scif.h recv",
	  "unknown flags are EINVAL" },
	{ "recv.not-connected", "scif.md 2 recv",
	  "an endpoint that was never connected is ENOTCONN" },
	{ "recv.nonblock-empty", "scif.md 2 recv",
	  "a non-blocking receive with nothing there returns 0" },
	{ "recv.nonblock-partial", "scif.h recv",
	  "a non-blocking receive returns what is there, up to the length" },
	{ "recv.block-all", "scif.h recv",
	  "a blocking receive returns after all bytes have come" },
	{ "recv.largest", "scif.h recv",
	  "the largest length, 2^31-1, is accepted by a non-blocking receive" },
	{ "recv.interrupted-partial", "scif.md 2 recv",
	  "a signal after some bytes were received ends a blocking receive with their count" },
	{ "recv.interrupted-none", "scif.md 2 recv",
	  "a signal before any byte came ends it with EINTR, or goes on with SA_RESTART" },
	{ "recv.drain", "scif.md 2 recv",
	  "after a close what had arrived can be received, then ECONNRESET, never 0" },
	{ "recv.block-short-drain", "scif.h recv",
	  "a blocking receive that the close cuts short returns what has come" },
	{ "recv.close-wakes", "scif.h recv",
	  "a blocked receive ends with ECONNRESET when the peer closes" },
	{ "recv.bad-address", "scif.h recv",
	  "a bad address is EFAULT, or the count of the bytes before it, and no byte is lost" },
	{ "recv.no-overrun", "scif.h recv",
	  "nothing behind the length is written" },
	{ "recv.node-lost", "scif.md 2 node loss",
	  "a receive that waits when the node is lost ends with ECONNRESET",
	  .lab_test = "scif_node_loss::hang" },

	/* Poll */
	{ "poll.unbound", "scif.md 2 poll",
	  "unbound: POLLERR" },
	{ "poll.bound", "scif.md 2 poll",
	  "bound only: POLLERR" },
	{ "poll.listening-idle", "scif.md 2 poll",
	  "listening with nothing queued: nothing, and POLLOUT is ignored" },
	{ "poll.listening-request", "scif.md 2 poll",
	  "listening: POLLIN when a request is queued" },
	{ "poll.connected-idle", "scif.md 2 poll",
	  "connected without data: POLLOUT and no POLLIN" },
	{ "poll.connected-data", "scif.md 2 poll",
	  "connected with data: POLLIN" },
	{ "poll.connected-full", "scif.md 2 poll",
	  "connected with a full ring: no POLLOUT, until there is room" },
	{ "poll.closed", "scif.md 2 poll",
	  "disconnected: POLLHUP" },
	{ "poll.closed-data", "scif.md 2 poll",
	  "disconnected with data left: POLLHUP and POLLIN, until it is received" },
	{ "poll.after-refusal", "scif.md 2 poll",
	  "after a refusal was collected the endpoint is bound only: POLLERR" },
	{ "poll.only-wanted", "scif.h poll",
	  "of POLLIN and POLLOUT only those that were asked for are reported" },
	{ "poll.several", "scif.h poll",
	  "the result counts the endpoints that have events" },
	{ "poll.timeout", "scif.h poll",
	  "0 when the time is over and nothing has happened" },
	{ "poll.wakes", "scif.h poll",
	  "a waiting poll wakes for data, room, a request, a close" },
	{ "poll.interrupted", "scif.h poll",
	  "a signal ends a waiting poll with EINTR" },
	{ "poll.invalid-descriptor", "scif.h poll",
	  "a descriptor that is none is POLLNVAL" },
	{ "poll.too-many", "scif.h poll",
	  "more endpoints than a process can have are EINVAL" },
	{ "poll.select-epoll", "scif.h accept",
	  "select and epoll say the same as poll" },

	/* Close */
	{ "close.bad-descriptor", "scif.h close",
	  "closing what is no endpoint is EBADF" },
	{ "close.hangup", "scif.md 2 close",
	  "the peer sees POLLHUP" },
	{ "close.data-stays", "scif.md 2 close",
	  "what was sent before the close stays readable at the peer" },
	{ "close.rejects-pending", "scif.md 2 close",
	  "closing a listener refuses the queued requests at once" },
	{ "close.listener-no-more", "scif.h close",
	  "after the close of a listener its port refuses" },
	{ "close.simultaneous", "scif.h close",
	  "both ends can close at a time, and neither hangs" },
	{ "close.process-ends", "scif.h connect",
	  "a process that ends, or is killed, closes its connections" },
	{ "close.windows-released", "scif.h close",
	  "windows are gone for the peer: its transfers fail" },
	{ "close.unpins", "scif.md 2 close",
	  "the memory of windows is released" },
	{ "close.rma-completes", "scif.md 2 close",
	  "copies that are in flight at a close complete" },
	{ "close.dup", "scif.h close",
	  "an endpoint that was duplicated is closed with its last descriptor" },
	{ "close.while-blocked", "scif.h close",
	  "a close in another thread while a call is blocked hangs neither" },
	{ "close.peer-endpoint", "scif.h close",
	  "after the peer's close the own endpoint is disconnected: calls are ECONNRESET" },
	{ "close.unaccepted", "scif.md 3",
	  "a connection that ACCEPTREQ made and nobody took ends with its listener" },

	/* Register */
	{ "register.returns-offset", "scif.h register",
	  "without FIXED the offset is a multiple of the page size and not in use" },
	{ "register.hint", "scif.h register",
	  "a suggestion that is free or not gives a window that overlaps none" },
	{ "register.fixed", "scif.h register",
	  "with FIXED the window is exactly there" },
	{ "register.fixed-zero", "scif.h register",
	  "offset 0 can be asked for with FIXED" },
	{ "register.fixed-unaligned", "scif.h register",
	  "FIXED with an offset that is no multiple of the page size is EINVAL" },
	{ "register.fixed-overlap", "scif.md 2 register",
	  "FIXED over any page of a window is EADDRINUSE, and the window stays" },
	{ "register.addr-unaligned", "scif.md 2 register",
	  "an address that is no multiple of the page size is EINVAL" },
	{ "register.len-unaligned", "scif.md 2 register",
	  "a length that is no multiple of the page size is EINVAL" },
	{ "register.len-zero", "scif.md 2 register",
	  "length 0 is EINVAL" },
	{ "register.len-overflow", "scif.md 2 register",
	  "a range that wraps around is refused" },
	{ "register.prot-invalid", "scif.md 2 register",
	  "protection of 0 or with other bits than READ and WRITE is EINVAL" },
	{ "register.flags-invalid", "scif.h register",
	  "unknown flags are EINVAL" },
	{ "register.map-kernel", "scif.md 2 register",
	  "MAP_KERNEL from user space is EINVAL" },
	{ "register.offset-negative", "scif.md 2 register",
	  "a negative offset is EINVAL" },
	{ "register.not-connected", "scif.h register",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "register.reset", "scif.h register",
	  "after the peer has closed: ECONNRESET" },
	{ "register.symmetric", "scif.md 2 register",
	  "equal first registrations on both sides get equal offsets" },
	{ "register.same-pages-twice", "scif.h register",
	  "the same page can be in several windows" },
	{ "register.per-connection", "scif.h register",
	  "each connection has an address space of its own: equal offsets in two do not meet" },
	{ "register.pages-stay", "scif.h register",
	  "unmapping or remapping the memory has no effect on the window" },
	{ "register.memlock-exceeded", "Documentation/abi.rst",
	  "over RLIMIT_MEMLOCK without CAP_IPC_LOCK: EAGAIN" },
	{ "register.memlock-exact", "scif.md 2 register",
	  "a window is charged exactly its pages, up to the limit and no further" },
	{ "register.memlock-returned", "scif.md 2 unregister",
	  "unregister and close give the charge back" },
	{ "register.memlock-capability", "scif.md 2 register",
	  "CAP_IPC_LOCK lifts the limit" },
	{ "register.read-only-memory", "scif.md 2 register",
	  "memory that is mapped read-only can be registered for reading, not for writing" },
	{ "register.read-only-file", "scif.md 2 register",
	  "a read-only mapping of a file is never written through a window" },
	{ "register.no-access-memory", "scif.md 2 register",
	  "memory without access is EFAULT" },
	{ "register.unmapped-memory", "scif.md 2 register",
	  "a range with an unmapped page is EFAULT, and nothing is charged" },
	{ "register.device-memory", "scif.md 2 register",
	  "memory of a device can't be pinned: a clear error" },
	{ "register.huge-pages", "scif.h register",
	  "memory of huge pages can be registered, also from the middle" },
	{ "register.shared-memory", "scif.h register",
	  "what the peer writes to shared memory is seen through all its mappings" },
	{ "register.untouched-memory", "scif.h register",
	  "memory that was never touched can be registered" },
	{ "register.many-windows", "scif.h register",
	  "hundreds of windows in one connection" },
	{ "register.visible-after", "Documentation/decisions.rst",
	  "a message sent after register does not arrive before the window is there" },

	/* Unregister */
	{ "unregister.whole", "scif.md 2 unregister",
	  "windows wholly inside the range go, several at a time" },
	{ "unregister.cut", "scif.md 2 unregister",
	  "a range that cuts a window is EINVAL, and nothing is unregistered" },
	{ "unregister.nothing", "scif.md 2 unregister",
	  "a range that holds no window is ENXIO" },
	{ "unregister.negative", "scif.h unregister",
	  "a negative offset is EINVAL" },
	{ "unregister.not-connected", "scif.h unregister",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "unregister.reset", "scif.h unregister",
	  "after the peer has closed: ECONNRESET" },
	{ "unregister.no-new-use", "scif.h unregister",
	  "after it returns, neither side can begin a transfer: ENXIO" },
	{ "unregister.in-use", "scif.md 2 unregister",
	  "a window that copies use lives until they have ended, and they arrive" },
	{ "unregister.mapped", "scif.md 2 unregister",
	  "a window that is mapped lives until the mapping goes, and its offsets stay taken" },
	{ "unregister.pending-signal", "scif.md 2 unregister",
	  "a window that a pending signal names lives until it is given" },
	{ "unregister.offset-free", "scif.h unregister",
	  "the offsets of a window without users can be registered again" },
	{ "unregister.peers-window", "scif.h unregister",
	  "the peer's windows can't be unregistered" },

	/* Transfers */
	{ "rma.writeto", "scif.h writeto",
	  "writeto copies from the local window to the remote one" },
	{ "rma.readfrom", "scif.h readfrom",
	  "readfrom copies from the remote window to the local one" },
	{ "rma.vwriteto", "scif.h vwriteto",
	  "vwriteto copies from memory that is not registered" },
	{ "rma.vreadfrom", "scif.h vreadfrom",
	  "vreadfrom copies to memory that is not registered" },
	{ "rma.any-alignment", "scif.md 2 readfrom",
	  "any alignment of either side, any length, and not a byte around it" },
	{ "rma.sync", "scif.h writeto",
	  "with SYNC the copy is complete on return" },
	{ "rma.usecpu", "scif.h writeto",
	  "with USECPU the copies are the same" },
	{ "rma.large", "scif.h writeto",
	  "copies of many megabytes" },
	{ "rma.spans", "scif.h writeto",
	  "a copy can span windows that are contiguous in offset, on both sides" },
	{ "rma.gap", "scif.md 2 readfrom",
	  "a gap is ENXIO, on either side, and nothing is copied" },
	{ "rma.outside", "scif.h writeto",
	  "a range outside of all windows, or beyond the end of one, is ENXIO" },
	{ "rma.negative", "scif.h writeto",
	  "a negative offset is ENXIO" },
	{ "rma.overflow", "scif.h writeto",
	  "an offset and length whose sum overflows is an error" },
	{ "rma.zero", "scif.md 2 readfrom",
	  "length 0 is EINVAL" },
	{ "rma.flags", "scif.md 2 readfrom",
	  "unknown flags are EINVAL" },
	{ "rma.not-connected", "scif.h writeto",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "rma.reset", "scif.h writeto",
	  "after the peer has closed: ECONNRESET" },
	{ "rma.access-remote", "scif.md 2 readfrom",
	  "what the remote window's protection does not allow is EACCES" },
	{ "rma.access-local", "scif.md 2 readfrom",
	  "what the local window's protection does not allow is EACCES" },
	{ "rma.v-bad-address", "scif.h vwriteto",
	  "memory that is not mapped is EFAULT" },
	{ "rma.v-read-only", "scif.md 2 register",
	  "vreadfrom into memory that is mapped read-only fails, and leaves it as it was" },
	{ "rma.ordered", "scif_writeto(3)",
	  "with ORDERED the last cache line becomes visible last, by engine and by CPU" },
	{ "rma.usecache", "scif.md 2 USECACHE",
	  "with USECACHE repeated copies from and to the same memory are right" },
	{ "rma.usecache-remap", "scif.md 2 USECACHE",
	  "what was mapped anew at the same address is what is copied" },
	{ "rma.usecache-unpins", "scif.md 2 USECACHE",
	  "what is kept pinned is let go when the memory is unmapped or the endpoint closed" },
	{ "rma.async-fence", "scif.h writeto",
	  "without SYNC a fence tells when copies are complete" },
	{ "rma.both-directions", "scif.h writeto",
	  "both sides copy at a time, and each sees what it should" },
	{ "rma.threads", "scif.h writeto",
	  "several threads can copy over one endpoint" },
	{ "rma.same-window", "scif.h register",
	  "two windows of one memory show the same bytes" },
	{ "rma.node-lost", "scif.md 2 node loss",
	  "a copy that is under way when the node is lost ends with an error",
	  .lab_test = "scif_node_loss::hang" },

	/* Fences */
	{ "mark.flags", "scif.md 2 fence_mark",
	  "exactly one of INIT_SELF and INIT_PEER; neither, both or others are EINVAL" },
	{ "mark.positive", "scif.md 2 fence_mark",
	  "a mark is positive" },
	{ "mark.not-connected", "scif.h fence_mark",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "mark.reset", "scif.h fence_mark",
	  "after the peer has closed: ECONNRESET" },
	{ "mark.bad-address", "scif.h fence_mark",
	  "a bad address for the mark is EFAULT" },
	{ "wait.self", "scif.h fence_wait",
	  "after the wait for an own mark the own copies are complete" },
	{ "wait.peer", "scif.h fence_wait",
	  "after the wait for a mark of INIT_PEER the peer's copies are complete" },
	{ "wait.unknown", "scif.md 2 fence_wait",
	  "a mark that was not given out is EINVAL" },
	{ "wait.idle", "scif.h fence_wait",
	  "with nothing under way the wait returns at once" },
	{ "wait.many", "scif.h fence_mark",
	  "hundreds of marks can be outstanding, and be waited for in any order" },
	{ "wait.not-connected", "scif.h fence_wait",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "wait.reset", "scif.h fence_wait",
	  "after the peer has closed: ECONNRESET" },
	{ "wait.interruptible", "scif.md 2 fence_wait",
	  "a wait can be interrupted",
	  .untested = "no copy lasts long enough for a signal to arrive in it surely" },
	{ "wait.node-lost", "scif.md 2 node loss",
	  "a wait that is under way when the node is lost ends",
	  .lab_test = "scif_node_loss::hang" },
	{ "signal.local", "scif.md 2 fence_signal",
	  "SIGNAL_LOCAL writes lval at loff in the own window" },
	{ "signal.remote", "scif.md 2 fence_signal",
	  "SIGNAL_REMOTE writes rval at roff in the peer's window" },
	{ "signal.both", "scif.h fence_signal",
	  "both at a time" },
	{ "signal.init-peer", "scif.md 2 fence_signal",
	  "with INIT_PEER, too, lval goes to the own window and rval to the peer's" },
	{ "signal.init-flags", "scif.h fence_signal",
	  "neither or both of INIT_SELF and INIT_PEER are EINVAL" },
	{ "signal.no-target", "scif.h fence_signal",
	  "neither SIGNAL_LOCAL nor SIGNAL_REMOTE is EINVAL" },
	{ "signal.flags", "scif.h fence_signal",
	  "unknown flags are EINVAL" },
	{ "signal.unaligned", "scif.md 2 fence_signal",
	  "an offset that is no multiple of 4 is EINVAL" },
	{ "signal.four-aligned", "scif.md 2 fence_signal",
	  "a multiple of 4 that is none of 8 gets all 64 bits, and no byte more" },
	{ "signal.page-end", "scif.md 2 fence_signal",
	  "8 bytes that do not fit in the page are refused, and nothing is written" },
	{ "signal.outside", "scif.h fence_signal",
	  "an offset outside of all windows is ENXIO, for either side" },
	{ "signal.unused-offset", "scif.h fence_signal",
	  "the offset of the side that is not asked for does not matter" },
	{ "signal.read-only", "scif.md 2 readfrom",
	  "a window that can't be written is EACCES" },
	{ "signal.not-connected", "scif.h fence_signal",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "signal.reset", "scif.h fence_signal",
	  "after the peer has closed: ECONNRESET" },
	{ "signal.after-data", "scif.h fence_signal",
	  "whoever sees the signal sees the data of the copies before it, spinning or not" },
	{ "signal.after-peers-data", "scif.h fence_signal",
	  "likewise for the peer's copies, with INIT_PEER" },

	/* Mmap */
	{ "mmap.reads", "scif.h register",
	  "what the peer has in its window is read through a mapping" },
	{ "mmap.writes", "scif.h register",
	  "what is written through a mapping is seen by the peer" },
	{ "mmap.part", "scif.md 2 mmap",
	  "any pages of a window can be mapped" },
	{ "mmap.spans", "scif.md 2 mmap",
	  "a mapping can span contiguous windows" },
	{ "mmap.gap", "scif.md 2 mmap",
	  "a range with a gap, or outside of all windows, is refused with ENXIO" },
	{ "mmap.unaligned", "scif.md 2 mmap",
	  "an offset that is no multiple of the page size is EINVAL" },
	{ "mmap.protection", "scif.md 2 mmap",
	  "more than the window allows is EACCES" },
	{ "mmap.mprotect", "scif.md 2 mmap",
	  "mprotect can't raise the protection above the window's" },
	{ "mmap.mprotect-lower", "scif.md 2 mmap",
	  "mprotect can lower it and raise it again within what was mapped" },
	{ "mmap.write-only", "scif.md 2 mmap",
	  "a window that is write-only can't be mapped for reading" },
	{ "mmap.unregister", "scif.md 2 unregister",
	  "a mapping goes on to work after the peer has unregistered" },
	{ "mmap.peer-close", "scif.md 2 close",
	  "a mapping goes on to work after the peer has closed" },
	{ "mmap.own-close", "scif.md 2 close",
	  "a mapping goes on to work after the own endpoint was closed" },
	{ "mmap.partial-unmap", "scif.md 2 mmap",
	  "a mapping can be unmapped in parts" },
	{ "mmap.not-inherited", "scif.md 2 fork",
	  "a mapping is not inherited by fork" },
	{ "mmap.no-growth", "scif.md 2 mmap",
	  "mremap can't enlarge a mapping" },
	{ "mmap.not-connected", "scif.h register",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "mmap.reset", "scif.h register",
	  "after the peer has closed no new mapping can be made" },
	{ "mmap.private", "scif.md 1",
	  "mappings are shared: a private one for writing is refused" },
	{ "mmap.atomic-words", "scif.h register",
	  "8-byte stores through a mapping arrive whole" },
	{ "mmap.not-pinnable", "scif.md 2 register",
	  "a mapping can't be registered: the memory is not this node's" },
	{ "mmap.node-lost", "scif.md 2 mmap",
	  "after the node was lost a mapping gives SIGBUS",
	  .lab_test = "scif_node_loss::hang" },

	/* Processes */
	{ "process.fork-shares", "scif.md 2 fork",
	  "a forked child shares the endpoint" },
	{ "process.fork-close", "scif.md 2 fork",
	  "the connection ends when the last process that shares it has closed it" },
	{ "process.exec", "scif.h close",
	  "endpoints survive exec unless they are close-on-exec" },
	{ "process.exec-unpins", "scif.md 2 register",
	  "windows outlive the exec or the end of the process, while others have the endpoint" },
	{ "process.killed-peer", "scif.h connect",
	  "a peer that is killed in the middle of everything: calls end, ECONNRESET" },
	{ "process.kill-unpins", "scif.md 2 register",
	  "a killed process leaves nothing pinned or charged" },
	{ "process.fork-windows", "scif.md 2 fork",
	  "memory with MADV_DONTFORK stays the window's after a fork" },
	{ "process.threads", "scif.h send",
	  "threads can use one endpoint for different calls at a time" },

	/* The raw interface */
	{ "abi.bind-two-bytes", "scif.md 1",
	  "BIND reads two bytes and writes two, never more" },
	{ "abi.connect-self", "scif.md 1",
	  "CONNECT writes back self, node and port, and nothing else" },
	{ "abi.accept-fields", "scif.md 1",
	  "ACCEPTREQ writes back peer and endpt, and nothing else" },
	{ "abi.message-fields", "scif.md 1",
	  "SEND and RECV write back out_len, and nothing else" },
	{ "abi.register-fields", "scif.md 1",
	  "REG writes back out_offset, and nothing else" },
	{ "abi.unknown", "scif.md 1",
	  "an unknown ioctl is ENOTTY" },
	{ "abi.handle-opaque", "scif.md 1",
	  "the handle of ACCEPTREQ is no pointer and not the one before" },
	{ "abi.handle-unknown", "scif.md 3",
	  "ACCEPTREG with a number that was not given out is EINVAL" },
	{ "abi.handle-once", "Documentation/abi.rst",
	  "a handle is good once" },
	{ "abi.handle-process", "scif.md 3",
	  "a handle is good only in the process that accepted" },
	{ "abi.handle-fresh", "Documentation/abi.rst",
	  "ACCEPTREG takes a fresh endpoint only, and a mistake costs no connection" },
	{ "abi.bad-address", "scif.md 1",
	  "a bad address for the argument of any ioctl is EFAULT" },
	{ "abi.numbers", "scif.md 1",
	  "the numbers and layouts of the ioctls are those of the header" },
	{ "abi.backlog-value", "scif.md 1",
	  "LISTEN and FENCE_WAIT take their argument by value" },
	{ "abi.no-read-write", "scif.md 1",
	  "the device is used by ioctl, poll and mmap only: read and write fail" },
	{ "abi.short-structure", "scif.md 1",
	  "nothing behind an argument is read or written, even at the end of the memory" },
	{ "abi.32-bit", "scif.md 1",
	  "32-bit programs get the same",
	  .lab_test = "scif_compat::loopback" },
	{ "abi.mic-device", "scif.md 1",
	  "/dev/mic/scif takes the numbers of the older library",
	  .lab_test = "scif_compat::older_loopback" },

	/* Three nodes */
	{ "star.nodes", "scif.md 1",
	  "the node in the middle lists all three" },
	{ "star.not-routed", "scif.h connect",
	  "the outer nodes do not see each other: ENODEV" },
	{ "star.equal-ports", "scif.h bind",
	  "connections to equal ports of two nodes do not meet" },
	{ "star.equal-offsets", "scif.h register",
	  "windows at equal offsets of connections with two nodes do not meet" },
	{ "star.parallel", "scif.h writeto",
	  "copies to and from two nodes at a time" },
	{ "star.messages", "scif.h send",
	  "messages with two nodes at a time" },
	{ "star.isolated-close", "scif.h close",
	  "the close of one connection does not touch the one with another node" },
	{ "star.one-listener", "scif.h accept",
	  "a listener accepts from two nodes, and tells them apart" },
	{ "star.poll", "scif.h poll",
	  "one poll watches endpoints with different peers" },
	{ "star.node-lost", "scif.md 2 node loss",
	  "the loss of one node does not touch the connections with another",
	  .lab_test = "scif_star::one_dies" },

	/* Node loss */
	{ "loss.unpins", "scif.md 2 node loss",
	  "windows are revoked and memory unpinned when the node is lost",
	  .lab_test = "scif_node_loss::unload" },
	{ "loss.reload", "scif.md 2 node loss",
	  "the module can be unloaded and loaded again on either side",
	  .lab_test = "scif_node_loss::unload" },
	{ }
};

const struct rule *find_rule(const char *id)
{
	const struct rule *rule;

	for (rule = rules; rule->id; rule++) {
		if (!strcmp(rule->id, id))
			return rule;
	}
	return NULL;
}

/* Goes on to the next of the words in *words. */
static bool next_word(const char **words, char *word, size_t room)
{
	size_t len;

	*words += strspn(*words, " ");
	len = strcspn(*words, " ");
	if (!len || len >= room)
		return false;
	memcpy(word, *words, len);
	word[len] = 0;
	*words += len;
	return true;
}

bool case_checks(const struct test_case *test, const char *rule)
{
	const char *words = test->rules;
	char word[64];

	while (next_word(&words, word, sizeof(word))) {
		if (!strcmp(word, rule))
			return true;
	}
	return false;
}

/* The next case that checks the rule, after the given position. */
static const struct test_case *next_case(const struct rule *rule,
					 const struct test_case *const **file,
					 const struct test_case **test)
{
	const struct test_case *found;

	for (; **file; *test = *++*file) {
		for (; *test && (*test)->name; ++*test) {
			if (!case_checks(*test, rule->id))
				continue;
			found = *test;
			++*test;
			return found;
		}
	}
	return NULL;
}

void print_rules(void)
{
	const struct test_case *const *file, *test, *found;
	const struct rule *rule;
	const char *between;

	printf(".. %s-License-Identifier: GPL-2.0\n", "SPDX");
	printf(".. Made by \"conformance rules\"; scripts/check compares.\n\n"
	       "=====================\nRules and their cases\n=====================\n\n"
	       "Every sentence of the specification that can be tested, and what tests it.\n\n"
	       ".. list-table::\n   :header-rows: 1\n\n"
	       "   * - Rule\n     - Statement\n     - Source\n     - Checked by\n");
	for (rule = rules; rule->id; rule++) {
		printf("   * - %s\n     - %s\n     - %s\n     - ", rule->id, rule->statement,
		       rule->source);
		between = "";
		file = all_cases;
		test = *file;
		while ((found = next_case(rule, &file, &test))) {
			printf("%s%s", between, found->name);
			between = ", ";
		}
		if (rule->lab_test) {
			printf("%slab test %s", between, rule->lab_test);
			between = ", ";
		}
		if (rule->untested)
			printf("%snot tested: %s", between, rule->untested);
		putchar('\n');
	}
}

bool check_rules(void)
{
	const struct test_case *const *file, *test;
	const struct rule *rule;
	const char *words;
	char word[64];
	bool well = true;

	for (rule = rules; rule->id; rule++) {
		file = all_cases;
		test = *file;
		if (find_rule(rule->id) != rule) {
			fprintf(stderr, "two rules are called '%s'\n", rule->id);
			well = false;
		}
		if (!rule->lab_test && !rule->untested && !next_case(rule, &file, &test)) {
			fprintf(stderr, "no case checks the rule '%s'\n", rule->id);
			well = false;
		}
	}
	for (file = all_cases; *file; file++) {
		for (test = *file; test->name; test++) {
			words = test->rules;
			if (find_case(test->name) != test) {
				fprintf(stderr, "two cases are called '%s'\n", test->name);
				well = false;
			}
			if (!*words) {
				fprintf(stderr, "the case '%s' names no rule\n", test->name);
				well = false;
			}
			while (next_word(&words, word, sizeof(word))) {
				if (find_rule(word))
					continue;
				fprintf(stderr, "the case '%s' names an unknown rule '%s'\n",
					test->name, word);
				well = false;
			}
		}
	}
	return well;
}
