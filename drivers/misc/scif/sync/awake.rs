// SPDX-License-Identifier: GPL-2.0

//! Staying awake for a moment before a sleep, as long as that has been worth it lately.
//!
//! What is learnt, and how, is in `logic/awake.rs`. Several may learn at once: what is lost then is a
//! lesson. The longest that is allowed is what the administrator says at that moment (`busy_poll_us`),
//! unless it was fixed.

use crate::{
    logic::awake,
    sys::{
        random,
        wait::{
            busy_poll,
            busy_wait,
            now, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    time::Delta, //
};

/// See the head of this file.
pub(crate) struct Awake {
    /// In nanoseconds, as `fixed`.
    now: Atomic<u32>,
    waits: Atomic<u32>,
    /// When it tries, as `logic/awake.rs` has it: that of another is another.
    seed: u32,
    fixed: Option<u32>,
}

impl Awake {
    /// Stays awake for at most this long, which may be nothing; none for as long as the administrator
    /// allows.
    pub(crate) fn new(fixed: Option<Delta>) -> Self {
        let fixed = fixed.map(|most| u32::try_from(most.as_nanos()).unwrap_or(u32::MAX));
        Self {
            now: Atomic::new(Self::most(fixed)),
            waits: Atomic::new(0),
            seed: random() as u32,
            fixed,
        }
    }

    /// In nanoseconds.
    fn most(fixed: Option<u32>) -> u32 {
        fixed.unwrap_or_else(|| busy_poll().as_nanos() as u32)
    }

    /// Waits for `condition` to become true: awake as long as it seems worth it, and then as `sleep` does.
    /// Process context, no locks.
    pub(crate) fn wait(
        &self,
        condition: impl Fn() -> bool,
        sleep: impl FnOnce() -> Result,
    ) -> Result {
        let started = now();
        let count = self.waits.fetch_add(1, Relaxed);
        let most = Self::most(self.fixed);
        let limit = awake::limit(self.now.load(Relaxed), (count, self.seed), most);
        if !busy_wait(Delta::from_nanos(limit.into()), condition) {
            sleep()?;
        }
        let waited = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.now.load(Relaxed);
        let after = awake::after(before, waited, Self::most(self.fixed));
        if after != before {
            self.now.store(after, Relaxed);
        }
        Ok(())
    }
}
