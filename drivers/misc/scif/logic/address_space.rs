// SPDX-License-Identifier: GPL-2.0

//! Ranges in the registered address space of an endpoint.
//!
//! Windows lie at offsets from 0 to `i64::MAX` (offsets are `off_t` for user space), in page
//! multiples, and never overlap. Where they are stored is the caller's business: a red-black tree
//! in the kernel, a `BTreeMap` on the host. All questions here are asked through [`RangeSource`],
//! two look-ups that such a tree answers in O(log n), so that the same code is tested on the host
//! and runs in the kernel.
//!
//! A source may be a *view*: a window that was unregistered while in use still takes up its offsets
//! (ask [`overlaps`] and [`choose_offset`] with all windows) but can no longer be found (ask
//! [`covering`] and [`removal`] with the live ones). All answers hold as long as the source does
//! not change: keep its lock.
//!
//! Page alignment is checked where numbers enter, with [`Range::is_aligned`]: RMA requests have any
//! alignment. A source that breaks its promises leads to wrong answers, never to a panic or an
//! endless loop.

/// No range ends above this offset.
pub(crate) const LIMIT: u64 = i64::MAX as u64;

/// The numbers make no range: the offset is negative, the length is zero, or the end is above [`LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidRange;

/// Some offsets without a gap.
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
    /// A range as user space names it.
    pub(crate) const fn new(offset: i64, len: u64) -> Result<Self, InvalidRange> {
        if offset < 0 {
            return Err(InvalidRange);
        }
        Self::from_parts(offset as u64, len)
    }

    /// A range as the peer names it.
    pub(crate) const fn from_parts(start: u64, len: u64) -> Result<Self, InvalidRange> {
        match start.checked_add(len) {
            // INVARIANT: Just checked.
            Some(end) if end <= LIMIT && len > 0 => Ok(Self { start, len }),
            _ => Err(InvalidRange),
        }
    }

    /// The first offset.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// The first offset as user space sees it.
    pub(crate) const fn offset(&self) -> i64 {
        // At most `LIMIT`.
        self.start as i64
    }

    /// The number of bytes.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    /// The first offset behind the range.
    pub(crate) const fn end(&self) -> u64 {
        // Does not wrap, by the invariant.
        self.start.wrapping_add(self.len)
    }

    /// Whether start and length are multiples of `1 << page_shift`.
    pub(crate) const fn is_aligned(&self, page_shift: u32) -> bool {
        match 1_u64.checked_shl(page_shift) {
            Some(page) => (self.start | self.len) & page.wrapping_sub(1) == 0,
            None => false,
        }
    }

    /// Whether all of `other` lies in this range.
    pub(crate) const fn contains(&self, other: &Range) -> bool {
        self.start <= other.start && other.end() <= self.end()
    }

    /// Whether the two have an offset in common.
    pub(crate) const fn intersects(&self, other: &Range) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// A set of ranges that do not overlap, ordered by their start.
pub(crate) trait RangeSource {
    /// The range with the greatest start that is at most `offset`.
    fn at_or_before(&self, offset: u64) -> Option<Range>;

    /// The range with the least start that is at least `offset`.
    fn at_or_after(&self, offset: u64) -> Option<Range>;
}

/// The range that holds `offset`.
pub(crate) fn find<S: RangeSource>(source: &S, offset: u64) -> Option<Range> {
    source
        .at_or_before(offset)
        .filter(|found| offset < found.end())
}

/// Whether any offset of `range` is taken.
pub(crate) fn overlaps<S: RangeSource>(source: &S, range: Range) -> bool {
    // Of the ranges that do not overlap, the last one that starts before our end reaches furthest.
    source
        .at_or_before(range.end().saturating_sub(1))
        .is_some_and(|found| found.intersects(&range))
}

/// The lowest free place for `len` bytes that starts in `from..stop`.
fn first_fit<S: RangeSource>(source: &S, from: u64, stop: u64, len: u64) -> Option<u64> {
    let mut candidate = find(source, from).map_or(from, |found| found.end());
    while candidate < stop {
        let end = candidate.checked_add(len).filter(|end| *end <= LIMIT)?;
        match source.at_or_after(candidate) {
            Some(next) if next.start < end => {
                // A source that answers with a range before the candidate would have us loop.
                if next.end() <= candidate {
                    return None;
                }
                candidate = next.end();
            }
            _ => return Some(candidate),
        }
    }
    None
}

/// A free place for `len` bytes: the first one from `hint` on, else the first of all.
///
/// The answer depends on nothing else, so that two endpoints with the same history get the same
/// offsets: symmetric programs rely on that. With the end of the last range chosen as the hint,
/// many registrations in a row take O(log n) each. The answer is aligned as the hint, `len` and the
/// ranges of the source are.
pub(crate) fn choose_offset<S: RangeSource>(source: &S, hint: u64, len: u64) -> Option<u64> {
    if len == 0 {
        return None;
    }
    first_fit(source, hint, LIMIT, len).or_else(|| first_fit(source, 0, hint, len))
}

/// The part of a request that lies in one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The range, as the source has it.
    pub(crate) range: Range,
    /// Where in the range the part begins.
    pub(crate) offset: u64,
    /// How long the part is; not zero, and inside the range.
    pub(crate) len: u64,
}

/// The parts of a request, in order; made by [`covering`].
#[derive(Debug)]
pub(crate) struct Covering<'a, S> {
    source: &'a S,
    at: u64,
    end: u64,
}

impl<S: RangeSource> Iterator for Covering<'_, S> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.at >= self.end {
            return None;
        }
        let range = find(self.source, self.at)?;
        let stop = range.end().min(self.end);
        let piece = Piece {
            range,
            offset: self.at.checked_sub(range.start)?,
            len: stop.checked_sub(self.at)?,
        };
        self.at = stop;
        Some(piece)
    }
}

/// The parts of `range`, which may span several ranges that follow each other; `None` if there is a gap.
pub(crate) fn covering<S: RangeSource>(source: &S, range: Range) -> Option<Covering<'_, S>> {
    let start = || Covering {
        source,
        at: range.start,
        end: range.end(),
    };
    let mut walk = start();
    while walk.next().is_some() {}
    (walk.at >= walk.end).then(start)
}

/// Why no range can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// There is none in the request.
    None,
    /// The request cuts one.
    Cuts,
}

/// The first range of the source that lies in `start..end`.
///
/// To remove ranges: ask [`removal`] whether it is allowed, then remove what this function returns
/// and go on from the end of that, until it returns `None`.
pub(crate) fn first_inside<S: RangeSource>(source: &S, start: u64, end: u64) -> Option<Range> {
    source
        .at_or_after(start)
        // The first condition holds for any honest source; without it a false one loops.
        .filter(|found| start <= found.start && found.end() <= end)
}

/// How many ranges lie wholly inside `range`: unregistering it removes all of them, or none.
pub(crate) fn removal<S: RangeSource>(source: &S, range: Range) -> Result<usize, Removal> {
    // Only the range at each edge can be cut.
    for edge in [range.start, range.end().saturating_sub(1)] {
        if find(source, edge).is_some_and(|found| !range.contains(&found)) {
            return Err(Removal::Cuts);
        }
    }
    let (mut count, mut at) = (0_usize, range.start);
    while let Some(found) = first_inside(source, at, range.end()) {
        count = count.saturating_add(1);
        at = found.end();
    }
    if count == 0 {
        return Err(Removal::None);
    }
    Ok(count)
}
