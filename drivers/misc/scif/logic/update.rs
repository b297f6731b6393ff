// SPDX-License-Identifier: GPL-2.0

//! Atomic read-modify-write of a value that several threads change.

use super::atomic::AtomicU64;

/// Replaces the value with what `change` returns for it, or leaves it if that is `None`. Returns
/// the old value if it was replaced.
pub(crate) fn update(value: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    update_from(value, value.load(), change)
}

/// Replaces the value like [`update`], but without a load at first: the caller expects it to be
/// `old`, for which `change` returns a value.
pub(crate) fn update_from(
    value: &AtomicU64,
    mut old: u64,
    change: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    loop {
        let new = change(old)?;
        match value.compare_exchange(old, new) {
            Ok(_) => return Some(old),
            Err(now) => old = now,
        }
    }
}
