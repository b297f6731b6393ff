// SPDX-License-Identifier: LGPL-2.1

//! Memory that both nodes store to, our own or the peer's.
//!
//! The other side changes it at any moment, so no reference to its bytes exists: they are copied in and out, and
//! words are read once.

use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;

use crate::barriers;
use crate::endpoint::last_error;
use crate::header::DATA;
use crate::header::Word;

/// A ring's memory: its header, and as many bytes of data as it was made for.
///
/// # Invariants
///
/// `start` is a shared mapping of at least `DATA + data` bytes, rounded up to pages, readable and writable, owned by
/// this; no reference to its bytes exists.
pub struct Area {
    start: NonNull<u8>,
    data: usize,
}

// SAFETY: The mapping belongs to the process and not to a thread; bytes are only reached by raw copies, for which any
// concurrent content is valid.
unsafe impl Send for Area {}
// SAFETY: See above; concurrent copies may see mixed bytes, as with a peer that writes.
unsafe impl Sync for Area {}

impl Area {
    /// How many bytes are mapped for a ring of so many.
    pub fn len_for(data: usize) -> usize {
        (DATA + data).next_multiple_of(rustix::param::page_size())
    }

    /// Memory of this node, zeroed; it is there once it is registered.
    pub fn own(data: usize) -> Result<Self, Errno> {
        Self::map(-1, 0, data, libc::MAP_ANONYMOUS)
    }

    /// Memory of the peer, which it has registered at this offset.
    pub fn of_peer(endpoint: BorrowedFd<'_>, offset: i64, data: usize) -> Result<Self, Errno> {
        Self::map(endpoint.as_raw_fd(), offset, data, 0)
    }

    fn map(fd: i32, offset: i64, data: usize, flags: i32) -> Result<Self, Errno> {
        let len = Self::len_for(data);
        // SAFETY: A new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | flags,
                fd,
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_error());
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        // INVARIANT: Just mapped, and nobody else knows of it.
        let area = Self { start, data };
        // A child would count on its own, in the same ring.
        // SAFETY: It is this mapping.
        if unsafe { libc::madvise(start.as_ptr().cast(), len, libc::MADV_DONTFORK) } != 0 {
            return Err(last_error());
        }
        Ok(area)
    }

    /// Where it begins.
    pub fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// How much is mapped.
    pub fn len(&self) -> usize {
        Self::len_for(self.data)
    }

    #[inline]
    fn word(&self, word: Word) -> *mut u32 {
        // SAFETY: All words lie in the header, at multiples of 4.
        unsafe { self.start.as_ptr().add(word as usize).cast() }
    }

    /// Reads a word; what is read behind it was there when it was.
    #[inline]
    pub fn load(&self, word: Word) -> u32 {
        // SAFETY: `word` gives a place in the mapping; any value is valid.
        let value = unsafe { self.word(word).read_volatile() };
        barriers::loads();
        value
    }

    /// Stores a word. In what order it arrives is the caller's part, see [`crate::barriers`].
    #[inline]
    pub fn store(&self, word: Word, value: u32) {
        // SAFETY: As above.
        unsafe { self.word(word).write_volatile(value) };
    }

    #[inline]
    fn data(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset <= self.data && len <= self.data - offset);
        // SAFETY: Just checked.
        unsafe { self.start.as_ptr().add(DATA + offset) }
    }

    /// Copies bytes to its data. Panics if they don't fit.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.data(offset, bytes.len());
        // SAFETY: The range is inside the mapping, and other memory than `bytes`, as no reference to the mapping
        // exists.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes of its data. Panics if there are not as many.
    #[inline]
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.data(offset, bytes.len());
        // SAFETY: As in `write`.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: The mapping is ours, and nobody refers to it any more. A window of it keeps the pages.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len()) };
    }
}
