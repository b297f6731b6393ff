// SPDX-License-Identifier: LGPL-2.1

//! Locks that go on after a panic.
//!
//! A panic ends at the boundary to C, as an error of that call. The program goes on, so what the
//! lock protects has to be used on; each holder leaves it consistent at every step that can panic.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;
use std::time::Instant;

/// Locking without a panic.
pub trait Locked {
    /// What is behind it.
    type Value;

    /// To change it, or to see what nobody else is changing.
    fn locked_to_write(&self) -> RwLockWriteGuard<'_, Self::Value>;

    /// To see it.
    fn locked_to_read(&self) -> RwLockReadGuard<'_, Self::Value>;
}

impl<T> Locked for RwLock<T> {
    type Value = T;

    fn locked_to_write(&self) -> RwLockWriteGuard<'_, T> {
        self.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn locked_to_read(&self) -> RwLockReadGuard<'_, T> {
        self.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks a mutex.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a change, until the deadline if there is one; says whether it has not passed.
pub fn wait<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else {
        let guard = condition.wait(guard);
        return (guard.unwrap_or_else(PoisonError::into_inner), true);
    };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return (guard, false);
    }
    let waited = condition.wait_timeout(guard, left);
    (waited.unwrap_or_else(PoisonError::into_inner).0, true)
}
