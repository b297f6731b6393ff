// SPDX-License-Identifier: GPL-2.0

//! A lock for calls that may sleep for long while they hold it.
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
pub(crate) struct CallLock {
    taken: Atomic<bool>,
    #[pin]
    free: WaitQueue,
}

/// The lock is held until this is dropped.
pub(crate) struct CallGuard<'a>(&'a CallLock);

impl CallLock {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken: Atomic::new(false),
            free <- new_wait_queue!("scif::CallLock::free"),
        })
    }

    /// Takes the lock if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<CallGuard<'_>> {
        // Not `then_some`: a guard that is made must not be dropped, for that unlocks, whoever has
        // the lock.
        (!self.taken.xchg(true, Full)).then(|| CallGuard(self))
    }

    /// Waits for the lock. Interruptible.
    pub(crate) fn lock(&self) -> Result<CallGuard<'_>> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.free.wait(|| self.try_lock()),
        }
    }

    /// As [`Self::lock`], for a call that may `block`; none where that would have to wait.
    pub(crate) fn lock_for(&self, block: bool) -> Result<Option<CallGuard<'_>>> {
        match block {
            true => self.lock().map(Some),
            false => Ok(self.try_lock()),
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.taken.store(false, Release);
        // Most often nobody: to look is cheaper than to wake. Who begins to wait after the look sees
        // that the lock is free.
        if self.0.free.has_waiters() {
            self.0.free.wake_all();
        }
    }
}

#[kunit_tests(scif_sync_call_lock)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn one_at_a_time_has_it() -> Result {
        let lock = Arc::pin_init(CallLock::new(), GFP_KERNEL)?;
        let first = lock.lock()?;
        assert!(lock.try_lock().is_none());
        // A look at a lock that is taken does not free it.
        assert!(lock.lock_for(false)?.is_none());
        drop(first);
        let second = lock.lock_for(true)?;
        assert!(second.is_some());
        assert!(lock.try_lock().is_none());
        Ok(())
    }
}
