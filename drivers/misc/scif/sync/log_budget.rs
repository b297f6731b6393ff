// SPDX-License-Identifier: GPL-2.0

//! The budget of log lines that a peer may cause, over all of its sessions: see
//! `logic/log_limit.rs`.

use crate::logic::log_limit::LogLimit;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    },
};

/// The budget of log lines about the peer of one link.
pub(crate) struct LogBudget {
    limit: LogLimit,
    since: Instant<Monotonic>,
}

impl LogBudget {
    /// Creates a full budget.
    pub(crate) fn new() -> Self {
        Self {
            limit: LogLimit::new(),
            since: Instant::now(),
        }
    }

    /// Returns whether a line about the peer of this link may be logged now. If so, first logs how
    /// many lines were suppressed before.
    /// Context: any.
    pub(crate) fn admits(&self, link: &CStr) -> bool {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0);
        let kept_back = self.limit.admit(now);
        if let Some(count @ 1..) = kept_back {
            pr_warn!("{link}: {count} line(s) about its peer were suppressed\n");
        }
        kept_back.is_some()
    }
}
