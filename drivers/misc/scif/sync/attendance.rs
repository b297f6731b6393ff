// SPDX-License-Identifier: GPL-2.0

//! Whether a work item looks, now and then, at what nobody is told of.
//!
//! It runs as long as there is something, and once at a time. Who leaves something to it does so before he
//! asks whether it runs, with a full barrier in between; the work item says that it ends before it looks whether
//! something is left. So nothing is forgotten between the two.
//!
//! Where others find all that there is, as they look for something of their own, it looks less often as long as they do: to
//! be woken takes more time than what is left to do.

use kernel::{
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// When the work item looks if nobody else does, and if others do.
const SOON: Delta = Delta::from_millis(2);
const LATER: Delta = Delta::from_millis(8);

/// How many times who waits looks himself at most, if something ends in each of them.
pub(crate) const MOST_LOOKS: u32 = 4;

/// See the head of this file. All functions but those that sleep: any context.
pub(crate) struct Attendance {
    attended: Atomic<bool>,
    /// While the work item slept last, others have found something.
    is_shared: Atomic<bool>,
}

impl Attendance {
    /// Nobody attends.
    pub(crate) const fn new() -> Self {
        Self {
            attended: Atomic::new(false),
            is_shared: Atomic::new(false),
        }
    }

    /// Whether nobody attended until now: the caller queues the work item.
    #[must_use = "nobody else queues it"]
    pub(crate) fn begin(&self) -> bool {
        !self.attended.load(Relaxed) && !self.attended.xchg(true, Full)
    }

    /// For the work item: sleeps until it is to look.
    pub(crate) fn sleep(&self) {
        fsleep(SOON);
    }

    /// As [`Self::sleep`], for longer if others find what there is as well: `found` counts what anybody has.
    pub(crate) fn sleep_beside_others(&self, found: impl Fn() -> u64) {
        let before = found();
        let delay = match self.is_shared.load(Relaxed) {
            true => LATER,
            false => SOON,
        };
        fsleep(delay);
        self.is_shared.store(found() != before, Relaxed);
    }

    /// The work item ends, and looks then whether it has to begin again.
    pub(crate) fn end(&self) {
        self.attended.store(false, Relaxed);
        // What was left before is seen here, and who comes later sees that nobody attends.
        barrier::smp_mb(barrier::Full);
    }
}
