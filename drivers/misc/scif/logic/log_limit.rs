// SPDX-License-Identifier: GPL-2.0

//! How many lines of the log one peer can cause: some at once, and one more each few seconds.
//!
//! A peer can begin sessions, break rules and refuse windows as often as it likes, and each is worth a line when a
//! peer is honest. What is kept back is counted, and told with the next line.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// Lines at once.
pub(crate) const BURST: u64 = 100;

/// Milliseconds until there may be one more.
pub(crate) const PERIOD: u64 = 2000;

/// The lines about one peer.
pub(crate) struct LogLimit {
    /// When there may be a full burst again, in milliseconds.
    full_at: AtomicU64,
    kept_back: AtomicU64,
}

impl LogLimit {
    /// No line was written.
    pub(crate) fn new() -> Self {
        Self {
            full_at: AtomicU64::new(0),
            kept_back: AtomicU64::new(0),
        }
    }

    /// Whether there may be a line `now`, in milliseconds: if so, how many were kept back since the last one.
    pub(crate) fn admit(&self, now: u64) -> Option<u64> {
        let latest = now.saturating_add(BURST.saturating_mul(PERIOD));
        let admitted = update(&self.full_at, |full_at| {
            // The line that tells how many were kept back is one, too.
            let lines = if self.kept_back.load() > 0 { 2 } else { 1 };
            let next = full_at
                .max(now)
                .saturating_add(PERIOD.saturating_mul(lines));
            (next <= latest).then_some(next)
        });
        if admitted.is_none() {
            self.kept_back.fetch_add(1);
            return None;
        }
        let some = |count: u64| (count > 0).then_some(0);
        Some(update(&self.kept_back, some).unwrap_or(0))
    }
}
