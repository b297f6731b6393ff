// SPDX-License-Identifier: GPL-2.0

//! Whether a work item looks, now and then, at what nobody is told of.
//!
//! It runs as long as there is something, and once at a time. Who leaves something to it does so before he
//! asks whether it runs, with a full barrier in between; the work item says that it ends before it looks whether
//! something is left. So nothing is forgotten between the two.

use kernel::{
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier, //
    },
    time::Delta,
};

/// How often the work item looks.
pub(crate) const PERIOD: Delta = Delta::from_millis(2);

/// How many times who waits looks himself at most, if something ends in each of them.
pub(crate) const MOST_LOOKS: u32 = 4;

/// See the head of this file. All functions: any context.
pub(crate) struct Attendance {
    attended: Atomic<bool>,
}

impl Attendance {
    /// Nobody attends.
    pub(crate) const fn new() -> Self {
        Self {
            attended: Atomic::new(false),
        }
    }

    /// Whether nobody attended until now: the caller queues the work item.
    #[must_use = "nobody else queues it"]
    pub(crate) fn begin(&self) -> bool {
        !self.attended.load(Relaxed) && !self.attended.xchg(true, Full)
    }

    /// The work item ends, and looks then whether it has to begin again.
    pub(crate) fn end(&self) {
        self.attended.store(false, Relaxed);
        // What was left before is seen here, and who comes later sees that nobody attends.
        barrier::smp_mb(barrier::Full);
    }
}
