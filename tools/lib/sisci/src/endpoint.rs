// SPDX-License-Identifier: LGPL-2.1

//! SCIF endpoints, as this library uses them.
//!
//! After a signal a wait begins anew, as programs expect of SISCI. This module does not know
//! segments.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd as _;
use std::os::fd::OwnedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::poll;
use rustix::fs::OFlags;
use rustix::io::DupFlags;
use rustix::io::Errno;
use rustix::io::retry_on_intr;
use scif_sys::Initiator;
use scif_sys::Nodes;
use scif_sys::Protection;
use scif_sys::Rma;

use crate::deadline::Deadline;
use crate::descriptors::Descriptor;
use crate::mapping::Mapping;
use crate::mapping::Place;

/// The result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

/// The direction in which a transfer moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer to this side.
    Read,
    /// From this side to the peer.
    Write,
}

/// The two sides of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Offset on this side.
    pub local: u64,
    /// Offset on the other side.
    pub remote: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Copied {
    /// Returns the same copy, with its local side moved by `begin`.
    pub fn moved(self, begin: u64) -> Self {
        Self {
            local: begin + self.local,
            ..self
        }
    }
}

/// A SCIF endpoint.
pub struct Endpoint {
    fd: Descriptor,
}

impl Endpoint {
    /// Opens a new endpoint.
    pub fn open() -> Result<Self> {
        let fd = scif_sys::open()?.into();
        Ok(Self { fd })
    }

    /// Returns the same connection with a descriptor of its own.
    pub fn duplicate(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
        Ok(Self { fd: fd.into() })
    }

    /// Makes this descriptor stand for the connection of `other` from now on, also for calls that
    /// are made meanwhile.
    pub fn become_duplicate_of(&self, other: &Self) -> Result<()> {
        // SAFETY: The number is a descriptor of this library and stays one: nothing is closed here.
        let mut this = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.raw()) });
        rustix::io::dup3(other, &mut this, DupFlags::CLOEXEC)
    }

    /// Returns an endpoint that listens under a name of this node, or under any free name, and the
    /// name.
    pub fn listening(class: u32, name: Option<u32>) -> Result<(Self, u32)> {
        let this = Self::open()?;
        retry_on_intr(|| scif_sys::bind(&this, 0))?;
        let name = retry_on_intr(|| scif_sys::bind_name(&this, class, name))?;
        retry_on_intr(|| scif_sys::listen(&this, 128))?;
        Ok((this, name))
    }

    /// Connects to the owner of the name on a node. TIMEDOUT: there was no answer before the
    /// deadline.
    pub fn connected(node: u16, class: u32, name: u32, deadline: Deadline) -> Result<Self> {
        let this = Self::open()?;
        rustix::fs::fcntl_setfl(&this.fd, OFlags::RDWR | OFlags::NONBLOCK)?;
        loop {
            match retry_on_intr(|| scif_sys::connect_name(&this, node, class, name)) {
                Err(Errno::INPROGRESS) => (),
                result => return result.map(|()| this),
            }
            if !this.wait(PollFlags::OUT, deadline)? {
                return Err(Errno::TIMEDOUT);
            }
        }
    }

    /// Accepts a waiting connection, if there is one. Returns the endpoint, and the node of the
    /// other end. MFILE and similar errors: this process has no room for an endpoint, and the
    /// connection goes on waiting.
    pub fn accept(&self) -> Result<Option<(Self, u16)>> {
        if !self.wait(PollFlags::IN, Deadline::after(0))? {
            return Ok(None);
        }
        // The endpoint is opened first: once the kernel has handed out the request, no other call
        // can take it.
        let accepted = Self::open()?;
        let request = match retry_on_intr(|| scif_sys::accept_request(self, false)) {
            Err(Errno::AGAIN) => return Ok(None),
            request => request?,
        };
        retry_on_intr(|| scif_sys::accept_register(&accepted, &request))?;
        Ok(Some((accepted, request.peer.node)))
    }

    /// Waits until the descriptor has one of the flags or an error. Returns false if the deadline
    /// has passed.
    pub fn wait(&self, flags: PollFlags, deadline: Deadline) -> Result<bool> {
        let mut fds = [PollFd::new(&self.fd, flags)];
        loop {
            match poll_until(&mut fds, deadline) {
                Err(Errno::INTR) => (),
                result => return Ok(result? > 0),
            }
        }
    }

    /// Sends all of the message or nothing. AGAIN: there is no room now.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        retry_on_intr(|| scif_sys::send_all(self, message))
    }

    /// Receives the bytes that have arrived, if any. CONNRESET: the peer is gone, and all its bytes
    /// were received.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        retry_on_intr(|| scif_sys::recv(self, buffer, false))
    }

    /// Makes a window of a part of pinned memory, at this offset or at any. Returns the offset.
    pub fn register(
        &self,
        memory: &PinnedMemory,
        range: core::ops::Range<u64>,
        offset: Option<i64>,
    ) -> Result<i64> {
        retry_on_intr(|| scif_sys::memory_register(self, &memory.fd, range.clone(), offset))
    }

    /// Makes a window of memory of this process. Returns the offset.
    pub fn register_own(&self, memory: &Mapping) -> Result<i64> {
        let (address, length) = (memory.address() as u64, memory.len() as u64);
        retry_on_intr(|| {
            // SAFETY: No reference to the memory exists.
            unsafe { scif_sys::register(self, address, length, Protection::ReadWrite, None) }
        })
    }

    /// Unregisters the windows of a range.
    pub fn unregister(&self, offset: i64, length: u64) -> Result<()> {
        retry_on_intr(|| scif_sys::unregister(self, offset, length))
    }

    /// Starts a copy between windows of the two sides, and waits for completion if `wait` is set.
    pub fn copy(&self, direction: Direction, range: Copied, wait: bool) -> Result<()> {
        let (local, remote) = (range.local as i64, range.remote as i64);
        let how = Rma {
            sync: wait,
            ..Rma::default()
        };
        retry_on_intr(|| match direction {
            Direction::Read => scif_sys::readfrom(self, local, range.length, remote, how),
            Direction::Write => scif_sys::writeto(self, local, range.length, remote, how),
        })
    }

    /// Starts a copy like [`Self::copy`], between memory of this process, from `range.local` on,
    /// and windows of the peer.
    ///
    /// # Safety
    ///
    /// The caller may read or write the memory, and keeps it until the copy is complete.
    pub unsafe fn copy_memory(
        &self,
        direction: Direction,
        memory: *mut c_void,
        range: Copied,
        wait: bool,
    ) -> Result<()> {
        let memory = memory.wrapping_byte_add(range.local as usize);
        let remote = range.remote as i64;
        let how = Rma {
            cache: true,
            sync: wait,
            ..Rma::default()
        };
        retry_on_intr(|| match direction {
            // SAFETY: By the contract of this function.
            Direction::Read => unsafe {
                scif_sys::vreadfrom(self, memory, range.length, remote, how)
            },
            // SAFETY: By the contract of this function.
            Direction::Write => unsafe {
                scif_sys::vwriteto(self, memory, range.length, remote, how)
            },
        })
    }

    /// Returns a mark behind all copies that this side has started.
    pub fn mark(&self) -> Result<i32> {
        retry_on_intr(|| scif_sys::fence_mark(self, Initiator::Own))
    }

    /// Waits until all copies before the mark are complete. Returns an error if one has failed.
    pub fn wait_for_mark(&self, mark: i32) -> Result<()> {
        retry_on_intr(|| scif_sys::fence_wait(self, mark))
    }

    /// Has the driver store a value in a window of this side once all copies so far are complete.
    pub fn signal(&self, offset: i64, value: u64) -> Result<()> {
        retry_on_intr(|| scif_sys::fence_signal(self, offset, value))
    }

    /// Makes maps of this endpoint's peer read as all ones after a loss.
    pub fn read_ones_after_loss(&self) -> Result<()> {
        retry_on_intr(|| scif_sys::map_ones_after_loss(self))
    }

    /// Maps windows of the peer.
    pub fn map(&self, offset: u64, len: usize, writable: bool, place: Place) -> Result<Mapping> {
        Mapping::new(self.fd.as_fd(), offset, len, writable, place)
    }

    /// Returns the address by which devices of this host reach the peer's window. OPNOTSUPP: the
    /// window is not in one piece there.
    pub fn device_address(&self, offset: i64, length: u64) -> Result<u64> {
        let found = retry_on_intr(|| scif_sys::remote_address(self, offset, length))?;
        match found.contiguous >= length {
            true => Ok(found.address),
            false => Err(Errno::OPNOTSUPP),
        }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Polls descriptors until the deadline. INTR: a signal arrived.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize> {
    poll(fds, deadline.left().as_ref())
}

/// Memory that the driver has pinned. Any number of endpoints can register it.
pub struct PinnedMemory {
    fd: Descriptor,
}

impl PinnedMemory {
    /// Pins memory of this process, or describes memory of a device to the driver.
    pub fn new(address: u64, length: u64, is_device: bool) -> Result<Self> {
        let endpoint = Endpoint::open()?;
        let fd = retry_on_intr(|| {
            // SAFETY: A program that makes a segment of its memory has other processes read and
            // write it. This library has no reference to the memory.
            unsafe { scif_sys::memory_create(&endpoint, address, length, is_device) }
        })?;
        Ok(Self { fd: fd.into() })
    }
}

/// Returns the ids of the nodes that are online, with this one among them, and the id of this node.
pub fn nodes() -> Result<Nodes> {
    let endpoint = Endpoint::open()?;
    retry_on_intr(|| scif_sys::node_ids(&endpoint))
}
