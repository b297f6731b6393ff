// SPDX-License-Identifier: GPL-2.0

//! Writing where this node does not reach, and being written to where the peer does not.
//!
//! A peer whose bridge is small, or that lets nobody in, offers windows without addresses. What is for them
//! is staged: put into slots that it does offer, from which it copies on (`logic/staging.rs` has the layout
//! and the rules).
//!
//! - `outbox.rs`: the slots at the peer that this node fills, in turn for all who write, and their end
//! - `fill.rs`: an engine fills some
//! - `staged.rs`: a transfer that goes like this, from its first slot to the end of its last
//! - `inbox.rs`: the slots of this node that the peer fills, which its processor empties
//!
//! Reading is writing of the other side, which is asked for it (`pulls.rs`).
//!
//! # What is promised
//!
//! A transfer ends when its last byte is in the memory that it is for: the peer says that a slot is empty
//! when it has copied it on. As slots are emptied in order, what was put into one later is not there earlier.
//! A transfer keeps the window, the channel and the peer in use until then, as any other. If the peer is
//! lost it ends with an error; if it does not empty slots for long, it counts as lost.
//!
//! Lock order: `opening` comes before those of what is posted.
//!
//! A transfer that is staged: over when the last of its slots was emptied.
//!
//! Whoever ends the last slot finishes it: the result goes to its [`Completion`](super::super::operation::Completion), and what it keeps is let go,
//! which may sleep.

use super::operation::{
    Operation,
    Request,
    Sides,
    Surroundings, //
};
use crate::{
    logic::{
        messages::Message,
        staging::Geometry, //
    },
    memory::{
        exports::Exports,
        range_tree::Few,
        remote_window::RemotePiece, //
    },
    peer::{
        channel::OwnedChannelUse,
        control::Reservation,
        service::Violation,
        Peer, //
    },
    sync::outcome::Outcome,
    transport::engine::EngineRoute, //
};
use inbox::Inbox;
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};
pub(super) use outbox::{
    Outbox,
    Patience, //
};

mod fill;
mod inbox;
mod outbox;

/// See the head of this file. One for each peer.
#[pin_data]
pub(crate) struct Staging {
    peer: Arc<Peer>,
    exports: Arc<Exports>,
    #[pin]
    opening: Mutex<()>,
    /// The peer was told of the inbox.
    is_open: Atomic<bool>,
    inbox: SetOnce<Arc<Inbox>>,
    outbox: SetOnce<Arc<Outbox>>,
}

impl Staging {
    /// Nothing is there yet; what the peer writes goes to `exports`. May sleep.
    pub(crate) fn new(peer: &Arc<Peer>, exports: &Arc<Exports>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports: exports.clone(),
                opening <- new_mutex!((), "Staging::opening"),
                is_open: Atomic::new(false),
                inbox: SetOnce::new(),
                outbox: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Offers slots to the peer if it may need them; it hears of them before all that is said later. The
    /// caller is inside the peer. May sleep, does not wait for the peer.
    pub(crate) fn open(&self) -> Result {
        let len = self.peer.path().limits().staging;
        if len == 0 || self.is_open.load(Acquire) {
            return Ok(());
        }
        let _opening = self.opening.lock();
        if self.inbox.as_ref().is_some() {
            return Ok(());
        }
        let reservation = Reservation::new(GFP_KERNEL)?;
        let inbox = Inbox::new(&self.peer, &self.exports, len)?;
        let (address, geometry) = inbox.place();
        // The answer may come at once.
        self.inbox.populate(inbox);
        let offer = Message::StagingOffer {
            address,
            slots: geometry.slots(),
            size: geometry.size(),
        };
        self.peer.send(reservation, &offer);
        self.is_open.store(true, Release);
        Ok(())
    }

    /// Nothing is being delivered when this returns that was on its way before. May sleep.
    pub(super) fn wait_for_deliveries(&self) {
        if let Some(inbox) = self.inbox.as_ref() {
            inbox.wait_for_deliveries();
        }
    }

    /// The peer's slots: EIO if it has offered none, though it offers windows that take some.
    pub(super) fn outbox(&self) -> Result<&Arc<Outbox>> {
        self.outbox.as_ref().ok_or(EIO)
    }

    /// Bytes of so many that go into one slot. Any context.
    pub(super) fn bytes_per_slot(&self, len: u64) -> u64 {
        let outbox = self.outbox.as_ref();
        outbox.map_or(len, |outbox| len.min(outbox.slot_size()))
    }

    /// Writes where this node does not reach, with the memory on this side mapped for the engine of `route`, or by
    /// CPU. Returns when all is in slots, or being put there, and polls for the end for a moment if it is synchronous;
    /// it ends by itself then. On an error it has failed, and what was begun of it ends by itself, too; only the
    /// caller reports the error. May sleep: the caller is inside the peer.
    pub(super) fn write(
        &self,
        request: Request,
        route: Option<&EngineRoute>,
        patience: Patience,
    ) -> Result<Arc<Staged>> {
        let (parts, is_awaited) = (request.parts, request.synchronous);
        let staged = Staged::start(request, |staged, sides| {
            self.outbox()?.put(staged, sides, parts, (route, patience))
        })?;
        if is_awaited {
            self.outbox()?.await_end(&staged)?;
        } else if let Some(route) = route {
            route.engine.arm();
        }
        Ok(staged)
    }

    // ----- what the peer says; called by the control work --------------------------------------

    /// It offers slots.
    pub(crate) fn offered(&self, address: u64, slots: u32, size: u32) -> Result<(), Violation> {
        let geometry = Geometry::new(slots, size).ok_or("it offers impossible slots")?;
        // One message is handled after the other, so nobody comes in between.
        if self.outbox.as_ref().is_some() {
            return Err("it offers slots again".into());
        }
        let outbox = match Outbox::new(&self.peer, address, geometry) {
            Ok(outbox) => outbox,
            Err(EFAULT) => return Err("it offers slots that can't be reached".into()),
            Err(_) => {
                pr_warn!(
                    "no room for what it takes to write where node {} is not reached\n",
                    self.peer.node()
                );
                return Ok(());
            }
        };
        let credits = outbox.credits_address();
        self.outbox.populate(outbox);
        if self.peer.is_over() {
            // Who ends what is under way may have been here before.
            self.lost();
        }
        self.peer
            .answer(&Message::StagingTaken { address: credits });
        Ok(())
    }

    /// It says where emptied slots are counted.
    pub(crate) fn taken(&self, credits: u64) -> Result<(), Violation> {
        let inbox = self.inbox.as_ref();
        let inbox = inbox.ok_or("it takes slots that were not offered")?;
        let set = inbox.set_credits(credits);
        Ok(set.map_err(|_| "it counts emptied slots where that can't be")?)
    }

    // ----- the end of the peer, in this order; each may sleep ----------------------------------

    /// It is lost: ends what is under way.
    pub(crate) fn lost(&self) {
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.close();
        }
    }

    /// Nobody is inside the peer any more: no doorbell means anything.
    pub(crate) fn drained(&self) {
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.unsubscribe();
        }
        if let Some(inbox) = self.inbox.as_ref() {
            inbox.unsubscribe();
        }
    }

    /// It has let go of all memory of this node.
    pub(crate) fn forget(&self) {
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.unmap();
        }
        if let Some(inbox) = self.inbox.as_ref() {
            inbox.unmap();
        }
    }
}

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
