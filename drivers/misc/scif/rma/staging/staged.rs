// SPDX-License-Identifier: GPL-2.0

//! A transfer that is staged: over when the last of its slots was emptied.
//!
//! Whoever ends the last slot finishes it: the result goes to its [`Completion`](super::super::operation::Completion), and what it keeps is let go,
//! which may sleep.

use crate::{
    memory::{
        range_tree::Few,
        remote_window::RemotePiece, //
    },
    peer::channel::OwnedChannelUse,
    rma::{
        operation::{
            Operation,
            Request,
            Surroundings, //
        },
        pieces::Sides, //
    },
    sync::outcome::Outcome,
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};

/// What it keeps in use. Dropped in this order.
struct Kept {
    sides: Sides,
    surroundings: Surroundings,
}

/// See the head of this file.
#[pin_data]
pub(in crate::rma) struct Staged {
    /// None if nobody is told.
    operation: Option<Operation>,
    /// Whether the call reports the result, so that no fence does.
    reported: Atomic<bool>,
    /// No caller polls for its end: the peer rings when its last slot is empty.
    pub(super) tells: bool,
    /// Slots that were not emptied, and who may still fill some.
    pending: Atomic<u32>,
    last: Atomic<u64>,
    outcome: Outcome,
    #[pin]
    kept: SpinLock<Option<Arc<Kept>>>,
}

impl Staged {
    /// One of which nothing is in a slot; `fill` puts its parts there, which it finds in the sides it gets.
    /// It ends by itself once that has returned: if with an error, that is reported by the caller, and nobody
    /// else. May sleep.
    pub(in crate::rma) fn start(
        request: Request,
        fill: impl FnOnce(&Arc<Self>, &Sides) -> Result,
    ) -> Result<Arc<Self>> {
        let operation = request.operation.clone();
        let kept = Kept {
            sides: request.sides,
            surroundings: request.surroundings,
        };
        let kept = Arc::new(kept, GFP_KERNEL).map_err(Error::from);
        let made = kept.and_then(|kept| {
            let staged = Self::new(Some(request.operation), &kept, !request.synchronous)?;
            staged.reported.store(request.synchronous, Relaxed);
            Ok((staged, kept))
        });
        let (staged, kept) = made.map_err(|error| operation.fail(error))?;
        let filled = fill(&staged, &kept.sides);
        drop(kept);
        if filled.is_err() {
            staged.reported.store(true, Relaxed);
        }
        staged.slot_ended(filled);
        filled.map(|()| staged)
    }

    /// Something of which nobody is told, with parts of the peer's memory, if it has some, and what keeps those in
    /// place; as [`Self::start`].
    pub(in crate::rma) fn start_unnoticed(
        remote: Few<RemotePiece>,
        surroundings: Surroundings,
        fill: impl FnOnce(&Arc<Self>, &Sides) -> Result,
    ) -> Result {
        let sides = Sides {
            local: Few::new(),
            remote,
        };
        let kept = Arc::new(
            Kept {
                sides,
                surroundings,
            },
            GFP_KERNEL,
        )?;
        let staged = Self::new(None, &kept, true)?;
        let filled = fill(&staged, &kept.sides);
        drop(kept);
        staged.slot_ended(filled);
        filled
    }

    fn new(operation: Option<Operation>, kept: &Arc<Kept>, tells: bool) -> Result<Arc<Self>> {
        let kept = kept.clone();
        Arc::pin_init(
            pin_init!(Self {
                operation,
                reported: Atomic::new(false),
                tells,
                // Who fills.
                pending: Atomic::new(1),
                last: Atomic::new(0),
                outcome: Outcome::new(),
                kept <- new_spinlock!(Some(kept), "Staged::kept"),
            }),
            GFP_KERNEL,
        )
    }

    /// A slot of it is about to be filled. Any context; one after the other.
    pub(super) fn add_slot(&self, sequence: u64) {
        self.pending.add(1, Relaxed);
        self.last.store(sequence, Relaxed);
    }

    /// The number of its last slot until now; 0 if it has none. Any context.
    pub(super) fn last_slot(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Whether somebody waits for its end, as its channel is being closed. Any context.
    pub(super) fn is_in_the_way(&self) -> bool {
        let kept = self.kept.lock();
        kept.as_ref()
            .and_then(|kept| kept.surroundings.channel.as_ref())
            .is_some_and(OwnedChannelUse::is_closing)
    }

    /// It fails, though not all of it may have ended. Any context.
    pub(super) fn fail(&self, error: Error) {
        self.outcome.fail(error);
    }

    /// One was emptied, or will not be. Process context.
    pub(super) fn slot_ended(&self, result: Result) {
        self.slots_ended(1, result);
    }

    /// So many were. Process context.
    pub(super) fn slots_ended(&self, count: u32, result: Result) {
        if let Err(error) = result {
            self.outcome.fail(error);
        }
        if self.pending.fetch_sub(count, Full) == count {
            self.end();
        }
    }

    fn end(&self) {
        self.outcome.end();
        if let Some(operation) = &self.operation {
            operation.end(self.outcome.so_far(), self.reported.load(Relaxed));
        }
        let kept = self.kept.lock().take();
        drop(kept);
    }

    /// None while it runs. Any context.
    pub(in crate::rma) fn result(&self) -> Option<Result> {
        self.outcome.result()
    }
}
