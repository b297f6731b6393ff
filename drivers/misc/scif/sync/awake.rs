// SPDX-License-Identifier: GPL-2.0

//! Staying awake for a moment before a sleep, as long as that has been worth it lately.
//!
//! What is learnt, and how, is in `logic/awake.rs`. Several may learn at once: what is lost then is a
//! lesson. The longest that is allowed is what the administrator says at that moment (`busy_poll_us`).

use crate::{
    logic::awake,
    sys::{
        random,
        wait::{
            busy_poll,
            busy_wait, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// See the head of this file.
pub(crate) struct Awake {
    /// In nanoseconds.
    now: Atomic<u32>,
    waits: Atomic<u32>,
    /// When it tries, as `logic/awake.rs` has it: that of another is another.
    seed: u32,
}

/// Returns the longest that is allowed, in nanoseconds.
fn most() -> u32 {
    busy_poll().as_nanos() as u32
}

impl Awake {
    /// Begins with the longest that is allowed.
    pub(crate) fn new() -> Self {
        Self {
            now: Atomic::new(most()),
            waits: Atomic::new(0),
            seed: random() as u32,
        }
    }

    /// Waits for `condition` to become true: awake as long as it seems worth it, and then as `sleep` does.
    /// Process context, no locks.
    pub(crate) fn wait(
        &self,
        condition: impl Fn() -> bool,
        sleep: impl FnOnce() -> Result,
    ) -> Result {
        let started = Instant::<Monotonic>::now();
        let count = self.waits.fetch_add(1, Relaxed);
        let limit = awake::limit(self.now.load(Relaxed), (count, self.seed), most());
        if !busy_wait(Delta::from_nanos(limit.into()), condition) {
            sleep()?;
        }
        let waited = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.now.load(Relaxed);
        let after = awake::after(before, waited, most());
        if after != before {
            self.now.store(after, Relaxed);
        }
        Ok(())
    }
}
