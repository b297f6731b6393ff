// SPDX-License-Identifier: GPL-2.0

//! Jobs: copies by one engine that complete together.
//!
//! The submitter or the engine's completion ends the job, depending on which of them ends its last
//! copy. The poller releases the resources of an ended job in process context, as that may sleep
//! (`poller.rs`). When an engine stops, its jobs end with EIO (`transport/engine.rs`). Each
//! implementation of [`Job`] decides what is copied, and who is notified.

use super::{
    Engine,
    JobReservation, //
};
use crate::{
    sync::outcome::Outcome,
    sys::dmaengine::{
        Batch,
        Completion,
        CopyCount, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// The state that each job contains.
pub(crate) struct JobState {
    pub(crate) engine: Arc<Engine>,
    /// Number of bytes to add to the engine's count if the job succeeds.
    bytes: u64,
    copies: CopyCount,
    outcome: Outcome,
    /// Set once [`Job::on_complete`] has returned.
    pub(super) is_over: Atomic<bool>,
}

impl JobState {
    /// Creates the state of a job that has not begun.
    pub(crate) fn new(engine: &Arc<Engine>, bytes: u64) -> Self {
        Self {
            engine: engine.clone(),
            bytes,
            copies: CopyCount::new(),
            outcome: Outcome::new(),
            is_over: Atomic::new(false),
        }
    }
}

/// A group of copies by one engine that complete together.
pub(crate) trait Job: Send + Sync + 'static {
    fn state(&self) -> &JobState;

    /// Notifies the job's waiters of its end with this result. Called once.
    /// Context: soft interrupt, or any other but a hard interrupt.
    fn on_complete(&self, result: Result);
}

impl<J: Job + ?Sized> Completion for J {
    fn copies(&self) -> &CopyCount {
        &self.state().copies
    }

    fn copy_ended(&self, result: Result) {
        self.state().engine.descriptor_ended(&result);
        if result.is_err() {
            self.state().outcome.fail(EIO);
        }
    }

    fn all_ended(self: Arc<Self>) {
        let state = self.state();
        let engine = state.engine.clone();
        let result = state.outcome.so_far();
        if result.is_ok() {
            engine.bytes.add(state.bytes, Relaxed);
        }
        self.on_complete(result);
        engine.finish(self);
    }
}

/// Has `submit` submit all copies of a job. `reservation` has the memory for its entry. The job
/// ends by itself when its copies have completed. If `submit` returns an error, the job has failed,
/// and ends by itself, too. The caller polls for the end or arms the interrupt (`poller.rs`).
/// Context: may sleep as `submit` does.
pub(crate) fn start<J: Job>(
    job: &Arc<J>,
    reservation: JobReservation,
    submit: impl for<'j> FnOnce(&'j J, &Batch<'j, J>) -> Result,
) -> Result {
    let submitted = submit_all_of(job, submit)?;
    let engine = &job.state().engine;
    engine.issue_pending();
    engine.add_running(reservation, job.clone());
    if submitted.is_err() {
        engine.arm();
    }
    submitted
}

/// Starts a job as [`start`] does, whose `submit` does not sleep, and arms the interrupt. One store tells
/// the engine of the job's copies and of the empty copy that arms.
/// Context: any with interrupts on, but no hard interrupt and no completion.
pub(crate) fn start_now<J: Job>(
    job: &Arc<J>,
    reservation: JobReservation,
    submit: impl for<'j> FnOnce(&'j J, &Batch<'j, J>) -> Result,
) -> Result {
    let submitted = submit_all_of(job, submit)?;
    let kept: Arc<dyn Job> = job.clone();
    let engine = &job.state().engine;
    engine.add_running_now(reservation, &kept);
    engine.submit_arm();
    engine.issue_pending();
    submitted
}

/// Has `submit` submit all copies of a job, of which the engine has not been told yet. EBUSY: the job
/// has begun before. The inner error is that of `submit`.
fn submit_all_of<J: Job>(
    job: &Arc<J>,
    submit: impl for<'j> FnOnce(&'j J, &Batch<'j, J>) -> Result,
) -> Result<Result> {
    let state = job.state();
    Batch::submit(job, |job, batch| {
        let submitted = submit(job, batch);
        if let Err(error) = submitted {
            state.outcome.fail(error);
        }
        submitted
    })
}
