// SPDX-License-Identifier: GPL-2.0

//! The lines of the log that a peer may cause, over all of its sessions: see `logic/log_limit.rs`.

use crate::logic::log_limit::LogLimit;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    },
};

/// How many lines there may be about the peer of one link.
pub(crate) struct LogBudget {
    limit: LogLimit,
    since: Instant<Monotonic>,
}

impl LogBudget {
    /// Nothing was said.
    pub(crate) fn new() -> Self {
        Self {
            limit: LogLimit::new(),
            since: Instant::now(),
        }
    }

    /// Whether something may be said now about the peer of this link. Says before how many lines were kept back. Any
    /// context.
    pub(crate) fn admits(&self, link: &CStr) -> bool {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0);
        let kept_back = self.limit.admit(now);
        if let Some(count @ 1..) = kept_back {
            pr_warn!("{link}: {count} message(s) about its peer were kept back\n");
        }
        kept_back.is_some()
    }
}
