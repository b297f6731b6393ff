/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Services of /dev/scif beside those of <linux/scif_ioctl.h>
 *
 * Each argument begins with its size, as the caller knows the structure. It may
 * be larger than what the kernel knows if the rest is zero (E2BIG otherwise),
 * and smaller down to the structure's first version (EINVAL below that); what is
 * missing counts as zero. Reserved fields and unknown flags must be zero
 * (EINVAL). The size is not part of the number, so numbers stay as structures
 * grow. Layouts are the same for 32 and 64 bits.
 */
#ifndef _UAPI_LINUX_SCIF_SERVICES_H
#define _UAPI_LINUX_SCIF_SERVICES_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Names: numbers of 32 bits, of classes that do not know of each other. A name
 * belongs to an endpoint until that is closed.
 */
#define SCIF_NAME_SEGMENT		1
#define SCIF_NAME_INTERRUPT		2
#define SCIF_NAME_DATA_INTERRUPT	3
/* Classes from here on are for anybody's use. */
#define SCIF_NAME_CLASS_USER		0x100

/* Any name that is free, which is put into the argument. */
#define SCIF_NAME_ANY			1

/*
 * Gives the endpoint, which is bound or listens and has none, a name of this
 * node. EADDRINUSE: another endpoint has it.
 */
struct scif_bind_name {
	__u32 size;
	__u32 flags;
	__u32 name_class;
	__u32 name;
	__u64 reserved;
};

/*
 * Connects to the endpoint that has the name on that node, as SCIF_CONNECT does
 * to a port, also with O_NONBLOCK. ENOENT, at once: there is no such name.
 */
struct scif_connect_name {
	__u32 size;
	__u32 flags;
	__u32 name_class;
	__u32 name;
	__u16 node;
	/* Out: the own port, and that of the peer. */
	__u16 own_port;
	__u16 peer_port;
	__u16 reserved;
	__u64 reserved2;
};

/*
 * Sends all bytes or none. EAGAIN: there is no room for all; with
 * SCIF_SEND_ALL_BLOCK it waits for that instead, and a signal costs nothing that was
 * sent. EMSGSIZE: more than there can ever be room for.
 */
#define SCIF_SEND_ALL_BLOCK		1

struct scif_send_all {
	__u32 size;
	__u32 flags;
	__u64 msg;
	__u64 len;
	__u64 reserved;
};

/*
 * How the way to a node stands: gives a descriptor of a page to be mapped,
 * read-only and shared, at offset 0. Works for nodes that are not there (yet).
 * ENOSPC: too many of those are watched.
 *
 * read() of 8 bytes gives the epoch, and does not wait; poll() says POLLPRI and
 * POLLIN when it is another one than when the descriptor was made or last read.
 */
struct scif_node_status {
	__u32 size;
	__u32 flags;
	__u16 node;
	__u16 reserved;
	/* Out. */
	__s32 fd;
	__u64 reserved2;
};

#define SCIF_STATUS_VERSION		1

/*
 * The page. Only the kernel writes to it; each field is read by one load.
 * Whoever has found the same epoch twice, and it is odd, knows that the node has been
 * within reach all the time in between.
 */
struct scif_status_page {
	__u32 version;
	__u32 node;
	/* Odd: within reach. Grows with each change; 0 if it never was. */
	__u64 epoch;
	/* Transfers and other accesses to the node that have failed. */
	__u64 errors;
	/*
	 * Which life of the node's this is: another after a reboot, or after its module
	 * was loaded again, the same after the link was down only; zeroes if it never
	 * was there. Valid while the epoch is odd, and until it is again: load the
	 * epoch, this, and the epoch again, in this order.
	 */
	__u64 boot_id[2];
};

/*
 * What maps of remote windows, made from this endpoint from now on, read as once
 * the peer is lost: SIGBUS, or all ones. What is written then is seen in this map
 * only, in all pages of it, and gone with it.
 */
#define SCIF_MAP_ONES_AFTER_LOSS	1

struct scif_map_policy {
	__u32 size;
	__u32 flags;
	__u64 reserved;
};

/*
 * Memory that is pinned once and can then be registered by many connections.
 * Gives a descriptor; the memory stays pinned until that and all windows of it are
 * closed.
 *
 * With SCIF_MEMORY_DEVICE the address is a physical one, of a device's memory
 * (not of RAM), which stays there; for CAP_SYS_RAWIO.
 */
#define SCIF_MEMORY_DEVICE		1

struct scif_memory_create {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u64 len;
	/* SCIF_PROT_READ, SCIF_PROT_WRITE: the most that windows of it may allow. */
	__u32 prot;
	/* Out. */
	__s32 fd;
	__u64 reserved;
};

/*
 * As SCIF_REG, of a part of such memory, in whole pages. To be undone by
 * SCIF_UNREG. EAGAIN, unless it was made with CAP_IPC_LOCK: whoever has made it
 * would have more than 16384 windows of all such memory, or windows that are
 * together 256 times as long, or distinct parts that are four times as long and
 * 64 pages.
 */
struct scif_memory_register {
	__u32 size;
	/* 0 or SCIF_MAP_FIXED */
	__u32 flags;
	__s32 fd;
	__u32 prot;
	/* Where in the memory it begins. */
	__u64 from;
	__u64 len;
	/* In: the offset that is wanted. Out: that of the window. */
	__s64 offset;
	__u64 reserved;
};

/*
 * The bus address by which another device of this host reaches a part of one of
 * the peer's windows, and how many bytes of it lie there in one piece. Valid as
 * long as the window is mapped by somebody; for CAP_SYS_RAWIO. EOPNOTSUPP: no device
 * reaches it.
 */
struct scif_remote_address {
	__u32 size;
	__u32 flags;
	__s64 offset;
	__u64 len;
	/* Out. */
	__u64 address;
	__u64 contiguous;
	__u64 reserved;
};

#define SCIF_BIND_NAME		_IO('s', 0x40)
#define SCIF_CONNECT_NAME	_IO('s', 0x41)
#define SCIF_SEND_ALL		_IO('s', 0x42)
#define SCIF_NODE_STATUS	_IO('s', 0x43)
#define SCIF_MAP_POLICY		_IO('s', 0x44)
#define SCIF_MEMORY_CREATE	_IO('s', 0x45)
#define SCIF_MEMORY_REGISTER	_IO('s', 0x46)
#define SCIF_REMOTE_ADDRESS	_IO('s', 0x47)

#endif /* _UAPI_LINUX_SCIF_SERVICES_H */
