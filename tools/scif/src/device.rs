// SPDX-License-Identifier: GPL-2.0

//! Safe calls on `/dev/scif`: one method per call of the interface, errors as `io::Error`.
//!
//! Thin on purpose: no framing, no retries, no policy; [`crate::transport`] adds those. A call that
//! a signal interrupts returns EINTR.

use crate::region::Region;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::fs::OFlags;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub use scif_sys::Initiator;
pub use scif_sys::Nodes;
pub use scif_sys::PortId;
pub use scif_sys::Protection;
pub use scif_sys::Rma;

/// A point in the sequence of accesses of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) i32);

/// An endpoint: an open file of `/dev/scif`.
#[derive(Debug)]
pub struct Endpoint {
    fd: OwnedFd,
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Endpoint {
    /// Opens an unbound endpoint.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            fd: scif_sys::open()?,
        })
    }

    /// Makes [`Self::connect`] return at once, or wait again.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(self)?;
        flags.set(OFlags::NONBLOCK, on);
        Ok(rustix::fs::fcntl_setfl(self, flags)?)
    }

    /// Binds to `port`, or for 0 to any free port. Returns the port.
    pub fn bind(&self, port: u16) -> io::Result<u16> {
        Ok(scif_sys::bind(self, port)?)
    }

    /// Listens for connections.
    pub fn listen(&self, backlog: i32) -> io::Result<()> {
        Ok(scif_sys::listen(self, backlog)?)
    }

    /// Connects to a listener and returns the local end. If non-blocking: EINPROGRESS, then
    /// POLLOUT, then a second call gets the result.
    pub fn connect(&self, peer: PortId) -> io::Result<PortId> {
        Ok(scif_sys::connect(self, peer)?)
    }

    /// Accepts a connection. With `sync` it waits for one; without `sync`, EAGAIN means that there
    /// is none.
    pub fn accept(&self, sync: bool) -> io::Result<(Self, PortId)> {
        // The endpoint is opened first: a failure here loses no connection.
        let endpoint = Self::open()?;
        let request = scif_sys::accept_request(self, sync)?;
        scif_sys::accept_register(&endpoint, &request)?;
        Ok((endpoint, request.peer))
    }

    /// Sends bytes; returns how many. Without `block` this may be fewer, or 0.
    pub fn send(&self, bytes: &[u8], block: bool) -> io::Result<usize> {
        Ok(scif_sys::send(self, bytes, block)?)
    }

    /// Receives bytes; returns how many. Without `block` this may be fewer, or 0.
    pub fn recv(&self, bytes: &mut [u8], block: bool) -> io::Result<usize> {
        Ok(scif_sys::recv(self, bytes, block)?)
    }

    /// Waits for events on this endpoint, or until `cancel` becomes readable (EINTR). Returns no
    /// flags after `timeout`.
    pub fn poll(
        &self,
        events: PollFlags,
        timeout: Option<Duration>,
        cancel: Option<BorrowedFd<'_>>,
    ) -> io::Result<PollFlags> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut files = vec![PollFd::new(self, events)];
        if let Some(cancel) = &cancel {
            files.push(PollFd::new(cancel, PollFlags::IN));
        }
        rustix::event::poll(&mut files, timeout.as_ref())?;
        if files.get(1).is_some_and(|file| !file.revents().is_empty()) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        Ok(files[0].revents())
    }

    /// Registers a region as a window. Returns its offset, which the driver chooses unless one is
    /// given.
    pub fn register(
        &self,
        region: &Region,
        protection: Protection,
        offset: Option<i64>,
    ) -> io::Result<i64> {
        let (address, length) = (region.address(), region.len() as u64);
        // SAFETY: accesses of the peer to the region do no harm to memory safety: see `region`.
        let registered = unsafe { scif_sys::register(self, address, length, protection, offset) }?;
        Ok(registered)
    }

    /// Unregisters the windows inside a range.
    pub fn unregister(&self, offset: i64, length: usize) -> io::Result<()> {
        Ok(scif_sys::unregister(self, offset, length as u64)?)
    }

    /// Copies from the peer's window at `remote` to the own window at `local`.
    pub fn readfrom(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let length = length as u64;
        Ok(scif_sys::readfrom(self, local, length, remote, how)?)
    }

    /// Copies from the own window at `local` to the peer's window at `remote`.
    pub fn writeto(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        let length = length as u64;
        Ok(scif_sys::writeto(self, local, length, remote, how)?)
    }

    /// Copies from the peer's window at `remote` to a region that need not be registered.
    pub fn vreadfrom(
        &self,
        region: &Region,
        start: usize,
        length: usize,
        remote: i64,
        how: Rma,
    ) -> io::Result<()> {
        let (address, length) = (region.check(start, length)?.cast(), length as u64);
        // SAFETY: the range is inside the region, which others may read and change: see `region`.
        Ok(unsafe { scif_sys::vreadfrom(self, address, length, remote, how) }?)
    }

    /// Copies from a region that need not be registered to the peer's window at `remote`.
    pub fn vwriteto(
        &self,
        region: &Region,
        start: usize,
        length: usize,
        remote: i64,
        how: Rma,
    ) -> io::Result<()> {
        let (address, length) = (region.check(start, length)?.cast(), length as u64);
        // SAFETY: the range is inside the region, which others may read and change: see `region`.
        Ok(unsafe { scif_sys::vwriteto(self, address, length, remote, how) }?)
    }

    /// Marks the accesses started so far.
    pub fn fence_mark(&self, initiator: Initiator) -> io::Result<Mark> {
        Ok(Mark(scif_sys::fence_mark(self, initiator)?))
    }

    /// Waits until all accesses below a mark are complete.
    pub fn fence_wait(&self, mark: Mark) -> io::Result<()> {
        Ok(scif_sys::fence_wait(self, mark.0)?)
    }

    /// Lists the nodes that are online.
    pub fn node_ids(&self) -> io::Result<Nodes> {
        Ok(scif_sys::node_ids(self)?)
    }
}
