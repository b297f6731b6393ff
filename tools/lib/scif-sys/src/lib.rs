// SPDX-License-Identifier: LGPL-2.1

//! The calls of `/dev/scif`: a function for each, without any further logic.
//!
//! No function waits longer or tries more often than the driver does: a signal gives EINTR.
//! `scif(4)` and the man page of the libscif function of the same name explain each call.
//! `linux/scif_services.h` explains the calls of that header.
//!
//! A descriptor that is not of `/dev/scif` gives an error, ENOTTY in most cases, and does no harm.

pub mod abi;

use std::ffi::c_void;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::IntegerSetter;
use rustix::ioctl::Ioctl;
use rustix::ioctl::IoctlOutput;
use rustix::ioctl::Opcode;

pub use abi::ADMIN_PORT_END;
pub use abi::Accept;
pub use abi::NAME_CLASS_USER;
pub use abi::NAME_DATA_INTERRUPT;
pub use abi::NAME_INTERRUPT;
pub use abi::NAME_SEGMENT;
pub use abi::PortId;
pub use abi::RemoteAddress;

/// The result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// The largest number of nodes: an id has 16 bits.
const MOST_NODES: usize = 1 << 16;

/// The accesses of a peer to a window, and the copies of the local side that may use the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Protection {
    /// Copies may read from the window.
    Read = abi::PROT_READ,
    /// Copies may write to the window.
    Write = abi::PROT_WRITE,
    /// Copies may read and write the window.
    ReadWrite = abi::PROT_READ | abi::PROT_WRITE,
}

/// The options of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rma {
    /// Whether the CPU makes the copy instead of a DMA engine.
    pub cpu: bool,
    /// Whether the pages of unregistered memory stay pinned for later copies.
    pub cache: bool,
    /// Whether the copy is complete on return. If not, a fence reports completion.
    pub sync: bool,
    /// Whether the last cache line becomes visible last.
    pub ordered: bool,
}

impl Rma {
    fn bits(self) -> i32 {
        (if self.cpu { abi::RMA_USECPU } else { 0 })
            | (if self.cache { abi::RMA_USECACHE } else { 0 })
            | (if self.sync { abi::RMA_SYNC } else { 0 })
            | (if self.ordered { abi::RMA_ORDERED } else { 0 })
    }
}

/// The side whose copies a fence waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Initiator {
    /// Copies that this side has started.
    Own = abi::FENCE_INIT_SELF,
    /// Copies that the peer has started.
    Peer = abi::FENCE_INIT_PEER,
}

/// The nodes that are online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// All nodes that are online, with the own one.
    pub online: Vec<u16>,
    /// The own node.
    pub own: u16,
}

// ----- calling ----------------------------------------------------------------------------------

/// A call whose argument is a structure, which the kernel reads and writes.
struct Call<'a, T> {
    number: Opcode,
    argument: &'a mut T,
}

// SAFETY: The argument is borrowed. The caller of `call` guarantees that its type is the one of the
// number.
unsafe impl<T> Ioctl for Call<'_, T> {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number
    }

    fn as_ptr(&mut self) -> *mut c_void {
        core::ptr::from_mut(self.argument).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> Result<IoctlOutput> {
        Ok(output)
    }
}

/// Makes a call, and returns its result.
///
/// # Safety
///
/// `T` is the argument of this number. The addresses in it are of memory that the kernel may use as
/// the call does.
unsafe fn call<T>(fd: impl AsFd, number: Opcode, argument: &mut T) -> Result<IoctlOutput> {
    // SAFETY: By the contract of this function.
    unsafe { rustix::ioctl::ioctl(fd, Call { number, argument }) }
}

/// Returns the size that an argument of `linux/scif_services.h` begins with.
const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

/// Returns the flag if it is wanted.
fn flag<T: Default>(is_wanted: bool, flag: T) -> T {
    if is_wanted { flag } else { T::default() }
}

// ----- connections ------------------------------------------------------------------------------

/// Opens an endpoint.
pub fn open() -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(c"/dev/scif", flags, Mode::empty())
}

/// Binds to a port, or for 0 to any free port. Returns the port.
pub fn bind(fd: impl AsFd, port: u16) -> Result<u16> {
    let mut argument = [port, 0, 0, 0];
    // SAFETY: The argument has the eight bytes that the number says.
    unsafe { call(fd, abi::BIND, &mut argument) }?;
    Ok(argument[0])
}

/// Binds to a name of this node, or to any free name. Returns the name.
pub fn bind_name(fd: impl AsFd, class: u32, name: Option<u32>) -> Result<u32> {
    let mut argument = abi::BindName {
        size: size::<abi::BindName>(),
        flags: flag(name.is_none(), abi::NAME_ANY),
        class,
        name: name.unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::BIND_NAME, &mut argument) }?;
    Ok(argument.name)
}

/// Listens for connections.
pub fn listen(fd: impl AsFd, backlog: i32) -> Result<()> {
    // SAFETY: The argument of this number is a number.
    unsafe {
        let argument = IntegerSetter::<{ abi::LISTEN }>::new_usize(backlog as usize);
        rustix::ioctl::ioctl(fd, argument)
    }
}

/// Connects to a listener, and returns the local end. EINPROGRESS on a non-blocking endpoint:
/// another call must fetch the result, once the endpoint can be written to.
pub fn connect(fd: impl AsFd, peer: PortId) -> Result<PortId> {
    let mut argument = abi::Connect {
        peer,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::CONNECT, &mut argument) }?;
    Ok(argument.own)
}

/// Connects to the owner of a name on a node, in the same way as [`connect`].
pub fn connect_name(fd: impl AsFd, node: u16, class: u32, name: u32) -> Result<()> {
    let mut argument = abi::ConnectName {
        size: size::<abi::ConnectName>(),
        class,
        name,
        node,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::CONNECT_NAME, &mut argument) }?;
    Ok(())
}

/// Takes a connection off a listener's queue. With `sync` it waits for one; without `sync`, EAGAIN
/// means that there is none.
pub fn accept_request(fd: impl AsFd, sync: bool) -> Result<Accept> {
    let mut argument = Accept {
        flags: flag(sync, abi::ACCEPT_SYNC),
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::ACCEPTREQ, &mut argument) }?;
    Ok(argument)
}

/// Makes a new endpoint this end of a connection that was taken off the queue.
pub fn accept_register(fd: impl AsFd, request: &Accept) -> Result<()> {
    let mut endpoint = request.endpoint;
    // SAFETY: The argument is the one of this number: a handle.
    unsafe { call(fd, abi::ACCEPTREG, &mut endpoint) }?;
    Ok(())
}

// ----- messages ---------------------------------------------------------------------------------

fn message(length: usize, flags: i32) -> abi::Message {
    abi::Message {
        length: i32::try_from(length).unwrap_or(i32::MAX),
        flags,
        ..Default::default()
    }
}

/// Sends bytes, and returns how many were sent. Without `block` that may be fewer, or none.
pub fn send(fd: impl AsFd, bytes: &[u8], block: bool) -> Result<usize> {
    let mut argument = abi::Message {
        address: bytes.as_ptr() as u64,
        ..message(bytes.len(), flag(block, abi::SEND_BLOCK))
    };
    // SAFETY: The argument is the one of this number; the kernel reads at most `bytes.len()` bytes.
    unsafe { call(fd, abi::SEND, &mut argument) }?;
    Ok(usize::try_from(argument.moved)
        .unwrap_or(0)
        .min(bytes.len()))
}

/// Receives bytes, and returns how many arrived. Without `block` that may be fewer, or none.
pub fn recv(fd: impl AsFd, bytes: &mut [u8], block: bool) -> Result<usize> {
    let mut argument = abi::Message {
        address: bytes.as_mut_ptr() as u64,
        ..message(bytes.len(), flag(block, abi::RECV_BLOCK))
    };
    // SAFETY: The argument is the one of this number; the kernel writes at most `bytes.len()`
    // bytes.
    unsafe { call(fd, abi::RECV, &mut argument) }?;
    Ok(usize::try_from(argument.moved)
        .unwrap_or(0)
        .min(bytes.len()))
}

/// Sends all of the bytes or none. EAGAIN: there is no room for them now.
pub fn send_all(fd: impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut argument = abi::SendAll {
        size: size::<abi::SendAll>(),
        address: bytes.as_ptr() as u64,
        length: bytes.len() as u64,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number; the kernel reads at most `bytes.len()` bytes.
    unsafe { call(fd, abi::SEND_ALL, &mut argument) }?;
    Ok(())
}

// ----- windows ----------------------------------------------------------------------------------

/// Makes a window of memory of this process, at an offset or at any. Returns the offset.
///
/// # Safety
///
/// As long as the window exists, the peer may access the memory at any time, as the protection
/// allows.
pub unsafe fn register(
    fd: impl AsFd,
    address: u64,
    length: u64,
    protection: Protection,
    offset: Option<i64>,
) -> Result<i64> {
    let mut argument = abi::Register {
        address,
        length,
        offset: offset.unwrap_or(0),
        protection: protection as i32,
        flags: flag(offset.is_some(), abi::MAP_FIXED),
        registered: 0,
    };
    // SAFETY: The argument is the one of this number; the rest by the contract of this function.
    unsafe { call(fd, abi::REG, &mut argument) }?;
    Ok(argument.registered)
}

/// Unregisters the windows in a range.
pub fn unregister(fd: impl AsFd, offset: i64, length: u64) -> Result<()> {
    let mut argument = abi::Unregister { offset, length };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::UNREG, &mut argument) }?;
    Ok(())
}

/// Pins memory of this process, of which any endpoint can then make windows. With `is_device`,
/// `address` is that of a device's memory.
///
/// # Safety
///
/// As long as a window of the memory exists, peers may read and write the memory at any time.
pub unsafe fn memory_create(
    fd: impl AsFd,
    address: u64,
    length: u64,
    is_device: bool,
) -> Result<OwnedFd> {
    let mut argument = abi::MemoryCreate {
        size: size::<abi::MemoryCreate>(),
        flags: flag(is_device, abi::MEMORY_DEVICE),
        address,
        length,
        protection: Protection::ReadWrite as u32,
        fd: -1,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number; the rest by the contract of this function.
    unsafe { call(fd, abi::MEMORY_CREATE, &mut argument) }?;
    // SAFETY: The kernel has just made the descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
}

/// Makes a window of a part of pinned memory, at an offset or at any. Returns the offset.
pub fn memory_register(
    fd: impl AsFd,
    memory: impl AsFd,
    part: Range<u64>,
    offset: Option<i64>,
) -> Result<i64> {
    let mut argument = abi::MemoryRegister {
        size: size::<abi::MemoryRegister>(),
        flags: flag(offset.is_some(), abi::MAP_FIXED as u32),
        fd: memory.as_fd().as_raw_fd(),
        protection: Protection::ReadWrite as u32,
        from: part.start,
        length: part.end.saturating_sub(part.start),
        offset: offset.unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses. The caller that pinned the
    // memory has guaranteed the rest.
    unsafe { call(fd, abi::MEMORY_REGISTER, &mut argument) }?;
    Ok(argument.offset)
}

/// Makes later maps read as all ones once the peer is lost, instead of raising SIGBUS.
pub fn map_ones_after_loss(fd: impl AsFd) -> Result<()> {
    let mut argument = abi::MapPolicy {
        size: size::<abi::MapPolicy>(),
        flags: abi::MAP_ONES_AFTER_LOSS,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::MAP_POLICY, &mut argument) }?;
    Ok(())
}

/// Returns the address where devices of this host reach the peer's window, and how much of the
/// window is in one piece there.
pub fn remote_address(fd: impl AsFd, offset: i64, length: u64) -> Result<RemoteAddress> {
    let mut argument = RemoteAddress {
        size: size::<RemoteAddress>(),
        offset,
        length,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::REMOTE_ADDRESS, &mut argument) }?;
    Ok(argument)
}

// ----- copies -----------------------------------------------------------------------------------

/// Copies from the peer's window at `remote` to the own window at `local`.
pub fn readfrom(fd: impl AsFd, local: i64, length: u64, remote: i64, how: Rma) -> Result<()> {
    copy(fd, abi::READFROM, local, length, remote, how)
}

/// Copies from the own window at `local` to the peer's window at `remote`.
pub fn writeto(fd: impl AsFd, local: i64, length: u64, remote: i64, how: Rma) -> Result<()> {
    copy(fd, abi::WRITETO, local, length, remote, how)
}

fn copy(
    fd: impl AsFd,
    number: Opcode,
    local: i64,
    length: u64,
    remote: i64,
    how: Rma,
) -> Result<()> {
    let mut argument = abi::Copy {
        local,
        length,
        remote,
        flags: how.bits(),
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses. Windows exist to be copied
    // from and to.
    unsafe { call(fd, number, &mut argument) }?;
    Ok(())
}

/// Copies from the peer's window at `remote` to memory of this process.
///
/// # Safety
///
/// The caller may write the memory, and keeps it until the copy is complete.
pub unsafe fn vreadfrom(
    fd: impl AsFd,
    address: *mut c_void,
    length: u64,
    remote: i64,
    how: Rma,
) -> Result<()> {
    // SAFETY: By the contract of this function.
    unsafe { copy_memory(fd, abi::VREADFROM, address, length, remote, how) }
}

/// Copies from memory of this process to the peer's window at `remote`.
///
/// # Safety
///
/// The caller may read the memory, and keeps it until the copy is complete.
pub unsafe fn vwriteto(
    fd: impl AsFd,
    address: *const c_void,
    length: u64,
    remote: i64,
    how: Rma,
) -> Result<()> {
    // SAFETY: By the contract of this function.
    unsafe { copy_memory(fd, abi::VWRITETO, address, length, remote, how) }
}

/// # Safety
///
/// The caller may use the memory as the number says, and keeps it until the copy is complete.
unsafe fn copy_memory(
    fd: impl AsFd,
    number: Opcode,
    address: *const c_void,
    length: u64,
    remote: i64,
    how: Rma,
) -> Result<()> {
    let mut argument = abi::Copy {
        length,
        remote,
        address: address as u64,
        flags: how.bits(),
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number; the rest by the contract of this function.
    unsafe { call(fd, number, &mut argument) }?;
    Ok(())
}

/// Returns a mark behind all copies that were started so far.
pub fn fence_mark(fd: impl AsFd, initiator: Initiator) -> Result<i32> {
    let mut mark = 0i32;
    let mut argument = abi::FenceMark {
        flags: initiator as i32,
        mark: (&raw mut mark) as u64,
    };
    // SAFETY: The argument is the one of this number; the kernel writes the mark.
    unsafe { call(fd, abi::FENCE_MARK, &mut argument) }?;
    Ok(mark)
}

/// Waits until all copies before a mark are complete. Returns an error if one has failed.
pub fn fence_wait(fd: impl AsFd, mark: i32) -> Result<()> {
    // SAFETY: The argument of this number is a number.
    unsafe {
        let argument = IntegerSetter::<{ abi::FENCE_WAIT }>::new_usize(mark as usize);
        rustix::ioctl::ioctl(fd, argument)
    }
}

/// Has the driver store a value in a window of this side, once all copies that this side has
/// started are complete.
pub fn fence_signal(fd: impl AsFd, offset: i64, value: u64) -> Result<()> {
    let mut argument = abi::FenceSignal {
        local: offset,
        local_value: value,
        flags: abi::FENCE_INIT_SELF | abi::SIGNAL_LOCAL,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses. Windows exist to be stored
    // to.
    unsafe { call(fd, abi::FENCE_SIGNAL, &mut argument) }?;
    Ok(())
}

// ----- nodes ------------------------------------------------------------------------------------

/// Lists the nodes that are online.
pub fn node_ids(fd: impl AsFd) -> Result<Nodes> {
    let mut online = vec![0u16; 256];
    loop {
        let mut own = 0u16;
        let mut argument = abi::NodeIds {
            nodes: online.as_mut_ptr() as u64,
            own: (&raw mut own) as u64,
            length: online.len() as i32,
        };
        // SAFETY: The argument is the one of this number; the kernel writes at most `online.len()`
        // ids, and the own one.
        let count = unsafe { call(fd.as_fd(), abi::GET_NODEIDS, &mut argument) }?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > online.len() && online.len() < MOST_NODES {
            online.resize(MOST_NODES, 0);
            continue;
        }
        online.truncate(count);
        return Ok(Nodes { online, own });
    }
}

/// Opens the page in which the kernel keeps the state of the link to a node. The caller maps it.
pub fn node_status(fd: impl AsFd, node: u16) -> Result<OwnedFd> {
    let mut argument = abi::NodeStatus {
        size: size::<abi::NodeStatus>(),
        node,
        fd: -1,
        ..Default::default()
    };
    // SAFETY: The argument is the one of this number, without addresses.
    unsafe { call(fd, abi::NODE_STATUS, &mut argument) }?;
    // SAFETY: The kernel has just made the descriptor for the caller.
    Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
}
