// SPDX-License-Identifier: LGPL-2.1

//! Areas of this process's address space that are unmapped on drop.

use std::ffi::c_void;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::endpoint::last_error;

/// Where an area is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Any,
    /// There, or not at all; nothing that is there is replaced.
    Exactly(*mut c_void),
    /// In the place of an area that is this library's.
    Over(*mut c_void),
}

/// An area.
///
/// # Invariants
///
/// `address` and `len` are an area that was mapped by `new`, and is nobody else's.
pub struct Mapping {
    address: NonNull<c_void>,
    len: usize,
}

// SAFETY: An area belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: It gives out addresses only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file, shared. `len` is rounded up to pages by the kernel.
    pub fn new(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
        place: Place,
    ) -> Result<Self, Errno> {
        let (wanted, flags) = match place {
            Place::Any => (core::ptr::null_mut(), 0),
            Place::Exactly(address) => (address, libc::MAP_FIXED_NOREPLACE),
            Place::Over(address) => (address, libc::MAP_FIXED),
        };
        let protection = match writable {
            true => libc::PROT_READ | libc::PROT_WRITE,
            false => libc::PROT_READ,
        };
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::INVAL)?;
        // SAFETY: A new area takes the place of another one only if the caller says that it is
        // this library's.
        let address = unsafe {
            libc::mmap(
                wanted,
                len,
                protection,
                libc::MAP_SHARED | flags,
                fd.as_raw_fd(),
                offset,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(last_error());
        }
        let mapping = Self {
            address: NonNull::new(address).ok_or(Errno::NOMEM)?,
            len,
        };
        // Kernels before 4.17 take the address for a wish.
        match place {
            Place::Exactly(wanted) if wanted != address => Err(Errno::EXIST),
            _ => Ok(mapping),
        }
    }

    /// Addresses for what is to be mapped over them.
    pub fn reserved(len: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: A new area, anywhere.
        let address =
            unsafe { libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(last_error());
        }
        Ok(Self {
            address: NonNull::new(address).ok_or(Errno::NOMEM)?,
            len,
        })
    }

    /// Memory of this process alone, all zero, which is all zero again in each child that it forks.
    pub fn wiped_in_children(len: usize) -> Result<Self, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: A new area, anywhere.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(last_error());
        }
        let this = Self {
            address: NonNull::new(address).ok_or(Errno::NOMEM)?,
            len,
        };
        // SAFETY: It is the area that was just mapped.
        match unsafe { libc::madvise(address, len, libc::MADV_WIPEONFORK) } {
            0 => Ok(this),
            _ => Err(last_error()),
        }
    }

    /// Has the kernel make huge pages of it, as far as it can.
    pub fn make_huge(&self) {
        // SAFETY: By the type invariant. What is there does not change. An error is that there are none.
        unsafe { libc::madvise(self.address.as_ptr(), self.len, libc::MADV_COLLAPSE) };
    }

    /// A process that is forked does not get it.
    pub fn keep_from_children(&self) {
        // SAFETY: By the type invariant. Nothing changes in this process; an error is that the kernel has no memory.
        unsafe { libc::madvise(self.address.as_ptr(), self.len, libc::MADV_DONTFORK) };
    }

    /// Where it begins.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Leaves the area to who has mapped something else in its place.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { libc::munmap(self.address.as_ptr(), self.len) };
    }
}

/// Memory without a name in any folder, of so many bytes for ever: a process that shares it can rely on that.
pub fn shared_memory(len: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(c"sisci", flags)?;
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}
