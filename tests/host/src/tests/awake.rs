// SPDX-License-Identifier: GPL-2.0

//! The time to stay awake before sleeping: its bounds, and the value that it settles at.

use proptest::prelude::*;

use super::config;
use crate::logic::awake::{after, limit};

const MOST: u32 = 100_000;

#[test]
fn short_waits_raise_the_polling_limit_to_its_maximum() {
    let mut now = 0;
    for _ in 0..8 {
        now = after(now, 3_000, MOST);
    }
    assert_eq!(now, MOST);
}

#[test]
fn long_waits_lower_the_polling_limit_to_zero() {
    let mut now = MOST;
    for _ in 0..8 {
        now = after(now, 1_000_000, MOST);
    }
    assert_eq!(now, 0);
    // The length of a sleep shows when events become frequent.
    assert!(after(now, 90_000, MOST) > 0);
}

#[test]
fn polling_limit_is_twice_the_last_wait() {
    assert_eq!(after(0, 15_000, MOST), 30_000);
    assert_eq!(after(20_000, 15_000, MOST), 40_000);
    assert_eq!(after(0, 90_000, MOST), MOST);
}

#[test]
fn zero_limit_still_polls_now_and_then() {
    for seed in [0, 1, 0x1234_5678, u32::MAX] {
        let tries = (0..8000).filter(|count| limit(0, (*count, seed), MOST) == MOST);
        let tries = tries.count();
        assert!((800..1200).contains(&tries), "{tries} of 8000");
        assert!((0..80).all(|count| limit(9_000, (count, seed), MOST) == 9_000));
    }
}

#[test]
fn two_sides_with_own_counts_sometimes_poll_together() {
    for (one, other) in [(0, 1), (7, 0x1234_5678), (0x8000_0000, 0x89ab_cdef)] {
        for ahead in [0, 1] {
            let tries = |count, seed| limit(0, (count, seed), MOST) == MOST;
            let both = (0..4000).filter(|count| tries(*count, one) && tries(count + ahead, other));
            assert!(both.count() >= 3, "{one:x} and {other:x}, {ahead} ahead");
        }
    }
}

#[test]
fn zero_maximum_never_polls() {
    assert_eq!(after(0, 0, 0), 0);
    assert_eq!(after(0, 1, 0), 0);
    assert_eq!(limit(0, (0, 0), 0), 0);
    // The limit is 0, and does not rise again.
    assert_eq!(limit(MOST, (1, 0), 0), 0);
    assert_eq!(limit(MOST, (1, 0), 10), 10);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn polling_limit_never_exceeds_its_maximum(now: u32, waited: u64, most: u32, seed: u32) {
        prop_assert!(after(now, waited, most) <= most);
        prop_assert!(limit(now, (waited as u32, seed), most) <= most);
        if waited <= u64::from(most) {
            prop_assert!(after(now, waited, most) >= now.min(most));
        } else {
            prop_assert!(after(now, waited, most) <= now);
        }
    }
}
