// SPDX-License-Identifier: GPL-2.0

//! Copies by an engine for which who asks for them waits, then and there.
//!
//! He keeps in place what is copied, and where to, and does not go on before all of them have ended: nothing else is
//! kept here. An engine that stops ends them with an error, as it does transfers (`transfer.rs`).

use crate::{
    logic::plan::Segment,
    sync::outcome::Outcome,
    sys::{
        dmaengine::{
            Batch,
            Channel,
            Completion,
            CopyCount,
            CopyFlags, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::engine::{
        Engine,
        Place,
        Running,
        Submission, //
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

/// See the head of this file.
#[pin_data]
struct AwaitedCopies {
    engine: Arc<Engine>,
    copies: CopyCount,
    outcome: Outcome,
    is_over: Atomic<bool>,
    #[pin]
    ended: WaitQueue,
}

impl Completion for AwaitedCopies {
    fn copies(&self) -> &CopyCount {
        &self.copies
    }

    fn copy_ended(&self, result: Result) {
        self.engine.descriptor_ended(&result);
        if let Err(error) = result {
            self.outcome.fail(error);
        }
    }

    fn all_ended(self: Arc<Self>) {
        let engine = self.engine.clone();
        engine.attend();
        self.outcome.end();
        self.ended.wake_all();
        engine.finish(self);
    }
}

impl Running for AwaitedCopies {
    fn note_ended(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    fn abandon(self: Arc<Self>, channel: &Channel) {
        // An error can't be: the channel is the one it was submitted to, and is stopped.
        let _ = channel.abandon(&self);
    }
}

/// Has the engine copy all of these, in this order. EIO if it has stopped, or says that it could not; ENODEV if there is
/// no room for all of them and `is_over` says that nobody wants them any more; ENOMEM. Then some may
/// have been made, and none goes on. May sleep: until the engine has ended them, or is given up.
pub(super) fn copy(
    engine: &Arc<Engine>,
    segments: impl IntoIterator<Item = (Segment, CopyFlags)>,
    is_over: impl Fn() -> bool,
) -> Result {
    let copies = Arc::pin_init(
        pin_init!(AwaitedCopies {
            engine: engine.clone(),
            copies: CopyCount::new(),
            outcome: Outcome::new(),
            is_over: Atomic::new(false),
            ended <- new_wait_queue!("scif::AwaitedCopies::ended"),
        }),
        GFP_KERNEL,
    )?;
    let place = Place::new()?;
    let batch = Batch::new(copies.clone());
    let submitted = segments
        .into_iter()
        .try_for_each(|(segment, flags)| submit(&batch, segment, flags, &is_over));
    engine.issue_pending();
    drop(batch);
    engine.add_running(place, copies.clone());
    engine.note_quiet();
    let ended = || copies.outcome.result();
    engine.hurry(|| ended().is_some());
    let result = copies.ended.wait_uninterruptible(ended);
    // The engine lets go of it soon.
    drop(copies);
    submitted.and(result)
}

fn submit(
    batch: &Batch<AwaitedCopies>,
    segment: Segment,
    flags: CopyFlags,
    is_over: impl Fn() -> bool,
) -> Result {
    let engine = &batch.engine;
    let mut left = Some(segment);
    while let Some(segment) = left {
        let (piece, rest) = segment.split(engine.longest_segment());
        let flags = match rest {
            Some(_) => CopyFlags::NONE,
            None => flags,
        };
        match engine.submit_with_room(piece, flags, batch, &is_over)? {
            Submission::Done => left = rest,
            // It takes less from now on.
            Submission::TooLong => {}
            Submission::Stopped | Submission::Full => return Err(EIO),
        }
    }
    Ok(())
}
