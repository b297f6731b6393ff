// SPDX-License-Identifier: GPL-2.0

//! Page-aligned memory to register as a window.
//!
//! A peer may write to a window at any moment, so no Rust reference to its memory exists: bytes are
//! copied in and out, and only the copy is examined. [`crate::device`] registers regions. A region
//! may be dropped while it is registered, because the kernel keeps the pinned pages until the
//! window goes.

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::atomic::compiler_fence;

/// The page size of this machine.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// The kind of pages of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Pages as the system is set up.
    Any,
    /// The smallest pages.
    Small,
    /// Huge pages.
    Huge,
}

/// Anonymous, zeroed, populated memory of whole pages.
///
/// # Invariants
///
/// `start` is a private anonymous mapping of `length` bytes, readable and writable, owned by
/// this object; no reference to its bytes exists.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the object and not to a thread; bytes are only reached by raw
// copies, for which any concurrent content is a valid value.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; concurrent copies may see mixed bytes, as with a peer that writes.
unsafe impl Sync for Region {}

impl Region {
    /// Allocates at least `length` bytes, rounded up to whole pages.
    pub fn new(length: usize) -> io::Result<Self> {
        Self::of_pages(length, Pages::Any)
    }

    /// Allocates memory in pages of this kind, as far as the kernel has them.
    pub fn of_pages(length: usize, pages: Pages) -> io::Result<Self> {
        let region = Self::reserve(length)?;
        match pages {
            Pages::Any => {}
            Pages::Small => region.advise(Advice::LinuxNoHugepage)?,
            Pages::Huge => region.advise(Advice::LinuxHugepage)?,
        }
        region.advise(Advice::LinuxPopulateWrite)?;
        Ok(region)
    }

    /// Reserves memory without allocating pages.
    fn reserve(length: usize) -> io::Result<Self> {
        let length = length
            .checked_next_multiple_of(page_size())
            .filter(|&length| length > 0)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new anonymous mapping touches no existing memory.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let start = NonNull::new(start?.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = Self { start, length };
        // Without this a child would take over or copy the pages that the peer writes to.
        region.advise(Advice::LinuxDontFork)?;
        Ok(region)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is the mapping of this object, and no reference to its bytes exists.
        Ok(unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.length, advice) }?)
    }

    /// The size in bytes, a multiple of the page size, never 0.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// The virtual address, for the kernel.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Copies `bytes` into the region.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: `check` found the range inside the mapping; `bytes` is other memory, as no
        // reference to the mapping exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// Copies bytes out of the region. The bytes in `bytes` do not change any more.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        let from = self.check(offset, bytes.len())?;
        compiler_fence(Ordering::SeqCst);
        // SAFETY: as in `write`.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        compiler_fence(Ordering::SeqCst);
        Ok(())
    }

    /// Returns the address of a range of the region, or EFAULT if the range is not inside.
    pub(crate) fn check(&self, offset: usize, length: usize) -> io::Result<*mut u8> {
        match offset.checked_add(length) {
            // SAFETY: `offset` is inside the mapping.
            Some(end) if end <= self.length => Ok(unsafe { self.start.as_ptr().add(offset) }),
            _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and no code refers to it any more. A window on it
        // keeps the pages, not the mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_outside_the_region_is_refused() {
        let region = Region::new(1).unwrap();
        assert_eq!(region.len(), page_size());
        assert_eq!(region.address() as usize % page_size(), 0);
        region.write(region.len() - 3, b"end").unwrap();
        let mut bytes = [0; 4];
        region.read(region.len() - 4, &mut bytes).unwrap();
        assert_eq!(&bytes, b"\0end");
        assert!(region.write(region.len() - 2, b"end").is_err());
        assert!(region.read(usize::MAX, &mut bytes).is_err());
        assert!(Region::new(0).is_err());
        assert!(Region::new(usize::MAX).is_err());
    }
}
