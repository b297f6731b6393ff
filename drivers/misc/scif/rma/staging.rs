// SPDX-License-Identifier: GPL-2.0

//! Writes through slots, for memory that the writing node does not reach: writes to the peer, and
//! writes by the peer.
//!
//! If the peer's bridge is small, or lets no access in, the peer offers windows without addresses.
//! Data for such a window is staged. This node puts the data into slots that the peer does offer,
//! and the peer copies it on from there. `logic/staging.rs` has the layout and the rules.
//!
//! - `staging/send_slots.rs`: the slots at the peer that this node fills, the turns of the writers,
//!   and the completion of their transfers
//! - `staging/fill.rs`: slots that an engine fills
//! - `staging/receive_slots.rs`: the slots of this node that the peer fills and a CPU of this node
//!   empties
//!
//! A read is a write by the other side, which is asked for it (`peer_reads.rs`).
//!
//! # Guarantees
//!
//! A transfer completes when its last byte is in its destination. The peer reports a slot as empty
//! only after it has copied the data on. Slots are emptied in order, so data in a later slot never
//! arrives earlier.
//!
//! Until then a transfer keeps the window, the channel and the peer in use, as any other transfer
//! does. If the peer is lost, the transfer completes with an error. If the peer empties no slot for
//! long, it counts as lost. The task that takes note of the last emptied slot completes the
//! operation.
//!
//! Lock order: `subscription`, then the locks for posting messages.

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
            DoorbellHandler,
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
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
use receive_slots::ReceiveSlots;
pub(super) use send_slots::SendSlots;

mod fill;
mod receive_slots;
mod send_slots;

/// The staging of one peer: slots in both directions.
#[pin_data]
pub(crate) struct Staging {
    peer: Arc<Peer>,
    exports: Arc<Exports>,
    receive_slots: SetOnce<Arc<ReceiveSlots>>,
    send_slots: SetOnce<Arc<SendSlots>>,
    /// Subscription to the peer's doorbell. Locked while the peer is told of the receive slots.
    #[pin]
    subscription: Mutex<Option<Subscription>>,
}

/// Has the slots checked when the peer rings.
impl DoorbellHandler for Staging {
    fn on_doorbell(&self) {
        if let Some(receive_slots) = self.receive_slots.as_ref() {
            receive_slots.on_doorbell();
        }
        if let Some(send_slots) = self.send_slots.as_ref() {
            send_slots.on_doorbell();
        }
    }
}

impl Staging {
    /// Creates the staging without any slots. The peer's data goes to windows of `exports`.
    /// Context: may sleep.
    pub(crate) fn new(peer: &Arc<Peer>, exports: &Arc<Exports>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports: exports.clone(),
                receive_slots: SetOnce::new(),
                send_slots: SetOnce::new(),
                subscription <- new_mutex!(None, "Staging::subscription"),
            }),
            GFP_KERNEL,
        )
    }

    /// Subscribes to the peer's doorbell. From now on a ring has the slots checked. The caller is
    /// inside the peer.
    /// Context: may sleep.
    fn listen(self: &Arc<Self>, subscription: &mut Option<Subscription>) -> Result {
        if subscription.is_none() {
            let doorbells = &self.peer.doorbells;
            *subscription = Some(Subscription::new(doorbells, doorbell::DATA, self.clone())?);
        }
        Ok(())
    }

    /// Offers slots to the peer if the peer may need them. The peer receives the offer before any
    /// later message. The caller is inside the peer.
    /// Context: may sleep, does not wait for the peer.
    pub(crate) fn open(self: &Arc<Self>) -> Result {
        let len = self.peer.path().limits().staging;
        let is_done = || len == 0 || self.receive_slots.as_ref().is_some();
        if is_done() {
            return Ok(());
        }
        let mut subscription = self.subscription.lock();
        if is_done() {
            return Ok(());
        }
        self.listen(&mut subscription)?;
        let reservation = Reservation::new(GFP_KERNEL)?;
        let receive_slots = ReceiveSlots::new(&self.peer, &self.exports, len)?;
        let offer = Message::StagingOffer {
            address: receive_slots.memory.bus_address(),
            slots: receive_slots.geometry.slots(),
            size: receive_slots.geometry.size(),
        };
        // The peer may answer at once, so the receive slots must be found before the offer is sent.
        self.receive_slots.populate(receive_slots);
        self.peer.send(reservation, &offer);
        Ok(())
    }

    /// Waits until all deliveries that had started before have finished.
    /// Context: may sleep.
    pub(super) fn wait_for_deliveries(&self) {
        if let Some(receive_slots) = self.receive_slots.as_ref() {
            drop(receive_slots.emptied.lock());
        }
    }

    /// Wakes the writers that wait for an empty slot, so that each checks whether it is to go on
    /// waiting.
    /// Context: any.
    pub(super) fn look_again(&self) {
        if let Some(send_slots) = self.send_slots.as_ref() {
            send_slots.room.wake_all();
        }
    }

    /// Returns the slots at the peer. Returns EIO if the peer has offered none, though it offers
    /// windows that need slots.
    pub(super) fn send_slots(&self) -> Result<&Arc<SendSlots>> {
        self.send_slots.as_ref().ok_or(EIO)
    }

    /// Returns how many of `len` bytes go into one slot.
    /// Context: any.
    pub(super) fn bytes_per_slot(&self, len: u64) -> u64 {
        let send_slots = self.send_slots.as_ref();
        send_slots.map_or(len, |send_slots| len.min(send_slots.geometry.size().into()))
    }

    /// Carries out a write to memory that this node does not reach.
    ///
    /// When this returns, the CPU has put all data into slots, or the engine of `route` is doing
    /// so. The local side is mapped for that engine. If the operation is synchronous, this polls
    /// for completion for a moment; the operation then completes on its own.
    ///
    /// On an error the operation has failed. The parts that were started and the operation complete
    /// on their own, and the `caller` hears of the error.
    /// Context: may sleep.
    pub(super) fn write(
        &self,
        operation: &Arc<Operation>,
        route: Option<&EngineRoute>,
        caller: Caller,
    ) -> Result {
        let send_slots = self.send_slots();
        let filled = send_slots.and_then(|send_slots| send_slots.put(operation, route, caller));
        if filled.is_err() {
            operation.report_to(caller);
        }
        operation.part_ended(filled);
        filled?;
        if operation.synchronous {
            send_slots?.await_end(operation, route)?;
        } else if let Some(route) = route {
            route.engine.arm();
        }
        Ok(())
    }

    // ----- messages of the peer; called by the control work ------------------------------------

    /// Handles the peer's offer of slots.
    pub(crate) fn offered(
        self: &Arc<Self>,
        address: u64,
        slots: u32,
        size: u32,
    ) -> Result<(), Violation> {
        let geometry = Geometry::new(slots, size).ok_or("it offers impossible slots")?;
        // The control work handles one message after the other, so no second offer comes in
        // between.
        if self.send_slots.as_ref().is_some() {
            return Err("it offers slots again");
        }
        let made = SendSlots::new(&self.peer, address, geometry);
        let listen = |send_slots| {
            self.listen(&mut self.subscription.lock())?;
            Ok(send_slots)
        };
        let send_slots = match made.and_then(listen) {
            Ok(send_slots) => send_slots,
            Err(EFAULT) => return Err("it offers slots that can't be reached"),
            Err(_) => {
                if self.peer.may_log() {
                    pr_warn!(
                        "node {} offers slots for writes, and this node has no room for their counters: writes to its windows out of reach fail with EIO\n",
                        self.peer.node()
                    );
                }
                return Ok(());
            }
        };
        let credits = send_slots.credits.bus_address();
        self.send_slots.populate(send_slots);
        if self.peer.is_over() {
            // `lost()` may have run before the send slots existed.
            self.lost();
        }
        self.peer
            .answer(&Message::StagingTaken { address: credits });
        Ok(())
    }

    /// Handles the peer's acceptance of slots. The peer counts emptied slots at `credits`.
    pub(crate) fn taken(&self, credits: u64) -> Result<(), Violation> {
        let receive_slots = self.receive_slots.as_ref();
        let receive_slots = receive_slots.ok_or("it takes slots that were not offered")?;
        let set = receive_slots.set_credits(credits);
        set.map_err(|_| "it counts emptied slots at an unusable address")
    }

    // ----- end of the peer, in this order; each may sleep --------------------------------------

    /// Completes all transfers in slots with an error, as the peer is lost.
    pub(crate) fn lost(&self) {
        if let Some(send_slots) = self.send_slots.as_ref() {
            send_slots.close();
        }
    }

    /// Ends the subscription and the queue of signals, once no task is inside the peer any more.
    /// From then on a doorbell has no meaning.
    pub(super) fn drained(&self) {
        let subscription = self.subscription.lock().take();
        drop(subscription);
        if let Some(send_slots) = self.send_slots.as_ref() {
            send_slots.signals.end();
        }
    }

    /// Unmaps the slots and the credits, as the peer has released all memory of this node.
    pub(crate) fn forget(&self) {
        if let Some(send_slots) = self.send_slots.as_ref() {
            send_slots.unmap();
        }
        if let Some(receive_slots) = self.receive_slots.as_ref() {
            receive_slots.unmap();
        }
    }
}
