// SPDX-License-Identifier: LGPL-2.1

//! The operations of a connected endpoint that rings use.

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

/// A connection that carries bytes and bells.
pub trait Stream {
    /// Sends like `scif_send()`. Returns how many bytes were sent.
    fn send(&self, bytes: &[u8], block: bool) -> Result<usize, Errno>;
    /// Receives like `scif_recv()`. Returns how many bytes were received.
    fn recv(&self, bytes: &mut [u8], block: bool) -> Result<usize, Errno>;
    /// Returns whether the peer is gone.
    fn is_over(&self) -> bool;
}

/// A connected endpoint. The descriptor belongs to the caller, who closes it after the endpoint is
/// dropped.
#[derive(Clone, Copy)]
pub struct Endpoint {
    fd: RawFd,
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: The caller of `new` keeps the descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl Endpoint {
    /// Wraps a descriptor. EBADF: the number can't be a descriptor.
    ///
    /// # Safety
    ///
    /// The descriptor stays open as long as the endpoint or a copy of it is used.
    pub unsafe fn new(fd: RawFd) -> Result<Self, Errno> {
        match fd {
            0.. => Ok(Self { fd }),
            _ => Err(Errno::BADF),
        }
    }

    /// Registers the memory of an area by `scif_register()`, at any offset, for stores and loads of
    /// the peer. Returns the offset. The window stays when the area is dropped.
    pub fn register(&self, area: &Area) -> Result<i64, Errno> {
        let (address, len) = (area.address(), area.len() as u64);
        // SAFETY: The peer may load from and store to an area at any time.
        unsafe { scif_sys::register(self, address, len, Protection::ReadWrite, None) }
    }

    /// Returns which of the events are ready now, and the error conditions of the descriptor.
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
