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

/// The place where an area is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Any address.
    Any,
    /// This address or none; no area that is there is replaced.
    Exactly(*mut c_void),
    /// This address, in place of an area of this library.
    Over(*mut c_void),
}

/// An area of the address space.
///
/// # Invariants
///
/// `address` and `len` are an area that `new` has mapped. No other object owns the area.
pub struct Mapping {
    address: NonNull<c_void>,
    len: usize,
}

// SAFETY: An area belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: A mapping only gives out addresses.
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
        // SAFETY: A new area replaces another one only if the caller says that the other is this
        // library's.
        let address = unsafe { rustix::mm::mmap(wanted, len, protection, flags, fd, offset) };
        let mapping = Self::of(address, len)?;
        // Kernels before 4.17 take the address as a hint.
        match place {
            Place::Exactly(wanted) if wanted != mapping.address() => Err(Errno::EXIST),
            _ => Ok(mapping),
        }
    }

    /// Reserves addresses, over which the caller maps memory later.
    pub fn reserved(len: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        Self::anonymous(len, ProtFlags::empty(), flags)
    }

    /// Maps zeroed private memory, which is zeroed again in each forked child.
    pub fn wiped_in_children(len: usize) -> Result<Self, Errno> {
        let this = Self::anonymous(len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?;
        this.advise(Advice::LinuxWipeOnFork)?;
        Ok(this)
    }

    fn anonymous(len: usize, protection: ProtFlags, flags: MapFlags) -> Result<Self, Errno> {
        // SAFETY: A new area at any address touches no existing memory.
        let address =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, protection, flags) };
        Self::of(address, len)
    }

    /// Takes ownership of a new area.
    fn of(address: Result<*mut c_void, Errno>, len: usize) -> Result<Self, Errno> {
        let address = NonNull::new(address?).ok_or(Errno::NOMEM)?;
        Ok(Self { address, len })
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: By the type invariant. At most the content in children is lost.
        unsafe { rustix::mm::madvise(self.address(), self.len, advice) }
    }

    /// Asks the kernel to use huge pages for the area, as far as possible.
    pub fn make_huge(&self) {
        // SAFETY: By the type invariant. The content does not change. An error means that there are
        // no huge pages.
        unsafe { libc::madvise(self.address(), self.len, libc::MADV_COLLAPSE) };
    }

    /// Keeps the area out of forked children.
    pub fn keep_from_children(&self) {
        // An error means that the kernel has no memory.
        let _ = self.advise(Advice::LinuxDontFork);
    }

    /// Returns the address.
    pub fn address(&self) -> *mut c_void {
        self.address.as_ptr()
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Gives up the area to the caller, which has mapped something else in its place.
    pub fn forget(self) {
        core::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. An error can't be handled.
        let _ = unsafe { rustix::mm::munmap(self.address(), self.len) };
    }
}

/// Creates anonymous memory whose size can never change: a process that shares it can rely on that.
pub fn shared_memory(len: u64) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create(c"sisci", flags)?;
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, len)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}
