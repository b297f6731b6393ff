// SPDX-License-Identifier: GPL-2.0

//! The memory behind a window: extents of contiguous addresses, and their form on the wire.
//!
//! Pinned memory is a list of [`Extent`]s; huge pages and luck make few of many pages
//! ([`Extent::join`]). A table of [`Entry`]s adds to each extent where in the window it begins, so
//! that [`Extents`] finds the address of an offset in O(log n), and a [`walk`](Extents::walk) from
//! there on goes from extent to extent without searching.
//!
//! An extent crosses the wire as one 64-bit word: page frame and number of pages. Whatever word the
//! peer sends, [`unpack`] makes a sound extent of it or none. Whether the peer may name those
//! addresses is decided elsewhere: the transport turns them into something that can be touched, or
//! says no.

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
    /// The `len` bytes at `address`; `None` if there are none or they go beyond all addresses.
    pub(crate) const fn new(address: u64, len: u64) -> Option<Self> {
        if len == 0 || address.checked_add(len).is_none() {
            return None;
        }
        // INVARIANT: Just checked.
        Some(Self { address, len })
    }

    /// The address of the first byte.
    pub(crate) const fn address(&self) -> u64 {
        self.address
    }

    /// The number of bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// The address behind the last byte.
    pub(crate) const fn end(&self) -> u64 {
        // Does not wrap, by the invariant.
        self.address.wrapping_add(self.len)
    }

    /// The two as one extent, if `next` begins where this one ends.
    pub(crate) fn join(&self, next: Extent) -> Option<Extent> {
        if self.end() != next.address {
            return None;
        }
        Extent::new(self.address, self.len.checked_add(next.len)?)
    }

    /// Cuts the extent after `len` bytes; `None` if either part would be empty.
    pub(crate) fn split_at(&self, len: u64) -> Option<(Extent, Extent)> {
        let behind = self.len.checked_sub(len)?;
        let first = Extent::new(self.address, len)?;
        Some((first, Extent::new(first.end(), behind)?))
    }
}

/// An extent and where in the window it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The memory.
    pub(crate) extent: Extent,
    /// The number of bytes of the window before it.
    pub(crate) start: u64,
}

impl Entry {
    /// Where in the window the extent ends.
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.extent.len)
    }

    /// The memory of this entry from `offset` of the window on.
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

/// A table of extents, in the memory that `T` is: the kernel's vectors, or those of the tests. It is empty at
/// first.
///
/// # Invariants
///
/// The first entry starts at 0, every other one where the one before ends, and the end of the last
/// fits into 64 bits.
#[derive(Debug, Default)]
pub(crate) struct Extents<T> {
    /// For whoever makes room; entries are added by [`Self::add`].
    pub(crate) entries: T,
}

/// Memory of a table that can become longer.
pub(crate) trait Growing: DerefMut<Target = [Entry]> {
    /// Adds one, if there is room for it; says whether there was.
    fn append(&mut self, entry: Entry) -> bool;
}

impl<T: Growing> Extents<T> {
    /// Adds an extent at the end; if it `may_join`, one that begins where the last one ends makes that longer. `None`
    /// if there is no room, or the table would become longer than 64 bits.
    pub(crate) fn add(&mut self, extent: Extent, may_join: bool) -> Option<()> {
        let start = self.len();
        start.checked_add(extent.len)?;
        if let Some(last) = self.entries.last_mut().filter(|_| may_join) {
            if let Some(joined) = last.extent.join(extent) {
                // INVARIANT: The end fits into 64 bits, as was just looked at.
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
    /// The table.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many bytes all extents have together.
    pub(crate) fn len(&self) -> u64 {
        self.entries.last().map_or(0, Entry::end)
    }

    /// The address of the byte at `offset`, and how many bytes are contiguous from there on.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> Option<(u64, u64)> {
        self.entries.get(self.find(offset)?)?.memory_from(offset)
    }

    /// A walk over the memory from `offset` to the end of the table.
    pub(crate) fn walk(&self, offset: u64) -> ExtentWalk<'_> {
        ExtentWalk {
            // Beyond the end there is nothing to walk over.
            rest: self
                .find(offset)
                .and_then(|index| self.entries.get(index..))
                .unwrap_or_default(),
            offset,
        }
    }

    /// The entry that holds `offset`.
    #[inline]
    fn find(&self, offset: u64) -> Option<usize> {
        // All there is of most windows, and where most copies begin that are of a whole window.
        if offset < self.entries.first()?.end() {
            return Some(0);
        }
        let behind = self.entries.partition_point(|entry| entry.start <= offset);
        let index = behind.checked_sub(1)?;
        (offset < self.entries.get(index)?.end()).then_some(index)
    }
}

/// A place in the memory of a window that moves towards its end; made by [`Extents::walk`].
#[derive(Clone, Debug)]
pub(crate) struct ExtentWalk<'a> {
    /// The entries from the current one on.
    rest: &'a [Entry],
    /// The place in the window.
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

/// The bits of a packed extent that hold the number of pages, less one.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// The bits that hold the number of the first page.
const FRAME_BITS: u32 = u64::BITS - COUNT_BITS;

/// The longest extent that fits into one word, in bytes: split longer ones.
///
/// `None` if there are no such pages.
pub(crate) const fn max_packed_len(page_shift: u32) -> Option<u64> {
    if page_shift >= FRAME_BITS {
        return None;
    }
    Some((COUNT_MASK + 1).wrapping_shl(page_shift))
}

/// An extent of whole pages as one word: page frame in the high 44 bits, pages less one below.
///
/// `None` if it is not page aligned, too long or too high for that.
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

/// The extent that a word from the peer stands for, if there can be such an extent.
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
