// SPDX-License-Identifier: GPL-2.0

//! The memory windows of a bridge that form one aperture, and the *seams* between them.
//!
//! Places in an aperture have contiguous numbers. The aperture is cut into parts, one for each
//! window, in the order of the windows' numbers. If there are several, all parts have the same
//! length, a power of two, and the aperture begins at a multiple of that length. So its seams are
//! at multiples of that length, for offsets in the aperture as well as for addresses. If the
//! windows differ in size, the rest of the larger ones is not used.
//!
//! An access through the windows can't cross a seam: memory is not contiguous there.

use super::extents::Extent;

/// Number of windows that can be in a set: those with the lowest numbers.
pub(crate) const MOST_WINDOWS: u32 = u16::BITS;

/// The memory windows of a bridge that form one aperture.
///
/// # Invariants
///
/// The set is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSet(u16);

impl WindowSet {
    /// Creates a set from one bit for each window. Returns `None` if no bit is set.
    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        // INVARIANT: A bit is set.
        (bits != 0).then_some(Self(bits))
    }

    /// Returns one bit for each window.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Creates a set from window numbers. Returns `None` if a number is too large, or if there is
    /// none.
    pub(crate) fn of(windows: impl IntoIterator<Item = u32>) -> Option<Self> {
        let bits = windows.into_iter().try_fold(0_u16, |bits, window| {
            Some(bits | 1_u16.checked_shl(window)?)
        });
        Self::from_bits(bits?)
    }

    /// Returns the number of windows.
    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the numbers of the windows, in order.
    pub(crate) fn windows(self) -> impl Iterator<Item = u32> + Clone {
        (0..MOST_WINDOWS).filter(move |window| self.0 & (1 << window) != 0)
    }

    /// Returns the seams of an aperture of `len` bytes, or `None` if these windows can't form one.
    pub(crate) fn seams(self, len: u64) -> Option<Seams> {
        let count = u64::from(self.count());
        match count {
            1 => Some(Seams::NONE),
            _ if len.checked_rem(count) == Some(0) => Seams::every(len.checked_div(count)?),
            _ => None,
        }
    }

    /// Returns the parts of an aperture of `len` bytes at `base`: for each, its window, its address
    /// and its length. Returns `None` if these windows can't form such an aperture.
    pub(crate) fn parts(
        self,
        base: u64,
        len: u64,
    ) -> Option<impl Iterator<Item = (u32, u64, u64)> + Clone> {
        base.checked_add(len)?;
        let seams = self.seams(len)?;
        let part = seams.longest().min(len);
        if self.count() > 1 && !seams.is_at(base) {
            return None;
        }
        Some((0_u64..).zip(self.windows()).map(move |(index, window)| {
            // Does not wrap, as the end of the aperture does not.
            let start = base.wrapping_add(index.wrapping_mul(part));
            (window, start, part)
        }))
    }
}

/// The places where an aperture is not contiguous: between the parts of two windows.
///
/// # Invariants
///
/// `shift` is less than 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seams {
    shift: u32,
}

impl Seams {
    /// No seams.
    pub(crate) const NONE: Self = Self {
        shift: u64::BITS - 1,
    };

    /// Creates seams at multiples of `len`, if that is a power of two.
    pub(crate) fn every(len: u64) -> Option<Self> {
        // INVARIANT: A power of two has less than 64 zeroes.
        let shift = len.trailing_zeros();
        len.is_power_of_two().then_some(Self { shift })
    }

    /// Returns the longest range that need not cross a seam.
    pub(crate) const fn longest(self) -> u64 {
        1 << self.shift
    }

    /// Returns the part in which an offset lies, and the offset in that part.
    pub(crate) const fn locate(self, offset: u64) -> (usize, u64) {
        let within = self.longest().wrapping_sub(1);
        ((offset >> self.shift) as usize, offset & within)
    }

    /// Returns whether there may be a seam right before an address.
    pub(crate) const fn is_at(self, address: u64) -> bool {
        self.locate(address).1 == 0
    }

    /// Returns how many of `len` bytes at an address lie before the next seam.
    pub(crate) fn before(self, address: u64, len: u64) -> u64 {
        // Not negative: the offset within a part is less than the length of the part.
        len.min(self.longest().wrapping_sub(self.locate(address).1))
    }

    /// Returns the ranges between seams of `len` units. An object in one piece has to lie within
    /// one of them.
    pub(crate) fn ranges(self, len: usize) -> impl Iterator<Item = core::ops::Range<usize>> {
        let part = usize::try_from(self.longest()).unwrap_or(usize::MAX);
        (0..len)
            .step_by(part.max(1))
            .map(move |start| start..start.saturating_add(part).min(len))
    }
}

/// The length and the seams of the memory behind an aperture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Length in bytes.
    pub(crate) len: u64,
    /// Seams, as offsets from the begin of the memory.
    pub(crate) seams: Seams,
}

impl Shape {
    /// Creates the shape of `len` bytes without seams.
    pub(crate) const fn in_one(len: u64) -> Self {
        Self {
            len,
            seams: Seams::NONE,
        }
    }

    /// Returns the longest piece that can be contiguous.
    pub(crate) fn longest(self) -> u64 {
        self.seams.longest().min(self.len)
    }
}

/// Cuts an extent at seams. Returns one extent more than it crosses seams.
pub(crate) fn cut(extent: Extent, seams: Seams) -> impl Iterator<Item = Extent> {
    let mut rest = Some(extent);
    core::iter::from_fn(move || {
        let this = rest?;
        let parts = this.split_at(seams.before(this.address(), this.len()));
        rest = parts.map(|(_, behind)| behind);
        Some(parts.map_or(this, |(before, _)| before))
    })
}

/// Returns the largest aperture of several windows, if it is larger than that of one. The result is
/// how many of the largest windows form it, and the length of a part. `sizes` are those of all
/// windows, the largest first; at most `most` windows may be used.
pub(crate) fn of_several(sizes: impl Iterator<Item = u64>, most: u32) -> Option<(u32, u64)> {
    let mut one = 0;
    let mut best: Option<(u32, u64)> = None;
    let total = |(count, part): (u32, u64)| u64::from(count).saturating_mul(part);
    for (count, size) in (1_u32..=most.min(MOST_WINDOWS)).zip(sizes) {
        let Some(shift) = size.checked_ilog2() else {
            break;
        };
        let these = (count, 1_u64 << shift);
        if count == 1 {
            one = size;
        } else if total(these) > best.map_or(one, total) {
            best = Some(these);
        }
    }
    best
}
