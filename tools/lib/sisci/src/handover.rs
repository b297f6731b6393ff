// SPDX-License-Identifier: LGPL-2.1

//! Handover of a memory descriptor to another process of this node.
//!
//! A socket passes the descriptor (`SCM_RIGHTS`). Its name is in no folder: it is a random number,
//! which the taker is told over SCIF. Each side asks the kernel for the user of the other side, and
//! only accepts its own user. So no process can be made to open a file, and the two need not see
//! the same files and processes. They must be in the same network namespace.

use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::fd::AsRawFd as _;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net;
use rustix::net::AddressFamily;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;

use crate::attendant::Attendant;
use crate::attendant::Attended;
use crate::attendant::WatchId;
use crate::deadline::Deadline;
use crate::descriptors::Descriptor;
use crate::endpoint;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::random;

/// Number of takers that are served before other descriptors have their turn.
const MOST_AT_ONCE: usize = 32;

/// Time before a taker tries again to reach a giver whose queue is full.
const AGAIN: Duration = Duration::from_millis(2);

/// A descriptor that is handed to each taker that may have it, until the giver is closed.
pub struct Giver {
    socket: Descriptor,
    name: u64,
    file: Descriptor,
    attendant: Arc<Attendant>,
    watch: Mutex<Option<WatchId>>,
}

fn address(name: u64) -> Result<SocketAddrUnix> {
    let text = format!("sisci-{name:016x}");
    Ok(SocketAddrUnix::new_abstract_name(text.as_bytes())?)
}

fn socket() -> endpoint::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// The user id that the kernel shows for each user that has none in this user namespace; also the
/// id of `nobody`. Two processes that have it may belong to two users.
const NO_NUMBER: u32 = 65534;

/// Returns whether the other end is a process of the user that this process acts for. Does not use
/// `rustix`, which has no number for a process of another namespace.
fn is_of_same_user(socket: BorrowedFd<'_>) -> bool {
    // SAFETY: The structure is plain data.
    let mut peer: libc::ucred = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: `peer` has room for `len` bytes.
    let got = unsafe {
        let place = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut len)
    };
    got == 0 && peer.uid != NO_NUMBER && peer.uid == rustix::process::geteuid().as_raw()
}

impl Giver {
    /// Starts to hand out copies of this descriptor.
    pub fn open(attendant: &Arc<Attendant>, file: BorrowedFd<'_>) -> Result<Arc<Self>> {
        let file = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
        let (socket, name) = (socket()?, random::number()?);
        net::bind(&socket, &address(name)?)?;
        net::listen(&socket, 128)?;
        let this = Arc::new(Self {
            socket: socket.into(),
            name,
            file: file.into(),
            attendant: attendant.clone(),
            watch: Mutex::new(None),
        });
        let mut watch = lock(&this.watch);
        *watch = Some(attendant.watch(&this.socket, this.clone())?);
        drop(watch);
        Ok(this)
    }

    /// Returns the name that a taker must know.
    pub fn name(&self) -> u64 {
        self.name
    }

    /// Stops handing out copies.
    pub fn close(&self) {
        if let Some(watch) = lock(&self.watch).take() {
            self.attendant.forget(&self.socket, watch);
        }
    }

    fn give(&self, taker: BorrowedFd<'_>) -> endpoint::Result<()> {
        if !is_of_same_user(taker) {
            return Err(Errno::ACCESS);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let file = [self.file.as_fd()];
        rights.push(SendAncillaryMessage::ScmRights(&file));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        net::sendmsg(taker, &[IoSlice::new(&[0])], &mut rights, flags)?;
        Ok(())
    }
}

impl Attended for Giver {
    fn ready(self: Arc<Self>, watch: WatchId) {
        for _ in 0..MOST_AT_ONCE {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match net::accept_with(&self.socket, flags) {
                Ok(taker) => {
                    // A taker that gets nothing sees the connection end.
                    let _ = self.give(taker.as_fd());
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    return self.attendant.rest(&self.socket, watch);
                }
                // The error concerns one taker, which is gone.
                Err(_) => (),
            }
        }
        self.attendant.go_on(&self.socket, watch);
    }
}

/// Takes the descriptor from the giver of that name. ACCESS: the giver hands this process none, or
/// is of another user.
pub fn take(name: u64, deadline: Deadline) -> Result<OwnedFd> {
    let socket = socket()?;
    let address = address(name)?;
    loop {
        match net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::AGAIN) if !deadline.is_over() => std::thread::sleep(AGAIN),
            Err(Errno::AGAIN) => return Err(Error::TIMEOUT),
            Err(_) => return Err(Error::ACCESS),
        }
    }
    if !is_of_same_user(socket.as_fd()) {
        return Err(Error::ACCESS);
    }
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    loop {
        match endpoint::poll_until(&mut fds, deadline) {
            Err(Errno::INTR) => (),
            Ok(0) => return Err(Error::TIMEOUT),
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let (mut byte, flags) = ([0], RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT);
    net::recvmsg(
        &socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut rights,
        flags,
    )?;
    let mut files = rights.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect(),
        _ => Vec::new(),
    });
    files.next().ok_or(Error::ACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::shared_memory;
    use crate::memory::Memory;
    use rustix::fs::MemfdFlags;
    use rustix::fs::SealFlags;

    const SIZE: usize = 1 << 16;

    /// Returns the memory that a taker gets for the given file.
    fn taken(file: BorrowedFd<'_>) -> Result<Memory> {
        let attendant = Attendant::start()?;
        let giver = Giver::open(&attendant, file)?;
        let taken = take(giver.name(), Deadline::after(5000));
        giver.close();
        attendant.stop();
        Memory::of_process(taken?, SIZE)
    }

    fn memfd(size: u64, seals: SealFlags) -> Result<OwnedFd> {
        let file = rustix::fs::memfd_create(c"test", MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(file)
    }

    #[test]
    fn sealed_memory_of_the_library_is_accepted() -> Result<()> {
        let file = shared_memory(SIZE as u64)?;
        assert_eq!(rustix::fs::ftruncate(&file, 0), Err(Errno::PERM));
        rustix::io::pwrite(&file, b"hello", 100)?;
        let memory = taken(file.as_fd())?;
        let mut bytes = [0; 5];
        let there = memory.file().ok_or(Error::SYSTEM)?;
        rustix::io::pread(there, &mut bytes, 100)?;
        assert_eq!((&bytes, memory.len()), (b"hello", SIZE));
        Ok(())
    }

    #[test]
    fn unsealed_or_unfit_memory_is_refused() -> Result<()> {
        let size = SIZE as u64;
        let refused = |file: OwnedFd| matches!(taken(file.as_fd()), Err(Error::ACCESS));
        assert!(refused(memfd(size, SealFlags::GROW)?));
        assert!(refused(memfd(size - 1, SealFlags::SHRINK)?));
        assert!(!refused(memfd(size, SealFlags::SHRINK)?));
        let plain = tempfile::tempfile().map_err(|_| Error::SYSTEM)?;
        rustix::fs::ftruncate(&plain, size)?;
        assert!(refused(plain.into()));
        let sealed = memfd(size, SealFlags::SHRINK)?;
        let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
        let (flags, mode) = (rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
        assert!(refused(rustix::fs::open(path, flags, mode)?));
        Ok(())
    }

    #[test]
    fn memory_offered_under_a_wrong_name_is_refused() {
        assert!(matches!(take(1, Deadline::after(1000)), Err(Error::ACCESS)));
    }
}
