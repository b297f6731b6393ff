// SPDX-License-Identifier: GPL-2.0

//! The arena: the memory of a run that all windows and copies use, followed by a page that no
//! access may touch.
//!
//! The kernel and peers write to the arena at any time, so this file only copies from it and to it,
//! and never borrows it.

use std::ffi::c_void;

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

/// Address of an arena that has to be at the same address in several processes.
const FIXED: usize = 0x5f00_0000_0000;

/// Returns a digest that two different ranges of bytes hardly have in common.
pub fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(bytes.len() as u64, |sum, word| {
        (sum ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(31)
    })
}

/// Memory that a run's windows and copies use.
pub struct Arena {
    base: *mut u8,
}

// SAFETY: The pointer is only an address. All accesses copy bytes that may change meanwhile.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps an arena of zeroes.
    pub fn new() -> Result<Self> {
        Self::map(std::ptr::null_mut(), MapFlags::empty())
    }

    /// Maps an arena at the fixed address, which is the same in each process that does so.
    pub fn at_fixed_place() -> Result<Self> {
        let place = std::ptr::without_provenance_mut(FIXED);
        Self::map(place, MapFlags::FIXED_NOREPLACE)
    }

    fn map(place: *mut c_void, flags: MapFlags) -> Result<Self> {
        let all = SIZE + PAGE as usize;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: The kernel chooses the address, or fails if the fixed one is in use, so nothing
        // is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(place, all, rights, MapFlags::SHARED | flags)? };
        // SAFETY: The range is the last page of the mapping, which nothing uses.
        unsafe {
            let guard = base.byte_add(SIZE);
            rustix::mm::mprotect(guard, PAGE as usize, MprotectFlags::empty())?;
        }
        Ok(Self { base: base.cast() })
    }

    /// Returns the address of an offset, which may lie behind the arena.
    pub fn address(&self, at: u64) -> u64 {
        (self.base as u64).wrapping_add(at)
    }

    /// Fills the arena with zeroes.
    pub fn clear(&self) {
        // SAFETY: The range is the mapping, which stays until the arena is dropped.
        unsafe { std::ptr::write_bytes(self.base, 0, SIZE) };
    }

    /// Reads from an offset. The range has to lie in the arena.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= SIZE));
        // SAFETY: The range lies in the mapping, which stays until the arena is dropped. Bytes that
        // a peer writes meanwhile are valid with any value.
        unsafe { std::ptr::copy(self.base.add(at), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: The range was mapped with this size, and nothing can use the arena any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), SIZE + PAGE as usize) };
    }
}
