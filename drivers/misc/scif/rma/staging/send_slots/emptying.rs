// SPDX-License-Identifier: GPL-2.0

//! Slots that the peer has emptied, and the completion of the operations in them.
//!
//! The peer's count is a word that the peer writes. It is read once, and an impossible count ends
//! the session with the peer. Memory that an engine still reads stays, regardless of the count. The
//! engine's job is a part of the operation that has not completed (`fill.rs`).

use super::{
    SendSlots,
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

/// Number of milliseconds after which a peer that has emptied no slot counts as lost.
const LIMIT_MILLISECONDS: u32 = 120_000;

impl SendSlots {
    /// Returns whether the peer has emptied slots of which this node has not taken note.
    /// Context: any.
    pub(super) fn has_news(&self) -> bool {
        let emptied = self.emptied.load(Relaxed);
        self.credits.read_u64(0).is_ok_and(|count| count != emptied)
    }

    /// Polls for a moment the engine of `route`, which fills slots, and the peer's count. Stops
    /// when there are newly emptied slots or `done` is true, and returns false if neither happened
    /// in time.
    /// Context: may sleep.
    pub(super) fn poll(&self, route: Option<&EngineRoute>, done: impl Fn() -> bool) -> bool {
        busy_wait(busy_poll(), || {
            if let Some(route) = route {
                route.engine.poll();
            }
            done() || self.has_news()
        })
    }

    /// Polls for a moment until an operation has completed, whose slots the engine of `route` may
    /// fill. If the time is too short, the peer rings when the last slot is empty. The caller is
    /// inside the peer.
    /// Context: may sleep.
    pub(in crate::rma::staging) fn await_end(
        &self,
        operation: &Operation,
        route: Option<&EngineRoute>,
    ) -> Result {
        let has_ended = || operation.result().is_some();
        // Slots of other writers may come first.
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
        self.request_wakeup_at(operation.last_slot())?;
        // The peer may have emptied the slots before it could see the wake-up request.
        self.look();
        Ok(())
    }

    /// Takes note of the slots that the peer has emptied, and completes their parts of operations.
    /// Context: may sleep.
    pub(super) fn look(&self) {
        while self.has_news() {
            match self.take_emptied() {
                // Outside of the lock, as releasing the resources of an operation may take long.
                Ok(Some((operation, result))) => operation.part_ended(result),
                Ok(None) => break,
                Err(ENODEV) => return self.end_all(),
                Err(_) => {
                    self.peer.fail("it empties slots that were not filled");
                    break;
                }
            }
        }
        if self.room.has_waiters() {
            self.room.wake_all();
        }
    }

    /// Takes note of the next slot if the peer has emptied it. Returns the operation of the slot
    /// and the peer's verdict. Returns ENODEV if the peer is lost, EPROTO if the peer's count is
    /// impossible.
    fn take_emptied(&self) -> Result<Option<(Arc<Operation>, Result)>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(ENODEV);
        }
        let emptied = self.emptied.load(Relaxed);
        let count = self.credits.load_acquire_u64(0)?;
        if count < emptied || count > state.taken {
            return Err(EPROTO);
        }
        if count == emptied {
            return Ok(None);
        }
        let sequence = emptied + 1;
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
        self.emptied.store(sequence, Relaxed);
        // Restarts the time limit only for an emptied slot, so that polling gives the peer no more
        // time.
        self.expect_news_of(&state);
        Ok(Some((operation, result)))
    }

    /// Sets the time limit in which the peer must empty a slot, if any slot is taken.
    pub(super) fn expect_news_of(&self, state: &State) {
        let is_due = state.taken != self.emptied.load(Relaxed) && !state.closed;
        let limit = is_due.then_some(LIMIT_MILLISECONDS);
        self.peer.liveness.staging.set(limit);
    }

    // ----- end of the peer ---------------------------------------------------------------------

    /// Completes all operations in slots with an error, for good. The peer is lost.
    /// Context: may sleep.
    pub(in crate::rma::staging) fn close(&self) {
        self.state.lock().closed = true;
        self.end_all();
    }

    fn end_all(&self) {
        for index in 0..MOST_SLOTS {
            let operation = {
                let mut state = self.state.lock();
                state.operations.get_mut(index).and_then(Option::take)
            };
            if let Some(operation) = operation {
                operation.part_ended(Err(ENODEV));
            }
        }
        self.expect_news_of(&self.state.lock());
        self.room.wake_all();
    }

    /// Takes the memory with the credits away from the peer.
    /// Context: may sleep.
    pub(in crate::rma::staging) fn unmap(&self) {
        self.credits.retire();
    }
}
