// SPDX-License-Identifier: GPL-2.0

//! A limit of the log lines that one peer can cause: a burst at once, and one more each few
//! seconds.
//!
//! A peer can begin sessions, break rules and refuse windows as often as it likes. For an honest
//! peer each of these events is worth a log line. Suppressed lines are counted, and the next line
//! tells their number.

use super::{
    atomic::AtomicU64,
    budget::Budget,
    update::update, //
};

/// Number of lines in a burst.
pub(crate) const BURST: u64 = 100;

/// Milliseconds until one more line is allowed.
pub(crate) const PERIOD: u64 = 2000;

/// The limit of the lines about one peer.
pub(crate) struct LogLimit {
    budget: Budget,
    kept_back: AtomicU64,
}

impl LogLimit {
    /// Creates a limit with a full burst.
    pub(crate) fn new() -> Self {
        Self {
            budget: Budget::new(BURST, PERIOD),
            kept_back: AtomicU64::new(0),
        }
    }

    /// Asks for a line at `now`, in milliseconds. If it is allowed, returns how many lines were
    /// suppressed since the last one.
    pub(crate) fn admit(&self, now: u64) -> Option<u64> {
        // If lines were suppressed, a second line tells their number, so this takes two.
        let lines = if self.kept_back.load() > 0 { 2 } else { 1 };
        if !self.budget.take(now, lines) {
            self.kept_back.fetch_add(1);
            return None;
        }
        let some = |count: u64| (count > 0).then_some(0);
        Some(update(&self.kept_back, some).unwrap_or(0))
    }
}
