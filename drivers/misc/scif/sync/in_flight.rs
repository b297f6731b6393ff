// SPDX-License-Identifier: GPL-2.0

//! The in-flight count of something that can go away, and the one who waits for it.
//!
//! [`InFlight`] joins the lock-free [`Gate`] with a wait queue: whoever takes the thing down closes
//! it, sleeps until the last use has ended, and then knows that nobody is inside or can get in.
//! Entering and leaving work in any context, hard interrupts included.

use crate::{
    logic::gate::{
        Drained,
        Gate, //
    },
    sync::patience::Patience,
    sys::wait::{
        new_wait_queue,
        WaitQueue, //
    },
};
use kernel::prelude::*;

/// Counts uses; see the head of this file.
#[pin_data]
pub(crate) struct InFlight {
    gate: Gate,
    #[pin]
    idle: WaitQueue,
}

/// One use; ends when dropped.
pub(crate) struct InFlightGuard<'a>(&'a InFlight);

impl InFlight {
    /// Open, with nobody inside.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            gate: Gate::new(),
            idle <- new_wait_queue!("scif::InFlight::idle"),
        })
    }

    /// Goes in, unless it is closed. Any context.
    pub(crate) fn enter(&self) -> Option<InFlightGuard<'_>> {
        // Not `then_some`: a guard that is made must not be dropped, for that is a leaving, and one
        // who is inside would not be counted any more.
        self.gate.enter().then(|| InFlightGuard(self))
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

    /// Lets nobody in any more. Any context. Returns whether it was open.
    pub(crate) fn close(&self) -> bool {
        self.gate.close()
    }

    /// How many are inside now. Any context.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn count(&self) -> u64 {
        self.gate.count()
    }

    /// Whether it was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Whether it is closed and everybody has left.
    pub(crate) fn is_drained(&self) -> bool {
        self.gate.is_closed() && self.gate.is_idle()
    }

    /// Closes it and sleeps until everybody has left, or as long as `patience` lasts. Returns whether everybody has.
    pub(crate) fn close_and_wait(&self, patience: &Patience) -> bool {
        self.gate.close();
        patience.wait(&self.idle, || self.gate.is_idle())
    }

    /// Closes it and sleeps until everybody has left. What is done inside must be bounded, or have been ended.
    pub(crate) fn close_and_drain(&self) -> Drained {
        self.gate.close();
        self.idle.wait_uninterruptible(|| self.gate.drained())
    }
}

impl Drop for InFlightGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[kunit_tests(scif_sync_in_flight)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn whoever_is_inside_is_waited_for() -> Result {
        let uses = Arc::pin_init(InFlight::new(), GFP_KERNEL)?;
        let inside = uses.enter();
        assert!(inside.is_some());
        assert!(uses.enter_unscoped());
        assert_eq!(uses.count(), 2);
        assert!(uses.close());
        assert!(!uses.close());
        assert!(uses.is_closed());
        assert!(uses.enter().is_none() && !uses.enter_unscoped());
        drop(inside);
        assert!(!uses.is_drained());
        // The last one out.
        assert!(uses.leave());
        assert!(uses.is_drained());
        uses.close_and_drain();
        Ok(())
    }

    #[test]
    fn nobody_is_last_while_it_is_open() -> Result {
        let uses = Arc::pin_init(InFlight::new(), GFP_KERNEL)?;
        assert!(uses.enter_unscoped());
        assert!(!uses.leave());
        assert!(uses.enter().is_some());
        assert!(uses.close() && uses.is_drained());
        Ok(())
    }
}
