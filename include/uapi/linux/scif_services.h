/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Services of /dev/scif in addition to <linux/scif_ioctl.h>
 *
 * Each argument begins with its size, as the caller knows the structure. A
 * larger structure than the kernel's is accepted if the rest is zero (E2BIG
 * otherwise). A smaller structure is accepted if it has at least the size of
 * the first version (EINVAL otherwise); missing fields count as zero. Reserved
 * fields and unknown flags must be zero (EINVAL). The size is not part of the
 * ioctl number, so numbers stay as structures grow. Layouts are the same for 32
 * and 64 bits.
 */
#ifndef _UAPI_LINUX_SCIF_SERVICES_H
#define _UAPI_LINUX_SCIF_SERVICES_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Names: 32-bit numbers in separate classes. A name belongs to an endpoint
 * until the endpoint is closed.
 */
#define SCIF_NAME_SEGMENT		1
#define SCIF_NAME_INTERRUPT		2
#define SCIF_NAME_DATA_INTERRUPT	3
/* Programs may use classes from here on as they like. */
#define SCIF_NAME_CLASS_USER		0x100

/* Binds any free name, which is stored in the argument. */
#define SCIF_NAME_ANY			1

/*
 * Gives a name of this node to an endpoint, which is bound or listens and has
 * no name. EADDRINUSE: another endpoint has the name.
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
 * to a port, also with O_NONBLOCK. ENOENT is returned at once if the node has
 * no such name.
 */
struct scif_connect_name {
	__u32 size;
	__u32 flags;
	__u32 name_class;
	__u32 name;
	__u16 node;
	/* Out: the port of this endpoint, and the port of the peer. */
	__u16 own_port;
	__u16 peer_port;
	__u16 reserved;
	__u64 reserved2;
};

/*
 * Sends all bytes or none. EAGAIN: there is not enough room.
 * SCIF_SEND_ALL_BLOCK makes the call wait for room instead; a signal ends the
 * wait before any byte is sent. EMSGSIZE: the bytes never fit.
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
 * Status of a node: returns a descriptor of a page, which can be mapped
 * read-only and shared, at offset 0. Works for nodes that are not present
 * (yet), too. ENOSPC: too many absent nodes are watched.
 *
 * read() of 8 bytes returns the epoch, and does not wait. poll() returns
 * POLLPRI and POLLIN if the epoch has changed since the descriptor was made or
 * last read.
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
 * The page. Only the kernel writes to it; each field is read by one load. If a
 * reader finds the same odd epoch twice, the node has been within reach all the
 * time in between.
 */
struct scif_status_page {
	__u32 version;
	__u32 node;
	/* Odd: the node is within reach. Grows with each change; 0: it never was. */
	__u64 epoch;
	/* Number of failed transfers and other failed accesses to the node. */
	__u64 errors;
	/*
	 * Identifies the current life of the node. It changes when the node reboots or
	 * loads its module again, but not when only the link was down. It is zero if
	 * the node was never present. It is valid while the epoch is odd, and until
	 * the epoch is odd again. Load the epoch, the boot id, and the epoch again, in
	 * this order.
	 */
	__u64 boot_id[2];
};

/*
 * Selects what mappings of remote windows show once the peer is lost: a SIGBUS,
 * or all ones. Applies to mappings made from this endpoint from now on. A write after
 * the loss is seen only in the same mapping, in all of its pages, and is gone
 * with the mapping.
 */
#define SCIF_MAP_ONES_AFTER_LOSS	1

struct scif_map_policy {
	__u32 size;
	__u32 flags;
	__u64 reserved;
};

/*
 * Memory that is pinned once and can then be registered by many connections.
 * Returns a descriptor. The memory stays pinned until the descriptor and all
 * windows of the memory are closed.
 *
 * With SCIF_MEMORY_DEVICE, the address is a physical address of a device's
 * memory (not of RAM), and the device must stay there. Needs CAP_SYS_RAWIO.
 */
#define SCIF_MEMORY_DEVICE		1

struct scif_memory_create {
	__u32 size;
	__u32 flags;
	__u64 address;
	__u64 len;
	/* SCIF_PROT_READ, SCIF_PROT_WRITE: most access that its windows allow. */
	__u32 prot;
	/* Out. */
	__s32 fd;
	__u64 reserved;
};

/*
 * Registers a part of such memory, in whole pages, as SCIF_REG does. SCIF_UNREG
 * unregisters the window.
 *
 * EAGAIN: the user who created the memory would exceed a limit over all of its
 * such memory. It may have 16384 windows. All windows together may be 256 times
 * as long as the memory. Distinct parts together may be four times as long, and
 * 64 pages more. Memory that was created with CAP_IPC_LOCK has no limit.
 */
struct scif_memory_register {
	__u32 size;
	/* 0 or SCIF_MAP_FIXED */
	__u32 flags;
	__s32 fd;
	__u32 prot;
	/* Offset of the part in the memory. */
	__u64 from;
	__u64 len;
	/* In: the requested offset. Out: the offset of the window. */
	__s64 offset;
	__u64 reserved;
};

/*
 * Returns a bus address of a part of one of the peer's windows, and how many
 * bytes of the part are contiguous there. Another device of this host can access
 * the part by that address, as long as a process has the window mapped. Needs
 * CAP_SYS_RAWIO. EOPNOTSUPP: no device can access the window.
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
