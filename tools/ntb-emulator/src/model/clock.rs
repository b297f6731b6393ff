// SPDX-License-Identifier: GPL-2.0
//! The time, and sleeping until a later time, without using a CPU. This is the only part of the
//! model that has to do with real time; tests have a clock that they set.

use std::num::NonZeroU64;
use std::thread;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use rustix::thread::set_current_timer_slack;

use super::picoseconds::Picoseconds;

/// A clock.
pub trait Clock: Send + Sync {
    /// Returns the time since the clock began.
    fn now(&self) -> Picoseconds;

    /// Sleeps until that time or later. Returns at once if it has passed.
    fn sleep_until(&self, time: Picoseconds);
}

/// The clock of the machine.
pub struct Monotonic {
    start: Instant,
}

impl Monotonic {
    /// Starts a clock. The kernel wakes up the calling thread, and threads that it starts from now
    /// on, as early as it can, and not some 50 us later to save power.
    pub fn start() -> Result<Self> {
        set_current_timer_slack(NonZeroU64::new(1)).context("cannot have precise timers")?;
        Ok(Self {
            start: Instant::now(),
        })
    }
}

impl Clock for Monotonic {
    fn now(&self) -> Picoseconds {
        self.start.elapsed().into()
    }

    fn sleep_until(&self, time: Picoseconds) {
        let rest = time.since(self.now());
        if rest > Picoseconds::ZERO {
            thread::sleep(rest.as_duration());
        }
    }
}

#[cfg(test)]
pub mod fake {
    //! A clock that stands still unless a thread sleeps.

    use parking_lot::Mutex;

    use super::Clock;
    use super::Picoseconds;

    /// The clock.
    #[derive(Default)]
    pub struct Fake {
        now: Mutex<Picoseconds>,
        /// The time by which each thread wakes up late.
        pub late: Picoseconds,
    }

    impl Fake {
        /// Creates a clock by which each thread wakes up late by `by`.
        pub fn late(by: Picoseconds) -> Self {
            Self {
                late: by,
                ..Self::default()
            }
        }

        /// Lets time pass.
        pub fn pass(&self, time: Picoseconds) {
            let mut now = self.now.lock();
            *now = *now + time;
        }
    }

    impl Clock for Fake {
        fn now(&self) -> Picoseconds {
            *self.now.lock()
        }

        fn sleep_until(&self, time: Picoseconds) {
            let mut now = self.now.lock();
            if time > *now {
                *now = time + self.late;
            }
        }
    }
}
