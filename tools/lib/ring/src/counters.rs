// SPDX-License-Identifier: LGPL-2.1

//! The arithmetic of a ring.
//!
//! Counters count all bytes ever, and wrap around in `u32`. A size is a power of two and at most
//! 2^30. So full and empty are different, and a difference above the size is a lie.

use std::ops::Range;

/// The error of a peer whose counters contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

/// The size of a ring.
///
/// # Invariants
///
/// It is a power of two from [`Size::SMALLEST`] to [`Size::LARGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(u32);

impl Size {
    /// The smallest size, in bytes.
    pub const SMALLEST: u32 = 4096;
    /// The largest size, in bytes.
    pub const LARGEST: u32 = 1 << 30;

    /// Returns the size of a ring of `bytes` bytes, if there can be one.
    pub fn new(bytes: u32) -> Option<Self> {
        let fits = bytes.is_power_of_two() && (Self::SMALLEST..=Self::LARGEST).contains(&bytes);
        // INVARIANT: Just checked.
        fits.then_some(Self(bytes))
    }

    /// Returns the size of a ring that holds `bytes` bytes, or the largest size.
    pub fn for_bytes(bytes: usize) -> Self {
        let bytes = bytes.clamp(Self::SMALLEST as usize, Self::LARGEST as usize);
        // INVARIANT: Both ends of the range are powers of two, so the next one is inside.
        Self(bytes.next_power_of_two() as u32)
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// Returns how many bytes lie in the ring.
    #[inline]
    pub fn used(self, produced: u32, consumed: u32) -> Result<u32, Contradiction> {
        match produced.wrapping_sub(consumed) {
            used if used <= self.0 => Ok(used),
            _ => Err(Contradiction),
        }
    }

    /// Returns how many bytes can be put in.
    #[inline]
    pub fn room(self, produced: u32, consumed: u32) -> Result<u32, Contradiction> {
        Ok(self.0 - self.used(produced, consumed)?)
    }

    /// Returns where the `len` bytes from `counter` on lie. The second of the two ranges is empty
    /// unless the bytes wrap around. `len` is at most the size.
    #[inline]
    pub fn ranges(self, counter: u32, len: u32) -> [Range<usize>; 2] {
        let len = len.min(self.0) as usize;
        let start = (counter & (self.0 - 1)) as usize;
        let first = len.min(self.0 as usize - start);
        [start..start + first, 0..len - first]
    }
}

/// Returns whether a counter that goes from `before` to `after` reaches or passes `wanted` in this
/// step.
#[inline]
pub fn reaches(wanted: u32, before: u32, after: u32) -> bool {
    after.wrapping_sub(wanted) < after.wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_size_must_be_a_power_of_two_of_at_least_a_page() {
        assert_eq!(Size::new(4096).map(Size::bytes), Some(4096));
        for bytes in [0, 1, 2048, 4095, 4097, 1 << 31, u32::MAX] {
            assert_eq!(Size::new(bytes), None, "{bytes}");
        }
        for (bytes, size) in [(0, 4096), (4097, 8192), (usize::MAX, 1 << 30)] {
            assert_eq!(Size::for_bytes(bytes).bytes(), size);
        }
    }

    #[test]
    fn counters_wrap_and_contradictions_are_detected() {
        let size = Size::for_bytes(0);
        for start in [0, 5, u32::MAX - 100, u32::MAX] {
            let end = start.wrapping_add(4096);
            assert_eq!(size.used(end, start), Ok(4096));
            assert_eq!(size.room(end, start), Ok(0));
            assert_eq!(size.room(start, start), Ok(4096));
            assert_eq!(size.used(end.wrapping_add(1), start), Err(Contradiction));
            assert_eq!(size.used(start.wrapping_sub(1), start), Err(Contradiction));
        }
    }

    #[test]
    fn ranges_stay_inside_the_ring() {
        let size = Size::for_bytes(0);
        assert_eq!(size.ranges(10, 20), [10..30, 0..0]);
        assert_eq!(size.ranges(4090, 20), [4090..4096, 0..14]);
        assert_eq!(size.ranges(u32::MAX, 2), [4095..4096, 0..1]);
        assert_eq!(size.ranges(7, u32::MAX), [7..4096, 0..7]);
    }

    #[test]
    fn wake_request_is_reached_by_one_counter_step() {
        assert!(reaches(5, 4, 5) && reaches(5, 0, 9) && !reaches(5, 5, 9) && !reaches(5, 0, 4));
        assert!(reaches(1, u32::MAX, 1) && !reaches(u32::MAX, u32::MAX, 1));
        // At first no end waits.
        assert!(!reaches(0, 0, 100));
    }
}
