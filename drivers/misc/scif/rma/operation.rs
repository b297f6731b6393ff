// SPDX-License-Identifier: GPL-2.0

//! A copy: its bytes, the resources that it keeps, and its completion.
//!
//! The requester of a copy makes an [`Operation`], and one of the methods of `transfer_policy.rs`
//! carries it out: the CPU (`cpu_copy.rs`), an engine (`transfer.rs`), slots (`staging.rs`) or the
//! peer (`peer_reads.rs`). All of them share the operation, and one of them completes it, once. The
//! memory on both sides stays in use until the last holder releases the operation, which may sleep.
//!
//! The local pieces are paired here with the remote ones.

use crate::{
    arguments::Direction,
    memory::{
        local::LocalPiece,
        range_tree::SmallList,
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

/// A listener for the completion of operations.
pub(super) trait CompletionListener: Send + Sync {
    /// Takes note that an operation has completed. If the result `is_reported`, the caller hears of
    /// it, so no fence has to report it. Called once for each operation.
    /// Context: any but hard interrupts.
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, is_reported: bool);

    /// Takes note that this node makes a copy that was left to the peer.
    /// Context: any but hard interrupts.
    fn taken_over(&self, _operation: &Operation) {}
}

/// The caller that starts a copy. It decides how long the start may wait, and whether an error is
/// reported to a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A process that may be killed.
    Process,
    /// A caller that has lent its memory, and does not return while the memory is in use.
    Lender,
    /// A work item, to which no error is reported.
    WorkItem,
}

/// Uses of the peer and the channel of a copy, which keep both. The fields are dropped in order, so
/// the peer's close is answered before the session may end.
pub(super) struct Surroundings {
    pub(super) channel: OwnedChannelUse,
    pub(super) peer: PeerUse,
}

impl Surroundings {
    /// Takes the peer of a channel, and the channel itself, into use.
    pub(super) fn of(channel: &Arc<Channel>) -> Result<Self> {
        Ok(Self {
            // Keeps the session, and with it the mappings, while windows are in use.
            peer: channel.enter_owned().ok_or(ENODEV)?,
            // Has a peer that closes its end wait for the completion of the copy.
            channel: channel
                .begin_owned_use()
                .map_err(|error| channel.end_or(error))?,
        })
    }
}

/// A copy in flight, shared by all that take part in it.
pub(super) struct Operation {
    /// Listener for the completion, if any, and the listener's number for the operation.
    pub(super) listener: Option<Arc<dyn CompletionListener>>,
    pub(super) number: u64,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    /// Number of bytes that are copied first. The remaining bytes are copied last.
    body: u64,
    /// Whether the caller waits for the result.
    pub(super) synchronous: bool,
    /// Whether completion depends on the peer and not on an engine of this node.
    pub(super) is_left_to_peer: Atomic<bool>,
    /// Whether the caller hears of the result, though it does not wait.
    reported: Atomic<bool>,
    outcome: Outcome,
    /// Number of parts that have not completed (`staging.rs`): slots that were not emptied, and
    /// engine jobs that fill slots. One more stands for the submitter, which may still start parts.
    pending: Atomic<u32>,
    last_slot: Atomic<u64>,
    // Dropped in this order.
    pub(super) sides: Sides,
    pub(super) surroundings: Surroundings,
}

impl Operation {
    /// Creates an operation with number 0 and no listener. The first `body` bytes are copied first.
    /// Context: may sleep.
    pub(super) fn new(
        direction: Direction,
        bytes: u64,
        body: u64,
        synchronous: bool,
        sides: Sides,
        surroundings: Surroundings,
    ) -> Result<UniqueArc<Self>> {
        let operation = Self {
            listener: None,
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

    /// Returns the start and length of both parts. The second part must not arrive before the
    /// first.
    pub(super) fn parts(&self) -> [(u64, u64); 2] {
        [(0, self.body), (self.body, self.bytes - self.body)]
    }

    /// Returns whether some bytes are copied last.
    pub(super) fn is_ordered(&self) -> bool {
        self.body < self.bytes
    }

    /// Has the result reported to the caller, unless the caller is a work item. Must not be called
    /// once the operation may have completed.
    pub(super) fn report_to(&self, caller: Caller) {
        if caller != Caller::WorkItem {
            self.reported.store(true, Relaxed);
        }
    }

    /// Completes the operation, with its first error if it has failed. Called once.
    /// Context: any but hard interrupts.
    pub(super) fn end(&self, result: Result) {
        self.outcome.end_with(result);
        if let Some(listener) = &self.listener {
            let is_reported = self.synchronous || self.reported.load(Relaxed);
            let listener = listener.as_arc_borrow();
            listener.ended(self, self.outcome.so_far(), is_reported);
        }
    }

    /// Completes the operation with an error that is reported to the caller. Returns the error.
    pub(super) fn end_for(&self, caller: Caller, error: Error) -> Error {
        self.report_to(caller);
        self.end(Err(error));
        error
    }

    /// Has the listener note that this node makes the copy that was left to the peer.
    /// Context: any but hard interrupts.
    pub(super) fn take_over(&self) {
        if let Some(listener) = &self.listener {
            listener.taken_over(self);
        }
    }

    /// Returns the result, or `None` while the operation is in flight.
    /// Context: any.
    pub(super) fn result(&self) -> Option<Result> {
        self.outcome.result()
    }

    // ----- slots with parts of it --------------------------------------------------------------

    /// Adds a part: the operation completes only after one more call of [`Self::part_ended`].
    /// Context: any.
    pub(super) fn add_part(&self) {
        self.pending.add(1, Relaxed);
    }

    /// Adds a slot that is about to be filled with a part. Slots are added one after the other.
    /// Context: any.
    pub(super) fn add_slot(&self, sequence: u64) {
        self.add_part();
        self.last_slot.store(sequence, Relaxed);
    }

    /// Returns the number of the last slot that was added, or 0 if there is none.
    /// Context: any.
    pub(super) fn last_slot(&self) -> u64 {
        self.last_slot.load(Relaxed)
    }

    /// Takes note that a part has completed: a slot was emptied or never will be, an engine job has
    /// ended, or the submitter starts no more parts. The last part completes the operation, which
    /// other holders may then release at once.
    /// Context: any but hard interrupts.
    pub(super) fn part_ended(&self, result: Result) {
        if let Err(error) = result {
            self.outcome.fail(error);
        }
        if self.pending.fetch_sub(1, Full) == 1 {
            self.end(Ok(()));
        }
    }
}

/// Returns whether this node reaches all of these pieces of the peer's memory.
pub(super) fn are_reached(pieces: &SmallList<RemotePiece>) -> bool {
    pieces.iter().all(|piece| piece.window.is_reached())
}

/// Both sides of a transfer: pieces of memory, in order, with the length of the transfer.
pub(super) struct Sides {
    // Dropped in this order.
    pub(super) local: SmallList<LocalPiece>,
    pub(super) remote: SmallList<RemotePiece>,
}

/// A part of a transfer that lies in one piece on each side.
pub(super) struct Stretch<'a> {
    pub(super) local: &'a LocalPiece,
    pub(super) local_offset: u64,
    pub(super) remote: &'a RemotePiece,
    pub(super) remote_offset: u64,
    pub(super) len: u64,
}

impl Sides {
    /// Maps the local side for the engine that is to copy. The peer stays in use as long as this
    /// exists.
    /// Context: may sleep.
    pub(super) fn map_for(&self, route: &EngineRoute) -> Result {
        let mut pieces = self.local.iter();
        pieces.try_for_each(|piece| piece.memory().map_for(route))
    }

    /// Calls `f` with each stretch of `skip..skip + len` of the transfer, in order. Returns ENXIO
    /// if a side is too short.
    pub(super) fn for_each_stretch<'a>(
        &'a self,
        skip: u64,
        len: u64,
        mut f: impl FnMut(Stretch<'a>) -> Result,
    ) -> Result {
        let (mut locals, mut remotes) = (self.local.iter(), self.remote.iter());
        let (mut local, mut remote) = (locals.next(), remotes.next());
        // Positions in the current pieces, and in the transfer.
        let (mut local_at, mut remote_at, mut at) = (0, 0, 0);
        let end = skip + len;
        while at < end {
            let (Some(l), Some(r)) = (local, remote) else {
                return Err(ENXIO);
            };
            let step = (l.len - local_at).min(r.len - remote_at).min(end - at);
            // Skips the bytes before `skip`.
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
