// SPDX-License-Identifier: GPL-2.0

//! A lock for calls that may sleep for a long time while they hold it.
//!
//! A call that sends or receives excludes other calls of its direction until it is done, so that
//! the bytes of one call stay together. With a mutex, waiting calls could not be interrupted, and a
//! call that must not block could not tell why it fails.

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

/// A lock for calls that may sleep for a long time while they hold it.
#[pin_data]
pub(crate) struct CallLock {
    taken: Atomic<bool>,
    #[pin]
    free: WaitQueue,
}

/// A guard that holds the lock until it is dropped.
pub(crate) struct CallGuard<'a>(&'a CallLock);

impl CallLock {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            taken: Atomic::new(false),
            free <- new_wait_queue!("scif::CallLock::free"),
        })
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<CallGuard<'_>> {
        // Not `then_some`, which would always make a guard: dropping the unused guard would release
        // the lock that another call holds.
        (!self.taken.xchg(true, Full)).then(|| CallGuard(self))
    }

    /// Waits for the lock and takes it.
    /// Context: may sleep, interruptible.
    pub(crate) fn lock(&self) -> Result<CallGuard<'_>> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.free.wait(|| self.try_lock()),
        }
    }

    /// Waits for the lock and takes it, for a call that only a fatal signal may end.
    /// Context: may sleep, killable.
    pub(crate) fn lock_killable(&self) -> Result<CallGuard<'_>> {
        match self.try_lock() {
            Some(guard) => Ok(guard),
            None => self.free.wait_killable(|| self.try_lock()),
        }
    }

    /// Takes the lock as [`Self::lock`] does, for a call that may `block`. Other calls get `None`
    /// if the lock is taken.
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
        // Most often no call waits, and checking is cheaper than waking. A call that begins to wait
        // after the check sees that the lock is free.
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
    fn call_lock_has_one_holder_at_a_time() -> Result {
        let lock = Arc::pin_init(CallLock::new(), GFP_KERNEL)?;
        let first = lock.lock()?;
        assert!(lock.try_lock().is_none());
        // A failed attempt does not release the lock.
        assert!(lock.lock_for(false)?.is_none());
        drop(first);
        let second = lock.lock_for(true)?;
        assert!(second.is_some());
        assert!(lock.try_lock().is_none());
        Ok(())
    }
}
