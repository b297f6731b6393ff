// SPDX-License-Identifier: LGPL-2.1

//! A connected endpoint of somebody's, as far as rings use it.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::RawFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::event::poll;
use rustix::io::Errno;
use scif_sys::Protection;

use crate::area::Area;

/// What carries bytes and bells: a connection.
pub trait Stream {
    /// As `scif_send()`: how many bytes were sent.
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno>;
    /// As `scif_recv()`: how many bytes were received.
    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno>;
    /// Whether the peer is gone.
    fn is_over(&self) -> bool;
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

    /// `scif_register()` of an area's memory, anywhere, for stores and loads of the peer: the offset. The window does not
    /// need the area to live.
    pub fn register(&self, area: &Area) -> Result<i64, Errno> {
        let (address, len) = (area.address(), area.len() as u64);
        // SAFETY: An area is there for the peer to load from and store to, at any time.
        unsafe { scif_sys::register(self, address, len, Protection::ReadWrite, None) }
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
        scif_sys::send(self, bytes, block)
    }

    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno> {
        scif_sys::recv(self, bytes, block)
    }

    fn is_over(&self) -> bool {
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        (self.poll_now(PollFlags::empty())).is_ok_and(|flags| flags.intersects(gone))
    }
}
