// SPDX-License-Identifier: LGPL-2.1

//! Endpoints of SCIF, as this library uses them.
//!
//! Waits begin anew after a signal, as programs expect of SISCI. Nothing here knows of segments.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::poll;
use rustix::fs::Mode;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::deadline::Deadline;
use crate::descriptors::Descriptor;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::uapi;

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

/// The size that an argument of `linux/scif_services.h` begins with.
fn size_of_argument<T>() -> u32 {
    size_of::<T>() as u32
}

/// Calls `ioctl` with a structure, which the kernel reads and writes; again after a signal.
pub(crate) fn call<T: Copy>(fd: RawFd, code: u32, argument: &mut T) -> Result<i32> {
    loop {
        // SAFETY: The structure is the one of this number, and borrowed for the call.
        let result = unsafe { libc::ioctl(fd, code as _, core::ptr::from_mut(argument)) };
        match checked(result) {
            Err(Errno::INTR) => (),
            result => return result,
        }
    }
}

/// Calls `ioctl` with a number as argument; again after a signal.
fn call_with(fd: RawFd, code: u32, argument: i32) -> Result<i32> {
    loop {
        // SAFETY: The argument of this number is not a pointer.
        let result = unsafe { libc::ioctl(fd, code as _, libc::c_long::from(argument)) };
        match checked(result) {
            Err(Errno::INTR) => (),
            result => return result,
        }
    }
}

/// What a call of the C library has returned, or why it failed.
pub(crate) fn checked(result: i32) -> Result<i32> {
    match result {
        -1 => Err(last_error()),
        _ => Ok(result),
    }
}

/// What went wrong in the last call of the C library.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

impl Endpoint {
    /// A new one.
    pub fn open() -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(uapi::DEVICE, flags, Mode::empty())?;
        Ok(Self { fd: fd.into() })
    }

    fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// The same connection with a descriptor of its own.
    pub fn duplicate(&self) -> Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(&self.fd, 0)?;
        Ok(Self { fd: fd.into() })
    }

    /// Has this descriptor stand for another connection from now on, for calls that are made meanwhile, too.
    pub fn become_duplicate_of(&self, other: &Self) -> Result<()> {
        // SAFETY: Both numbers are descriptors of this library's, and stay that.
        checked(unsafe { libc::dup3(other.raw(), self.raw(), libc::O_CLOEXEC) })?;
        Ok(())
    }

    /// One that listens under a name of this node, or any that is free, and which.
    pub fn listening(class: u32, name: Option<u32>) -> Result<(Self, u32)> {
        let this = Self::open()?;
        // The number says 8 bytes.
        let mut port = 0u64;
        call(this.raw(), uapi::BIND, &mut port)?;
        let mut wanted = uapi::BindName {
            size: size_of_argument::<uapi::BindName>(),
            flags: if name.is_some() { 0 } else { uapi::NAME_ANY },
            name_class: class,
            name: name.unwrap_or(0),
            ..Default::default()
        };
        call(this.raw(), uapi::BIND_NAME, &mut wanted)?;
        call_with(this.raw(), uapi::LISTEN, 128)?;
        Ok((this, wanted.name))
    }

    /// One that is connected to who has the name on a node; TIMEDOUT if there is no answer.
    pub fn connected(node: u16, class: u32, name: u32, deadline: Deadline) -> Result<Self> {
        let this = Self::open()?;
        rustix::fs::fcntl_setfl(&this.fd, OFlags::RDWR | OFlags::NONBLOCK)?;
        loop {
            let mut wanted = uapi::ConnectName {
                size: size_of_argument::<uapi::ConnectName>(),
                name_class: class,
                name,
                node,
                ..Default::default()
            };
            match call(this.raw(), uapi::CONNECT_NAME, &mut wanted) {
                Err(Errno::INPROGRESS) => (),
                Err(error) => return Err(error),
                Ok(_) => return Ok(this),
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
        let mut request = uapi::Accept::default();
        match call(self.raw(), uapi::ACCEPTREQ, &mut request) {
            Err(Errno::AGAIN) => return Ok(None),
            result => result?,
        };
        call(accepted.raw(), uapi::ACCEPTREG, &mut request.endpoint)?;
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
        let mut argument = uapi::SendAll {
            size: size_of_argument::<uapi::SendAll>(),
            message: message.as_ptr() as u64,
            length: message.len() as u64,
            ..Default::default()
        };
        call(self.raw(), uapi::SEND_ALL, &mut argument)?;
        Ok(())
    }

    /// Receives what is there, if anything is; CONNRESET after the last of it if the peer is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<usize> {
        let mut argument = uapi::Message {
            address: buffer.as_mut_ptr() as u64,
            length: i32::try_from(buffer.len()).unwrap_or(i32::MAX),
            ..Default::default()
        };
        call(self.raw(), uapi::RECV, &mut argument)?;
        Ok(usize::try_from(argument.moved).unwrap_or(0))
    }

    /// Makes a window of a part of pinned memory: at this offset, or at any. Returns the offset.
    pub fn register(
        &self,
        memory: &PinnedMemory,
        range: core::ops::Range<u64>,
        protection: u32,
        offset: Option<i64>,
    ) -> Result<i64> {
        let mut argument = uapi::MemoryRegister {
            size: size_of_argument::<uapi::MemoryRegister>(),
            flags: if offset.is_some() { uapi::MAP_FIXED } else { 0 },
            fd: memory.fd.raw(),
            protection,
            from: range.start,
            length: range.end.saturating_sub(range.start),
            offset: offset.unwrap_or(0),
            ..Default::default()
        };
        call(self.raw(), uapi::MEMORY_REGISTER, &mut argument)?;
        Ok(argument.offset)
    }

    /// Makes a window of memory of this process.
    pub fn register_own(&self, memory: &Mapping) -> Result<i64> {
        let mut argument = uapi::Register {
            address: memory.address() as u64,
            length: memory.len() as u64,
            protection: (uapi::PROT_READ | uapi::PROT_WRITE) as i32,
            ..Default::default()
        };
        call(self.raw(), uapi::REG, &mut argument)?;
        Ok(argument.registered)
    }

    /// Ends the windows of a range.
    pub fn unregister(&self, offset: i64, length: u64) -> Result<()> {
        call(
            self.raw(),
            uapi::UNREG,
            &mut uapi::Unregister { offset, length },
        )?;
        Ok(())
    }

    /// Starts a copy between windows of the two sides, and waits for its end if that is wanted.
    pub fn copy(&self, direction: Direction, range: Copied, wait: bool) -> Result<()> {
        let code = match direction {
            Direction::Read => uapi::READFROM,
            Direction::Write => uapi::WRITETO,
        };
        let mut argument = uapi::Copy {
            local: range.local as i64,
            length: range.length,
            remote: range.remote as i64,
            flags: if wait { uapi::RMA_SYNC } else { 0 },
            ..Default::default()
        };
        call(self.raw(), code, &mut argument)?;
        Ok(())
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
        let code = match direction {
            Direction::Read => uapi::VREADFROM,
            Direction::Write => uapi::VWRITETO,
        };
        let mut argument = uapi::Copy {
            length: range.length,
            remote: range.remote as i64,
            address: memory as u64 + range.local,
            flags: uapi::RMA_USECACHE | if wait { uapi::RMA_SYNC } else { 0 },
            ..Default::default()
        };
        call(self.raw(), code, &mut argument)?;
        Ok(())
    }

    /// A mark behind all copies that this side has started.
    pub fn mark(&self) -> Result<i32> {
        let mut mark = 0i32;
        let mut argument = uapi::FenceMark {
            flags: uapi::FENCE_INIT_SELF,
            mark: core::ptr::from_mut(&mut mark) as u64,
        };
        call(self.raw(), uapi::FENCE_MARK, &mut argument)?;
        Ok(mark)
    }

    /// Waits until all copies before the mark have ended; an error if one has failed.
    pub fn wait_for_mark(&self, mark: i32) -> Result<()> {
        call_with(self.raw(), uapi::FENCE_WAIT, mark)?;
        Ok(())
    }

    /// Has a value stored in a window of this side once all copies so far have ended.
    pub fn signal(&self, offset: i64, value: u64) -> Result<()> {
        let mut argument = uapi::FenceSignal {
            local: offset,
            local_value: value,
            flags: uapi::FENCE_INIT_SELF | uapi::SIGNAL_LOCAL,
            ..Default::default()
        };
        call(self.raw(), uapi::FENCE_SIGNAL, &mut argument)?;
        Ok(())
    }

    /// What maps of this endpoint's peer read as after a loss: all ones.
    pub fn read_ones_after_loss(&self) -> Result<()> {
        let mut argument = uapi::MapPolicy {
            size: size_of_argument::<uapi::MapPolicy>(),
            flags: uapi::MAP_ONES_AFTER_LOSS,
            ..Default::default()
        };
        call(self.raw(), uapi::MAP_POLICY, &mut argument)?;
        Ok(())
    }

    /// Maps windows of the peer.
    pub fn map(&self, offset: u64, len: usize, writable: bool, place: Place) -> Result<Mapping> {
        Mapping::new(self.fd.as_fd(), offset, len, writable, place)
    }

    /// The address by which devices of this host reach the peer's window: OPNOTSUPP unless all of it is in one
    /// piece there.
    pub fn device_address(&self, offset: i64, length: u64) -> Result<u64> {
        let mut argument = uapi::RemoteAddress {
            size: size_of_argument::<uapi::RemoteAddress>(),
            offset,
            length,
            ..Default::default()
        };
        call(self.raw(), uapi::REMOTE_ADDRESS, &mut argument)?;
        match argument.contiguous >= length {
            true => Ok(argument.address),
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
        use std::os::fd::FromRawFd as _;

        let endpoint = Endpoint::open()?;
        let mut argument = uapi::MemoryCreate {
            size: size_of_argument::<uapi::MemoryCreate>(),
            flags: if is_device { uapi::MEMORY_DEVICE } else { 0 },
            address,
            length,
            protection: uapi::PROT_READ | uapi::PROT_WRITE,
            fd: -1,
            ..Default::default()
        };
        call(endpoint.raw(), uapi::MEMORY_CREATE, &mut argument)?;
        // SAFETY: The kernel has just made it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(argument.fd) };
        Ok(Self { fd: fd.into() })
    }
}

/// The ids of the nodes that are online, this one among them, and this one's.
pub fn online_nodes() -> Result<(Vec<u16>, u16)> {
    let endpoint = Endpoint::open()?;
    let (mut nodes, mut own) = ([0u16; 256], 0u16);
    let mut argument = uapi::NodeIds {
        nodes: nodes.as_mut_ptr() as u64,
        own: core::ptr::from_mut(&mut own) as u64,
        length: nodes.len() as i32,
    };
    call(endpoint.raw(), uapi::GET_NODEIDS, &mut argument)?;
    let count = usize::try_from(argument.length).unwrap_or(0);
    Ok((nodes.into_iter().take(count).collect(), own))
}
