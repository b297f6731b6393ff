// SPDX-License-Identifier: GPL-2.0

//! A budget of events that a peer may cause: a burst at once, and one more each period.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// A budget that is full at first.
pub(crate) struct Budget {
    /// Number of events in a burst.
    burst: u64,
    /// Milliseconds until one more event is allowed.
    period: u64,
    /// Time at which a full burst is allowed again, in milliseconds.
    full_at: AtomicU64,
}

impl Budget {
    /// Creates a full budget of `burst` events, and one more each `period` milliseconds.
    pub(crate) fn new(burst: u64, period: u64) -> Self {
        Self {
            burst,
            period,
            full_at: AtomicU64::new(0),
        }
    }

    /// Takes `count` events at `now`, in milliseconds. Returns whether the budget has so many; if
    /// not, takes none.
    pub(crate) fn take(&self, now: u64, count: u64) -> bool {
        let latest = now.saturating_add(self.burst.saturating_mul(self.period));
        let taken = update(&self.full_at, |full_at| {
            let next = full_at
                .max(now)
                .saturating_add(self.period.saturating_mul(count));
            (next <= latest).then_some(next)
        });
        taken.is_some()
    }
}
