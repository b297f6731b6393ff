// SPDX-License-Identifier: GPL-2.0

//! Writing where this node does not reach, and being written to where the peer does not.
//!
//! A peer whose bridge is small, or that lets nobody in, offers windows without addresses. What is for them
//! is staged: put into slots that it does offer, from which it copies on (`logic/staging.rs` has the layout
//! and the rules).
//!
//! - `staging/outbox.rs`: the slots at the peer that this node fills, in turn for all who write, and their end
//! - `staging/fill.rs`: an engine fills some
//! - `staging/inbox.rs`: the slots of this node that the peer fills, which its processor empties
//!
//! Reading is writing of the other side, which is asked for it (`pulls.rs`).
//!
//! # What is promised
//!
//! A transfer ends when its last byte is in the memory that it is for: the peer says that a slot is empty
//! when it has copied it on. As slots are emptied in order, what was put into one later is not there earlier.
//! A transfer keeps the window, the channel and the peer in use until then, as any other. If the peer is
//! lost it ends with an error; if it does not empty slots for long, it counts as lost. Whoever takes note that the
//! last of its slots was emptied ends the operation.
//!
//! Lock order: `subscription` comes before those of what is posted.

use super::operation::{
    Caller,
    Operation, //
};
use crate::{
    logic::{
        messages::Message,
        staging::Geometry, //
    },
    memory::exports::Exports,
    peer::{
        control::Reservation,
        doorbells::{
            Rung,
            Subscription, //
        },
        service::Violation,
        Peer, //
    },
    transport::{
        doorbell,
        engine::EngineRoute, //
    }, //
};
use inbox::Inbox;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
pub(super) use outbox::Outbox;

mod fill;
mod inbox;
mod outbox;

/// See the head of this file. One for each peer.
#[pin_data]
pub(crate) struct Staging {
    peer: Arc<Peer>,
    exports: Arc<Exports>,
    inbox: SetOnce<Arc<Inbox>>,
    outbox: SetOnce<Arc<Outbox>>,
    /// Held while the peer is told of the inbox.
    #[pin]
    subscription: Mutex<Option<Subscription>>,
}

/// Has the slots looked at when the peer rings.
impl Rung for Staging {
    fn rung(&self) {
        if let Some(inbox) = self.inbox.as_ref() {
            inbox.rung();
        }
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.rung();
        }
    }
}

impl Staging {
    /// Nothing is there yet; what the peer writes goes to `exports`. May sleep.
    pub(crate) fn new(peer: &Arc<Peer>, exports: &Arc<Exports>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports: exports.clone(),
                inbox: SetOnce::new(),
                outbox: SetOnce::new(),
                subscription <- new_mutex!(None, "Staging::subscription"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has the slots looked at when the peer rings, from now on. May sleep; the caller is inside the peer.
    fn listen(self: &Arc<Self>, subscription: &mut Option<Subscription>) -> Result {
        if subscription.is_none() {
            let doorbells = &self.peer.doorbells;
            *subscription = Some(Subscription::new(doorbells, doorbell::DATA, self.clone())?);
        }
        Ok(())
    }

    /// Offers slots to the peer if it may need them; it hears of them before all that is said later. The
    /// caller is inside the peer. May sleep, does not wait for the peer.
    pub(crate) fn open(self: &Arc<Self>) -> Result {
        let len = self.peer.path().limits().staging;
        let is_done = || len == 0 || self.inbox.as_ref().is_some();
        if is_done() {
            return Ok(());
        }
        let mut subscription = self.subscription.lock();
        if is_done() {
            return Ok(());
        }
        self.listen(&mut subscription)?;
        let reservation = Reservation::new(GFP_KERNEL)?;
        let inbox = Inbox::new(&self.peer, &self.exports, len)?;
        let offer = Message::StagingOffer {
            address: inbox.memory.bus_address(),
            slots: inbox.geometry.slots(),
            size: inbox.geometry.size(),
        };
        // The answer may come at once.
        self.inbox.populate(inbox);
        self.peer.send(reservation, &offer);
        Ok(())
    }

    /// Nothing is being delivered when this returns that was on its way before. May sleep.
    pub(super) fn wait_for_deliveries(&self) {
        if let Some(inbox) = self.inbox.as_ref() {
            drop(inbox.emptied.lock());
        }
    }

    /// Has everybody who waits for an empty slot look whether that is still to be. Any context.
    pub(super) fn look_again(&self) {
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.room.wake_all();
        }
    }

    /// The peer's slots: EIO if it has offered none, though it offers windows that take some.
    pub(super) fn outbox(&self) -> Result<&Arc<Outbox>> {
        self.outbox.as_ref().ok_or(EIO)
    }

    /// Bytes of so many that go into one slot. Any context.
    pub(super) fn bytes_per_slot(&self, len: u64) -> u64 {
        let outbox = self.outbox.as_ref();
        outbox.map_or(len, |outbox| len.min(outbox.geometry.size().into()))
    }

    /// Carries out a write where this node does not reach: all of it is in slots when this returns, or the engine of
    /// `route` is putting it there, for which the local side is mapped. Polls for the end for a moment if the operation is
    /// synchronous; it ends by itself then. On an error it has failed, and what was begun of it ends by itself, too; the
    /// `caller` hears of the error. May sleep.
    pub(super) fn write(
        &self,
        operation: &Arc<Operation>,
        route: Option<&EngineRoute>,
        caller: Caller,
    ) -> Result {
        let outbox = self.outbox();
        let filled = outbox.and_then(|outbox| outbox.put(operation, route, caller));
        if filled.is_err() {
            operation.report_to(caller);
        }
        operation.part_ended(filled);
        filled?;
        if operation.synchronous {
            outbox?.await_end(operation, route)?;
        } else if let Some(route) = route {
            route.engine.arm();
        }
        Ok(())
    }

    // ----- what the peer says; called by the control work --------------------------------------

    /// It offers slots.
    pub(crate) fn offered(
        self: &Arc<Self>,
        address: u64,
        slots: u32,
        size: u32,
    ) -> Result<(), Violation> {
        let geometry = Geometry::new(slots, size).ok_or("it offers impossible slots")?;
        // One message is handled after the other, so nobody comes in between.
        if self.outbox.as_ref().is_some() {
            return Err("it offers slots again");
        }
        let made = Outbox::new(&self.peer, address, geometry);
        let listen = |outbox| {
            self.listen(&mut self.subscription.lock())?;
            Ok(outbox)
        };
        let outbox = match made.and_then(listen) {
            Ok(outbox) => outbox,
            Err(EFAULT) => return Err("it offers slots that can't be reached"),
            Err(_) => {
                if self.peer.may_log() {
                    pr_warn!(
                        "no room for what it takes to write where node {} is not reached\n",
                        self.peer.node()
                    );
                }
                return Ok(());
            }
        };
        let credits = outbox.credits.bus_address();
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
        set.map_err(|_| "it counts emptied slots where that can't be")
    }

    // ----- the end of the peer, in this order; each may sleep ----------------------------------

    /// It is lost: ends what is under way.
    pub(crate) fn lost(&self) {
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.close();
        }
    }

    /// Nobody is inside the peer any more: no doorbell means anything.
    pub(super) fn drained(&self) {
        let subscription = self.subscription.lock().take();
        drop(subscription);
        if let Some(outbox) = self.outbox.as_ref() {
            outbox.signals.end();
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
