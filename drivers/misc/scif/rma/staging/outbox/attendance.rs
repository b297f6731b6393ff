// SPDX-License-Identifier: GPL-2.0

//! Who notices that the peer has emptied slots, if nobody waits for it.
//!
//! A transfer that is not waited for asks for no doorbell: mostly somebody looks soon, as he takes slots for the next
//! one. Who is about to sleep until such transfers have ended looks for a moment, and then has the peer ring
//! when all slots are empty that are taken; so has who only leaves word what is to be done then. For what is left,
//! memory and windows that somebody wants back, a work item looks now and then, as long as slots are
//! taken. It is much the same with what an engine has done (`transport/engine/attendance.rs`).
//!
//! The peer knows of one wish at a time, the largest: who asks for all has others wait longer who sleep for some of
//! them, and does not ask for what is put into slots afterwards, though it may be an earlier transfer's. Both
//! are seen by whoever looks, and by the work item soon.

use super::Outbox;
use crate::sync::{
    attendance::{
        MOST_LOOKS,
        PERIOD, //
    },
    awake::Asleep, //
};
use kernel::{
    sync::{
        barrier,
        Arc, //
    },
    time::delay::fsleep,
    workqueue::WorkItem, //
};

impl WorkItem<1> for Outbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        fsleep(PERIOD);
        if let Some(_inside) = this.peer.enter() {
            this.reap();
        }
        this.look_if_changed();
        this.attendance.end();
        this.attend();
    }
}

impl Outbox {
    /// Has it looked at soon whether slots are empty that were taken, if there are some. Any context.
    pub(in crate::rma::staging) fn attend(self: &Arc<Self>) {
        // As `sync/attendance.rs` has it.
        barrier::smp_mb(barrier::Full);
        if self.has_taken() && self.attendance.begin() {
            // It is not in the queue, as nobody attends, so this can't fail.
            let _ = self.peer.queues().unhurried.enqueue::<_, 1>(self.clone());
        }
    }

    fn has_taken(&self) -> bool {
        self.state.lock().has_taken()
    }

    /// Looks at what the peer has emptied, if it has. Process context, no locks.
    pub(in crate::rma::staging) fn look_if_changed(&self) {
        if self.has_progress() {
            self.look();
        }
    }

    /// For who is about to sleep until `done`, which is about what was put into slots: when this returns it is done,
    /// or the peer rings when all are empty that are taken now. What it returns is to be dropped when he has slept.
    /// Process context, no locks; the caller is inside the peer.
    pub(in crate::rma::staging) fn hurry(&self, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        let has_changed = || {
            self.reap();
            done() || self.has_progress()
        };
        for _ in 0..MOST_LOOKS {
            if done() || !self.has_taken() {
                return None;
            }
            let waited = self.look_after(|| self.awake_for_end.stay_awake(has_changed));
            if let Err(wait) = waited {
                self.ask();
                return Some(Asleep::new(&self.awake_for_end, wait));
            }
        }
        self.ask();
        None
    }

    /// Has the peer ring when all slots are empty that are taken now. May sleep; the caller is inside the peer.
    pub(in crate::rma::staging) fn ask(&self) {
        if self.has_taken() {
            // Slots may still be filled by an engine that does not say when it has.
            self.announce();
            self.wish_for_all();
        }
    }
}
