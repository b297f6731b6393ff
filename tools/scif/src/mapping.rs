// SPDX-License-Identifier: GPL-2.0

//! A peer's window in this process: loads and stores go to the peer's memory.
//!
//! As with [`crate::region`], no reference to the bytes exists: the peer changes them at any
//! moment. If the peer goes away, the kernel replaces the memory by private memory of the process,
//! or raises SIGBUS; this file does not decide which.

use crate::device::Endpoint;
use crate::device::Protection;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::atomic::fence;

/// Mapped memory of a peer.
///
/// # Invariants
///
/// `start` is a mapping of `length` bytes, owned by this object; no reference to its bytes exists.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the object and not to a thread; bytes are only reached by raw
// copies, for which any concurrent content is a valid value.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a range of the peer's window, whole pages.
    pub fn new(
        endpoint: &Endpoint,
        offset: i64,
        length: usize,
        protection: Protection,
    ) -> io::Result<Self> {
        let protection = match protection {
            Protection::Read => ProtFlags::READ,
            Protection::Write => ProtFlags::WRITE,
            Protection::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        let (anywhere, flags, offset) = (std::ptr::null_mut(), MapFlags::SHARED, offset as u64);
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let start =
            unsafe { rustix::mm::mmap(anywhere, length, protection, flags, endpoint, offset) };
        let start = NonNull::new(start?.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Returns the address.
    pub fn address(&self) -> usize {
        self.start.as_ptr() as usize
    }

    /// Stores bytes; [`drain`] makes them arrive.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: `check` found the range inside the mapping; `bytes` is other memory, as no
        // reference to the mapping exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Loads bytes.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> io::Result<()> {
        let from = self.check(offset, bytes.len())?;
        // SAFETY: as in `write`.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn check(&self, offset: usize, length: usize) -> io::Result<*mut u8> {
        match offset.checked_add(length) {
            // SAFETY: `offset` is inside the mapping.
            Some(end) if end <= self.length => Ok(unsafe { self.start.as_ptr().add(offset) }),
            _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this object owns the mapping, and no code refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Waits until all stores have left the CPU's write-combining buffers.
pub fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    fence(Ordering::SeqCst);
}
