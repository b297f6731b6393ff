// SPDX-License-Identifier: GPL-2.0

//! Ranges in the registered address space of an endpoint.
//!
//! Windows lie at offsets from 0 to `i64::MAX` (offsets are `off_t` for user space), in page
//! multiples, and never overlap. Page alignment is checked where numbers enter, with
//! [`Range::is_aligned`]: RMA requests have any alignment.

/// No range ends above this offset.
pub(crate) const LIMIT: u64 = i64::MAX as u64;

/// The error for an invalid range: the offset is negative, the length is zero, or the end is above
/// [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRange;

/// A contiguous range of offsets.
///
/// # Invariants
///
/// `len` is not zero and `start + len` is at most [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    start: u64,
    len: u64,
}

impl Range {
    /// Creates a range from the numbers of user space.
    pub(crate) const fn new(offset: i64, len: u64) -> Result<Self, InvalidRange> {
        if offset < 0 {
            return Err(InvalidRange);
        }
        Self::from_parts(offset as u64, len)
    }

    /// Creates a range from the numbers of the peer.
    pub(crate) const fn from_parts(start: u64, len: u64) -> Result<Self, InvalidRange> {
        match start.checked_add(len) {
            // INVARIANT: Just checked.
            Some(end) if end <= LIMIT && len > 0 => Ok(Self { start, len }),
            _ => Err(InvalidRange),
        }
    }

    /// Returns the first offset.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Returns the first offset as user space sees it.
    pub(crate) const fn offset(&self) -> i64 {
        // At most `LIMIT`.
        self.start as i64
    }

    /// Returns the number of bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the first offset behind the range.
    pub(crate) const fn end(&self) -> u64 {
        // Does not wrap, by the invariant.
        self.start.wrapping_add(self.len)
    }

    /// Returns whether start and length are multiples of `1 << page_shift`.
    pub(crate) const fn is_aligned(&self, page_shift: u32) -> bool {
        match 1_u64.checked_shl(page_shift) {
            Some(page) => (self.start | self.len) & page.wrapping_sub(1) == 0,
            None => false,
        }
    }

    /// Returns whether all of `other` lies in this range.
    pub(crate) const fn contains(&self, other: &Range) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Returns whether the two have an offset in common.
    pub(crate) const fn intersects(&self, other: &Range) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}
