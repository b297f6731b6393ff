// SPDX-License-Identifier: LGPL-2.1

//! Areas of this process's address space that are unmapped on drop.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::MemfdFlags;
use rustix::fs::SealFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

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
            Place::Any => (core::ptr::null_mut(), MapFlags::empty()),
            Place::Exactly(address) => (address, MapFlags::FIXED_NOREPLACE),
            Place::Over(address) => (address, MapFlags::FIXED),
        };
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        let flags = MapFlags::SHARED | flags;
        // SAFETY: A new area takes the place of another one only if the caller says that it is
        // this library's.
        let address = unsafe { rustix::mm::mmap(wanted, len, protection, flags, fd, offset) };
        let mapping = Self::of(address, len)?;
        // Kernels before 4.17 take the address for a wish.
        match place {
            Place::Exactly(wanted) if wanted != mapping.address() => Err(Errno::EXIST),
            _ => Ok(mapping),
        }
    }

    /// Addresses for what is to be mapped over them.
    pub fn reserved(len: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        Self::anonymous(len, ProtFlags::empty(), flags)
    }

    /// Memory of this process alone, all zero, which is all zero again in each child that it forks.
    pub fn wiped_in_children(len: usize) -> Result<Self, Errno> {
        let this = Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        this.advise(Advice::LinuxWipeOnFork)?;
        Ok(this)
    }

    fn anonymous(len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Self, Errno> {
        // SAFETY: A new area, anywhere.
        let address =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, protection, flags) };
        Self::of(address, len)
    }

    /// Owns what was just mapped.
    fn of(address: Result<*mut c_void, Errno>, len: usize) -> Result<Self, Errno> {
        let address = NonNull::new(address?).ok_or(Errno::NOMEM)?;
        Ok(Self { address, len })
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: By the type invariant. What is there is lost in children at most.
        unsafe { rustix::mm::madvise(self.address(), self.len, advice) }
    }

    /// Has the kernel make huge pages of it, as far as it can.
    pub fn make_huge(&self) {
        // SAFETY: By the type invariant. What is there does not change. An error is that there are none.
        unsafe { libc::madvise(self.address(), self.len, libc::MADV_COLLAPSE) };
    }

    /// A process that is forked does not get it.
    pub fn keep_from_children(&self) {
        // An error is that the kernel has no memory.
        let _ = self.advise(Advice::LinuxDontFork);
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
        // SAFETY: By the type invariant. There is nothing to be done about an error.
        let _ = unsafe { rustix::mm::munmap(self.address(), self.len) };
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
