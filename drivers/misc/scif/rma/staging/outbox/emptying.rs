// SPDX-License-Identifier: GPL-2.0

//! What the peer has emptied of the slots, and the end.
//!
//! The peer's count is a word of the peer: it is read once, and one that can't be ends the relation. A slot
//! with which an engine still has to do is not emptied, whatever the peer says: what it reads must stay.

use super::{
    Outbox,
    State, //
};
use crate::{
    logic::staging::MOST_SLOTS,
    rma::operation::Operation,
    sys::wait::{
        busy_poll,
        busy_wait, //
    }, //
    transport::engine::EngineRoute,
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// A peer that has emptied no slot for so many milliseconds is not able to any more.
const LIMIT_MILLISECONDS: u32 = 120_000;

impl Outbox {
    /// Runs [`Self::look`] soon. Any context.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error says that it is about to run anyway.
        let _ = self.peer.queues.work.enqueue(self.clone());
    }

    /// Whether the peer has emptied slots that were not looked at. Any context.
    pub(super) fn has_news(&self) -> bool {
        let emptied = self.emptied.load(Relaxed);
        self.credits.read_u64(0).is_ok_and(|count| count != emptied)
    }

    /// Whether a look would find something: one that was emptied, and that no engine is filling. Any context.
    pub(super) fn has_progress(&self) -> bool {
        // Without the lock, as mostly there is nothing.
        if !self.has_news() {
            return false;
        }
        let state = self.state.lock();
        let can_be = |count| count > state.emptied && count <= state.taken;
        let is_emptied = self.credits.read_u64(0).is_ok_and(can_be);
        is_emptied && !state.closed && !self.is_being_filled(&state)
    }

    /// Whether an engine fills the slot that is emptied next: what it reads must stay, whatever the peer says.
    fn is_being_filled(&self, state: &State) -> bool {
        state.filling & self.bit(state.emptied + 1) != 0
    }

    /// Polls for a moment what the engine of `route` has filled, and what the peer has emptied of it, until a look would
    /// find something, or `done`. Returns false if that was too short. May sleep.
    pub(super) fn poll(&self, route: Option<&EngineRoute>, done: impl Fn() -> bool) -> bool {
        busy_wait(busy_poll(), || {
            if let Some(route) = route {
                route.engine.poll();
            }
            done() || self.has_progress()
        })
    }

    /// Polls for a moment until an operation has ended, of which the engine of `route` fills slots; if that is not enough,
    /// the peer rings when it has. May sleep; the caller is inside the peer.
    pub(in crate::rma::staging) fn await_end(
        &self,
        operation: &Operation,
        route: Option<&EngineRoute>,
    ) -> Result {
        let has_ended = || operation.result().is_some();
        // Others' slots may come before.
        while self.poll(route, has_ended) && !self.peer.is_over() {
            self.look();
            if operation.result().is_some() {
                return Ok(());
            }
        }
        if let Some(route) = route {
            route.engine.arm();
        }
        if self.peer.is_over() {
            return Ok(());
        }
        self.wish_for(operation.last_slot())?;
        // The peer may have emptied them before it could see that.
        self.look();
        Ok(())
    }

    /// Looks at what the peer has emptied. May sleep.
    pub(super) fn look(&self) {
        loop {
            match self.take_emptied() {
                Ok(None) => break,
                Ok(Some((operation, is_last))) => {
                    if is_last {
                        operation.end(Ok(()));
                    }
                }
                Err(ENODEV) => return self.end_all(),
                Err(_) => {
                    self.peer.fail("it empties slots that were not filled");
                    break;
                }
            }
            if !self.has_news() {
                break;
            }
        }
        if self.room.has_waiters() {
            self.room.wake_all();
        }
    }

    /// Takes note of slots of one operation that were emptied; returns it, and whether it has no others, so that the
    /// caller ends it. ENODEV if the peer is lost, EPROTO if its count can't be.
    fn take_emptied(&self) -> Result<Option<(Arc<Operation>, bool)>> {
        // Let go of without the lock: what it keeps may take long.
        let mut found: Option<Arc<Operation>> = None;
        let mut is_last = false;
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        let count = self.credits.load_acquire_u64(0)?;
        if count < state.emptied || count > state.taken {
            return Err(EPROTO);
        }
        while state.emptied < count && !self.is_being_filled(&state) {
            let is_other = |found| !self.is_next_of(&state, found);
            if found.as_ref().is_some_and(is_other) {
                break;
            }
            let (operation, result) = self.take_slot(&mut state)?;
            is_last = operation.slot_was_last(result);
            found.get_or_insert(operation);
        }
        if found.is_some() {
            // Only now: who looks often must not give the peer more time.
            self.expect_news_of(&state);
        }
        drop(state);
        Ok(found.map(|operation| (operation, is_last)))
    }

    /// Whether what is in the slot that is emptied next is of this operation.
    fn is_next_of(&self, state: &State, operation: &Arc<Operation>) -> bool {
        let index = self.geometry.index(state.emptied + 1);
        let found = state.operations.get(index).and_then(Option::as_ref);
        found.is_some_and(|found| Arc::ptr_eq(found, operation))
    }

    /// What was in the slot that was emptied next, and how that went.
    fn take_slot(&self, state: &mut State) -> Result<(Arc<Operation>, Result)> {
        let sequence = state.emptied + 1;
        let at = self.geometry.verdict(sequence);
        let result = match self.credits.read_u64(at)? {
            0 => Ok(()),
            _ => {
                self.credits.write_u64(at, 0)?;
                Err(EIO)
            }
        };
        let place = state.operations.get_mut(self.geometry.index(sequence));
        let operation = place.and_then(Option::take).ok_or(EPROTO)?;
        state.emptied = sequence;
        self.emptied.store(sequence, Relaxed);
        Ok((operation, result))
    }

    /// If there is something in slots, the peer has to empty one in time.
    pub(super) fn expect_news_of(&self, state: &State) {
        let limit = state.has_taken().then_some(LIMIT_MILLISECONDS);
        self.peer.liveness.staging.set(limit);
    }

    // ----- the end -----------------------------------------------------------------------------

    /// The peer is lost: ends all that is in slots, for good; what engines still read, when they have done
    /// with it. May sleep.
    pub(in crate::rma::staging) fn close(&self) {
        self.state.lock().closed = true;
        self.end_all();
    }

    fn end_all(&self) {
        for index in 0..MOST_SLOTS {
            let operation = {
                let mut state = self.state.lock();
                let is_being_filled = state.filling & (1 << index) != 0;
                let place = state.operations.get_mut(index);
                place.filter(|_| !is_being_filled).and_then(Option::take)
            };
            if let Some(operation) = operation {
                operation.slot_ended(Err(ENODEV));
            }
        }
        self.expect_news_of(&self.state.lock());
        self.room.wake_all();
    }

    /// Takes the credits away from the peer. May sleep.
    pub(in crate::rma::staging) fn unmap(&self) {
        self.credits.retire();
    }
}
