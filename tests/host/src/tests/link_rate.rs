// SPDX-License-Identifier: GPL-2.0

//! `logic/link_rate.rs`.

use proptest::prelude::*;

use super::config;
use crate::logic::link_rate::megabits;

#[test]
fn known_links_have_their_published_rate() {
    // 8 GT/s, 8 lanes: 7.88 GB/s, of which 256 bytes in 280 are data.
    assert_eq!(megabits(3, 8, 256), Some(57607));
    assert_eq!(megabits(1, 1, 128), Some(1684));
    assert_eq!(megabits(4, 16, 512), Some(240762));
}

#[test]
fn unknown_links_have_no_rate() {
    for (generation, lanes, payload) in [
        (0, 8, 128),
        (3, 0, 128),
        (6, 8, 128),
        (3, 33, 128),
        (3, 8, 0),
    ] {
        assert_eq!(megabits(generation, lanes, payload), None);
    }
    assert_eq!(megabits(3, 8, u32::MAX), None);
}

proptest! {
    #![proptest_config(config())]

    /// More lanes, a later generation or longer packets never make a link slower.
    #[test]
    fn more_is_not_less(generation in 1u32..5, lanes in 1u32..32, shift in 0u32..5) {
        let payload = 128 << shift;
        let rate = megabits(generation, lanes, payload).unwrap();
        prop_assert!(megabits(generation + 1, lanes, payload).unwrap() > rate);
        prop_assert!(megabits(generation, lanes + 1, payload).unwrap() > rate);
        prop_assert!(megabits(generation, lanes, payload * 2).unwrap() > rate);
    }
}
