// SPDX-License-Identifier: GPL-2.0

//! Copies by an engine that belong together: a job.
//!
//! Whoever ends the last copy, who submits or the engine's completion, ends the job. What it holds is let go by
//! the poller in process context, as that may sleep (`poller.rs`). An engine that stops ends its jobs with EIO,
//! see `transport/engine.rs`. What is copied, and who is told, is up to whose job it is.

use super::{
    Engine,
    Place, //
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

/// What all jobs keep.
pub(crate) struct JobState {
    pub(crate) engine: Arc<Engine>,
    /// What the engine is said to have moved if all goes well.
    bytes: u64,
    copies: CopyCount,
    outcome: Outcome,
    /// Whether those who are to be told have been.
    pub(super) is_over: Atomic<bool>,
}

impl JobState {
    /// Of one that has not begun.
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

/// See the head of this file.
pub(crate) trait Job: Send + Sync + 'static {
    fn state(&self) -> &JobState;

    /// All has ended, with this result: tells those who are to be told. Called once, in a soft interrupt, or any
    /// other context but hard interrupts.
    fn tell(&self, result: Result);
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
        self.tell(result);
        engine.finish(self);
    }
}

/// Has `submit` submit all of a job, for which there is a `place`; it ends by itself then. On an error of `submit`
/// the job has failed, and ends by itself, too. The caller polls for the end, or arms the interrupt (`poller.rs`).
/// May sleep as `submit` does.
pub(crate) fn start<J: Job>(
    job: &Arc<J>,
    place: Place,
    submit: impl for<'j> FnOnce(&'j J, &Batch<'j, J>) -> Result,
) -> Result {
    let state = job.state();
    let submitted = Batch::submit(job, |job, batch| {
        let submitted = submit(job, batch);
        if let Err(error) = submitted {
            state.outcome.fail(error);
        }
        state.engine.issue_pending();
        submitted
    })?;
    state.engine.add_running(place, job.clone());
    if submitted.is_err() {
        state.engine.arm();
    }
    submitted
}
