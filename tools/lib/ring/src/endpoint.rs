// SPDX-License-Identifier: LGPL-2.1

//! A connected endpoint of somebody's, as far as rings use it.
//!
//! The arguments are those of `linux/scif_ioctl.h` and `linux/scif_services.h`.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::RawFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::io::Errno;

const fn code(direction: u32, number: u32, size: usize) -> u32 {
    (direction << 30) | ((size as u32) << 16) | ((b's' as u32) << 8) | number
}

const fn both<T>(number: u32) -> u32 {
    code(3, number, size_of::<T>())
}

const SEND: u32 = both::<Message>(6);
const RECV: u32 = both::<Message>(7);
const REG: u32 = both::<Register>(8);
const UNREG: u32 = both::<Unregister>(9);
const MAP_POLICY: u32 = code(0, 0x44, 0);

const BLOCK: i32 = 1;
const READ_AND_WRITE: i32 = 3;
const ONES_AFTER_LOSS: u32 = 1;

#[repr(C)]
struct Message {
    address: u64,
    len: i32,
    flags: i32,
    moved: i32,
}

#[repr(C)]
struct Register {
    address: u64,
    len: u64,
    offset: i64,
    protection: i32,
    flags: i32,
    placed: i64,
}

#[repr(C)]
struct Unregister {
    offset: i64,
    len: u64,
}

#[repr(C)]
struct MapPolicy {
    size: u32,
    flags: u32,
    reserved: u64,
}

/// What carries bytes and bells: a connection.
pub trait Stream {
    /// As `scif_send()`: how many bytes were sent.
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno>;
    /// As `scif_recv()`: how many bytes were received.
    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno>;
    /// Whether the peer is gone.
    fn is_over(&self) -> bool;
}

/// What the last call of the system said.
pub fn last_error() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO))
}

/// See the head of this file. It is the caller's descriptor, who closes it after this is gone.
#[derive(Clone, Copy)]
pub struct Endpoint {
    fd: RawFd,
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: See `new`.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Endpoint {
    /// EBADF for what can't be a descriptor.
    ///
    /// # Safety
    ///
    /// Nobody closes it as long as this is used.
    pub unsafe fn new(fd: RawFd) -> Result<Self, Errno> {
        match fd {
            0.. => Ok(Self { fd }),
            _ => Err(Errno::BADF),
        }
    }

    /// Calls `ioctl` with a structure, which the kernel reads and writes.
    fn call<T>(&self, code: u32, argument: &mut T) -> Result<(), Errno> {
        // SAFETY: The structure is the one of this number, and borrowed for the call; who made it vouches for
        // what it points to.
        let result = unsafe { libc::ioctl(self.fd, code as _, core::ptr::from_mut(argument)) };
        match result {
            0.. => Ok(()),
            _ => Err(last_error()),
        }
    }

    fn message(&self, code: u32, address: u64, len: usize, block: bool) -> Result<usize, Errno> {
        let mut message = Message {
            address,
            len: i32::try_from(len).unwrap_or(i32::MAX),
            flags: if block { BLOCK } else { 0 },
            moved: 0,
        };
        self.call(code, &mut message)?;
        Ok(usize::try_from(message.moved).unwrap_or(0).min(len))
    }

    /// `scif_register()`, anywhere, for stores and loads of the peer: the offset. The memory is an [`Area`]'s, which the
    /// window does not need to live.
    ///
    /// [`Area`]: crate::area::Area
    pub fn register(&self, address: u64, len: usize) -> Result<i64, Errno> {
        let mut request = Register {
            address,
            len: len as u64,
            offset: 0,
            protection: READ_AND_WRITE,
            flags: 0,
            placed: 0,
        };
        self.call(REG, &mut request)?;
        Ok(request.placed)
    }

    /// `scif_unregister()`.
    pub fn unregister(&self, offset: i64, len: usize) -> Result<(), Errno> {
        let len = len as u64;
        self.call(UNREG, &mut Unregister { offset, len })
    }

    /// Maps made from now on read as ones once the peer is lost, in the place of SIGBUS.
    pub fn map_ones_after_loss(&self) -> Result<(), Errno> {
        let mut policy = MapPolicy {
            size: size_of::<MapPolicy>() as u32,
            flags: ONES_AFTER_LOSS,
            reserved: 0,
        };
        self.call(MAP_POLICY, &mut policy)
    }

    /// What of these is ready now, and what is wrong with it.
    pub fn poll_now(&self, events: PollFlags) -> Result<PollFlags, Errno> {
        let mut files = [PollFd::new(self, events)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut files, Some(&now))?;
        Ok(files[0].revents())
    }
}

impl Stream for Endpoint {
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno> {
        self.message(SEND, bytes.as_ptr() as u64, bytes.len(), block)
    }

    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        self.message(RECV, bytes.as_mut_ptr() as u64, bytes.len(), block)
    }

    fn is_over(&self) -> bool {
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        (self.poll_now(PollFlags::empty())).is_ok_and(|flags| flags.intersects(gone))
    }
}
