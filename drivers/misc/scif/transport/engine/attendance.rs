// SPDX-License-Identifier: GPL-2.0

//! How what an engine has done is noticed without an interrupt for each of it.
//!
//! An interrupt costs both the processor and the engine more than a small copy does. So what is
//! submitted need not ask for one: it is *quiet*, and its end is found by whoever looks at the engine's
//! ring, which lies in memory. Who looks:
//!
//! - who waits for something ([`Engine::hurry`]): for a moment again and again, because a copy that is
//!   not large ends sooner than one could sleep; then it has the engine *announce* where it is, by
//!   an empty copy with an interrupt behind all the others, and sleeps,
//! - who waits for slots that are filled, and emptied (`rma/staging/outbox`), in the same way,
//! - a work item, now and then as long as there is something quiet, in case nobody waits: others may
//!   wait for what transfers keep in use, and are not known here.
//!
//! What has ended is let go by whoever comes next in process context, where that may sleep, the same work
//! item at the latest, and not by one for each.
//!
//! Something is said to be quiet after it was submitted, and what was said is taken back before the
//! announcement is submitted; so nothing is forgotten between the two.

use super::{
    Engine,
    Running,
    BLANK, //
};
use crate::{
    sync::attendance::{
        MOST_LOOKS,
        PERIOD, //
    },
    sys::{
        busy_wait::busy_wait,
        tunables, //
    },
};
use kernel::{
    rbtree::RBTreeNode,
    sync::{
        atomic::{
            Full,
            Relaxed, //
        },
        barrier,
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};

/// The longest that who waits looks by itself, whatever an administrator says.
const LONGEST_US: u32 = 10_000;

impl WorkItem<1> for Engine {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        fsleep(PERIOD);
        this.reap();
        this.release_ended();
        this.attendance.end();
        if this.has_running() && this.quiet.load(Relaxed) || this.has_ended() {
            this.attend();
        }
    }
}

impl Engine {
    /// Something was submitted that does not report its end by itself. Any context.
    pub(crate) fn note_quiet(self: &Arc<Self>) {
        self.quiet.store(true, Relaxed);
        // Said before it is looked whether somebody attends, who does it the other way round.
        barrier::smp_mb(barrier::Full);
        self.attend();
    }

    /// All of it has ended: it can be let go now. The caller has been told by the engine, or is the one
    /// who submits; and attends before he tells others. Any context.
    pub(super) fn finish(self: &Arc<Self>, ended: Arc<dyn Running>) {
        let running = self.running.lock();
        ended.note_ended();
        // With the lock, so that this is not the last reference: the list has one, or, as long as it
        // does not, who submits.
        drop(ended);
        drop(running);
        // Who attended when the caller did so may have looked since.
        self.attend();
    }

    /// Has it looked at soon. Any context.
    pub(crate) fn attend(self: &Arc<Self>) {
        if self.attendance.begin() {
            // It is not in the queue, as nobody attends, so this can't fail.
            let _ = self.queues.unhurried.enqueue::<_, 1>(self.clone());
        }
    }

    /// Has the engine report by an interrupt what was submitted until now, if it would not do so anyway.
    /// Any context but hard interrupts, and not from a completion.
    pub(crate) fn announce(self: &Arc<Self>) {
        if !self.quiet.xchg(false, Full) {
            return;
        }
        let at = self.blank.bus_address();
        if self.channel.submit_alone(at + BLANK as u64, at, BLANK) {
            self.channel.issue_pending();
        } else {
            // Its ring is full: it is looked at again.
            self.note_quiet();
        }
    }

    /// For who is about to sleep until `done`, which is about what was submitted here: when this
    /// returns it is done, or will be reported. Process context, no locks.
    pub(crate) fn hurry(self: &Arc<Self>, done: impl Fn() -> bool) {
        if !self.quiet.load(Relaxed) {
            return;
        }
        let limit = Delta::from_micros(tunables::busy_poll_us().min(LONGEST_US).into());
        self.reap();
        let is_done = || {
            self.reap();
            done()
        };
        for _ in 0..MOST_LOOKS {
            let ended = self.ended.load(Relaxed);
            if done() || busy_wait(limit, is_done) {
                return;
            }
            if self.ended.load(Relaxed) == ended {
                break;
            }
        }
        self.announce();
    }

    /// Lets go of what has ended. May sleep.
    pub(crate) fn release_ended(&self) {
        while let Some(ended) = self.take_ended() {
            drop(ended);
        }
    }

    /// The engine ends things in their order, so what has ended comes first.
    fn take_ended(&self) -> Option<RBTreeNode<u64, Arc<dyn Running>>> {
        let mut running = self.running.lock();
        let first = running.cursor_front_mut()?;
        let has_ended = first.current().1.has_ended();
        has_ended.then(|| first.remove_current().1)
    }

    /// Whether there is something that was not let go.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.lock().is_empty()
    }

    fn has_ended(&self) -> bool {
        let running = self.running.lock();
        let mut values = running.values();
        values.next().is_some_and(|first| first.has_ended())
    }
}
