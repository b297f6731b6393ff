// SPDX-License-Identifier: GPL-2.0

//! A gate in front of an object that can go away.
//!
//! A user of the object enters the gate before the use, and leaves it afterwards. The owner closes
//! the gate, waits until it is idle, and then destroys the object: from then on no user is inside,
//! and none can enter. One atomic word holds the number of users and a bit for "closed". So the
//! check and the entry are one step, and exactly one leaving user sees that it was the last.
//!
//! The gate does not sleep. The owner waits as follows, in any order with the users:
//!
//! ```text
//! owner:  gate.close();  wait until gate.is_idle()
//! use:    if gate.enter() { ...; if gate.leave() { wake the owner } }
//! ```
//!
//! The operations are fully ordered: once `is_idle` returns true, the owner sees all that users did
//! before `leave`.

use super::{
    atomic::AtomicU64,
    update::{
        update,
        update_from, //
    },
};

/// Set once the gate is closed; the bits below it count the uses.
const CLOSED: u64 = 1 << 63;

/// A proof that a gate is closed and no user is inside.
pub(crate) struct Drained(());

/// A count of users, with a closed bit.
pub(crate) struct Gate {
    state: AtomicU64,
}

impl Gate {
    /// Creates an open gate without users.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
        }
    }

    /// Enters if the gate is open, and returns whether it was. Each `true` needs a [`Self::leave`].
    #[must_use = "the caller that got in must leave"]
    pub(crate) fn enter(&self) -> bool {
        // Also refuses a user whose number would overflow into the closed bit.
        let one_more = |state: u64| state.checked_add(1).filter(|new| new & CLOSED == 0);
        // Usually no user is inside, so this tries 0 first and saves a load.
        update_from(&self.state, 0, one_more).is_some()
    }

    /// Leaves the gate. Returns true to the last user that leaves a closed gate. That user has to
    /// wake the owner.
    ///
    /// A `leave` without an `enter`, which is a bug, is undone in a second step.
    #[must_use = "the last one out wakes the owner"]
    pub(crate) fn leave(&self) -> bool {
        let before = self.state.fetch_sub(1);
        if before & !CLOSED == 0 {
            self.state.fetch_add(1);
        }
        before == CLOSED | 1
    }

    /// Closes the gate for new users. Returns whether the gate was open.
    pub(crate) fn close(&self) -> bool {
        let closed = update(&self.state, |state| {
            (state & CLOSED == 0).then_some(state | CLOSED)
        });
        closed.is_some()
    }

    /// Returns whether the gate is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.load() & CLOSED != 0
    }

    /// Returns the proof that the gate is closed and idle, once it is.
    pub(crate) fn drained(&self) -> Option<Drained> {
        (self.is_closed() && self.is_idle()).then_some(Drained(()))
    }

    /// Returns the number of users inside.
    pub(crate) fn count(&self) -> u64 {
        self.state.load() & !CLOSED
    }

    /// Returns whether no user is inside. Once true after [`Self::close`], it stays true.
    pub(crate) fn is_idle(&self) -> bool {
        self.count() == 0
    }
}
