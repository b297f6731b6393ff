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
    peer::Answerer,
    rma::staging::Staged,
    sys::wait::{
        busy_poll,
        busy_wait, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// Slots of one transfer, one after the other, that were emptied.
struct Emptied {
    staged: Arc<Staged>,
    count: u32,
    result: Result,
    /// Nothing was emptied after them.
    is_all: bool,
}

/// What a look finds.
enum Next {
    Emptied(Emptied),
    Nothing,
    /// The peer is lost.
    Closed,
}

/// A peer that has emptied no slot for so many milliseconds is not able to any more.
const LIMIT_MILLISECONDS: u32 = 120_000;

impl Outbox {
    /// Runs [`Self::look`] soon. Any context.
    pub(super) fn schedule(self: &Arc<Self>) {
        // An error says that it is about to run anyway.
        let _ = self.peer.queues().work.enqueue(self.clone());
    }

    /// Whether the peer has emptied slots that were not looked at. Any context.
    pub(super) fn has_news(&self) -> bool {
        let emptied = self.emptied.load(Relaxed);
        self.credits.read_u64(0).is_ok_and(|count| count != emptied)
    }

    /// Whether a look would find something: most likely, one that was emptied, and with which no engine has to do any
    /// more. Any context.
    pub(super) fn has_progress(&self) -> bool {
        // Without the lock, as mostly there is nothing, or no engine has to do with any.
        if !self.has_news() {
            return false;
        }
        if !self.has_busy.load(Relaxed) {
            return true;
        }
        let state = self.state.lock();
        let is_busy = state.busy() & self.bit(state.emptied + 1) != 0;
        let can_be = |count| count > state.emptied && count <= state.taken;
        !state.closed && !is_busy && self.credits.read_u64(0).is_ok_and(can_be)
    }

    /// Takes note of what engines have filled. May sleep.
    pub(super) fn poll_engines(&self) {
        if !self.has_busy.load(Relaxed) {
            return;
        }
        for route in self.peer.path().engines().iter() {
            route.engine.poll();
        }
    }

    /// Has the engines interrupt when they have filled what they are filling now. Process context.
    pub(super) fn arm(&self) {
        if self.has_busy.load(Relaxed) {
            for route in self.peer.path().engines().iter() {
                route.engine.arm();
            }
        }
    }

    /// Polls for a moment until a transfer has ended; if that is not enough, the peer rings when it has. May sleep;
    /// the caller is inside the peer.
    pub(in crate::rma::staging) fn await_end(&self, staged: &Staged) -> Result {
        let has_changed = || {
            self.poll_engines();
            staged.result().is_some() || self.has_progress()
        };
        // Others' slots may come before.
        while busy_wait(busy_poll(), has_changed) {
            self.look();
            if staged.result().is_some() {
                return Ok(());
            }
            if self.peer.has_failed() {
                self.arm();
                return Ok(());
            }
        }
        self.arm();
        self.wish_for(staged.last_slot())?;
        // The peer may have emptied them before it could see that.
        self.look();
        Ok(())
    }

    /// Looks at what the peer has emptied. May sleep.
    pub(super) fn look(&self) {
        let mut found = false;
        loop {
            match self.take_emptied() {
                Ok(Next::Emptied(emptied)) => {
                    found = true;
                    emptied.staged.slots_ended(emptied.count, emptied.result);
                    if emptied.is_all {
                        break;
                    }
                }
                Ok(Next::Nothing) => break,
                Ok(Next::Closed) => return self.end_all(),
                Err(_) => {
                    self.peer.fail("it empties slots that were not filled");
                    break;
                }
            }
        }
        if found && self.room.has_waiters() {
            self.room.wake_all();
        }
    }

    /// Takes note of slots that were emptied.
    fn take_emptied(&self) -> Result<Next> {
        let mut state = self.state.lock();
        if state.closed {
            return Ok(Next::Closed);
        }
        let count = self.credits.load_acquire_u64(0)?;
        if count < state.emptied || count > state.taken {
            return Err(EPROTO);
        }
        let mut found: Option<Emptied> = None;
        while state.emptied < count {
            let next = state.emptied + 1;
            let is_other = |found: &Emptied| !self.is_of(&state, next, &found.staged);
            // Whatever the peer says: an engine may still have to do with it.
            let is_busy = state.busy() & self.bit(next) != 0;
            if is_busy || found.as_ref().is_some_and(is_other) {
                break;
            }
            let (staged, result) = match self.take_slot(&mut state, next) {
                Ok(slot) => slot,
                // Later: those before come first.
                Err(_) if found.is_some() => break,
                Err(error) => return Err(error),
            };
            match &mut found {
                None => {
                    found = Some(Emptied {
                        staged,
                        count: 1,
                        result,
                        is_all: false,
                    });
                }
                Some(found) => {
                    found.count += 1;
                    found.result = found.result.and(result);
                }
            }
        }
        let Some(mut emptied) = found else {
            return Ok(Next::Nothing);
        };
        emptied.is_all = state.emptied == count;
        // Only now: who looks often must not give the peer more time.
        self.expect_news_of(&state);
        Ok(Next::Emptied(emptied))
    }

    /// Whether what is in a slot is of this transfer.
    fn is_of(&self, state: &State, sequence: u64, staged: &Arc<Staged>) -> bool {
        let place = state.staged.get(self.geometry.index(sequence));
        let found = place.and_then(Option::as_ref);
        found.is_some_and(|found| Arc::ptr_eq(found, staged))
    }

    /// The transfer of a slot that was emptied, and how that went.
    fn take_slot(&self, state: &mut State, sequence: u64) -> Result<(Arc<Staged>, Result)> {
        let at = self.geometry.verdict(sequence);
        let result = match self.credits.read_u64(at)? {
            0 => Ok(()),
            _ => {
                self.credits.write_u64(at, 0)?;
                Err(EIO)
            }
        };
        let place = state.staged.get_mut(self.geometry.index(sequence));
        let staged = place.and_then(Option::take).ok_or(EPROTO)?;
        state.emptied = sequence;
        self.emptied.store(sequence, Relaxed);
        Ok((staged, result))
    }

    /// If there is something in slots, the peer has to empty one in time.
    pub(super) fn expect_news_of(&self, state: &State) {
        let limit = state.has_taken().then_some(LIMIT_MILLISECONDS);
        self.peer
            .liveness
            .expect_answer_within(Answerer::Staging, limit);
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
            let staged = {
                let mut state = self.state.lock();
                match state.filling & (1 << index) {
                    0 => state.staged.get_mut(index).and_then(Option::take),
                    _ => None,
                }
            };
            if let Some(staged) = staged {
                staged.slot_ended(Err(ENODEV));
            }
        }
        self.expect_news_of(&self.state.lock());
        self.room.wake_all();
    }

    /// Hears of no doorbell any more. May sleep.
    pub(in crate::rma::staging) fn unsubscribe(&self) {
        let subscription = self.subscription.lock().take();
        drop(subscription);
    }

    /// Takes the credits away from the peer. May sleep.
    pub(in crate::rma::staging) fn unmap(&self) {
        self.credits.retire();
    }
}
