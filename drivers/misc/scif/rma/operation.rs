// SPDX-License-Identifier: GPL-2.0

//! A copy: what it moves, what it keeps in use, and its end.
//!
//! Who wants a copy makes an [`Operation`], and one of the ways of `ways.rs` carries it out: the processor
//! (`cpu_copy.rs`), an engine (`transfer.rs`), slots (`staging.rs`) or the peer (`pulls.rs`). All of them share the
//! operation, and one of them ends it, once. The memory on both sides stays in use until the last of them lets go of
//! it, which may sleep.
//!
//! The pieces of both sides are paired here: the local windows with the remote ones.

use crate::{
    arguments::Direction,
    memory::{
        local::LocalPiece,
        range_tree::Few,
        remote_window::RemotePiece, //
    },
    peer::{
        channel::{
            Channel,
            OwnedChannelUse, //
        },
        PeerUse, //
    }, //
    sync::outcome::Outcome,
    transport::engine::EngineRoute,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        UniqueArc, //
    }, //
};

/// A listener for the end of operations.
pub(super) trait Completion: Send + Sync {
    /// Takes note that one has ended. If it `is_reported` its caller hears of the result, so no fence has to say it.
    /// Called once for each; in a soft interrupt, or any other context but hard interrupts.
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, is_reported: bool);

    /// Takes note that this node makes one that was left to the peer. Any context but hard interrupts.
    fn taken_over(&self, _operation: &Operation) {}
}

/// On whose behalf a copy begins: how long it may wait, and whether the caller hears of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process that may be killed.
    Process,
    /// One that has lent its memory, and does not return as long as somebody uses that.
    Lender,
    /// A work item.
    WorkItem,
}

/// What keeps the surroundings of a copy in place. Dropped in this order: the peer's close is answered
/// before the session may go.
pub(super) struct Surroundings {
    pub(super) channel: OwnedChannelUse,
    pub(super) peer: PeerUse,
}

impl Surroundings {
    /// Keeps the peer of a channel, and this end's use of it, from ending.
    pub(super) fn of(channel: &Arc<Channel>) -> Result<Self> {
        Ok(Self {
            // While windows are in use the session, and with it the mappings, stays.
            peer: channel.enter_owned().ok_or(ENODEV)?,
            // A peer that closes waits for the transfer's end.
            channel: channel
                .begin_owned_use()
                .map_err(|error| channel.end_or(error))?,
        })
    }
}

/// See the head of this file.
pub(super) struct Operation {
    /// The listener for its end, if there is one, and the listener's number for it.
    pub(super) completion: Option<Arc<dyn Completion>>,
    pub(super) number: u64,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    /// How many of the bytes go first; the others go last.
    body: u64,
    /// The caller waits for the result.
    pub(super) synchronous: bool,
    /// When it ends is up to the peer, and not to an engine of this node.
    pub(super) is_left_to_peer: Atomic<bool>,
    /// The caller hears of the result, though it does not wait.
    reported: Atomic<bool>,
    outcome: Outcome,
    /// Slots with a part of it that were not emptied, jobs of an engine that fill some, and who may still begin one
    /// (`staging.rs`).
    pending: Atomic<u32>,
    last_slot: Atomic<u64>,
    // Dropped in this order.
    pub(super) sides: Sides,
    pub(super) surroundings: Surroundings,
}

impl Operation {
    /// One of which nobody is told, with number 0. Of its bytes, so many as `body` go first. May sleep.
    pub(super) fn new(
        direction: Direction,
        bytes: u64,
        body: u64,
        synchronous: bool,
        sides: Sides,
        surroundings: Surroundings,
    ) -> Result<UniqueArc<Self>> {
        let operation = Self {
            completion: None,
            number: 0,
            direction,
            bytes,
            body,
            synchronous,
            is_left_to_peer: Atomic::new(false),
            reported: Atomic::new(false),
            outcome: Outcome::new(),
            pending: Atomic::new(1),
            last_slot: Atomic::new(0),
            sides,
            surroundings,
        };
        Ok(UniqueArc::new(operation, GFP_KERNEL_ACCOUNT)?)
    }

    /// Where its two parts begin, and how long they are: the second must not be there before the first.
    pub(super) fn parts(&self) -> [(u64, u64); 2] {
        [(0, self.body), (self.body, self.bytes - self.body)]
    }

    /// Whether a part goes last.
    pub(super) fn is_ordered(&self) -> bool {
        self.body < self.bytes
    }

    /// The caller, if it is not a work item, hears of the result. Not once it may have ended.
    pub(super) fn report_to(&self, caller: Caller) {
        if caller != Caller::WorkItem {
            self.reported.store(true, Relaxed);
        }
    }

    /// Ends it, with the first error if it has failed. Called once, in any context but hard interrupts.
    pub(super) fn end(&self, result: Result) {
        self.outcome.end_with(result);
        if let Some(completion) = &self.completion {
            let is_reported = self.synchronous || self.reported.load(Relaxed);
            let completion = completion.as_arc_borrow();
            completion.ended(self, self.outcome.so_far(), is_reported);
        }
    }

    /// Ends it with an error of which the caller hears.
    pub(super) fn end_for(&self, caller: Caller, error: Error) -> Error {
        self.report_to(caller);
        self.end(Err(error));
        error
    }

    /// This node makes it, though it was left to the peer. Any context but hard interrupts.
    pub(super) fn take_over(&self) {
        if let Some(completion) = &self.completion {
            completion.taken_over(self);
        }
    }

    /// None while it runs. Any context.
    pub(super) fn result(&self) -> Option<Result> {
        self.outcome.result()
    }

    // ----- slots with parts of it --------------------------------------------------------------

    /// It does not end before another [`Self::part_ended`] either. Any context.
    pub(super) fn add_part(&self) {
        self.pending.add(1, Relaxed);
    }

    /// A slot is about to be filled with a part. Any context; one after the other.
    pub(super) fn add_slot(&self, sequence: u64) {
        self.add_part();
        self.last_slot.store(sequence, Relaxed);
    }

    /// The number of its last slot until now; 0 if it has none. Any context.
    pub(super) fn last_slot(&self) -> u64 {
        self.last_slot.load(Relaxed)
    }

    /// One of its slots was emptied, or will not be; or an engine is done with some; or no more is filled. The last one
    /// ends it. Any context but hard interrupts; somebody else may let go of the operation at once.
    pub(super) fn part_ended(&self, result: Result) {
        if let Err(error) = result {
            self.outcome.fail(error);
        }
        if self.pending.fetch_sub(1, Full) == 1 {
            self.end(Ok(()));
        }
    }
}

/// Whether this end gets to all of these by itself.
pub(super) fn are_reached(pieces: &Few<RemotePiece>) -> bool {
    pieces.iter().all(|piece| piece.window.is_reached())
}

/// Both sides of a transfer: pieces of memory, in order, and as long as the transfer.
pub(super) struct Sides {
    // Dropped in this order.
    pub(super) local: Few<LocalPiece>,
    pub(super) remote: Few<RemotePiece>,
}

/// A stretch of a transfer that lies in one piece on each side.
pub(super) struct Stretch<'a> {
    pub(super) local: &'a LocalPiece,
    pub(super) local_offset: u64,
    pub(super) remote: &'a RemotePiece,
    pub(super) remote_offset: u64,
    pub(super) len: u64,
}

impl Sides {
    /// Maps the local side for the engine that is to copy. The peer is kept in use as long as this exists. May sleep.
    pub(super) fn map_for(&self, route: &EngineRoute) -> Result {
        let mut pieces = self.local.iter();
        pieces.try_for_each(|piece| piece.memory().map_for(route))
    }

    /// Calls `f` with each stretch of `skip..skip + len` of the transfer, in order. ENXIO if a side
    /// is too short.
    pub(super) fn for_each_stretch<'a>(
        &'a self,
        skip: u64,
        len: u64,
        mut f: impl FnMut(Stretch<'a>) -> Result,
    ) -> Result {
        let (mut locals, mut remotes) = (self.local.iter(), self.remote.iter());
        let (mut local, mut remote) = (locals.next(), remotes.next());
        // Where in the current pieces we are, and in the transfer.
        let (mut local_at, mut remote_at, mut at) = (0, 0, 0);
        let end = skip + len;
        while at < end {
            let (Some(l), Some(r)) = (local, remote) else {
                return Err(ENXIO);
            };
            let step = (l.len - local_at).min(r.len - remote_at).min(end - at);
            // What lies before `skip` is passed over.
            let unwanted = skip.saturating_sub(at).min(step);
            if unwanted < step {
                f(Stretch {
                    local: l,
                    local_offset: l.offset + local_at + unwanted,
                    remote: r,
                    remote_offset: r.offset + remote_at + unwanted,
                    len: step - unwanted,
                })?;
            }
            at += step;
            local_at += step;
            remote_at += step;
            if local_at == l.len {
                (local, local_at) = (locals.next(), 0);
            }
            if remote_at == r.len {
                (remote, remote_at) = (remotes.next(), 0);
            }
        }
        Ok(())
    }
}
