// SPDX-License-Identifier: GPL-2.0
//! Times that are fine enough that the sum over many small copies is exact. A small packet takes
//! some ten nanoseconds, and an error of a nanosecond in each would be ten percent.
//!
//! They reach up to 213 days; a later time counts as that.

use std::ops::Add;
use std::time::Duration;

/// A length of time; a point in time is the length since the clock began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Picoseconds(u64);

const PER_SECOND: u128 = 1_000_000_000_000;
const PER_NANOSECOND: u64 = 1_000;
const PER_MICROSECOND: u64 = 1_000_000;

impl Picoseconds {
    /// No time, or the beginning.
    pub const ZERO: Self = Self(0);

    /// Returns this many nanoseconds.
    pub const fn nanoseconds(count: u64) -> Self {
        Self(count.saturating_mul(PER_NANOSECOND))
    }

    /// Returns the time of `bytes` at `per_second` bytes a second, which is not 0. Rounded up.
    pub fn of_bytes(bytes: u64, per_second: u64) -> Self {
        let time = (u128::from(bytes) * PER_SECOND).div_ceil(u128::from(per_second.max(1)));
        Self(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Returns this time multiplied by `count / unit`. Rounded up.
    pub fn per(self, count: u64, unit: u64) -> Self {
        let time = (u128::from(self.0) * u128::from(count)).div_ceil(u128::from(unit.max(1)));
        Self(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Returns the time from `other` until this, or zero if `other` is later.
    pub const fn since(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Splits the time into whole microseconds and the rest.
    pub const fn split_microseconds(self) -> (u64, Self) {
        (self.0 / PER_MICROSECOND, Self(self.0 % PER_MICROSECOND))
    }

    /// Returns the duration for a system call, rounded up so that no sleep ends early.
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0.div_ceil(PER_NANOSECOND))
    }
}

impl From<Duration> for Picoseconds {
    fn from(duration: Duration) -> Self {
        Self::nanoseconds(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add for Picoseconds {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_bytes_rounds_up_and_saturates() {
        let time = Picoseconds::of_bytes(88, 7_235_000_000);
        assert_eq!(time, Picoseconds(12_164));
        assert_eq!(Picoseconds::of_bytes(0, 1), Picoseconds::ZERO);
        assert_eq!(Picoseconds::of_bytes(u64::MAX, 1), Picoseconds(u64::MAX));
        let trip = Picoseconds::nanoseconds(900);
        assert_eq!(trip.per(3072, 2048), Picoseconds::nanoseconds(1350));
        assert_eq!(trip.per(u64::MAX, 1), Picoseconds(u64::MAX));
    }

    #[test]
    fn times_saturate_instead_of_wrapping() {
        let late = Picoseconds(u64::MAX - 1);
        assert_eq!(late + Picoseconds::nanoseconds(1), Picoseconds(u64::MAX));
        assert_eq!(Picoseconds::ZERO.since(late), Picoseconds::ZERO);
        assert_eq!(Picoseconds(1).as_duration(), Duration::from_nanos(1));
        let split = Picoseconds(2_000_003).split_microseconds();
        assert_eq!(split, (2, Picoseconds(3)));
    }
}
