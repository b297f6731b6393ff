// SPDX-License-Identifier: LGPL-2.1

//! The time until which a call waits.

use std::time::Duration;
use std::time::Instant;

use rustix::event::Timespec;

/// `SCI_INFINITE_TIMEOUT`
pub const INFINITE: u32 = u32::MAX;

/// The shortest timeout of a connect, as programs pass 0 in a loop.
pub const FLOOR: u32 = 1000;

/// A point in time, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline that never comes.
    pub const NEVER: Self = Self(None);

    /// Returns the time this many milliseconds from now, or never for [`INFINITE`].
    pub fn after(milliseconds: u32) -> Self {
        match milliseconds {
            INFINITE => Self::NEVER,
            _ => Self::in_time(Duration::from_millis(milliseconds.into())),
        }
    }

    /// Returns a deadline like [`Self::after`], for a connect: at least [`FLOOR`].
    pub fn of_connect(milliseconds: u32) -> Self {
        Self::after(milliseconds.max(FLOOR))
    }

    /// Returns the time this long from now.
    pub fn in_time(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// Returns the point in time.
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Returns whether the deadline has passed.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|moment| moment <= Instant::now())
    }

    /// Returns the time left, for a system call; none for never.
    pub fn left(self) -> Option<Timespec> {
        let left = self.0?.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }
}
