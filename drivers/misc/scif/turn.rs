// SPDX-License-Identifier: GPL-2.0

//! Taking turns in calls that may sleep for long.
//!
//! A call that sends or receives keeps others of its direction out until it is done, so that the
//! bytes of one call stay together. A mutex would do, but those who wait for it could not be
//! interrupted, and a call that must not block could not tell why.

use crate::sys::wait::{
    new_wait_queue,
    WaitQueue, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Release, //
    },
};

/// See the head of this file.
#[pin_data]
pub(crate) struct Turn {
    taken: Atomic<bool>,
    #[pin]
    free: WaitQueue,
}

/// It is the holder's turn until this is dropped.
pub(crate) struct TurnGuard<'a>(&'a Turn);

impl Turn {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken: Atomic::new(false),
            free <- new_wait_queue!("scif::Turn::free"),
        })
    }

    /// Takes the turn if nobody has it.
    pub(crate) fn try_take(&self) -> Option<TurnGuard<'_>> {
        // Not `then_some`: a guard that is made must not be dropped, for that gives the turn back,
        // whoever has it.
        (!self.taken.xchg(true, Full)).then(|| TurnGuard(self))
    }

    /// Waits for the turn. Interruptible.
    pub(crate) fn take(&self) -> Result<TurnGuard<'_>> {
        match self.try_take() {
            Some(guard) => Ok(guard),
            None => self.free.wait(|| self.try_take()),
        }
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
        self.0.free.wake_all();
    }
}
