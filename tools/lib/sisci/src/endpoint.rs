// SPDX-License-Identifier: LGPL-2.1

//! Endpoints of SCIF, as this library uses them.
//!
//! Waits begin anew after a signal, as programs expect of SISCI. Nothing here knows of segments.

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

/// What the system says.
pub type Result<T> = core::result::Result<T, Errno>;

/// Which way the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer to this side.
    Read,
    /// From this side to the peer.
    Write,
}

/// What is copied.
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Where on this side.
    pub local: u64,
    /// Where on the other.
    pub remote: u64,
    /// Bytes.
    pub length: u64,
}

impl Copied {
    /// Returns the same copy, with its local side so much further on.
    pub fn moved(self, begin: u64) -> Self {
        Self {
            local: begin + self.local,
            ..self
        }
    }
}

/// See the head of this file.
pub struct Endpoint {
    fd: Descriptor,
}

impl Endpoint {
    /// A new one.
    pub fn open() -> Result<Self> {
        let fd = scif_sys::open()?.into();
        Ok(Self { fd })
    }

    /// The same connection with a descriptor of its own.
    pub fn duplicate(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
        Ok(Self { fd: fd.into() })
    }

    /// Has this descriptor stand for another connection from now on, for calls that are made meanwhile, too.
    pub fn become_duplicate_of(&self, other: &Self) -> Result<()> {
        // SAFETY: The number is a descriptor of this library's, and stays that: nothing is closed here.
        let mut this = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.fd.raw()) });
        rustix::io::dup3(other, &mut this, DupFlags::CLOEXEC)
    }

    /// One that listens under a name of this node, or any that is free, and which.
    pub fn listening(class: u32, name: Option<u32>) -> Result<(Self, u32)> {
        let this = Self::open()?;
        retry_on_intr(|| scif_sys::bind(&this, 0))?;
        let name = retry_on_intr(|| scif_sys::bind_name(&this, class, name))?;
        retry_on_intr(|| scif_sys::listen(&this, 128))?;
        Ok((this, name))
    }

    /// One that is connected to who has the name on a node; TIMEDOUT if there is no answer.
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

    /// Accepts a connection that waits, if one does: the endpoint, and the node of the other end. MFILE, and the like, if
    /// this process has no room for one: it goes on waiting then.
    pub fn accept(&self) -> Result<Option<(Self, u16)>> {
        if !self.wait(PollFlags::IN, Deadline::after(0))? {
            return Ok(None);
        }
        // First: once the kernel has handed it out, nobody else can take it.
        let accepted = Self::open()?;
        let request = match retry_on_intr(|| scif_sys::accept_request(self, false)) {
            Err(Errno::AGAIN) => return Ok(None),
            request => request?,
        };
        retry_on_intr(|| scif_sys::accept_register(&accepted, &request))?;
        Ok(Some((accepted, request.peer.node)))
    }

    /// Waits until one of these is so, or something is wrong; says whether the deadline has not passed.
    pub fn wait(&self, flags: PollFlags, deadline: Deadline) -> Result<bool> {
        let mut fds = [PollFd::new(&self.fd, flags)];
        loop {
            match poll_until(&mut fds, deadline) {
                Err(Errno::INTR) => (),
                result => return Ok(result? > 0),
            }
        }
    }

    /// Sends all or nothing; AGAIN if there is no room now.
    pub fn send(&self, message: &[u8]) -> Result<()> {
        retry_on_intr(|| scif_sys::send_all(self, message))
    }

    /// Receives what is there, if anything is; CONNRESET after the last of it if the peer is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        retry_on_intr(|| scif_sys::recv(self, buffer, false))
    }

    /// Makes a window of a part of pinned memory: at this offset, or at any. Returns the offset.
    pub fn register(
        &self,
        memory: &PinnedMemory,
        range: core::ops::Range<u64>,
        offset: Option<i64>,
    ) -> Result<i64> {
        retry_on_intr(|| scif_sys::memory_register(self, &memory.fd, range.clone(), offset))
    }

    /// Makes a window of memory of this process.
    pub fn register_own(&self, memory: &Mapping) -> Result<i64> {
        let (address, length) = (memory.address() as u64, memory.len() as u64);
        retry_on_intr(|| {
            // SAFETY: No reference to the memory exists.
            unsafe { scif_sys::register(self, address, length, Protection::ReadWrite, None) }
        })
    }

    /// Ends the windows of a range.
    pub fn unregister(&self, offset: i64, length: u64) -> Result<()> {
        retry_on_intr(|| scif_sys::unregister(self, offset, length))
    }

    /// Starts a copy between windows of the two sides, and waits for its end if that is wanted.
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

    /// As [`Self::copy`], between memory of this process, from `range.local` on, and windows of the peer.
    ///
    /// # Safety
    ///
    /// The memory is the caller's to be read or written, and stays so until the copy has ended.
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
            // SAFETY: As above.
            Direction::Write => unsafe {
                scif_sys::vwriteto(self, memory, range.length, remote, how)
            },
        })
    }

    /// A mark behind all copies that this side has started.
    pub fn mark(&self) -> Result<i32> {
        retry_on_intr(|| scif_sys::fence_mark(self, Initiator::Own))
    }

    /// Waits until all copies before the mark have ended; an error if one has failed.
    pub fn wait_for_mark(&self, mark: i32) -> Result<()> {
        retry_on_intr(|| scif_sys::fence_wait(self, mark))
    }

    /// Has a value stored in a window of this side once all copies so far have ended.
    pub fn signal(&self, offset: i64, value: u64) -> Result<()> {
        retry_on_intr(|| scif_sys::fence_signal(self, offset, value))
    }

    /// What maps of this endpoint's peer read as after a loss: all ones.
    pub fn read_ones_after_loss(&self) -> Result<()> {
        retry_on_intr(|| scif_sys::map_ones_after_loss(self))
    }

    /// Maps windows of the peer.
    pub fn map(&self, offset: u64, len: usize, writable: bool, place: Place) -> Result<Mapping> {
        Mapping::new(self.fd.as_fd(), offset, len, writable, place)
    }

    /// The address by which devices of this host reach the peer's window: OPNOTSUPP unless all of it is in one
    /// piece there.
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

/// `poll`, until the deadline; INTR after a signal.
pub fn poll_until(fds: &mut [PollFd<'_>], deadline: Deadline) -> Result<usize> {
    poll(fds, deadline.left().as_ref())
}

/// Memory that the driver has pinned, to be registered by any number of endpoints.
pub struct PinnedMemory {
    fd: Descriptor,
}

impl PinnedMemory {
    /// Pins memory of this process, or says where a device's memory lies.
    pub fn new(address: u64, length: u64, is_device: bool) -> Result<Self> {
        let endpoint = Endpoint::open()?;
        let fd = retry_on_intr(|| {
            // SAFETY: A program that makes a segment of memory has it read and written by others. No reference of this
            // library's to it exists.
            unsafe { scif_sys::memory_create(&endpoint, address, length, is_device) }
        })?;
        Ok(Self { fd: fd.into() })
    }
}

/// The ids of the nodes that are online, this one among them, and this one's.
pub fn nodes() -> Result<Nodes> {
    let endpoint = Endpoint::open()?;
    retry_on_intr(|| scif_sys::node_ids(&endpoint))
}
