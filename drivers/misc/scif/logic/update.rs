// SPDX-License-Identifier: GPL-2.0

//! One step from a value that several threads change to the next, whatever the others do meanwhile.

use super::atomic::AtomicU64;

/// Changes the value to what `change` makes of it; `None` leaves it alone. Returns the old one, if it
/// was changed.
pub(crate) fn update(value: &AtomicU64, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    update_from(value, value.load(), change)
}

/// As [`update`], where the value is probably `old`, of which `change` makes something: it takes no look
/// before.
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
