// SPDX-License-Identifier: GPL-2.0

//! Reads that the peer's engine makes: it is asked to write what is to be read into windows of this end.
//!
//! A read across a bus waits for its answer, a write does not: see `ways.rs` for when this is
//! worth it. Memory that is no window is offered as one for this alone (`memory/windows/unlisted.rs`).
//! A *pull* is a transfer as any other. It keeps the windows of both sides, the peer and the channel in
//! use until the peer has answered; it has a number, on which fences rest, and its end is told to whom
//! the end of others is. The other side is `pushes.rs`.
//!
//! A peer that does not want to has written nothing and will not: then this end's engine reads. One that
//! is lost ends all of them with an error; windows that it could still write to stay as long as they do
//! for any other reason (`memory/exports.rs`). One that does not answer one of them for long is lost, as the
//! engine of this end would have been given up: nobody waits without a limit. How long, goes by how much it was asked for;
//! each time that it gets on with the one that waits longest it has all of that anew.
//!
//! Where this end does not reach, the peer *must*: then it does it in whatever way it can, and what it does
//! not want fails.
//!
//! Lock: `Ways::refused` is a leaf.

use super::{
    operation::Operation,
    ways::Ways, //
};
use crate::{
    logic::{
        control_block::Annex,
        messages::{
            Message,
            Status, //
        },
    },
    peer::{
        channel::Channel,
        questions::{
            Until,
            LIMIT, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant, //
    }, //
};

/// What a peer takes of them at once; the others are read by this end.
pub(super) const MOST: usize = 256;

/// Bytes of all of them at once; the others are read by this end.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// Bytes that a peer moves in a millisecond at least: hardly anything of what the slowest link takes, as others may use
/// its engine, too.
const SLOWEST: u64 = 8 << 10;

/// A peer that has said that it has no engine is not asked again before: it may get one, and each refusal costs
/// a read the way to the peer and back.
const REFUSED: Delta = Delta::from_secs(10);

/// A pull that the peer has not answered.
pub(super) struct Pull {
    operation: Arc<Operation>,
    /// Which of the path's engines reads if the peer does not want to write. None if the peer must.
    engine: Option<usize>,
}

impl Ways {
    /// Whether the peer may be asked. Any context but interrupts.
    pub(super) fn can_pull(&self) -> bool {
        let refused = *self.refused.lock();
        refused.is_none_or(|refused| refused.elapsed() >= REFUSED)
    }

    /// Sends the peer `message`, which it is given a token for, to ask it for an operation. The path's `engine` reads if
    /// the peer does not want to; without one the peer must, and the caller waits for room. When this returns `Ok`, the
    /// operation ends by itself; on an error nothing was begun. Killable.
    pub(super) fn pull(
        &self,
        channel: &Arc<Channel>,
        operation: &Arc<Operation>,
        engine: Option<usize>,
        message: impl FnOnce(u32) -> Message,
    ) -> Result {
        let pull = Pull {
            operation: operation.clone(),
            engine,
        };
        let until = match engine {
            Some(_) => Until::Now,
            None => Until::Killed,
        };
        let token = self.pulls.put(pull, operation.bytes, until)?;
        self.watch_pulls(self.is_oldest(token));
        let posted = channel.post_with(&message(token), Annex::NONE);
        if posted.is_err() && self.end_pull(token).is_some() {
            return posted;
        }
        // If the message was not sent, the loss of the peer has ended the operation.
        Ok(())
    }

    /// Whether no other one waits longer for its answer. Any context.
    fn is_oldest(&self, token: u32) -> bool {
        self.pulls
            .with_oldest(|oldest| oldest.is_some_and(|(oldest, _)| oldest == token))
    }

    /// Ends one, if it was not ended. Any context.
    fn end_pull(&self, token: u32) -> Option<Pull> {
        let was_oldest = self.is_oldest(token);
        let pull = self.pulls.take(token)?;
        self.watch_pulls(was_oldest);
        Some(pull)
    }

    /// Has the peer counted as lost unless it answers the one that waits longest in time: counted from now on, if that one
    /// `is_new`.
    fn watch_pulls(&self, is_new: bool) {
        let countdown = &self.peer.liveness.pushes;
        self.pulls.with_oldest(|oldest| match oldest {
            None => countdown.set(None),
            Some((_, bytes)) => {
                let limit = (LIMIT.as_millis() as u64).saturating_add(bytes / SLOWEST);
                countdown.allow(u32::try_from(limit).unwrap_or(u32::MAX));
                if is_new {
                    countdown.restart();
                }
            }
        });
    }

    /// The peer has answered. Called by the control work.
    pub(crate) fn pull_answered(&self, token: u32, status: Status) {
        // An answer to what was not asked, or not any more, is none of our business.
        let Some(pull) = self.end_pull(token) else {
            return;
        };
        let result = match (status, pull.engine) {
            (Status::Done, _) => Ok(()),
            (Status::TransferFailed, _) => Err(EIO),
            (_, Some(_)) => {
                if status == Status::OutOfReach {
                    *self.refused.lock() = Some(Instant::now());
                }
                pull.operation.take_over();
                let Err(error) = self.start_later(pull.engine, pull.operation.clone()) else {
                    return;
                };
                Err(error)
            }
            (Status::NoMemory, None) => Err(ENOMEM),
            (Status::Unknown, None) => Err(ENXIO),
            (_, None) => Err(EIO),
        };
        pull.operation.end(result);
    }

    /// The peer is lost: ends all, for good. May sleep.
    pub(crate) fn end_pulls(&self) {
        for pull in self.pulls.close(ENODEV) {
            pull.operation.end(Err(ENODEV));
        }
        self.watch_pulls(true);
    }
}
