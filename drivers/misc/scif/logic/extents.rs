// SPDX-License-Identifier: GPL-2.0

//! The memory behind a window: extents of contiguous addresses, and their form on the wire.
//!
//! Pinned memory is a list of [`Extent`]s. Huge pages, or luck, make few extents of many pages
//! ([`Extent::join`]). A table of [`Entry`]s adds to each extent its offset in the window. So
//! [`Extents`] finds the address of an offset in O(log n), and a [`walk`](Extents::walk) from there
//! goes from extent to extent without searching.
//!
//! An extent crosses the link as one 64-bit word: page frame and number of pages. [`unpack`] makes
//! a sound extent of any word that the peer sends, or none. It does not check whether the peer may
//! name these addresses. The transport does that when it translates them.

use core::ops::{
    Deref,
    DerefMut, //
};

use super::plan::Walk;

/// A run of contiguous addresses.
///
/// # Invariants
///
/// `len` is not zero and `address + len` does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    address: u64,
    len: u64,
}

impl Extent {
    /// Creates the extent of `len` bytes at `address`. Returns `None` if `len` is 0 or the end
    /// overflows.
    pub(crate) const fn new(address: u64, len: u64) -> Option<Self> {
        if len == 0 || address.checked_add(len).is_none() {
            return None;
        }
        // INVARIANT: Just checked.
        Some(Self { address, len })
    }

    /// Returns the address of the first byte.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// Returns the number of bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the address behind the last byte.
    pub(crate) const fn end(&self) -> u64 {
        // Does not wrap, by the invariant.
        self.address.wrapping_add(self.len)
    }

    /// Returns both as one extent, if `next` begins where this one ends.
    pub(crate) fn join(&self, next: Extent) -> Option<Extent> {
        if self.end() != next.address {
            return None;
        }
        Extent::new(self.address, self.len.checked_add(next.len)?)
    }

    /// Cuts the extent after `len` bytes. Returns `None` if either part would be empty.
    pub(crate) fn split_at(&self, len: u64) -> Option<(Extent, Extent)> {
        let behind = self.len.checked_sub(len)?;
        let first = Extent::new(self.address, len)?;
        Some((first, Extent::new(first.end(), behind)?))
    }
}

/// An extent and its offset in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The memory.
    pub(crate) extent: Extent,
    /// The number of bytes of the window before it.
    pub(crate) start: u64,
}

impl Entry {
    /// Returns the offset in the window at which the extent ends.
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.extent.len)
    }

    /// Returns the memory of this entry from `offset` of the window on.
    fn memory_from(&self, offset: u64) -> Option<(u64, u64)> {
        let skip = offset.checked_sub(self.start)?;
        let len = self
            .extent
            .len
            .checked_sub(skip)
            .filter(|rest| *rest != 0)?;
        Some((self.extent.address.checked_add(skip)?, len))
    }
}

/// A table of extents. `T` holds its memory: a vector of the kernel, or one of the tests. The table
/// is empty at first.
///
/// # Invariants
///
/// The first entry starts at 0, every other one where the one before ends, and the end of the last
/// fits into 64 bits.
#[derive(Debug, Default)]
pub(crate) struct Extents<T> {
    /// The entries. The owner may reserve memory for more, but only [`Self::add`] adds them.
    pub(crate) entries: T,
}

/// The memory of a table that can grow.
pub(crate) trait Growing: DerefMut<Target = [Entry]> {
    /// Adds an entry. Returns false if there is no room for it.
    fn append(&mut self, entry: Entry) -> bool;
}

impl<T: Growing> Extents<T> {
    /// Adds an extent at the end. If it `may_join` and begins where the last extent ends, extends
    /// that one. Returns `None` if there is no room, or the length of the table would overflow.
    pub(crate) fn add(&mut self, extent: Extent, may_join: bool) -> Option<()> {
        let start = self.len();
        start.checked_add(extent.len)?;
        if let Some(last) = self.entries.last_mut().filter(|_| may_join) {
            if let Some(joined) = last.extent.join(extent) {
                // INVARIANT: The end fits into 64 bits, as was just checked.
                last.extent = joined;
                return Some(());
            }
        }
        // INVARIANT: It starts where the last one ends, and its end fits.
        let entry = Entry { extent, start };
        self.entries.append(entry).then_some(())
    }
}

impl<T: Deref<Target = [Entry]>> Extents<T> {
    /// Returns the entries.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the length of all extents together.
    pub(crate) fn len(&self) -> u64 {
        self.entries.last().map_or(0, Entry::end)
    }

    /// Returns the address of the byte at `offset`, and how many bytes are contiguous from there
    /// on.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Option<(u64, u64)> {
        self.entries.get(self.find(offset)?)?.memory_from(offset)
    }

    /// Returns a walk over the memory from `offset` to the end of the table.
    pub(crate) fn walk(&self, offset: u64) -> ExtentWalk<'_> {
        ExtentWalk {
            // There is no memory beyond the end.
            rest: self
                .find(offset)
                .and_then(|index| self.entries.get(index..))
                .unwrap_or_default(),
            offset,
        }
    }

    /// Returns the index of the entry that contains `offset`.
    #[inline]
    fn find(&self, offset: u64) -> Option<usize> {
        // Fast path: most windows have a single entry, and copies of a whole window begin here.
        if offset < self.entries.first()?.end() {
            return Some(0);
        }
        let behind = self.entries.partition_point(|entry| entry.start <= offset);
        let index = behind.checked_sub(1)?;
        (offset < self.entries.get(index)?.end()).then_some(index)
    }
}

/// A place in a window's memory that moves towards its end; created by [`Extents::walk`].
#[derive(Clone, Debug)]
pub(crate) struct ExtentWalk<'a> {
    /// The entries from the current one on.
    rest: &'a [Entry],
    /// The current offset in the window.
    offset: u64,
}

impl Walk for ExtentWalk<'_> {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        if limit == 0 {
            return None;
        }
        let (entry, behind) = self.rest.split_first()?;
        let (address, available) = entry.memory_from(self.offset)?;
        let len = available.min(limit);
        self.offset = self.offset.checked_add(len)?;
        if len == available {
            self.rest = behind;
        }
        Some((address, len))
    }
}

/// Number of bits of a packed extent for the number of pages, less one.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// Number of bits for the number of the first page.
const FRAME_BITS: u32 = u64::BITS - COUNT_BITS;

/// Returns the longest extent in bytes that fits into one word. Longer extents have to be split.
///
/// Returns `None` if there are no pages of this size.
pub(crate) const fn max_packed_len(page_shift: u32) -> Option<u64> {
    if page_shift >= FRAME_BITS {
        return None;
    }
    Some((COUNT_MASK + 1).wrapping_shl(page_shift))
}

/// Packs an extent of whole pages into one word: page frame in the high 44 bits, pages less one
/// below.
///
/// Returns `None` if the extent is not page aligned, too long or too high for that.
pub(crate) fn pack(extent: Extent, page_shift: u32) -> Option<u64> {
    let most = max_packed_len(page_shift)?;
    let page_mask = 1_u64.wrapping_shl(page_shift).wrapping_sub(1);
    let frame = extent.address.wrapping_shr(page_shift);
    let can_be = extent.len <= most
        && (extent.address | extent.len) & page_mask == 0
        && frame < 1 << FRAME_BITS;
    let pages = extent.len.wrapping_shr(page_shift);
    can_be.then_some((frame << COUNT_BITS) | pages.wrapping_sub(1))
}

/// Returns the extent in a word from the peer, or `None` if the word is invalid.
pub(crate) const fn unpack(packed: u64, page_shift: u32) -> Option<Extent> {
    if page_shift >= FRAME_BITS {
        return None;
    }
    let frame = packed >> COUNT_BITS;
    let address = frame.wrapping_shl(page_shift);
    if address.wrapping_shr(page_shift) != frame {
        return None;
    }
    let pages = (packed & COUNT_MASK).wrapping_add(1);
    Extent::new(address, pages.wrapping_shl(page_shift))
}
