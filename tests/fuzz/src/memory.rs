// SPDX-License-Identifier: GPL-2.0

//! The arena: all memory of a run that windows and copies use. Behind it is a page that no access may touch.
//!
//! The kernel and peers write to it at any time, so it is read and written by copies only, never borrowed.

use anyhow::Result;
use rustix::mm::MapFlags;
use rustix::mm::MprotectFlags;
use rustix::mm::ProtFlags;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Pages of an arena.
pub const PAGES: u64 = 24;

/// Bytes of an arena.
pub const SIZE: usize = (PAGES * PAGE) as usize;

/// Memory that a run's windows and copies use.
pub struct Arena {
    base: *mut u8,
}

impl Arena {
    /// Maps an arena; all of it is zero.
    pub fn new() -> Result<Self> {
        let all = SIZE + PAGE as usize;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: The kernel chooses the place, so nothing is replaced.
        let base = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), all, rights, MapFlags::SHARED)?
        };
        // SAFETY: It is the last page of the mapping, which nothing uses.
        unsafe {
            let guard = base.byte_add(SIZE);
            rustix::mm::mprotect(guard, PAGE as usize, MprotectFlags::empty())?;
        }
        Ok(Self { base: base.cast() })
    }

    /// The address of a place, which may lie behind the arena.
    pub fn address(&self, at: u64) -> u64 {
        (self.base as u64).wrapping_add(at)
    }

    /// Reads from a place; all of it lies in the arena.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= SIZE));
        // SAFETY: It lies in the mapping, which stays for good. Bytes that a peer writes meanwhile are any bytes.
        unsafe { std::ptr::copy(self.base.add(at), bytes.as_mut_ptr(), bytes.len()) };
    }
}
