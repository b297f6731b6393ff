// SPDX-License-Identifier: GPL-2.0

//! The poller of an engine, in the manner of NAPI.
//!
//! An engine runs its jobs in order, and its ring in memory shows how far it is. An interrupt for each job would cost
//! the CPU and the engine more than a small copy does. So the end of a job is noticed in one of three ways:
//!
//! - A caller that waits for its job polls the ring for a moment ([`Engine::poll_until`]): a small copy ends sooner
//!   than a sleeper wakes. Before the caller sleeps it arms the interrupt.
//! - A caller that does not wait arms the interrupt ([`Engine::arm`]).
//! - An armed interrupt comes when all jobs have ended that were submitted before. Then a work item polls the ring,
//!   releases what the ended jobs hold, which may sleep, and arms the interrupt again if jobs run.
//!
//! So there is one armed interrupt at most, and a stream of jobs costs as many as the engine falls behind. Besides,
//! each [`INTERRUPT_EVERY`]th descriptor asks for an interrupt, which bounds how late an end is noticed.
//!
//! An empty copy behind all jobs arms the interrupt. If the ring has no room for it, the work item polls now and then
//! until it has. The copy holds the engine, so an engine that is given back ends it.
//!
//! An engine may interrupt when it begins a copy, or an interrupt may be lost. So the work item polls, too, if an armed
//! interrupt has not come for more than a tick. A poll may be just before the interrupt of an engine that has much to
//! copy. So only if polls end the copy behind it [`MOST_LATE`] times in a row, the interrupts of this engine are armed no
//! more: the work item polls as long as there are jobs.
//!
//! Invariant: if there is a job in `running`, the interrupt is armed, the work item is queued, or the submitter of the
//! job polls; the submitter arms the interrupt before it sleeps. Jobs enter `running`, and are marked as ended, under
//! its lock, before `armed` is read. The work item runs after `armed` was cleared, and takes that lock.
//!
//! One poller reaps at a time, as not all drivers lock what they do then, and releases what it finds afterwards.

use super::{
    job::Job,
    Engine,
    BLANK, //
};
use crate::sys::{
    bus_range::BusCopy,
    dmaengine::{
        Batch,
        Completion,
        CopyCount,
        CopyFlags, //
    }, //
    wait::{
        busy_poll,
        busy_wait, //
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNode,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};

/// Of so many descriptors one reports its end at once.
pub(super) const INTERRUPT_EVERY: u32 = 128;

/// Microseconds between two polls where no interrupt is armed. They double as long as polls find nothing.
const SHORTEST_PAUSE: u32 = 50;
const LONGEST_PAUSE: u32 = 3200;

/// After so many interrupts in a row that have not come, an engine is polled.
const MOST_LATE: u32 = 3;

/// The armed interrupt has come, or could not be armed.
impl Completion for Engine {
    fn copies(&self) -> &CopyCount {
        &self.arming
    }

    fn copy_ended(&self, result: Result) {
        self.descriptor_ended(&result);
    }

    fn all_ended(self: Arc<Self>) {
        if !self.is_overdue() {
            self.late.store(0, Relaxed);
        }
        self.armed_ticks.store(0, Relaxed);
        self.armed.store(false, Relaxed);
        self.schedule();
    }
}

impl WorkItem<1> for Engine {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let (was_overdue, ended) = (this.is_overdue(), this.ended.load(Relaxed));
        this.poll();
        if was_overdue && !this.is_overdue() {
            this.late.add(1, Relaxed);
        }
        if this.late.load(Relaxed) >= MOST_LATE && !this.is_polled.xchg(true, Relaxed) {
            pr_notice!(
                "DMA engine {} does not tell the end of a copy by an interrupt: it is polled from now on\n",
                this.name()
            );
        }
        let pause = if this.ended.load(Relaxed) != ended {
            SHORTEST_PAUSE
        } else {
            let longer = this.pause.load(Relaxed).saturating_mul(2);
            longer.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
        };
        this.pause.store(pause, Relaxed);
        if this.has_running() && (this.is_overdue() || !this.arm()) {
            fsleep(Delta::from_micros(pause.into()));
            this.schedule();
        }
    }
}

impl Engine {
    /// Reports the end of what has ended, unless another poller does so now, and releases it. May sleep.
    pub(crate) fn poll(&self) {
        self.reap();
        self.release_ended();
    }

    fn reap(&self) {
        if !self.reaps.xchg(true, Acquire) {
            self.channel.reap();
            self.reaps.store(false, Release);
        }
    }

    /// Marks a job as ended. Any context: the engine's completion, or the submitter.
    pub(super) fn finish<J: Job + ?Sized>(self: &Arc<Self>, ended: Arc<J>) {
        let running = self.running.lock();
        ended.state().is_over.store(true, Relaxed);
        // With the lock, so that this is not the last reference: `running` has one, or the submitter does.
        drop(ended);
        drop(running);
        if !self.reaps.load(Relaxed) && !self.armed.load(Relaxed) {
            self.schedule();
        }
    }

    /// Runs the work item soon. Any context.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error says that the work item is queued, and has not begun.
        let _ = self.queues.work.enqueue::<_, 1>(self.clone());
    }

    /// Returns whether an armed interrupt has not come for more than a tick. Any context.
    pub(super) fn is_overdue(&self) -> bool {
        self.armed.load(Relaxed) && self.armed_ticks.load(Relaxed) > 1 && !self.has_stopped()
    }

    /// Has the engine interrupt when all jobs have ended that were submitted until now. If its ring has no room for
    /// that, or it is polled, returns false, and the work item runs. Process context.
    pub(crate) fn arm(self: &Arc<Self>) -> bool {
        if self.is_polled.load(Relaxed) && !self.has_stopped() {
            self.schedule();
            return false;
        }
        // Full: jobs were added to `running` before.
        if self.has_stopped() || self.armed.xchg(true, Full) {
            return true;
        }
        // If it was not submitted, it ends here.
        let is_armed = Batch::submit(self, |this, batch| {
            let is_armed = this.submit_arming(batch).unwrap_or(false);
            if is_armed {
                this.taken.add(1, Relaxed);
                this.channel.issue_pending();
            }
            is_armed
        });
        if self.channel.is_stopped() {
            self.stop();
            self.abandon_arming();
        }
        is_armed.unwrap_or(false)
    }

    fn submit_arming<'t>(&'t self, batch: &Batch<'t, Self>) -> Result<bool> {
        let (to, from) = (self.blank.range(BLANK, BLANK), self.blank.range(0, BLANK));
        let copy = BusCopy::new(to.ok_or(EFAULT)?, from.ok_or(EFAULT)?);
        let flags = CopyFlags {
            interrupt: true,
            fence: false,
        };
        self.channel.submit(copy.ok_or(EFAULT)?, flags, batch)
    }

    /// Ends the arming copy, if the engine has left it without saying so. The channel is stopped. Process context.
    pub(super) fn abandon_arming(self: &Arc<Self>) {
        // Nothing happens if the interrupt was never armed.
        self.channel.abandon(self);
    }

    /// Polls for a moment until `done`, which is about what was submitted here, and releases what has ended. If the
    /// moment is not enough, arms the interrupt. May sleep.
    pub(crate) fn poll_until(self: &Arc<Self>, done: impl Fn() -> bool) {
        if done() {
            return;
        }
        let is_done = || {
            self.reap();
            done()
        };
        let is_over = busy_wait(busy_poll(), is_done);
        self.release_ended();
        if !is_over {
            self.arm();
        }
    }

    /// Releases what ended jobs hold. May sleep.
    pub(crate) fn release_ended(&self) {
        while let Some(ended) = self.take_ended() {
            drop(ended);
        }
    }

    /// Takes the first job if it has ended: they end in their order.
    fn take_ended(&self) -> Option<RBTreeNode<u64, Arc<dyn Job>>> {
        let mut running = self.running.lock();
        let first = running.cursor_front_mut()?;
        let has_ended = first.current().1.state().is_over.load(Relaxed);
        has_ended.then(|| first.remove_current().1)
    }

    /// Returns whether there are jobs that were not released. Any context.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.lock().is_empty()
    }
}
