// SPDX-License-Identifier: GPL-2.0

//! The poller of an engine, in the manner of NAPI.
//!
//! An engine runs its jobs in order, and its ring in memory shows how far it is. An interrupt for
//! each job would cost the CPU and the engine more than a small copy does. So the completion of a
//! job is noticed in one of three ways:
//!
//! - A caller that waits for its job polls the ring for a moment ([`Engine::poll_until`]): a small
//!   copy completes sooner than a sleeper wakes. Before the caller sleeps, it arms the interrupt.
//! - A caller that does not wait arms the interrupt ([`Engine::arm`]).
//! - An armed interrupt comes when all jobs submitted before it have completed. Then a work item
//!   polls the ring and releases the resources of completed jobs, which may sleep. It arms the
//!   interrupt again if jobs are in flight.
//!
//! So at most one interrupt is armed, and it covers all jobs submitted before it: the further the
//! engine falls behind, the more jobs share an interrupt. Besides, each [`INTERRUPT_EVERY`]th
//! descriptor asks for an interrupt, which bounds how late a completion is noticed.
//!
//! The interrupt is armed by an empty copy behind all jobs. If the ring has no room for this copy,
//! the work item polls now and then until there is room. The empty copy is among the copies of the
//! engine, so it is failed like a job when the engine is given back.
//!
//! Some engines interrupt when they begin a copy, and an interrupt may be lost. So the work item
//! also polls if an armed interrupt has not come for more than a tick. Such a poll may also come
//! just before the interrupt of an engine that has much to copy. So the interrupts of an engine are
//! given up only after polls have found its empty copy completed [`MOST_LATE`] times in a row. From
//! then on the work item polls as long as there are jobs.
//!
//! Invariant: if there is a job in `running`, then the interrupt is armed, the work item is queued,
//! or the submitter of the job polls. The submitter arms the interrupt before it sleeps. Jobs are
//! inserted into `running`, and marked as ended, under its lock, before `armed` is read. The work
//! item runs after `armed` was cleared, and takes that lock.
//!
//! One poller reaps at a time, as not all drivers take a lock to reap. It releases the completed
//! jobs afterwards.

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

/// Number of descriptors of which one asks for an interrupt.
pub(super) const INTERRUPT_EVERY: u32 = 128;

/// Microseconds between two polls if no interrupt is armed. The pause doubles as long as polls find
/// nothing.
const SHORTEST_PAUSE: u32 = 50;
const LONGEST_PAUSE: u32 = 3200;

/// Number of late interrupts in a row after which an engine is polled.
const MOST_LATE: u32 = 3;

/// The result of arming the interrupt.
pub(super) enum Arming {
    /// The empty copy was submitted; the engine has to be told.
    Submitted,
    /// The interrupt was armed before, or the engine has stopped.
    Armed,
    /// There is no interrupt: the work item polls.
    Polled,
}

/// The completion of the arming copy: the interrupt has come, or could not be armed.
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
        if this.has_stopped() {
            // Jobs that were added meanwhile.
            this.abandon_running();
        }
        if was_overdue && !this.is_overdue() {
            this.late.add(1, Relaxed);
        }
        if this.late.load(Relaxed) >= MOST_LATE && !this.is_polled.xchg(true, Relaxed) {
            pr_notice!(
                "DMA engine {} raises no interrupt when a copy completes: it is polled from now on\n",
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
    /// Reaps the ring, unless another poller does so now, and releases completed jobs.
    /// Context: may sleep.
    pub(crate) fn poll(&self) {
        self.reap();
        self.release_ended();
    }

    /// Reaps the ring, unless another poller does so now. The work item releases the completed jobs.
    /// Context: any but hard interrupts and completions.
    pub(crate) fn reap(&self) {
        if !self.reaps.xchg(true, Acquire) {
            self.channel.reap();
            self.reaps.store(false, Release);
        }
    }

    /// Marks a job as ended. The engine's completion calls this, or the submitter.
    /// Context: any, but hard interrupts.
    pub(super) fn finish<J: Job + ?Sized>(self: &Arc<Self>, ended: Arc<J>) {
        let running = self.running.lock();
        ended.state().is_over.store(true, Relaxed);
        // Dropped under the lock, so that this is not the last reference: `running` or the
        // submitter holds another one.
        drop(ended);
        drop(running);
        if !self.reaps.load(Relaxed) && !self.armed.load(Relaxed) {
            self.schedule();
        }
    }

    /// Queues the work item.
    /// Context: any.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error means that the work item is queued already, and has not begun.
        let _ = self.queues.work.enqueue::<_, 1>(self.clone());
    }

    /// Returns whether an armed interrupt has not come for more than a tick.
    /// Context: any.
    pub(super) fn is_overdue(&self) -> bool {
        self.armed.load(Relaxed) && self.armed_ticks.load(Relaxed) > 1 && !self.has_stopped()
    }

    /// Asks for an interrupt when all jobs submitted so far have completed. Returns false if the
    /// ring has no room for the empty copy, or the engine is polled; the work item runs instead.
    /// Context: any with interrupts on, but no hard interrupt and no completion.
    pub(crate) fn arm(self: &Arc<Self>) -> bool {
        match self.submit_arm() {
            Arming::Submitted => {
                self.issue_pending();
                true
            }
            Arming::Armed => true,
            Arming::Polled => false,
        }
    }

    /// Arms the interrupt as [`Self::arm`] does. The caller calls `issue_pending`.
    /// Context: any with interrupts on, but no hard interrupt and no completion.
    pub(super) fn submit_arm(self: &Arc<Self>) -> Arming {
        if self.is_polled.load(Relaxed) && !self.has_stopped() {
            self.schedule();
            return Arming::Polled;
        }
        // Full ordering: jobs were added to `running` before.
        if self.has_stopped() || self.armed.xchg(true, Full) {
            return Arming::Armed;
        }
        // A batch without a copy ends at once, in `all_ended`, which queues the work item.
        let is_submitted = Batch::submit(self, |this, batch| {
            let is_submitted = this.submit_arming(batch).unwrap_or(false);
            if is_submitted {
                this.taken.add(1, Relaxed);
            }
            is_submitted
        });
        if self.channel.is_stopped() {
            self.stop();
            self.abandon_arming();
        }
        match is_submitted {
            Ok(true) => Arming::Submitted,
            _ => Arming::Polled,
        }
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

    /// Fails the arming copy if the engine has not reported it. The channel has to be stopped.
    /// Context: process context.
    pub(super) fn abandon_arming(self: &Arc<Self>) {
        // Does nothing if the interrupt was never armed.
        self.channel.abandon(self);
    }

    /// Polls for a moment until `done`, a condition on the caller's own jobs, and releases
    /// completed jobs. If the moment is not enough, arms the interrupt.
    /// Context: may sleep.
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

    /// Releases the resources of completed jobs.
    /// Context: may sleep.
    pub(crate) fn release_ended(&self) {
        while let Some(ended) = self.take_ended() {
            drop(ended);
        }
    }

    /// Removes the first job if it has ended. Jobs end in their order.
    fn take_ended(&self) -> Option<RBTreeNode<u64, Arc<dyn Job>>> {
        let mut running = self.running.lock();
        let first = running.cursor_front_mut()?;
        let has_ended = first.current().1.state().is_over.load(Relaxed);
        has_ended.then(|| first.remove_current().1)
    }

    /// Returns whether there are jobs that were not released.
    /// Context: any.
    pub(crate) fn has_running(&self) -> bool {
        !self.running.lock().is_empty()
    }
}
