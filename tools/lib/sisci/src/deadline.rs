// SPDX-License-Identifier: LGPL-2.1

//! Until when a call waits.

use std::time::Duration;
use std::time::Instant;

use rustix::event::Timespec;

/// `SCI_INFINITE_TIMEOUT`
pub const INFINITE: u32 = u32::MAX;

/// The least that a connect waits, as programs say 0 in a loop.
pub const FLOOR: u32 = 1000;

/// A moment, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No end.
    pub const NEVER: Self = Self(None);

    /// So many milliseconds from now, or never for [`INFINITE`].
    pub fn after(milliseconds: u32) -> Self {
        match milliseconds {
            INFINITE => Self::NEVER,
            _ => Self::in_time(Duration::from_millis(milliseconds.into())),
        }
    }

    /// As [`Self::after`], for a connect.
    pub fn of_connect(milliseconds: u32) -> Self {
        Self::after(milliseconds.max(FLOOR))
    }

    /// So long from now.
    pub fn in_time(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// The moment.
    pub fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Whether it has come.
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|moment| moment <= Instant::now())
    }

    /// How long it is until then, for the system; none for never.
    pub fn left(self) -> Option<Timespec> {
        let left = self.0?.saturating_duration_since(Instant::now());
        Some(Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        })
    }
}
