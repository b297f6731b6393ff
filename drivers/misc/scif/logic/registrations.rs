// SPDX-License-Identifier: GPL-2.0

//! The choice of a kept registration for a transfer.
//!
//! A registration holds pages of an address space, for reading only or also for writing. The kept
//! registrations form a table in the order of [`Pages`]. Registrations of one address space and one
//! access do not overlap in it. So at most one registration of each access can serve a transfer,
//! and it is found in O(log n). To keep this property, the caller removes the registrations that
//! [`overlapping`] returns before it inserts another one.
//!
//! The table belongs to the caller, which holds its lock. A table out of order leads to wrong
//! answers, never to a panic.

use core::ops::Range;

/// Pages of an address space, and the access to them.
///
/// Their order is the order of the table.
///
/// # Invariants
///
/// `start < end`, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pages {
    /// A number that identifies the address space.
    pub(crate) space: usize,
    /// Whether the pages may be written to, and not only read.
    pub(crate) writable: bool,
    start: usize,
    end: usize,
}

impl Pages {
    /// Returns the pages that contain `len` bytes from `address` on. Returns `None` if `len` is 0,
    /// or the end of the range overflows.
    pub(crate) fn holding(
        space: usize,
        address: usize,
        len: usize,
        writable: bool,
        page_shift: u32,
    ) -> Option<Self> {
        let last = address.checked_add(len.checked_sub(1)?)?;
        // INVARIANT: `start` is at most the last page.
        Some(Self {
            space,
            writable,
            start: address.checked_shr(page_shift)?,
            end: last.checked_shr(page_shift)?.checked_add(1)?,
        })
    }

    /// Returns the number of the first page.
    pub(crate) const fn start(&self) -> usize {
        self.start
    }

    /// Returns the number of pages, at least one.
    pub(crate) const fn count(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether a registration of these pages serves a transfer that needs `wanted`.
    pub(crate) const fn serves(&self, wanted: &Self) -> bool {
        self.space == wanted.space
            && (self.writable || !wanted.writable)
            && self.start <= wanted.start
            && wanted.end <= self.end
    }

    /// Returns whether the two can't both be in the table.
    pub(crate) const fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space
            && self.writable == other.writable
            && self.start < other.end
            && other.start < self.end
    }

    /// Returns the smallest contiguous pages that contain both. Returns `None` if they are more
    /// than `limit`, or differ in address space or access.
    pub(crate) fn joined(&self, other: &Self, limit: usize) -> Option<Self> {
        let joined = Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
            ..*self
        };
        (self.space == other.space && self.writable == other.writable && joined.count() <= limit)
            .then_some(joined)
    }
}

/// An entry of the table.
#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    /// The pages that the registration holds.
    pub(crate) pages: Pages,
    /// Time of the last use; a later time is greater.
    pub(crate) last_use: u64,
    pub(crate) registration: T,
}

/// Returns the index of the registration that serves a transfer which needs `wanted`.
pub(crate) fn find<T>(kept: &[Entry<T>], wanted: &Pages) -> Option<usize> {
    // Writable pages may also be read.
    let mut accesses = [false, true].into_iter().skip(wanted.writable.into());
    accesses.find_map(|writable| {
        // The last registration that begins at or before the wanted pages.
        let latest = Pages {
            writable,
            end: usize::MAX,
            ..*wanted
        };
        let index = kept
            .partition_point(|entry| entry.pages <= latest)
            .checked_sub(1)?;
        kept.get(index)?.pages.serves(wanted).then_some(index)
    })
}

/// Returns the entries that can't stay in the table beside `pages`. An empty range tells where
/// `pages` would be inserted.
pub(crate) fn overlapping<T>(kept: &[Entry<T>], pages: &Pages) -> Range<usize> {
    let is_before = |entry: &Entry<T>| {
        let entry = entry.pages;
        (entry.space, entry.writable, entry.end) <= (pages.space, pages.writable, pages.start)
    };
    let start = kept.partition_point(is_before);
    let count = kept
        .iter()
        .skip(start)
        .take_while(|entry| entry.pages.overlaps(pages))
        .count();
    start..start.saturating_add(count)
}

/// Returns the index of the least recently used entry, in O(n).
pub(crate) fn least_recently_used<T>(kept: &[Entry<T>]) -> Option<usize> {
    kept.iter()
        .enumerate()
        .min_by_key(|(_, entry)| entry.last_use)
        .map(|(index, _)| index)
}
