// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to take slots, and how he waits for free ones.
//!
//! Writers queue up for each handful of slots. If the first one finds none free, it polls for a moment what engines have
//! filled and what the peer counts. Then it arms the engines, tells the peer for how many empty slots to ring, and sleeps.

use core::ops::Range;

use super::{
    Outbox,
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

/// Who waits longer for a slot gives up if it is in the way of a close; at once if that waits no longer.
const LONG: Delta = Delta::from_secs(5);

/// A place in the queue, until this is dropped.
struct Ticket<'a> {
    outbox: &'a Outbox,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let node = self.outbox.state.lock().queue.remove_node(&self.number);
        drop(node);
        if self.outbox.room.has_waiters() {
            self.outbox.room.wake_all();
        }
    }
}

impl State {
    fn is_first(&self, ticket: u64) -> bool {
        self.queue.keys().next() == Some(&ticket)
    }
}

impl Outbox {
    /// Takes the next slots, when it is the caller's turn and there is one: up to `most`, and no more than half of
    /// all. The caller may have slots filled by the engine of `route`. May sleep.
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
                // When half of the slots are free, all of which are taken now.
                let slots = u64::from(self.geometry.slots());
                let taken = self.state.lock().taken;
                self.wish_for((taken + (slots / 2).max(1)).saturating_sub(slots))?;
                // The peer may have emptied them before it could see that.
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
        // None was there.
        state.queue.insert(node.into_node(number, ()));
        Ok(Ticket {
            outbox: self,
            number,
        })
    }

    /// Sleeps until it is this one's turn, or, if it `is_first` and so has told the peer to ring, until a slot is free.
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
        // A peer that hardly goes on must not keep this end from being closed.
        if woken.is_none() && channel.is_closing() || channel.is_given_up() {
            return Err(ECONNRESET);
        }
        Ok(())
    }

    /// Wants to be rung when all slots that are taken now are empty.
    pub(super) fn wish_for_all(&self) {
        let taken = self.state.lock().taken;
        // Only a peer that is lost can't be told.
        let _ = self.wish_for(taken);
        // It may have emptied them before it could see that.
        self.look();
    }

    /// Says for how many empty slots this side wants to be rung. What the peer has counted before it could see
    /// that is there when this returns.
    pub(super) fn wish_for(&self, emptied: u64) -> Result {
        // It is loaded from the peer: not across a link that is known to be down.
        if self.peer.is_over() {
            return Err(ENODEV);
        }
        let place = self
            .peer
            .path()
            .reach(self.address + self.geometry.wish() as u64, 8)?;
        {
            let mut state = self.state.lock();
            if state.wished >= emptied {
                return Ok(());
            }
            state.wished = emptied;
            // Under the lock, so that a smaller one never replaces it.
            place.write_u64(0, emptied)?;
            flush_writes();
        }
        // As described in `logic/staging.rs`.
        place.read_back(0)?;
        Ok(())
    }

    /// How many slots are free.
    fn free(&self, state: &State) -> u64 {
        let slots = u64::from(self.geometry.slots());
        slots.saturating_sub(state.taken - self.emptied.load(Relaxed))
    }

    /// Takes slots if there is a free one, and it is the turn of who has this ticket, or has none as he has just come.
    /// Returns their numbers. ENODEV if the peer is lost.
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

    /// Takes the next slots, of which one is free at least.
    fn take(&self, state: &mut State, operation: &Arc<Operation>, most: u64) -> Range<u64> {
        let half = u64::from(self.geometry.slots()) / 2;
        let first = state.taken + 1;
        let taken = first..first + most.min(self.free(state)).min(half).max(1);
        for sequence in taken.clone() {
            let index = self.geometry.index(sequence);
            if let Some(place) = state.operations.get_mut(index) {
                operation.add_slot(sequence);
                // It was emptied, or never used.
                *place = Some(operation.clone());
            }
        }
        state.taken = taken.end - 1;
        self.expect_news_of(state);
        taken
    }
}
