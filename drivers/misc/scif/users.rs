// SPDX-License-Identifier: GPL-2.0

//! Users of something that can go away, and the one who waits for them.
//!
//! [`Users`] joins the lock-free [`Gate`] with a wait queue: whoever takes the thing down closes
//! it, sleeps until the last user has left, and then knows that nobody is inside or can get in.
//! Entering and leaving work in any context, hard interrupts included.

use crate::{
    logic::gate::Gate,
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use kernel::prelude::*;

/// Counts users; see the head of this file.
#[pin_data]
pub(crate) struct Users {
    gate: Gate,
    #[pin]
    idle: WaitQueue,
}

/// One user inside; leaves when dropped.
pub(crate) struct User<'a>(&'a Users);

impl Users {
    /// Open, with nobody inside.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            gate: Gate::new(),
            idle <- new_wait_queue!("scif::Users::idle"),
        })
    }

    /// Goes in, unless it is closed. Any context.
    pub(crate) fn enter(&self) -> Option<User<'_>> {
        // Not `then_some`: a user that is made must not be dropped, for that is a leaving, and one
        // who is inside would not be counted any more.
        self.gate.enter().then(|| User(self))
    }

    /// Goes in for longer than a borrow lasts: every `true` needs one [`Self::leave`].
    #[must_use]
    pub(crate) fn enter_unscoped(&self) -> bool {
        self.gate.enter()
    }

    /// Ends an [`Self::enter_unscoped`]. Returns `true` to the last one out of a closed gate.
    pub(crate) fn leave(&self) -> bool {
        let last = self.gate.leave();
        if last {
            self.idle.wake_all();
        }
        last
    }

    /// Lets nobody in any more. Any context. Returns whether nobody is inside already.
    pub(crate) fn close(&self) -> bool {
        self.gate.close();
        self.gate.is_idle()
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Whether it is closed and everybody has left.
    pub(crate) fn is_drained(&self) -> bool {
        self.gate.is_closed() && self.gate.is_idle()
    }

    /// Closes it and sleeps until everybody has left. What users do inside must be bounded.
    pub(crate) fn close_and_drain(&self) {
        self.gate.close();
        self.idle
            .wait_uninterruptible(|| self.gate.is_idle().then_some(()));
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
