// SPDX-License-Identifier: GPL-2.0

//! The calls as the kernel gets them, with arbitrary arguments.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd as _;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use scif_sys::abi;
use scif_sys::abi::PortId;

/// The result of a call: a number, or an error.
pub type Outcome = Result<i64, Errno>;

/// The number of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: The function takes any number. It returns null or a string that is never freed.
        let name = unsafe { strerrorname_np(self.0) };
        if name.is_null() {
            return write!(f, "errno {}", self.0);
        }
        // SAFETY: The pointer is not null, so it points to a string.
        f.write_str(&unsafe { CStr::from_ptr(name) }.to_string_lossy())
    }
}

unsafe extern "C" {
    fn strerrorname_np(number: libc::c_int) -> *const libc::c_char;
}

fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn outcome(returned: i64) -> Outcome {
    if returned < 0 {
        return Err(last());
    }
    Ok(returned)
}

/// A maker of calls on another node, on the endpoint of a slot.
pub trait Elsewhere {
    /// Makes a call whose argument is a structure.
    fn call(&self, slot: usize, number: u32, argument: &mut Argument) -> Outcome;
    /// Makes a call whose argument is a number.
    fn number(&self, slot: usize, number: u32, argument: u64) -> Outcome;
    /// Asks for a mark.
    fn mark(&self, slot: usize, flags: i32) -> Outcome;
    /// Waits for events, at most `milliseconds`, and returns those that have occurred.
    fn poll(&self, slot: usize, events: PollFlags, milliseconds: i64) -> PollFlags;
    /// Maps windows, returns the bytes of the mapping, and unmaps it.
    fn map(&self, slot: usize, offset: i64, len: usize, write: bool) -> Result<Vec<u8>, Errno>;
}

/// An endpoint: a descriptor of this process, or a slot of another node.
#[derive(Clone, Copy)]
pub enum Fd<'a> {
    Here(BorrowedFd<'a>),
    There(&'a dyn Elsewhere, usize),
}

impl<'a> From<BorrowedFd<'a>> for Fd<'a> {
    fn from(fd: BorrowedFd<'a>) -> Self {
        Self::Here(fd)
    }
}

/// Number of words of the longest argument.
pub const WORDS: usize = 6;
/// The bytes of an argument, followed by zeroes.
pub type Argument = [u64; WORDS];

/// Makes a call whose argument is a structure.
fn call<T: Copy>(fd: Fd<'_>, number: u32, argument: &mut T) -> Outcome {
    const { assert!(size_of::<T>() <= size_of::<Argument>() && align_of::<T>() <= 8) };
    match fd {
        Fd::Here(fd) => call_here(fd, number, argument),
        Fd::There(agent, slot) => {
            let mut words: Argument = [0; WORDS];
            // SAFETY: The words have room for the structure. Padding becomes arbitrary bytes, which
            // the driver does not read.
            unsafe { words.as_mut_ptr().cast::<T>().write(*argument) };
            let outcome = agent.call(slot, number, &mut words);
            // SAFETY: All arguments are integers, for which any bytes are valid.
            *argument = unsafe { words.as_ptr().cast::<T>().read() };
            outcome
        }
    }
}

fn call_here<T>(fd: BorrowedFd<'_>, number: u32, argument: &mut T) -> Outcome {
    let argument = std::ptr::from_mut(argument);
    // SAFETY: The argument is memory for the structure of this call number. The addresses in it
    // point into the arena or behind it, and nothing borrows that memory.
    outcome(unsafe { libc::ioctl(fd.as_raw_fd(), number.into(), argument) }.into())
}

/// Makes a call whose argument is given as words.
pub fn call_raw(fd: Fd<'_>, number: u32, argument: &mut Argument) -> Outcome {
    call(fd, number, argument)
}

/// Makes a call whose argument is a number.
pub fn number(fd: Fd<'_>, number: u32, argument: u64) -> Outcome {
    match fd {
        Fd::Here(fd) => {
            // SAFETY: Callers pass numbers of the driver only for calls whose argument is no
            // address. Another driver may read the argument as an address, but nothing is mapped at
            // such addresses.
            let returned = unsafe { libc::ioctl(fd.as_raw_fd(), number.into(), argument) };
            outcome(returned.into())
        }
        Fd::There(agent, slot) => agent.number(slot, number, argument),
    }
}

pub fn bind(fd: Fd<'_>, port: u16) -> Outcome {
    let mut argument = [port, 0, 0, 0];
    call(fd, abi::BIND, &mut argument)?;
    Ok(argument[0].into())
}

pub fn connect(fd: Fd<'_>, peer: PortId) -> Outcome {
    let mut argument = abi::Connect {
        peer,
        ..Default::default()
    };
    call(fd, abi::CONNECT, &mut argument)?;
    Ok(argument.own.port.into())
}

/// Accepts a request. Returns the handle of the new endpoint and the port of the connector.
pub fn accept_request(fd: Fd<'_>, flags: i32) -> Result<(u64, u16), Errno> {
    let mut argument = abi::Accept {
        flags,
        ..Default::default()
    };
    call(fd, abi::ACCEPTREQ, &mut argument)?;
    Ok((argument.endpoint, argument.peer.port))
}

pub fn accept_register(fd: Fd<'_>, mut handle: u64) -> Outcome {
    call(fd, abi::ACCEPTREG, &mut handle)
}

/// Sends `length` bytes from an address.
pub fn send(fd: Fd<'_>, address: u64, length: i32, flags: i32) -> Outcome {
    message(fd, abi::SEND, address, length, flags)
}

pub fn receive(fd: Fd<'_>, address: u64, length: i32, flags: i32) -> Outcome {
    message(fd, abi::RECV, address, length, flags)
}

fn message(fd: Fd<'_>, number: u32, address: u64, length: i32, flags: i32) -> Outcome {
    let mut argument = abi::Message {
        address,
        length,
        flags,
        moved: 0,
    };
    call(fd, number, &mut argument)?;
    Ok(argument.moved.into())
}

pub fn send_all(fd: Fd<'_>, address: u64, length: u64, flags: u32) -> Outcome {
    let mut argument = abi::SendAll {
        size: size_of::<abi::SendAll>() as u32,
        flags,
        address,
        length,
        ..Default::default()
    };
    call(fd, abi::SEND_ALL, &mut argument)
}

pub fn register(fd: Fd<'_>, mut argument: abi::Register) -> Outcome {
    call(fd, abi::REG, &mut argument)?;
    Ok(argument.registered)
}

pub fn unregister(fd: Fd<'_>, offset: i64, length: u64) -> Outcome {
    call(fd, abi::UNREG, &mut abi::Unregister { offset, length })
}

/// Copies between memory and a window, or between windows if `address` is `None`.
pub fn copy(
    fd: Fd<'_>,
    write: bool,
    address: Option<u64>,
    local: i64,
    remote: i64,
    length: u64,
    flags: i32,
) -> Outcome {
    let mut argument = abi::Copy {
        local,
        length,
        remote,
        address: address.unwrap_or(0),
        flags,
    };
    let number = match (write, address) {
        (true, None) => abi::WRITETO,
        (false, None) => abi::READFROM,
        (true, Some(_)) => abi::VWRITETO,
        (false, Some(_)) => abi::VREADFROM,
    };
    call(fd, number, &mut argument)
}

pub fn fence_mark(fd: Fd<'_>, flags: i32) -> Outcome {
    if let Fd::There(agent, slot) = fd {
        return agent.mark(slot, flags);
    }
    let mut mark = 0i32;
    let mut argument = abi::FenceMark {
        flags,
        mark: (&raw mut mark) as u64,
    };
    call(fd, abi::FENCE_MARK, &mut argument)?;
    Ok(mark.into())
}

pub fn fence_signal(fd: Fd<'_>, mut argument: abi::FenceSignal) -> Outcome {
    call(fd, abi::FENCE_SIGNAL, &mut argument)
}

pub fn bind_name(fd: Fd<'_>, name: u32) -> Outcome {
    let mut argument = abi::BindName {
        size: size_of::<abi::BindName>() as u32,
        class: abi::NAME_CLASS_USER,
        name,
        ..Default::default()
    };
    call(fd, abi::BIND_NAME, &mut argument)
}

pub fn connect_name(fd: Fd<'_>, node: u16, name: u32) -> Outcome {
    let mut argument = abi::ConnectName {
        size: size_of::<abi::ConnectName>() as u32,
        class: abi::NAME_CLASS_USER,
        name,
        node,
        ..Default::default()
    };
    call(fd, abi::CONNECT_NAME, &mut argument)
}

/// Creates a memory descriptor for windows that may allow `protection`.
pub fn memory(fd: Fd<'_>, address: u64, length: u64, protection: i32) -> Result<OwnedFd, Errno> {
    let mut argument = abi::MemoryCreate {
        size: size_of::<abi::MemoryCreate>() as u32,
        address,
        length,
        protection: protection as u32,
        ..Default::default()
    };
    call(fd, abi::MEMORY_CREATE, &mut argument)?;
    // SAFETY: The call has created the descriptor for this process, and no other code knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(argument.fd) })
}

/// Registers a window of the whole memory of such a descriptor.
pub fn register_memory(fd: Fd<'_>, memory: BorrowedFd<'_>, window: abi::Register) -> Outcome {
    let mut argument = abi::MemoryRegister {
        size: size_of::<abi::MemoryRegister>() as u32,
        flags: window.flags as u32,
        fd: memory.as_raw_fd(),
        protection: window.protection as u32,
        length: window.length,
        offset: window.offset,
        ..Default::default()
    };
    call(fd, abi::MEMORY_REGISTER, &mut argument)?;
    Ok(argument.offset)
}

/// Creates a node status descriptor, and closes it.
pub fn node_status(fd: Fd<'_>, node: u16) -> Outcome {
    let mut argument = abi::NodeStatus {
        size: size_of::<abi::NodeStatus>() as u32,
        node,
        ..Default::default()
    };
    call(fd, abi::NODE_STATUS, &mut argument)?;
    // SAFETY: The call has created the descriptor for this process, and no other code knows of it.
    drop(unsafe { OwnedFd::from_raw_fd(argument.fd) });
    Ok(0)
}

/// Returns the number of nodes.
pub fn node_ids(fd: Fd<'_>) -> Outcome {
    let mut nodes = [0u16; 4];
    let mut own = 0u16;
    let mut argument = abi::NodeIds {
        nodes: (&raw mut nodes) as u64,
        own: (&raw mut own) as u64,
        length: nodes.len() as i32,
    };
    call(fd, abi::GET_NODEIDS, &mut argument)
}

/// Waits for one of the events, at most `milliseconds`. Returns the events that have occurred.
pub fn poll(fd: Fd<'_>, events: PollFlags, milliseconds: i64) -> PollFlags {
    let fd = match fd {
        Fd::Here(fd) => fd,
        Fd::There(agent, slot) => return agent.poll(slot, events, milliseconds),
    };
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    let time = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let _ = rustix::event::poll(&mut fds, Some(&time));
    fds[0].revents()
}

/// Maps windows of the peer, returns the bytes of the mapping, and unmaps it.
pub fn map(fd: Fd<'_>, offset: i64, len: usize, write: bool) -> Result<Vec<u8>, Errno> {
    let fd = match fd {
        Fd::Here(fd) => fd,
        Fd::There(agent, slot) => return agent.map(slot, offset, len, write),
    };
    let rights = match write {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::READ,
    };
    // SAFETY: The kernel chooses the address, so the mapping replaces no other one.
    let mapped = unsafe {
        let flags = MapFlags::SHARED;
        rustix::mm::mmap(std::ptr::null_mut(), len, rights, flags, fd, offset as u64)
    };
    let base = mapped.map_err(|error| Errno(error.raw_os_error()))?;
    let mut seen = vec![0u8; len];
    // SAFETY: The mapping has this many bytes, and stays while the peer's node does. Only the
    // kernel and other processes write to it.
    unsafe { std::ptr::copy(base.cast::<u8>(), seen.as_mut_ptr(), seen.len()) };
    // SAFETY: Nothing uses the mapping any more.
    let _ = unsafe { rustix::mm::munmap(base, len) };
    Ok(seen)
}
