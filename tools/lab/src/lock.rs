// SPDX-License-Identifier: GPL-2.0
//! Locks that do not care whether a thread panicked.

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// Locks; what a thread left that panicked is as good as any other state here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
