// SPDX-License-Identifier: GPL-2.0
/*
 * The rules: every sentence of the specification that can be tested, in our own words, and
 * where it is said.
 *
 * Sources: "ABI", "semantics" and "security" are the parts of the specification that the
 * driver is written by; "header" is the documentation of the calls in the header of the
 * original kernel interface, scif_writeto(3) the original manual page; what was decided where
 * these leave something open or contradict each other is in Documentation/.
 */
#include "suite.h"

const struct rule rules[] = {
	/* Open, nodes */
	{ "open.endpoint", "header, open",
	  "opening gives a new endpoint, as many as wanted, each with a state of its own" },
	{ "open.out-of-memory", "header, open",
	  "the only error of the device itself is ENOMEM",
	  .untested = "allocations can't be made to fail from a case" },
	{ "nodes.count-includes-self", "header, get_node_ids",
	  "the result is the number of nodes online, this one included" },
	{ "nodes.self", "header, get_node_ids",
	  "the own node's id is returned at self" },
	{ "nodes.null-array", "ABI",
	  "get_nodeIDs(NULL, 0, &self) works" },
	{ "nodes.short-array", "header, get_node_ids",
	  "a short array gets the ids that fit, nothing behind it, and the count of all" },
	{ "nodes.no-uninitialised", "semantics, get_node_ids",
	  "what is behind the ids in a long array is not touched" },
	{ "nodes.invalid", "semantics, get_node_ids",
	  "a negative length is EINVAL, a bad address EFAULT" },
	{ "nodes.connected-listed", "header, get_node_ids",
	  "each node that can be connected to is listed, once" },
	{ "nodes.absent-not-listed", "header, get_node_ids",
	  "a node that was lost is not counted any more, and one that comes back is",
	  .lab_test = "scif_node_loss::unload" },

	/* Bind */
	{ "bind.returns-port", "header, bind",
	  "bind returns the port that it was asked for" },
	{ "bind.port-zero", "semantics, bind",
	  "port 0 gets an unused port, 1088 or above" },
	{ "bind.port-zero-distinct", "semantics, bind",
	  "ports given out for 0 are not in use by anybody" },
	{ "bind.privileged", "semantics, bind",
	  "a port below 1024 without privilege is EACCES" },
	{ "bind.privileged-allowed", "header, bind",
	  "a port below 1024 can be bound by root" },
	{ "bind.reserved-for-anybody", "semantics, bind",
	  "the ports 1024 to 1087 can be asked for by anybody" },
	{ "bind.highest-port", "header, bind",
	  "the highest port, 65535, can be bound" },
	{ "bind.already-bound", "semantics, bind",
	  "an endpoint that is bound is EINVAL, and keeps its port" },
	{ "bind.port-taken", "semantics, bind",
	  "a port that is taken is EINVAL, and the endpoint stays unbound" },
	{ "bind.listening", "semantics, bind",
	  "a listening endpoint is EISCONN" },
	{ "bind.connected", "semantics, bind",
	  "a connected endpoint is EISCONN, on both sides" },
	{ "bind.free-after-close", "header, bind",
	  "a port can be bound again after its endpoint was closed" },
	{ "bind.ports-exhausted", "semantics, bind",
	  "ENOSPC when no port is left, and a port again after one was closed" },
	{ "bind.bad-descriptor", "header, bind",
	  "a descriptor that is none is EBADF, one of another device ENOTTY, in every call" },

	/* Listen */
	{ "listen.unbound", "semantics, listen",
	  "an unbound endpoint is EINVAL" },
	{ "listen.listening", "semantics, listen",
	  "a listening endpoint is EISCONN" },
	{ "listen.connected", "semantics, listen",
	  "a connected endpoint is EISCONN" },
	{ "listen.backlog-invalid", "semantics, listen",
	  "a backlog of 0 or less is EINVAL, and the endpoint can still listen afterwards" },
	{ "listen.backlog-clamped", "semantics, listen",
	  "a huge backlog is accepted, and clamped" },
	{ "listen.backlog-limits", "header, listen",
	  "with the backlog full, a further request is refused" },
	{ "listen.not-a-connection", "header, listen",
	  "a listening endpoint can't be used as one of a connection: ENOTCONN" },

	/* Connect */
	{ "connect.returns-own-port", "header, connect",
	  "connect returns the local port" },
	{ "connect.auto-bind", "header, connect",
	  "an unbound endpoint is bound to an unused port, 1088 or above" },
	{ "connect.bound-keeps-port", "header, connect",
	  "an endpoint that is bound keeps its port, which the acceptor sees" },
	{ "connect.absent-node", "semantics, connect",
	  "a node that is not there is ENODEV, and the endpoint can be used afterwards" },
	{ "connect.port-zero", "semantics, connect",
	  "port 0 of the peer is EINVAL" },
	{ "connect.listening", "semantics, connect",
	  "a listening endpoint is EOPNOTSUPP" },
	{ "connect.connected", "semantics, connect",
	  "a connected endpoint is EISCONN, on both sides" },
	{ "connect.no-listener", "semantics, connect",
	  "a port on which nobody listens is ECONNREFUSED, whether or not it is bound" },
	{ "connect.refused-stays-bound", "semantics, connect",
	  "after a refusal the endpoint is bound to the same port and can try again" },
	{ "connect.retry-succeeds", "semantics, connect",
	  "who tries until the listener is there is connected, on the same endpoint" },
	{ "connect.waits-for-accept", "semantics, connect",
	  "connect completes when the peer accepts, not before" },
	{ "connect.interrupted", "Documentation/abi.rst",
	  "a signal ends a waiting connect with EINTR; it can be tried again" },
	{ "connect.gives-up", "semantics, connect",
	  "a connector that was killed while it waited does not wedge a later accept" },
	{ "connect.own-node", "semantics, loopback",
	  "an endpoint can connect to a listener of its own node" },
	{ "connect.ports-exhausted", "header, connect",
	  "ENOSPC when no local port is left" },
	{ "connect.no-memory", "header, connect",
	  "ENOMEM when there is no memory for a connection",
	  .untested = "allocations can't be made to fail from a case" },
	{ "connect.same-destination", "header, connect",
	  "many endpoints can be connected to one port of a node at a time" },
	{ "connect.crossing", "header, connect",
	  "two nodes can connect to each other's listeners at the same time" },
	{ "connect.nonblock-in-progress", "semantics, connect",
	  "with O_NONBLOCK connect is EINPROGRESS, each time until somebody has accepted" },
	{ "connect.nonblock-pollout", "semantics, connect",
	  "POLLOUT says that a non-blocking connect has ended, not before" },
	{ "connect.nonblock-collect", "semantics, connect",
	  "a second connect collects the result: the local port" },
	{ "connect.nonblock-refused", "semantics, connect",
	  "a refusal is collected likewise, as ECONNREFUSED, and the endpoint can try again" },
	{ "connect.nonblock-only", "semantics, connect",
	  "no other call honours O_NONBLOCK" },
	{ "connect.node-lost", "semantics, node loss",
	  "a connect that waits ends with an error when the node is lost",
	  .lab_test = "scif_node_loss::hang" },

	/* Accept */
	{ "accept.flags", "semantics, accept",
	  "flags other than 0 and SYNC are EINVAL" },
	{ "accept.null", "header, accept",
	  "NULL for the peer or the new endpoint is EINVAL" },
	{ "accept.not-listening", "semantics, accept",
	  "an endpoint that does not listen is EINVAL" },
	{ "accept.empty", "semantics, accept",
	  "with nothing queued and no SYNC: EAGAIN" },
	{ "accept.sync-waits", "header, accept",
	  "with SYNC accept waits for a request" },
	{ "accept.tells-peer", "header, accept",
	  "peer is the node and port that have asked" },
	{ "accept.order", "header, accept",
	  "requests are accepted in the order in which they came" },
	{ "accept.same-port", "semantics, accept",
	  "the new endpoint shares the port of the listener" },
	{ "accept.listener-unaffected", "header, accept",
	  "the listener goes on listening" },
	{ "accept.interrupted", "semantics, accept",
	  "a signal ends a waiting accept with EINTR" },
	{ "accept.closed-meanwhile", "semantics, accept",
	  "closing the listener in another thread ends a waiting accept with EINTR" },
	{ "accept.several-threads", "header, accept",
	  "several threads can wait in accept: each request goes to one of them" },
	{ "accept.withdrawn", "semantics, connect",
	  "a request that was withdrawn is not accepted" },
	{ "accept.outlives-listener", "header, accept",
	  "an accepted connection goes on after its listener was closed" },
	{ "accept.port-stays-taken", "semantics, accept",
	  "the port stays in use as long as an accepted endpoint has it" },
	{ "accept.many", "header, accept",
	  "the number of connections accepted on a listener is not bounded by its backlog" },

	/* Send and recv */
	{ "send.zero", "semantics, send",
	  "length 0 returns 0" },
	{ "send.negative", "semantics, send",
	  "a negative length is EINVAL" },
	{ "send.flags", "semantics, send",
	  "unknown flags are EINVAL" },
	{ "send.not-connected", "semantics, send",
	  "an endpoint that was never connected is ENOTCONN" },
	{ "send.bytes", "header, send",
	  "the bytes arrive as sent, in order, whatever the sizes of the pieces on both sides" },
	{ "send.block-all", "header, send",
	  "a blocking send returns after all bytes are sent, also if they don't fit at once" },
	{ "send.nonblock-partial", "header, send",
	  "a non-blocking send takes what fits and returns that count" },
	{ "send.nonblock-full", "semantics, send",
	  "a non-blocking send to a full ring returns 0, not EAGAIN" },
	{ "send.room-again", "header, send",
	  "when the peer has received, there is room again" },
	{ "send.largest", "header, send",
	  "of the largest length, 2^31-1, a non-blocking send takes what fits" },
	{ "send.interrupted-partial", "semantics, send",
	  "a signal after some bytes were sent ends a blocking send with their count" },
	{ "send.interrupted-none", "header, send",
	  "a signal before any byte was sent ends it with EINTR, or goes on with SA_RESTART" },
	{ "send.reset-partial", "semantics, send",
	  "if the peer goes after some bytes were sent, their count is returned" },
	{ "send.reset", "semantics, send",
	  "after the peer has closed: ECONNRESET" },
	{ "send.close-wakes", "header, send",
	  "a blocked send ends when the peer closes" },
	{ "send.both-ways", "header, send",
	  "both sides can fill their rings at a time without disturbing each other" },
	{ "send.atomic", "header, send",
	  "messages that threads send at a time to one endpoint do not mix" },
	{ "send.bad-address", "header, send",
	  "a bad address is EFAULT, or the count of the bytes before it; none is lost" },
	{ "send.node-lost", "semantics, node loss",
	  "a send that waits when the node is lost ends",
	  .lab_test = "scif_node_loss::hang" },
	{ "recv.zero", "header, recv",
	  "length 0 returns 0" },
	{ "recv.negative", "header, recv",
	  "a negative length is EINVAL" },
	{ "recv.flags", "header, recv",
	  "unknown flags are EINVAL" },
	{ "recv.not-connected", "semantics, recv",
	  "an endpoint that was never connected is ENOTCONN" },
	{ "recv.nonblock-empty", "semantics, recv",
	  "a non-blocking receive with nothing there returns 0" },
	{ "recv.nonblock-partial", "header, recv",
	  "a non-blocking receive returns what is there, up to the length" },
	{ "recv.block-all", "header, recv",
	  "a blocking receive returns after all bytes have come" },
	{ "recv.largest", "header, recv",
	  "the largest length, 2^31-1, is accepted by a non-blocking receive" },
	{ "recv.interrupted-partial", "semantics, recv",
	  "a signal after some bytes were received ends a blocking receive with their count" },
	{ "recv.interrupted-none", "semantics, recv",
	  "a signal before any byte came ends it with EINTR, or goes on with SA_RESTART" },
	{ "recv.drain", "semantics, recv",
	  "after a close what had arrived can be received, then ECONNRESET, never 0" },
	{ "recv.block-short-drain", "header, recv",
	  "a blocking receive that the close cuts short returns what has come" },
	{ "recv.close-wakes", "header, recv",
	  "a blocked receive ends with ECONNRESET when the peer closes" },
	{ "recv.bad-address", "header, recv",
	  "a bad address is EFAULT, or the count of the bytes before it, and no byte is lost" },
	{ "recv.no-overrun", "header, recv",
	  "nothing behind the length is written" },
	{ "recv.node-lost", "semantics, node loss",
	  "a receive that waits when the node is lost ends with ECONNRESET",
	  .lab_test = "scif_node_loss::hang" },

	/* Poll */
	{ "poll.unbound", "semantics, poll",
	  "unbound: POLLERR" },
	{ "poll.bound", "semantics, poll",
	  "bound only: POLLERR" },
	{ "poll.listening-idle", "semantics, poll",
	  "listening with nothing queued: nothing, and POLLOUT is ignored" },
	{ "poll.listening-request", "semantics, poll",
	  "listening: POLLIN when a request is queued" },
	{ "poll.connected-idle", "semantics, poll",
	  "connected without data: POLLOUT and no POLLIN" },
	{ "poll.connected-data", "semantics, poll",
	  "connected with data: POLLIN" },
	{ "poll.connected-full", "semantics, poll",
	  "connected with a full ring: no POLLOUT, until there is room" },
	{ "poll.closed", "semantics, poll",
	  "disconnected: POLLHUP" },
	{ "poll.closed-data", "semantics, poll",
	  "disconnected with data left: POLLHUP and POLLIN, until it is received" },
	{ "poll.after-refusal", "semantics, poll",
	  "after a refusal was collected the endpoint is bound only: POLLERR" },
	{ "poll.only-wanted", "header, poll",
	  "of POLLIN and POLLOUT only those that were asked for are reported" },
	{ "poll.several", "header, poll",
	  "the result counts the endpoints that have events" },
	{ "poll.timeout", "header, poll",
	  "0 when the time is over and nothing has happened" },
	{ "poll.wakes", "header, poll",
	  "a waiting poll wakes for data, room, a request, a close" },
	{ "poll.interrupted", "header, poll",
	  "a signal ends a waiting poll with EINTR" },
	{ "poll.invalid-descriptor", "header, poll",
	  "a descriptor that is none is POLLNVAL" },
	{ "poll.too-many", "header, poll",
	  "more endpoints than a process can have are EINVAL" },
	{ "poll.select-epoll", "header, accept",
	  "select and epoll say the same as poll" },

	/* Close */
	{ "close.bad-descriptor", "header, close",
	  "closing what is no endpoint is EBADF" },
	{ "close.hangup", "semantics, close",
	  "the peer sees POLLHUP" },
	{ "close.data-stays", "semantics, close",
	  "what was sent before the close stays readable at the peer" },
	{ "close.rejects-pending", "semantics, close",
	  "closing a listener refuses the queued requests at once" },
	{ "close.listener-no-more", "header, close",
	  "after the close of a listener its port refuses" },
	{ "close.simultaneous", "header, close",
	  "both ends can close at a time, and neither hangs" },
	{ "close.process-ends", "header, connect",
	  "a process that ends, or is killed, closes its connections" },
	{ "close.windows-released", "header, close",
	  "windows are gone for the peer: its transfers fail" },
	{ "close.unpins", "semantics, close",
	  "the memory of windows is released" },
	{ "close.rma-completes", "semantics, close",
	  "copies that are in flight at a close complete" },
	{ "close.dup", "header, close",
	  "an endpoint that was duplicated is closed with its last descriptor" },
	{ "close.while-blocked", "header, close",
	  "a close in another thread while a call is blocked hangs neither" },
	{ "close.peer-endpoint", "header, close",
	  "after the peer's close the own endpoint is disconnected: calls are ECONNRESET" },
	{ "close.unaccepted", "security",
	  "a connection that ACCEPTREQ made and nobody took ends with its listener" },

	/* Register */
	{ "register.returns-offset", "header, register",
	  "without FIXED the offset is a multiple of the page size and not in use" },
	{ "register.hint", "header, register",
	  "a suggestion that is free or not gives a window that overlaps none" },
	{ "register.fixed", "header, register",
	  "with FIXED the window is exactly there" },
	{ "register.fixed-zero", "header, register",
	  "offset 0 can be asked for with FIXED" },
	{ "register.fixed-unaligned", "header, register",
	  "FIXED with an offset that is no multiple of the page size is EINVAL" },
	{ "register.fixed-overlap", "semantics, register",
	  "FIXED over any page of a window is EADDRINUSE, and the window stays" },
	{ "register.addr-unaligned", "semantics, register",
	  "an address that is no multiple of the page size is EINVAL" },
	{ "register.len-unaligned", "semantics, register",
	  "a length that is no multiple of the page size is EINVAL" },
	{ "register.len-zero", "semantics, register",
	  "length 0 is EINVAL" },
	{ "register.len-overflow", "semantics, register",
	  "a range that wraps around is refused" },
	{ "register.prot-invalid", "semantics, register",
	  "protection of 0 or with other bits than READ and WRITE is EINVAL" },
	{ "register.flags-invalid", "header, register",
	  "unknown flags are EINVAL" },
	{ "register.map-kernel", "semantics, register",
	  "MAP_KERNEL from user space is EINVAL" },
	{ "register.offset-negative", "semantics, register",
	  "a negative offset is EINVAL" },
	{ "register.not-connected", "header, register",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "register.reset", "header, register",
	  "after the peer has closed: ECONNRESET" },
	{ "register.symmetric", "semantics, register",
	  "equal first registrations on both sides get equal offsets" },
	{ "register.same-pages-twice", "header, register",
	  "the same page can be in several windows" },
	{ "register.per-connection", "header, register",
	  "each connection has an address space of its own: equal offsets in two do not meet" },
	{ "register.pages-stay", "header, register",
	  "unmapping or remapping the memory has no effect on the window" },
	{ "register.memlock-exceeded", "Documentation/abi.rst",
	  "over RLIMIT_MEMLOCK without CAP_IPC_LOCK: EAGAIN" },
	{ "register.memlock-exact", "semantics, register",
	  "a window is charged exactly its pages, up to the limit and no further" },
	{ "register.memlock-returned", "semantics, unregister",
	  "unregister and close give the charge back" },
	{ "register.memlock-capability", "semantics, register",
	  "CAP_IPC_LOCK lifts the limit" },
	{ "register.read-only-memory", "semantics, register",
	  "memory that is mapped read-only can be registered for reading, not for writing" },
	{ "register.read-only-file", "semantics, register",
	  "a read-only mapping of a file is never written through a window" },
	{ "register.no-access-memory", "semantics, register",
	  "memory without access is EFAULT" },
	{ "register.unmapped-memory", "semantics, register",
	  "a range with an unmapped page is EFAULT, and nothing is charged" },
	{ "register.device-memory", "semantics, register",
	  "memory of a device can't be pinned: a clear error" },
	{ "register.huge-pages", "header, register",
	  "memory of huge pages can be registered, also from the middle" },
	{ "register.shared-memory", "header, register",
	  "what the peer writes to shared memory is seen through all its mappings" },
	{ "register.untouched-memory", "header, register",
	  "memory that was never touched can be registered" },
	{ "register.many-windows", "header, register",
	  "hundreds of windows in one connection" },
	{ "register.visible-after", "Documentation/decisions.rst",
	  "a message sent after register does not arrive before the window is there" },

	/* Unregister */
	{ "unregister.whole", "semantics, unregister",
	  "windows wholly inside the range go, several at a time" },
	{ "unregister.cut", "semantics, unregister",
	  "a range that cuts a window is EINVAL, and nothing is unregistered" },
	{ "unregister.nothing", "semantics, unregister",
	  "a range that holds no window is ENXIO" },
	{ "unregister.negative", "header, unregister",
	  "a negative offset is EINVAL" },
	{ "unregister.not-connected", "header, unregister",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "unregister.reset", "header, unregister",
	  "after the peer has closed: ECONNRESET" },
	{ "unregister.no-new-use", "header, unregister",
	  "after it returns, neither side can begin a transfer: ENXIO" },
	{ "unregister.in-use", "semantics, unregister",
	  "a window that copies use lives until they have ended, and they arrive" },
	{ "unregister.mapped", "semantics, unregister",
	  "a window that is mapped lives until the mapping goes, and its offsets stay taken" },
	{ "unregister.pending-signal", "semantics, unregister",
	  "a window that a pending signal names lives until it is given" },
	{ "unregister.offset-free", "header, unregister",
	  "the offsets of a window that is not in use can be registered again" },
	{ "unregister.peers-window", "header, unregister",
	  "the peer's windows can't be unregistered" },

	/* Transfers */
	{ "rma.writeto", "header, writeto",
	  "writeto copies from the local window to the remote one" },
	{ "rma.readfrom", "header, readfrom",
	  "readfrom copies from the remote window to the local one" },
	{ "rma.vwriteto", "header, vwriteto",
	  "vwriteto copies from memory that is not registered" },
	{ "rma.vreadfrom", "header, vreadfrom",
	  "vreadfrom copies to memory that is not registered" },
	{ "rma.any-alignment", "semantics, readfrom",
	  "any alignment of either side, any length, and not a byte around it" },
	{ "rma.sync", "header, writeto",
	  "with SYNC the copy is complete on return" },
	{ "rma.usecpu", "header, writeto",
	  "with USECPU the copies are the same" },
	{ "rma.large", "header, writeto",
	  "copies of many megabytes" },
	{ "rma.spans", "header, writeto",
	  "a copy can span windows that are contiguous in offset, on both sides" },
	{ "rma.gap", "semantics, readfrom",
	  "a gap is ENXIO, on either side, and nothing is copied" },
	{ "rma.outside", "header, writeto",
	  "a range outside of all windows, or beyond the end of one, is ENXIO" },
	{ "rma.negative", "header, writeto",
	  "a negative offset is ENXIO" },
	{ "rma.overflow", "header, writeto",
	  "an offset and length whose sum overflows is an error" },
	{ "rma.zero", "semantics, readfrom",
	  "length 0 is EINVAL" },
	{ "rma.flags", "semantics, readfrom",
	  "unknown flags are EINVAL" },
	{ "rma.not-connected", "header, writeto",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "rma.reset", "header, writeto",
	  "after the peer has closed: ECONNRESET" },
	{ "rma.access-remote", "semantics, readfrom",
	  "what the remote window's protection does not allow is EACCES" },
	{ "rma.access-local", "semantics, readfrom",
	  "what the local window's protection does not allow is EACCES" },
	{ "rma.v-bad-address", "header, vwriteto",
	  "memory that is not mapped is EFAULT" },
	{ "rma.v-read-only", "semantics, register",
	  "vreadfrom into memory that is mapped read-only fails, and leaves it as it was" },
	{ "rma.ordered", "scif_writeto(3)",
	  "with ORDERED the last cache line becomes visible last, by engine and by CPU" },
	{ "rma.usecache", "semantics, USECACHE",
	  "with USECACHE repeated copies from and to the same memory are right" },
	{ "rma.usecache-remap", "semantics, USECACHE",
	  "what was mapped anew at the same address is what is copied" },
	{ "rma.usecache-unpins", "semantics, USECACHE",
	  "what is kept pinned is let go when the memory is unmapped or the endpoint closed" },
	{ "rma.async-fence", "header, writeto",
	  "without SYNC a fence tells when copies are complete" },
	{ "rma.both-directions", "header, writeto",
	  "both sides copy at a time, and each sees what it should" },
	{ "rma.threads", "header, writeto",
	  "several threads can copy over one endpoint" },
	{ "rma.same-window", "header, register",
	  "two windows of one memory show the same bytes" },
	{ "rma.node-lost", "semantics, node loss",
	  "a copy that is under way when the node is lost ends with an error",
	  .lab_test = "scif_node_loss::hang" },

	/* Fences */
	{ "mark.flags", "semantics, fence_mark",
	  "exactly one of INIT_SELF and INIT_PEER; neither, both or others are EINVAL" },
	{ "mark.positive", "semantics, fence_mark",
	  "a mark is positive" },
	{ "mark.not-connected", "header, fence_mark",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "mark.reset", "header, fence_mark",
	  "after the peer has closed: ECONNRESET" },
	{ "mark.bad-address", "header, fence_mark",
	  "a bad address for the mark is EFAULT" },
	{ "wait.self", "header, fence_wait",
	  "after the wait for an own mark the own copies are complete" },
	{ "wait.peer", "header, fence_wait",
	  "after the wait for a mark of INIT_PEER the peer's copies are complete" },
	{ "wait.unknown", "semantics, fence_wait",
	  "a mark that was not given out is EINVAL" },
	{ "wait.idle", "header, fence_wait",
	  "with nothing under way the wait returns at once" },
	{ "wait.many", "header, fence_mark",
	  "hundreds of marks can be outstanding, and be waited for in any order" },
	{ "wait.not-connected", "header, fence_wait",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "wait.reset", "header, fence_wait",
	  "after the peer has closed: ECONNRESET" },
	{ "wait.interruptible", "semantics, fence_wait",
	  "a wait can be interrupted",
	  .untested = "no copy lasts long enough for a signal to arrive in it surely" },
	{ "wait.node-lost", "semantics, node loss",
	  "a wait that is under way when the node is lost ends",
	  .lab_test = "scif_node_loss::hang" },
	{ "signal.local", "semantics, fence_signal",
	  "SIGNAL_LOCAL writes lval at loff in the own window" },
	{ "signal.remote", "semantics, fence_signal",
	  "SIGNAL_REMOTE writes rval at roff in the peer's window" },
	{ "signal.both", "header, fence_signal",
	  "both at a time" },
	{ "signal.init-peer", "semantics, fence_signal",
	  "with INIT_PEER, too, lval goes to the own window and rval to the peer's" },
	{ "signal.init-flags", "header, fence_signal",
	  "neither or both of INIT_SELF and INIT_PEER are EINVAL" },
	{ "signal.no-target", "header, fence_signal",
	  "neither SIGNAL_LOCAL nor SIGNAL_REMOTE is EINVAL" },
	{ "signal.flags", "header, fence_signal",
	  "unknown flags are EINVAL" },
	{ "signal.unaligned", "semantics, fence_signal",
	  "an offset that is no multiple of 4 is EINVAL" },
	{ "signal.four-aligned", "semantics, fence_signal",
	  "a multiple of 4 that is none of 8 gets all 64 bits, and no byte more" },
	{ "signal.page-end", "semantics, fence_signal",
	  "8 bytes that do not fit in the page are refused, and nothing is written" },
	{ "signal.outside", "header, fence_signal",
	  "an offset outside of all windows is ENXIO, for either side" },
	{ "signal.unused-offset", "header, fence_signal",
	  "the offset of the side that is not asked for does not matter" },
	{ "signal.read-only", "semantics, readfrom",
	  "a window that can't be written is EACCES" },
	{ "signal.not-connected", "header, fence_signal",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "signal.reset", "header, fence_signal",
	  "after the peer has closed: ECONNRESET" },
	{ "signal.after-data", "header, fence_signal",
	  "whoever sees the signal sees the data of the copies before it, spinning or not" },
	{ "signal.after-peers-data", "header, fence_signal",
	  "likewise for the peer's copies, with INIT_PEER" },

	/* Mmap */
	{ "mmap.reads", "header, register",
	  "what the peer has in its window is read through a mapping" },
	{ "mmap.writes", "header, register",
	  "what is written through a mapping is seen by the peer" },
	{ "mmap.part", "semantics, mmap",
	  "any pages of a window can be mapped" },
	{ "mmap.spans", "semantics, mmap",
	  "a mapping can span contiguous windows" },
	{ "mmap.gap", "semantics, mmap",
	  "a range with a gap, or outside of all windows, is refused with ENXIO" },
	{ "mmap.unaligned", "semantics, mmap",
	  "an offset that is no multiple of the page size is EINVAL" },
	{ "mmap.protection", "semantics, mmap",
	  "more than the window allows is EACCES" },
	{ "mmap.staged", "Documentation/decisions.rst",
	  "a window that the node does not reach by itself can't be mapped: EOPNOTSUPP" },
	{ "mmap.mprotect", "semantics, mmap",
	  "mprotect can't raise the protection above the window's" },
	{ "mmap.mprotect-lower", "semantics, mmap",
	  "mprotect can lower it and raise it again within what was mapped" },
	{ "mmap.write-only", "semantics, mmap",
	  "a window that is write-only can't be mapped for reading" },
	{ "mmap.unregister", "semantics, unregister",
	  "a mapping goes on to work after the peer has unregistered" },
	{ "mmap.peer-close", "semantics, close",
	  "a mapping goes on to work after the peer has closed" },
	{ "mmap.own-close", "semantics, close",
	  "a mapping goes on to work after the own endpoint was closed" },
	{ "mmap.partial-unmap", "semantics, mmap",
	  "a mapping can be unmapped in parts" },
	{ "mmap.not-inherited", "semantics, fork",
	  "a mapping is not inherited by fork" },
	{ "mmap.no-growth", "semantics, mmap",
	  "mremap can't enlarge a mapping" },
	{ "mmap.not-connected", "header, register",
	  "an endpoint that is not connected is ENOTCONN" },
	{ "mmap.reset", "header, register",
	  "after the peer has closed no new mapping can be made" },
	{ "mmap.private", "ABI",
	  "mappings are shared: a private one for writing is refused" },
	{ "mmap.atomic-words", "header, register",
	  "8-byte stores through a mapping arrive whole" },
	{ "mmap.not-pinnable", "semantics, register",
	  "a mapping can't be registered: the memory is not this node's" },
	{ "mmap.node-lost", "semantics, mmap",
	  "after the node was lost a mapping gives SIGBUS",
	  .lab_test = "scif_node_loss::hang" },

	/* Processes */
	{ "process.fork-shares", "semantics, fork",
	  "a forked child shares the endpoint" },
	{ "process.fork-close", "semantics, fork",
	  "the connection ends when the last process that shares it has closed it" },
	{ "process.exec", "header, close",
	  "endpoints survive exec unless they are close-on-exec" },
	{ "process.exec-unpins", "semantics, register",
	  "windows outlive the exec or the end of the process, while others have the endpoint" },
	{ "process.killed-peer", "header, connect",
	  "a peer that is killed in the middle of everything: calls end, ECONNRESET" },
	{ "process.kill-unpins", "semantics, register",
	  "a killed process leaves nothing pinned or charged" },
	{ "process.fork-windows", "semantics, fork",
	  "memory with MADV_DONTFORK stays the window's after a fork" },
	{ "process.threads", "header, send",
	  "threads can use one endpoint for different calls at a time" },

	/* The raw interface */
	{ "abi.bind-two-bytes", "ABI",
	  "BIND reads two bytes and writes two, never more" },
	{ "abi.connect-self", "ABI",
	  "CONNECT writes back self, node and port, and nothing else" },
	{ "abi.accept-fields", "ABI",
	  "ACCEPTREQ writes back peer and endpt, and nothing else" },
	{ "abi.message-fields", "ABI",
	  "SEND and RECV write back out_len, and nothing else" },
	{ "abi.register-fields", "ABI",
	  "REG writes back out_offset, and nothing else" },
	{ "abi.unknown", "ABI",
	  "an unknown ioctl is ENOTTY" },
	{ "abi.handle-opaque", "ABI",
	  "the handle of ACCEPTREQ is no pointer and not the one before" },
	{ "abi.handle-unknown", "security",
	  "ACCEPTREG with a number that was not given out is EINVAL" },
	{ "abi.handle-once", "Documentation/abi.rst",
	  "a handle is good once" },
	{ "abi.handle-process", "security",
	  "a handle is good only in the process that accepted" },
	{ "abi.handle-fresh", "Documentation/abi.rst",
	  "ACCEPTREG takes a fresh endpoint only, and a mistake costs no connection" },
	{ "abi.bad-address", "ABI",
	  "a bad address for the argument of any ioctl is EFAULT" },
	{ "abi.numbers", "ABI",
	  "the numbers and layouts of the ioctls are those of the header" },
	{ "abi.backlog-value", "ABI",
	  "LISTEN and FENCE_WAIT take their argument by value" },
	{ "abi.no-read-write", "ABI",
	  "the device is used by ioctl, poll and mmap only: read and write fail" },
	{ "abi.short-structure", "ABI",
	  "nothing behind an argument is read or written, even at the end of the memory" },
	{ "abi.32-bit", "ABI",
	  "32-bit programs get the same",
	  .lab_test = "scif_compat::loopback" },
	{ "abi.mic-device", "ABI",
	  "/dev/mic/scif takes the numbers of the MIC library",
	  .lab_test = "scif_compat::mic_loopback" },

	/* Three nodes */
	{ "star.nodes", "ABI",
	  "the node in the middle lists all three" },
	{ "star.not-routed", "header, connect",
	  "the outer nodes do not see each other: ENODEV" },
	{ "star.equal-ports", "header, bind",
	  "connections to equal ports of two nodes do not meet" },
	{ "star.equal-offsets", "header, register",
	  "windows at equal offsets of connections with two nodes do not meet" },
	{ "star.parallel", "header, writeto",
	  "copies to and from two nodes at a time" },
	{ "star.messages", "header, send",
	  "messages with two nodes at a time" },
	{ "star.isolated-close", "header, close",
	  "the close of one connection does not touch the one with another node" },
	{ "star.one-listener", "header, accept",
	  "a listener accepts from two nodes, and tells them apart" },
	{ "star.poll", "header, poll",
	  "one poll watches endpoints with different peers" },
	{ "star.node-lost", "semantics, node loss",
	  "the loss of one node does not touch the connections with another",
	  .lab_test = "scif_star::one_dies" },

	/* Node loss */
	{ "loss.unpins", "semantics, node loss",
	  "windows are revoked and memory unpinned when the node is lost",
	  .lab_test = "scif_node_loss::unload" },
	{ "loss.reload", "semantics, node loss",
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
	       "Every sentence of the specification that can be tested, and what tests it.\n"
	       "Sources: the specification by part (ABI, semantics, security), the header of the\n"
	       "original kernel interface, its manual pages, and what was decided here.\n\n"
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
