// SPDX-License-Identifier: GPL-2.0

//! The memory windows of a bridge that form one aperture, and where in it one ends and the next begins.
//!
//! An aperture is contiguous for who names places in it; it is cut into parts, one for each window, in the order
//! of their numbers. If there are several all parts have the same length, a power of two, and the aperture begins
//! at a multiple of that: so its *seams* are at multiples of it, for who counts from its begin as well
//! as for who has addresses. Windows need not be of one size: of the larger ones a part is not used then.
//!
//! What crosses a seam is not contiguous for who goes through the windows.

use super::extents::Extent;

/// Windows that can be in a set: those with the first numbers.
pub(crate) const MOST_WINDOWS: u32 = u16::BITS;

/// The memory windows of a bridge that form one aperture.
///
/// # Invariants
///
/// There is one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowSet(u16);

impl WindowSet {
    /// From a bit for each window; none if there is none.
    pub(crate) fn from_bits(bits: u16) -> Option<Self> {
        // INVARIANT: Then there is one.
        (bits != 0).then_some(Self(bits))
    }

    /// A bit for each window.
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    /// Of some numbers; none if one is too large, or if there is none.
    pub(crate) fn of(windows: impl IntoIterator<Item = u32>) -> Option<Self> {
        let bits = windows.into_iter().try_fold(0_u16, |bits, window| {
            Some(bits | 1_u16.checked_shl(window)?)
        });
        Self::from_bits(bits?)
    }

    /// How many there are.
    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Their numbers, in order.
    pub(crate) fn windows(self) -> impl Iterator<Item = u32> + Clone {
        (0..MOST_WINDOWS).filter(move |window| self.0 & (1 << window) != 0)
    }

    /// The seams of an aperture of so many bytes; none if it can't be one.
    pub(crate) fn seams(self, len: u64) -> Option<Seams> {
        let count = u64::from(self.count());
        match count {
            1 => Some(Seams::NONE),
            _ if len.checked_rem(count) == Some(0) => Seams::every(len.checked_div(count)?),
            _ => None,
        }
    }

    /// The windows of an aperture at `base` of so many bytes, and to which address and how many bytes each leads. None if
    /// it can't be one.
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
            // Does not wrap, as the end of all of them does not.
            let start = base.wrapping_add(index.wrapping_mul(part));
            (window, start, part)
        }))
    }
}

/// Where an aperture is not contiguous, see the head of this file.
///
/// # Invariants
///
/// `shift` is less than 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seams {
    shift: u32,
}

impl Seams {
    /// Nowhere.
    pub(crate) const NONE: Self = Self {
        shift: u64::BITS - 1,
    };

    /// At multiples of a length, if that is a power of two.
    pub(crate) fn every(len: u64) -> Option<Self> {
        // INVARIANT: A power of two has less than 64 zeroes.
        let shift = len.trailing_zeros();
        len.is_power_of_two().then_some(Self { shift })
    }

    /// What is longer crosses one.
    pub(crate) const fn longest(self) -> u64 {
        1 << self.shift
    }

    /// In which part an offset lies, and where in that.
    pub(crate) const fn locate(self, offset: u64) -> (usize, u64) {
        let within = self.longest().wrapping_sub(1);
        ((offset >> self.shift) as usize, offset & within)
    }

    /// Whether there may be one right before an address.
    pub(crate) const fn is_at(self, address: u64) -> bool {
        self.locate(address).1 == 0
    }

    /// How many of `len` bytes at an address lie before the next seam.
    pub(crate) fn before(self, address: u64, len: u64) -> u64 {
        // Not negative, as what is within a part is less than that.
        len.min(self.longest().wrapping_sub(self.locate(address).1))
    }

    /// The parts of a range of so many units that each have room for things of one piece.
    pub(crate) fn ranges(self, len: usize) -> impl Iterator<Item = core::ops::Range<usize>> {
        let part = usize::try_from(self.longest()).unwrap_or(usize::MAX);
        (0..len)
            .step_by(part.max(1))
            .map(move |start| start..start.saturating_add(part).min(len))
    }
}

/// What memory behind an aperture is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Bytes.
    pub(crate) len: u64,
    /// Counted from its begin.
    pub(crate) seams: Seams,
}

impl Shape {
    /// Of so many bytes without seams.
    pub(crate) const fn in_one(len: u64) -> Self {
        Self {
            len,
            seams: Seams::NONE,
        }
    }

    /// The longest piece that there may be.
    pub(crate) fn longest(self) -> u64 {
        self.seams.longest().min(self.len)
    }
}

/// Cuts an extent where seams are. Those that are cut are as many as seams that it crosses, and one.
pub(crate) fn cut(extent: Extent, seams: Seams) -> impl Iterator<Item = Extent> {
    let mut rest = Some(extent);
    core::iter::from_fn(move || {
        let this = rest?;
        let parts = this.split_at(seams.before(this.address(), this.len()));
        rest = parts.map(|(_, behind)| behind);
        Some(parts.map_or(this, |(before, _)| before))
    })
}

/// The largest aperture of several windows, if it is larger than that of one: how many of the largest form it, and
/// the length of a part. `sizes` are those of all windows, the largest first; `most` may be used.
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
