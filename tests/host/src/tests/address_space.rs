// SPDX-License-Identifier: GPL-2.0

//! Ranges of the address space.

use proptest::prelude::*;

use super::config;
use crate::logic::address_space::{InvalidRange, LIMIT, Range};

fn range(start: u64, len: u64) -> Range {
    Range::from_parts(start, len).expect("a good range")
}

#[test]
fn invalid_ranges_are_refused() {
    assert_eq!(Range::new(-1, 1), Err(InvalidRange));
    assert_eq!(Range::new(i64::MIN, 1), Err(InvalidRange));
    assert_eq!(Range::new(0, 0), Err(InvalidRange));
    assert_eq!(Range::new(i64::MAX, 1), Err(InvalidRange));
    assert_eq!(Range::new(1, u64::MAX), Err(InvalidRange));
    assert_eq!(Range::from_parts(u64::MAX, 1), Err(InvalidRange));
    let whole = Range::new(0, LIMIT).expect("the largest range");
    assert_eq!((whole.start(), whole.len(), whole.end()), (0, LIMIT, LIMIT));
    let last = Range::new(i64::MAX - 1, 1).expect("the last range");
    assert_eq!(last.offset(), i64::MAX - 1);
    assert!(whole.contains(&last) && !last.contains(&whole));
}

#[test]
fn range_is_aligned_if_start_and_length_are() {
    assert!(range(0x3000, 0x1000).is_aligned(12));
    assert!(!range(0x3001, 0x1000).is_aligned(12));
    assert!(!range(0x3000, 0x800).is_aligned(12));
    assert!(!range(0x3000, 0x1000).is_aligned(16));
    assert!(!range(0x3000, 0x1000).is_aligned(64));
    assert!(range(0x3001, 1).is_aligned(0));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn contains_and_intersects_agree_with_sets_of_offsets(
        (start, len) in (0..32_u64, 1..8_u64),
        (other_start, other_len) in (0..32_u64, 1..8_u64),
    ) {
        let (one, other) = (range(start, len), range(other_start, other_len));
        let mut others = other.start()..other.end();
        let is_in_one = |offset| (one.start()..one.end()).contains(&offset);
        prop_assert_eq!(one.contains(&other), others.clone().all(is_in_one));
        prop_assert_eq!(one.intersects(&other), others.any(is_in_one));
    }
}
