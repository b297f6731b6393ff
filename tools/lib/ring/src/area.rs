// SPDX-License-Identifier: LGPL-2.1

//! Memory that both nodes store to, our own or the peer's.
//!
//! The other side changes the memory at any moment, so no reference to its bytes exists: bytes are
//! copied in and out, and words are read once.

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;

use crate::barriers;
use crate::header::DATA;
use crate::header::Word;

const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// The memory of a ring: its header and its data bytes.
///
/// # Invariants
///
/// `start` is a shared mapping of at least `DATA + data` bytes, rounded up to pages, readable and
/// writable. The area owns the mapping, and no reference to its bytes exists.
pub struct Area {
    start: NonNull<u8>,
    data: usize,
}

// SAFETY: The mapping belongs to the process and not to a thread; bytes are only reached by raw
// copies, for which any concurrent content is valid.
unsafe impl Send for Area {}
// SAFETY: As for `Send`. Concurrent copies may see mixed bytes, just as when the peer writes.
unsafe impl Sync for Area {}

impl Area {
    /// Returns how many bytes are mapped for a ring of `data` bytes.
    pub fn len_for(data: usize) -> usize {
        (DATA + data).next_multiple_of(rustix::param::page_size())
    }

    /// Maps zeroed memory of this node. The pages are allocated when the memory is registered.
    pub fn own(data: usize) -> Result<Self, Errno> {
        let len = Self::len_for(data);
        // SAFETY: A new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, PROTECTION, MapFlags::SHARED)
        };
        Self::of(start?, data)
    }

    /// Maps memory of the peer, which the peer has registered at this offset.
    pub fn of_peer(endpoint: BorrowedFd<'_>, offset: i64, data: usize) -> Result<Self, Errno> {
        let (len, offset) = (Self::len_for(data), offset as u64);
        let (anywhere, flags) = (std::ptr::null_mut(), MapFlags::SHARED);
        // SAFETY: A new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe { rustix::mm::mmap(anywhere, len, PROTECTION, flags, endpoint, offset) };
        Self::of(start?, data)
    }

    /// Takes ownership of a new mapping.
    fn of(start: *mut c_void, data: usize) -> Result<Self, Errno> {
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        // INVARIANT: Just mapped, and no other code has the address.
        let area = Self { start, data };
        // A child process would count in the same ring with counters of its own.
        // SAFETY: The range is this mapping.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), area.len(), Advice::LinuxDontFork) }?;
        Ok(area)
    }

    /// Returns the address of its first byte.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns how many bytes are mapped.
    pub fn len(&self) -> usize {
        Self::len_for(self.data)
    }

    #[inline]
    fn word(&self, word: Word) -> *mut u32 {
        // SAFETY: All words lie in the header, at multiples of 4.
        unsafe { self.start.as_ptr().add(word as usize).cast() }
    }

    /// Reads a word. Later reads see what was in the memory when the word was read, or newer
    /// values.
    #[inline]
    pub fn load(&self, word: Word) -> u32 {
        // SAFETY: `word` gives a place in the mapping; any value is valid.
        let value = unsafe { self.word(word).read_volatile() };
        barriers::loads();
        value
    }

    /// Stores a word. The caller decides in what order stores arrive, see [`crate::barriers`].
    #[inline]
    pub fn store(&self, word: Word, value: u32) {
        // SAFETY: As in `load`.
        unsafe { self.word(word).write_volatile(value) };
    }

    #[inline]
    fn data(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.data && len <= self.data - offset);
        // SAFETY: The range was just checked.
        unsafe { self.start.as_ptr().add(DATA + offset) }
    }

    /// Copies bytes into its data. Panics if they don't fit.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.data(offset, bytes.len());
        // SAFETY: The range is inside the mapping. `bytes` lies elsewhere, as no reference to the
        // mapping exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of its data. Panics if the range is not inside.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.data(offset, bytes.len());
        // SAFETY: As in `write`.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: The area owns the mapping, and no code refers to it any more. A window of it
        // keeps the pages.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len()) };
    }
}
