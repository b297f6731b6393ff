// SPDX-License-Identifier: GPL-2.0

//! What the peer has emptied of the slots, and the end.
//!
//! The peer's count is a word of the peer: it is read once, and one that can't be ends the relation. What an engine still
//! reads stays, whatever the peer says: its job is a part of the operation that has not ended (`fill.rs`).

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
    /// Whether the peer has emptied slots that were not looked at. Any context.
    pub(super) fn has_news(&self) -> bool {
        let emptied = self.emptied.load(Relaxed);
        self.credits.read_u64(0).is_ok_and(|count| count != emptied)
    }

    /// Polls for a moment what the engine of `route` has filled, and what the peer has emptied of it, until a look would
    /// find something, or `done`. Returns false if that was too short. May sleep.
    pub(super) fn poll(&self, route: Option<&EngineRoute>, done: impl Fn() -> bool) -> bool {
        busy_wait(busy_poll(), || {
            if let Some(route) = route {
                route.engine.poll();
            }
            done() || self.has_news()
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
        while self.has_news() {
            match self.take_emptied() {
                // Without the lock: what an operation keeps may take long to let go of.
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

    /// Takes note that the next slot was emptied, if it was: what was in it, and how that went. ENODEV if the peer is
    /// lost, EPROTO if its count can't be.
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
        // Only now: who looks often must not give the peer more time.
        self.expect_news_of(&state);
        Ok(Some((operation, result)))
    }

    /// If there is something in slots, the peer has to empty one in time.
    pub(super) fn expect_news_of(&self, state: &State) {
        let is_due = state.taken != self.emptied.load(Relaxed) && !state.closed;
        let limit = is_due.then_some(LIMIT_MILLISECONDS);
        self.peer.liveness.staging.set(limit);
    }

    // ----- the end -----------------------------------------------------------------------------

    /// The peer is lost: ends all that is in slots, for good. May sleep.
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

    /// Takes the credits away from the peer. May sleep.
    pub(in crate::rma::staging) fn unmap(&self) {
        self.credits.retire();
    }
}
