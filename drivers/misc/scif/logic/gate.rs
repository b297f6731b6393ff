// SPDX-License-Identifier: GPL-2.0

//! A gate in front of something that can go away.
//!
//! Whoever uses the thing passes the gate before and leaves afterwards. The owner closes the gate,
//! waits until it is idle, and then takes the thing down: from then on nobody is inside and nobody
//! can get in. One atomic word holds the in-flight count and a bit for "closed", so that "may I
//! come in" and "I am in" are one step, and exactly one leaver sees that it was the last.
//!
//! The gate does not sleep. The owner waits like this, in any order with the uses:
//!
//! ```text
//! owner:  gate.close();  wait until gate.is_idle()
//! use:    if gate.enter() { ...; if gate.leave() { wake the owner } }
//! ```
//!
//! The operations are fully ordered: what was done before `leave` is visible to the owner once
//! `is_idle` says so.

use super::{
    atomic::AtomicU64,
    update::{
        update,
        update_from, //
    },
};

/// Set once the gate is closed; the bits below it count the uses.
const CLOSED: u64 = 1 << 63;

/// Shows that nobody is inside of something, or will be.
pub(crate) struct Drained(());

/// An in-flight count with a closed bit.
pub(crate) struct Gate {
    state: AtomicU64,
}

impl Gate {
    /// An open gate with nobody inside.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
        }
    }

    /// Goes in, if the gate is open. Every `true` needs a [`Self::leave`].
    #[must_use = "who got in must leave"]
    pub(crate) fn enter(&self) -> bool {
        // Also refuses the use whose number would flow into the closed bit.
        let one_more = |state: u64| state.checked_add(1).filter(|new| new & CLOSED == 0);
        // Mostly nobody is inside: then it takes no look before.
        update_from(&self.state, 0, one_more).is_some()
    }

    /// Goes out. Returns `true` to the last one that leaves a closed gate: it wakes the owner.
    ///
    /// A `leave` without an `enter`, which is a mistake, is taken back in a second step.
    #[must_use = "the last one out wakes the owner"]
    pub(crate) fn leave(&self) -> bool {
        let before = self.state.fetch_sub(1);
        if before & !CLOSED == 0 {
            self.state.fetch_add(1);
        }
        before == CLOSED | 1
    }

    /// Lets nobody in any more. Returns whether the gate was open; closing a closed one changes nothing.
    pub(crate) fn close(&self) -> bool {
        let closed = update(&self.state, |state| {
            (state & CLOSED == 0).then_some(state | CLOSED)
        });
        closed.is_some()
    }

    /// Whether the gate is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load() & CLOSED != 0
    }

    /// Returns what shows that it is closed and idle, once it is.
    pub(crate) fn drained(&self) -> Option<Drained> {
        (self.is_closed() && self.is_idle()).then_some(Drained(()))
    }

    /// How many are inside now.
    pub(crate) fn count(&self) -> u64 {
        self.state.load() & !CLOSED
    }

    /// Whether nobody is inside. Once this was true after [`Self::close`], it stays true.
    pub(crate) fn is_idle(&self) -> bool {
        self.count() == 0
    }
}
