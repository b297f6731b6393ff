// SPDX-License-Identifier: GPL-2.0

//! Copies by an engine for which who asks for them waits, then and there.
//!
//! He keeps in place what is copied, and where to, and does not go on before all of them have ended: nothing else is
//! kept here. An engine that stops ends them with an error, as it does transfers (`transfer.rs`).

use crate::{
    logic::plan::Segment,
    sys::{
        dmaengine::{
            Batch,
            CopyFlags, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::engine::{
        job::{
            self,
            Job,
            JobState, //
        },
        Engine,
        Place,
        Submission, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
#[pin_data]
struct AwaitedCopies {
    state: JobState,
    #[pin]
    ended: WaitQueue,
}

impl Job for AwaitedCopies {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn tell(&self, _result: Result) {
        self.ended.wake_all();
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
            // Who asks for them says what it was for.
            state: JobState::new(engine, 0),
            ended <- new_wait_queue!("scif::AwaitedCopies::ended"),
        }),
        GFP_KERNEL,
    )?;
    let submitted = job::start(&copies, Place::new()?, false, |batch| {
        for (segment, flags) in segments {
            submit(batch, segment, flags, &is_over)?;
        }
        Ok(())
    });
    let ended = || copies.state.result();
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
    let engine = &batch.state.engine;
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
