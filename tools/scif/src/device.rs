// SPDX-License-Identifier: GPL-2.0

//! Safe calls on `/dev/scif`: one method per call of the interface, errors as `io::Error`.
//!
//! Thin on purpose: no framing, no retries, no policy; [`crate::transport`] adds those. A call that a
//! signal interrupts returns EINTR.

use crate::abi;
use crate::abi::PortId;
use crate::region::Region;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::fs::OFlags;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// There cannot be more: a node id has 16 bits.
const MOST_NODES: usize = 1 << 16;

/// What a peer may do with a window, and what the local side may use it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Copies may read from the window.
    Read,
    /// Copies may write to the window.
    Write,
    /// Both.
    ReadWrite,
}

impl Protection {
    fn bits(self) -> i32 {
        match self {
            Self::Read => abi::PROT_READ,
            Self::Write => abi::PROT_WRITE,
            Self::ReadWrite => abi::PROT_READ | abi::PROT_WRITE,
        }
    }
}

/// How a remote memory access is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rma {
    /// Copy by CPU instead of DMA.
    pub cpu: bool,
    /// Be complete on return; otherwise a fence tells.
    pub sync: bool,
    /// The last cache line becomes visible last.
    pub ordered: bool,
}

impl Rma {
    fn bits(self) -> i32 {
        (if self.cpu { abi::RMA_USECPU } else { 0 })
            | (if self.sync { abi::RMA_SYNC } else { 0 })
            | (if self.ordered { abi::RMA_ORDERED } else { 0 })
    }
}

/// Whose accesses a fence is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// Those started on this side.
    Own,
    /// Those started by the peer.
    Peer,
}

/// A point in the sequence of accesses of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(pub(crate) i32);

/// The nodes that are online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// All of them, with the own one.
    pub online: Vec<u16>,
    /// The own one.
    pub own: u16,
}

/// An endpoint: an open file of `/dev/scif`.
#[derive(Debug)]
pub struct Endpoint {
    file: File,
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Endpoint {
    /// Opens an unbound endpoint.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(abi::DEVICE)?;
        Ok(Self { file })
    }

    /// Makes [`Self::connect`] return at once.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        let mut flags = rustix::fs::fcntl_getfl(self)?;
        flags.set(OFlags::NONBLOCK, on);
        Ok(rustix::fs::fcntl_setfl(self, flags)?)
    }

    /// Binds to `port`, or with 0 to any free one; returns the port.
    pub fn bind(&self, port: u16) -> io::Result<u16> {
        // The number of the call says eight bytes, the kernel uses the first two.
        let mut argument = [port, 0, 0, 0];
        self.call(abi::BIND, &mut argument)?;
        Ok(argument[0])
    }

    /// Listens for connections.
    pub fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: the argument is a number and not an address.
        unsafe { self.ioctl(abi::LISTEN, backlog as libc::c_ulong) }
    }

    /// Connects to a listener and returns the local end. Non-blocking: EINPROGRESS, then POLLOUT,
    /// then a second call collects the result.
    pub fn connect(&self, peer: PortId) -> io::Result<PortId> {
        let mut argument = abi::Connect {
            peer,
            ..Default::default()
        };
        self.call(abi::CONNECT, &mut argument)?;
        Ok(argument.own)
    }

    /// Accepts a connection; with `sync` waits for one, otherwise EAGAIN tells that there is none.
    pub fn accept(&self, sync: bool) -> io::Result<(Self, PortId)> {
        // Opened first: failing here loses no connection.
        let endpoint = Self::open()?;
        let mut request = abi::Accept {
            flags: if sync { abi::ACCEPT_SYNC } else { 0 },
            ..Default::default()
        };
        self.call(abi::ACCEPTREQ, &mut request)?;
        let mut handle = request.endpoint;
        endpoint.call(abi::ACCEPTREG, &mut handle)?;
        Ok((endpoint, request.peer))
    }

    /// Sends bytes; returns how many. Without `block` this may be fewer, or 0.
    pub fn send(&self, bytes: &[u8], block: bool) -> io::Result<usize> {
        let mut message = abi::Message {
            address: bytes.as_ptr() as u64,
            length: bytes.len().min(i32::MAX as usize) as i32,
            flags: if block { abi::SEND_BLOCK } else { 0 },
            moved: 0,
        };
        // The kernel reads `length` bytes of `bytes`, which outlives the call.
        self.call(abi::SEND, &mut message)?;
        Ok(usize::try_from(message.moved).unwrap_or(0).min(bytes.len()))
    }

    /// Receives bytes; returns how many. Without `block` this may be fewer, or 0.
    pub fn recv(&self, bytes: &mut [u8], block: bool) -> io::Result<usize> {
        let mut message = abi::Message {
            address: bytes.as_mut_ptr() as u64,
            length: bytes.len().min(i32::MAX as usize) as i32,
            flags: if block { abi::RECV_BLOCK } else { 0 },
            moved: 0,
        };
        // The kernel writes at most `length` bytes to `bytes`, which is borrowed for the call.
        self.call(abi::RECV, &mut message)?;
        Ok(usize::try_from(message.moved).unwrap_or(0).min(bytes.len()))
    }

    /// Waits for events on this endpoint, or for `cancel` to become readable (EINTR then).
    /// Returns no flags after `timeout`.
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

    /// Registers a region as a window and returns its offset, which the driver chooses unless one
    /// is given.
    pub fn register(
        &self,
        region: &Region,
        protection: Protection,
        offset: Option<i64>,
    ) -> io::Result<i64> {
        let mut argument = abi::Register {
            address: region.address(),
            length: region.len() as u64,
            offset: offset.unwrap_or(0),
            protection: protection.bits(),
            flags: if offset.is_some() { abi::MAP_FIXED } else { 0 },
            registered: 0,
        };
        // What the peer does to the region is no harm to memory safety: see `region`.
        self.call(abi::REG, &mut argument)?;
        Ok(argument.registered)
    }

    /// Unregisters the windows inside a range.
    pub fn unregister(&self, offset: i64, length: usize) -> io::Result<()> {
        let mut argument = abi::Unregister {
            offset,
            length: length as u64,
        };
        self.call(abi::UNREG, &mut argument)
    }

    /// Copies from the peer's window at `remote` to the own window at `local`.
    pub fn readfrom(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        self.copy(abi::READFROM, local, 0, length, remote, how)
    }

    /// Copies from the own window at `local` to the peer's window at `remote`.
    pub fn writeto(&self, local: i64, length: usize, remote: i64, how: Rma) -> io::Result<()> {
        self.copy(abi::WRITETO, local, 0, length, remote, how)
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
        let address = region.check(start, length)? as u64;
        self.copy(abi::VREADFROM, 0, address, length, remote, how)
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
        let address = region.check(start, length)? as u64;
        self.copy(abi::VWRITETO, 0, address, length, remote, how)
    }

    /// Marks the accesses started so far.
    pub fn fence_mark(&self, initiator: Initiator) -> io::Result<Mark> {
        let mut mark = 0i32;
        let mut argument = abi::FenceMark {
            flags: match initiator {
                Initiator::Own => abi::FENCE_INIT_SELF,
                Initiator::Peer => abi::FENCE_INIT_PEER,
            },
            mark: (&raw mut mark) as u64,
        };
        self.call(abi::FENCE_MARK, &mut argument)?;
        // SAFETY: `mark` is alive and initialised; the kernel wrote to it behind the compiler's
        // back, hence the volatile read.
        Ok(Mark(unsafe { (&raw const mark).read_volatile() }))
    }

    /// Waits until all accesses below a mark are complete.
    pub fn fence_wait(&self, mark: Mark) -> io::Result<()> {
        // SAFETY: the argument is a number and not an address.
        unsafe { self.ioctl(abi::FENCE_WAIT, mark.0 as libc::c_ulong) }
    }

    /// Lists the nodes that are online.
    pub fn node_ids(&self) -> io::Result<Nodes> {
        let mut nodes = vec![0u16; 256];
        loop {
            let mut own = 0u16;
            let mut argument = abi::NodeIds {
                nodes: nodes.as_mut_ptr() as u64,
                own: (&raw mut own) as u64,
                length: nodes.len() as i32,
            };
            // SAFETY: the kernel writes at most `length` ids to `nodes` and one to `own`; both
            // outlive the call.
            let count = unsafe { self.ioctl_count(abi::GET_NODEIDS, (&raw mut argument) as _) }?;
            if count > nodes.len() && nodes.len() < MOST_NODES {
                nodes.resize(MOST_NODES, 0);
                continue;
            }
            nodes.truncate(count);
            // SAFETY: as for the mark above.
            let own = unsafe { (&raw const own).read_volatile() };
            return Ok(Nodes { online: nodes, own });
        }
    }

    fn copy(
        &self,
        code: u32,
        local: i64,
        address: u64,
        length: usize,
        remote: i64,
        how: Rma,
    ) -> io::Result<()> {
        let mut argument = abi::Copy {
            local,
            length: length as u64,
            remote,
            address,
            flags: how.bits(),
        };
        // Addresses come from a checked range of a `Region`, offsets mean registered windows.
        self.call(code, &mut argument)
    }

    /// A call with a structure as argument.
    fn call<T>(&self, code: u32, argument: &mut T) -> io::Result<()> {
        debug_assert_eq!(size_of::<T>(), ((code >> 16) & 0x3fff) as usize);
        // SAFETY: the kernel reads and writes at most the bytes of `argument`, whose type has the size
        // the number names. Buffers named by it are the callers' to vouch for: each borrows them.
        unsafe { self.ioctl(code, (&raw mut *argument) as libc::c_ulong) }
    }

    /// # Safety
    ///
    /// `argument` must be what the call named by `code` expects.
    unsafe fn ioctl(&self, code: u32, argument: libc::c_ulong) -> io::Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.ioctl_count(code, argument) }.map(drop)
    }

    /// # Safety
    ///
    /// As [`Self::ioctl`].
    unsafe fn ioctl_count(&self, code: u32, argument: libc::c_ulong) -> io::Result<usize> {
        // SAFETY: the descriptor is open; the argument is the caller's to vouch for.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), code as _, argument) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}
