// SPDX-License-Identifier: GPL-2.0

//! The order in which writers take slots, and how a writer waits for free ones.
//!
//! Writers queue up for each handful of slots. If the first writer finds none free, it polls its
//! engine and the peer's count for a moment. Then it arms the engine, tells the peer for how many
//! emptied slots to ring, and sleeps.

use core::ops::Range;

use super::{
    SendSlots,
    State, //
};
use crate::{
    rma::operation::{
        Caller,
        Operation, //
    },
    sys::reached::flush_writes,
    transport::engine::EngineRoute, //
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    time::Delta, //
};

/// Time after which a waiter that can't be killed gives up if it delays the close of a channel. If
/// the closer no longer waits, the waiter gives up at once.
const LONG: Delta = Delta::from_secs(5);

/// A place in the queue, which is left when this is dropped.
struct Ticket<'a> {
    send_slots: &'a SendSlots,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let node = self.send_slots.state.lock().queue.remove_node(&self.number);
        drop(node);
        if self.send_slots.room.has_waiters() {
            self.send_slots.room.wake_all();
        }
    }
}

impl State {
    fn is_first(&self, ticket: u64) -> bool {
        self.queue.keys().next() == Some(&ticket)
    }
}

impl SendSlots {
    /// Takes the next slots when it is the caller's turn and at least one is free. Takes up to
    /// `most` of them, but at most half of all slots. The engine of `route` may be filling slots
    /// for the caller.
    /// Context: may sleep.
    pub(super) fn take_slots(
        &self,
        operation: &Arc<Operation>,
        most: u64,
        route: Option<&EngineRoute>,
        caller: Caller,
    ) -> Result<Range<u64>> {
        if let Some(taken) = self.take_in_turn(None, operation, most)? {
            return Ok(taken);
        }
        let ticket = self.queue_up()?;
        let mut has_polled = false;
        loop {
            let is_first = self.state.lock().is_first(ticket.number);
            if let Some(taken) = self.take_in_turn(Some(ticket.number), operation, most)? {
                return Ok(taken);
            }
            if is_first && !has_polled {
                has_polled = true;
                if self.poll(route, || false) {
                    self.look();
                    continue;
                }
            }
            if let Some(route) = route {
                route.engine.arm();
            }
            if is_first {
                // All slots are taken now. The peer is to ring when half of them are free.
                let slots = u64::from(self.geometry.slots());
                let taken = self.state.lock().taken;
                self.request_wakeup_at((taken + (slots / 2).max(1)).saturating_sub(slots))?;
                // The peer may have emptied the slots before it could see the wake-up request.
                self.look();
            }
            self.sleep(ticket.number, is_first, operation, caller)?;
        }
    }

    fn queue_up(&self) -> Result<Ticket<'_>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut state = self.state.lock();
        let number = state.next_ticket;
        state.next_ticket = number.wrapping_add(1);
        // The number is new, so no entry is replaced.
        state.queue.insert(node.into_node(number, ()));
        Ok(Ticket {
            send_slots: self,
            number,
        })
    }

    /// Sleeps until it is the turn of this ticket. If the ticket `is_first`, the peer was told to
    /// ring, and this sleeps until a slot is free.
    fn sleep(&self, ticket: u64, is_first: bool, operation: &Operation, caller: Caller) -> Result {
        let channel = &operation.surroundings.channel;
        let has_changed = || {
            let state = self.state.lock();
            let is_due = !is_first || self.free(&state) > 0;
            let goes_on = state.closed || state.is_first(ticket) && is_due;
            (goes_on || channel.is_given_up()).then_some(())
        };
        if caller == Caller::Process {
            return self.room.wait_killable(has_changed);
        }
        let woken = self.room.wait_uninterruptible_timeout(LONG, has_changed);
        // A peer that makes hardly any progress must not keep this end from being closed.
        if woken.is_none() && channel.is_closing() || channel.is_given_up() {
            return Err(ECONNRESET);
        }
        Ok(())
    }

    /// Asks the peer to ring when all slots that are taken now are empty.
    pub(super) fn request_wakeup_for_all(&self) {
        let taken = self.state.lock().taken;
        // The request fails only if the peer is lost.
        let _ = self.request_wakeup_at(taken);
        // The peer may have emptied the slots before it could see the request.
        self.look();
    }

    /// Asks the peer to ring when it has emptied `emptied` slots. When this returns, everything is
    /// visible that the peer counted before it could see the request.
    pub(super) fn request_wakeup_at(&self, emptied: u64) -> Result {
        // The request is loaded back from the peer, which must not cross a link that is known to be
        // down.
        if self.peer.is_over() {
            return Err(ENODEV);
        }
        let place = self
            .peer
            .path()
            .reach(self.address + self.geometry.wake_request() as u64, 8)?;
        {
            let mut state = self.state.lock();
            if state.requested >= emptied {
                return Ok(());
            }
            state.requested = emptied;
            // Under the lock, so that a smaller number never replaces a larger one.
            place.write_u64(0, emptied)?;
            flush_writes();
        }
        // Loads the request back before the peer's count is read: see `logic/staging.rs`.
        place.read_back(0)?;
        Ok(())
    }

    /// Returns the number of free slots.
    fn free(&self, state: &State) -> u64 {
        let slots = u64::from(self.geometry.slots());
        slots.saturating_sub(state.taken - self.emptied.load(Relaxed))
    }

    /// Takes slots if one is free and it is the caller's turn. A caller without a ticket has its
    /// turn if no writer waits. Returns the numbers of the slots, or ENODEV if the peer is lost.
    fn take_in_turn(
        &self,
        ticket: Option<u64>,
        operation: &Arc<Operation>,
        most: u64,
    ) -> Result<Option<Range<u64>>> {
        let mut state = self.state.lock();
        if state.closed || self.peer.is_over() {
            return Err(ENODEV);
        }
        let is_first = match ticket {
            Some(ticket) => state.is_first(ticket),
            None => state.queue.is_empty(),
        };
        let can_take = is_first && self.free(&state) > 0;
        Ok(can_take.then(|| self.take(&mut state, operation, most)))
    }

    /// Takes the next slots, of which at least one is free.
    fn take(&self, state: &mut State, operation: &Arc<Operation>, most: u64) -> Range<u64> {
        let half = u64::from(self.geometry.slots()) / 2;
        let first = state.taken + 1;
        let taken = first..first + most.min(self.free(state)).min(half).max(1);
        for sequence in taken.clone() {
            let index = self.geometry.index(sequence);
            if let Some(place) = state.operations.get_mut(index) {
                operation.add_slot(sequence);
                // The slot was emptied, or never used.
                *place = Some(operation.clone());
            }
        }
        state.taken = taken.end - 1;
        self.expect_news_of(state);
        taken
    }
}
