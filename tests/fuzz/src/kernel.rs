// SPDX-License-Identifier: GPL-2.0

//! The calls as the kernel gets them, with whatever arguments.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use scif_sys::abi;
use scif_sys::abi::PortId;

/// What a call has returned: a number, or the number of an error.
pub type Outcome = Result<i64, Errno>;

/// The number of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(pub i32);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: The function takes any number, and returns a string that stays, or null.
        let name = unsafe { strerrorname_np(self.0) };
        if name.is_null() {
            return write!(f, "errno {}", self.0);
        }
        // SAFETY: It is a string.
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

/// Makes a call with a structure.
fn call<T>(fd: BorrowedFd<'_>, number: u32, argument: &mut T) -> Outcome {
    let argument = std::ptr::from_mut(argument);
    // SAFETY: It is memory for the structure of this number. The addresses in it lie in or behind the arena, which
    // nothing borrows.
    outcome(unsafe { libc::ioctl(fd.as_raw_fd(), number.into(), argument) }.into())
}

/// Makes a call whose argument is a number.
pub fn number(fd: BorrowedFd<'_>, number: u32, argument: u64) -> Outcome {
    // SAFETY: Of the numbers of the driver this is called with those whose argument is no address. What others make
    // of it is none of this process's memory: no such address is mapped.
    outcome(unsafe { libc::ioctl(fd.as_raw_fd(), number.into(), argument) }.into())
}

pub fn bind(fd: BorrowedFd<'_>, port: u16) -> Outcome {
    let mut argument = [port, 0, 0, 0];
    call(fd, abi::BIND, &mut argument)?;
    Ok(argument[0].into())
}

pub fn connect(fd: BorrowedFd<'_>, peer: PortId) -> Outcome {
    let mut argument = abi::Connect {
        peer,
        ..Default::default()
    };
    call(fd, abi::CONNECT, &mut argument)?;
    Ok(argument.own.port.into())
}

/// Returns the handle of what was accepted, and the port of the connector.
pub fn accept_request(fd: BorrowedFd<'_>, flags: i32) -> Result<(u64, u16), Errno> {
    let mut argument = abi::Accept {
        flags,
        ..Default::default()
    };
    call(fd, abi::ACCEPTREQ, &mut argument)?;
    Ok((argument.endpoint, argument.peer.port))
}

pub fn accept_register(fd: BorrowedFd<'_>, mut handle: u64) -> Outcome {
    call(fd, abi::ACCEPTREG, &mut handle)
}

/// Sends `length` bytes at an address.
pub fn send(fd: BorrowedFd<'_>, address: u64, length: i32, flags: i32) -> Outcome {
    message(fd, abi::SEND, address, length, flags)
}

pub fn receive(fd: BorrowedFd<'_>, address: u64, length: i32, flags: i32) -> Outcome {
    message(fd, abi::RECV, address, length, flags)
}

fn message(fd: BorrowedFd<'_>, number: u32, address: u64, length: i32, flags: i32) -> Outcome {
    let mut argument = abi::Message {
        address,
        length,
        flags,
        moved: 0,
    };
    call(fd, number, &mut argument)?;
    Ok(argument.moved.into())
}

pub fn send_all(fd: BorrowedFd<'_>, address: u64, length: u64) -> Outcome {
    let mut argument = abi::SendAll {
        size: size_of::<abi::SendAll>() as u32,
        address,
        length,
        ..Default::default()
    };
    call(fd, abi::SEND_ALL, &mut argument)
}

pub fn register(fd: BorrowedFd<'_>, mut argument: abi::Register) -> Outcome {
    call(fd, abi::REG, &mut argument)?;
    Ok(argument.registered)
}

pub fn unregister(fd: BorrowedFd<'_>, offset: i64, length: u64) -> Outcome {
    call(fd, abi::UNREG, &mut abi::Unregister { offset, length })
}

/// Copies, between windows if `address` is none.
pub fn copy(
    fd: BorrowedFd<'_>,
    write: bool,
    address: Option<u64>,
    mut argument: abi::Copy,
) -> Outcome {
    argument.address = address.unwrap_or(0);
    let number = match (write, address) {
        (true, None) => abi::WRITETO,
        (false, None) => abi::READFROM,
        (true, Some(_)) => abi::VWRITETO,
        (false, Some(_)) => abi::VREADFROM,
    };
    call(fd, number, &mut argument)
}

pub fn fence_mark(fd: BorrowedFd<'_>, flags: i32) -> Outcome {
    let mut mark = 0i32;
    let mut argument = abi::FenceMark {
        flags,
        mark: (&raw mut mark) as u64,
    };
    call(fd, abi::FENCE_MARK, &mut argument)?;
    Ok(mark.into())
}

pub fn fence_signal(fd: BorrowedFd<'_>, mut argument: abi::FenceSignal) -> Outcome {
    call(fd, abi::FENCE_SIGNAL, &mut argument)
}

/// Waits until one of the events has happened, at most so many milliseconds; returns those that have.
pub fn poll(fd: BorrowedFd<'_>, events: PollFlags, milliseconds: i64) -> PollFlags {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    let time = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    let _ = rustix::event::poll(&mut fds, Some(&time));
    fds[0].revents()
}
