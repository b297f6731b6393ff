// SPDX-License-Identifier: GPL-2.0

//! Which of the registrations that are kept serves a transfer.
//!
//! A registration holds some pages of an address space, for reading or for writing as well. Those
//! that are kept form a table in the order of [`Pages`], in which registrations of one address
//! space and one access do not overlap: so there is at most one of each access that can serve a
//! transfer, and it is found in O(log n). That stays so when those that [`overlapping`] names are
//! taken out before another one is put in.
//!
//! The table belongs to the caller, who keeps its lock; a table that breaks the order leads to
//! wrong answers, never to a panic.

use core::ops::Range;

/// Some pages of an address space, and what may be done to them.
///
/// Their order is that of the table.
///
/// # Invariants
///
/// `start < end`, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pages {
    /// Names the address space.
    pub(crate) space: usize,
    /// Whether they may be written to, and not read only.
    pub(crate) writable: bool,
    start: usize,
    end: usize,
}

impl Pages {
    /// The pages that hold `len` bytes from `address` on. None if there are no bytes, or if they
    /// run over the end of all addresses.
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

    /// The number of the first page.
    pub(crate) const fn start(&self) -> usize {
        self.start
    }

    /// How many pages there are, at least one.
    pub(crate) const fn count(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Whether a registration of these serves a transfer that needs `wanted`.
    pub(crate) const fn serves(&self, wanted: &Self) -> bool {
        self.space == wanted.space
            && (self.writable || !wanted.writable)
            && self.start <= wanted.start
            && wanted.end <= self.end
    }

    /// Whether both can't be in one table.
    pub(crate) const fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space
            && self.writable == other.writable
            && self.start < other.end
            && other.start < self.end
    }

    /// The fewest pages in one piece that hold both, if those are at most `limit` pages of one
    /// address space with one access.
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
    /// What it holds.
    pub(crate) pages: Pages,
    /// When it was used last; later is more.
    pub(crate) last_use: u64,
    pub(crate) registration: T,
}

/// Where the registration is that serves a transfer which needs `wanted`.
pub(crate) fn find<T>(kept: &[Entry<T>], wanted: &Pages) -> Option<usize> {
    // What may be written to may be read, too.
    let mut accesses = [false, true].into_iter().skip(wanted.writable.into());
    accesses.find_map(|writable| {
        // The last one that begins at or before the wanted pages.
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

/// Where those are that can't stay in the table beside `pages`; empty, where `pages` would go.
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

/// Where the one is that has not been used for longest. O(n).
pub(crate) fn least_recently_used<T>(kept: &[Entry<T>]) -> Option<usize> {
    kept.iter()
        .enumerate()
        .min_by_key(|(_, entry)| entry.last_use)
        .map(|(index, _)| index)
}
