// SPDX-License-Identifier: GPL-2.0

//! The host's replacement for the kernel's atomics behaves the same.

use crate::logic::atomic::AtomicU64;

#[test]
fn atomic_operations_return_the_previous_value() {
    let value = AtomicU64::new(5);
    assert_eq!(value.fetch_add(3), 5);
    assert_eq!(value.fetch_sub(1), 8);
    assert_eq!(value.compare_exchange(7, 9), Ok(7));
    assert_eq!(value.compare_exchange(7, 1), Err(9));
    assert_eq!(value.load(), 9);
}

#[test]
fn atomic_sums_wrap_around() {
    let value = AtomicU64::new(u64::MAX);
    assert_eq!(value.fetch_add(2), u64::MAX);
    assert_eq!(value.fetch_sub(2), 1);
    assert_eq!(value.load(), u64::MAX);
}
