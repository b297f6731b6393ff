// SPDX-License-Identifier: GPL-2.0

//! An in-flight count of uses, and a wait for the last of them.
//!
//! [`InFlight`] joins the lock-free [`Gate`] with a wait queue. The owner of a resource closes the
//! gate and sleeps until the last use has ended. Then no user is inside, and none can get in.
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

/// An in-flight count of the uses of a resource.
#[pin_data]
pub(crate) struct InFlight {
    gate: Gate,
    #[pin]
    idle: WaitQueue,
}

/// One use, which ends when it is dropped.
pub(crate) struct InFlightGuard<'a>(&'a InFlight);

impl InFlight {
    /// Creates an open gate without users.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            gate: Gate::new(),
            idle <- new_wait_queue!("scif::InFlight::idle"),
        })
    }

    /// Begins a use, unless the gate is closed.
    /// Context: any.
    pub(crate) fn enter(&self) -> Option<InFlightGuard<'_>> {
        // Not `then_some`, which would always make a guard: dropping the unused guard would end a
        // use that another user has begun.
        self.gate.enter().then(|| InFlightGuard(self))
    }

    /// Begins a use for longer than a borrow lasts. Every `true` needs one [`Self::leave`].
    #[must_use]
    pub(crate) fn enter_unscoped(&self) -> bool {
        self.gate.enter()
    }

    /// Ends a use begun by [`Self::enter_unscoped`]. Returns `true` to the last user of a closed
    /// gate.
    pub(crate) fn leave(&self) -> bool {
        let last = self.gate.leave();
        if last {
            self.idle.wake_all();
        }
        last
    }

    /// Closes the gate, so that no use begins any more. Returns whether the gate was open.
    /// Context: any.
    pub(crate) fn close(&self) -> bool {
        self.gate.close()
    }

    /// Returns the number of uses.
    /// Context: any.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn count(&self) -> u64 {
        self.gate.count()
    }

    /// Returns whether the gate is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }

    /// Returns whether the gate is closed and all uses have ended.
    pub(crate) fn is_drained(&self) -> bool {
        self.gate.is_closed() && self.gate.is_idle()
    }

    /// Closes the gate and sleeps until all uses have ended, or `patience` is exhausted. Returns
    /// whether all have ended.
    pub(crate) fn close_and_wait(&self, patience: &Patience) -> bool {
        self.gate.close();
        patience.wait(&self.idle, || self.gate.is_idle())
    }

    /// Closes the gate and sleeps until all uses have ended. Each use must be bounded in time, or
    /// have been told to end.
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
    fn close_and_drain_waits_for_users_inside() -> Result {
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
        // The last user leaves.
        assert!(uses.leave());
        assert!(uses.is_drained());
        uses.close_and_drain();
        Ok(())
    }

    #[test]
    fn leave_before_close_is_never_the_last() -> Result {
        let uses = Arc::pin_init(InFlight::new(), GFP_KERNEL)?;
        assert!(uses.enter_unscoped());
        assert!(!uses.leave());
        assert!(uses.enter().is_some());
        assert!(uses.close() && uses.is_drained());
        Ok(())
    }
}
