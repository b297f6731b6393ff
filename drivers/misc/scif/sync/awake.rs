// SPDX-License-Identifier: GPL-2.0

//! Busy-waiting for a moment before a sleep, as long as that has paid off lately.
//!
//! `logic/awake.rs` tells what is learnt, and how. Several waiters may learn at once; then the
//! lesson of one may be lost. The administrator sets the longest time, which may change at any time
//! (`busy_poll_us`).

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

/// A waiter's lesson on how long to busy-wait before it sleeps.
pub(crate) struct Awake {
    /// Time that the next wait stays awake, in nanoseconds.
    now: Atomic<u32>,
    waits: Atomic<u32>,
    /// Seed of the tries to stay awake (`logic/awake.rs`). Different waiters have different seeds.
    seed: u32,
}

/// Returns the longest time allowed, in nanoseconds.
fn most() -> u32 {
    busy_poll().as_nanos() as u32
}

impl Awake {
    /// Creates a lesson that begins with the longest time allowed.
    pub(crate) fn new() -> Self {
        Self {
            now: Atomic::new(most()),
            waits: Atomic::new(0),
            seed: random() as u32,
        }
    }

    /// Waits for `condition` to become true. Stays awake as long as that seems worth it, then calls
    /// `sleep`.
    /// Context: process, may sleep, no locks held.
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
