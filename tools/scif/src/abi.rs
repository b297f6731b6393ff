// SPDX-License-Identifier: GPL-2.0

//! The user ABI of `/dev/scif`: ioctl numbers, argument layouts, flags.
//!
//! A transcription of the kernel's `linux/scif_ioctl.h`; `tests/abi.rs` compiles a C program
//! against the real header and compares every number and offset. Data only: the calls are made
//! in [`crate::device`].

/// The device every endpoint is opened from.
pub const DEVICE: &str = "/dev/scif";

/// The smallest port that needs no privilege.
pub const ADMIN_PORT_END: u16 = 1024;
/// The smallest port the driver hands out by itself.
pub const PORT_RESERVED: u16 = 1088;

/// Wait until a connection request arrives.
pub const ACCEPT_SYNC: i32 = 1;
/// Wait until all bytes are in the ring.
pub const SEND_BLOCK: i32 = 1;
/// Wait until all bytes are there.
pub const RECV_BLOCK: i32 = 1;
/// The window may be read from.
pub const PROT_READ: i32 = 1;
/// The window may be written to.
pub const PROT_WRITE: i32 = 2;
/// Register at exactly the given offset.
pub const MAP_FIXED: i32 = 0x10;
/// Mark the remote memory accesses started on this side.
pub const FENCE_INIT_SELF: i32 = 1;
/// Mark the remote memory accesses started by the peer.
pub const FENCE_INIT_PEER: i32 = 2;
/// Copy by CPU instead of DMA.
pub const RMA_USECPU: i32 = 1;
/// Keep the pinned pages for later calls.
pub const RMA_USECACHE: i32 = 2;
/// Complete on return.
pub const RMA_SYNC: i32 = 4;
/// The last cache line becomes visible last.
pub const RMA_ORDERED: i32 = 8;

/// One end of a connection: `struct scif_port_id`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortId {
    /// The node.
    pub node: u16,
    /// The port on that node.
    pub port: u16,
}

/// `struct scifioctl_connect`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Connect {
    /// Out: the local end.
    pub own: PortId,
    /// In: the listener to connect to.
    pub peer: PortId,
}

/// `struct scifioctl_accept`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Accept {
    /// In: 0 or [`ACCEPT_SYNC`].
    pub flags: i32,
    /// Out: who connected.
    pub peer: PortId,
    /// Out: the handle to give to [`ACCEPTREG`].
    pub endpoint: u64,
}

/// `struct scifioctl_msg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Message {
    /// In: address of the buffer.
    pub address: u64,
    /// In: its length.
    pub length: i32,
    /// In: [`SEND_BLOCK`] or [`RECV_BLOCK`].
    pub flags: i32,
    /// Out: bytes moved.
    pub moved: i32,
}

/// `struct scifioctl_reg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Register {
    /// In: address of the memory, page aligned.
    pub address: u64,
    /// In: its length, a multiple of the page size.
    pub length: u64,
    /// In: the offset wanted, with [`MAP_FIXED`].
    pub offset: i64,
    /// In: [`PROT_READ`], [`PROT_WRITE`].
    pub protection: i32,
    /// In: 0 or [`MAP_FIXED`].
    pub flags: i32,
    /// Out: where the window is.
    pub registered: i64,
}

/// `struct scifioctl_unreg`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Unregister {
    /// In: start of the range.
    pub offset: i64,
    /// In: its length.
    pub length: u64,
}

/// `struct scifioctl_copy`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Copy {
    /// In: offset in the local registered address space.
    pub local: i64,
    /// In: bytes to copy.
    pub length: u64,
    /// In: offset in the peer's registered address space.
    pub remote: i64,
    /// In: virtual address instead of `local`, for the v calls.
    pub address: u64,
    /// In: [`RMA_SYNC`] and the like.
    pub flags: i32,
}

/// `struct scifioctl_fence_mark`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FenceMark {
    /// In: exactly one of [`FENCE_INIT_SELF`], [`FENCE_INIT_PEER`].
    pub flags: i32,
    /// In: address of an `i32` that receives the mark.
    pub mark: u64,
}

/// `struct scifioctl_node_ids`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeIds {
    /// In: address of an array of `u16`.
    pub nodes: u64,
    /// In: address of a `u16` that receives the own id.
    pub own: u64,
    /// In: entries in the array.
    pub length: i32,
}

const WRITE: u32 = 1;
const READ: u32 = 2;

/// `_IOC('s', number)`, in the numbering of x86 and arm64.
const fn code(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((b's' as u32) << 8) | number
}

const fn both<T>(number: u32) -> u32 {
    code(READ | WRITE, number, size_of::<T>())
}

/// Bind to a port; the kernel reads and writes two bytes.
pub const BIND: u32 = both::<u64>(1);
/// Listen; the argument is the backlog.
pub const LISTEN: u32 = code(WRITE, 2, size_of::<i32>());
/// Connect to a listener.
pub const CONNECT: u32 = both::<Connect>(3);
/// Take a connection request off the queue.
pub const ACCEPTREQ: u32 = both::<Accept>(4);
/// Turn a new descriptor into the accepted endpoint.
pub const ACCEPTREG: u32 = both::<u64>(5);
/// Send bytes.
pub const SEND: u32 = both::<Message>(6);
/// Receive bytes.
pub const RECV: u32 = both::<Message>(7);
/// Register a window.
pub const REG: u32 = both::<Register>(8);
/// Unregister windows.
pub const UNREG: u32 = both::<Unregister>(9);
/// Copy from the peer's window.
pub const READFROM: u32 = both::<Copy>(10);
/// Copy to the peer's window.
pub const WRITETO: u32 = both::<Copy>(11);
/// Copy from the peer's window to any memory.
pub const VREADFROM: u32 = both::<Copy>(12);
/// Copy from any memory to the peer's window.
pub const VWRITETO: u32 = both::<Copy>(13);
/// List the nodes that are online.
pub const GET_NODEIDS: u32 = both::<NodeIds>(14);
/// Mark the accesses started so far.
pub const FENCE_MARK: u32 = both::<FenceMark>(15);
/// Wait for a mark; the argument is the mark.
pub const FENCE_WAIT: u32 = both::<i32>(16);
