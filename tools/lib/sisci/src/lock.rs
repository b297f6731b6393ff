// SPDX-License-Identifier: LGPL-2.1

//! Locks that stay usable after a panic.
//!
//! A panic ends at the boundary to C, as an error of that call. The program goes on, so the
//! protected state must stay usable. Each holder of a lock leaves the state consistent at every
//! step that can panic.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::RwLockReadGuard;
use std::sync::RwLockWriteGuard;
use std::time::Instant;

/// Locking of a read-write lock without a panic.
pub trait Locked {
    /// The protected value.
    type Value;

    /// Locks the value for a change, or for a look without concurrent changes.
    fn locked_to_write(&self) -> RwLockWriteGuard<'_, Self::Value>;

    /// Locks the value for reading.
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

/// Waits for a change, until the deadline if there is one. Returns false if the deadline has
/// passed.
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
