// SPDX-License-Identifier: GPL-2.0
//! Locks that ignore panics of other threads.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Locks a mutex. The state that a panicked thread has left is as good as any other here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
