// SPDX-License-Identifier: GPL-2.0

//! How long to stay awake: bounds, and where it ends up.

use proptest::prelude::*;

use super::config;
use crate::logic::awake::{after, limit};

const MOST: u32 = 100_000;

#[test]
fn who_is_never_kept_waiting_stays_awake() {
    let mut now = 0;
    for _ in 0..8 {
        now = after(now, 3_000, MOST);
    }
    assert_eq!(now, MOST);
}

#[test]
fn who_waits_for_something_rare_sleeps_at_once() {
    let mut now = MOST;
    for _ in 0..8 {
        now = after(now, 1_000_000, MOST);
    }
    assert_eq!(now, 0);
    // It is seen when that changes, by how long it slept.
    assert!(after(now, 90_000, MOST) > 0);
}

#[test]
fn the_next_wait_may_take_twice_as_long() {
    assert_eq!(after(0, 15_000, MOST), 30_000);
    assert_eq!(after(20_000, 15_000, MOST), 40_000);
    assert_eq!(after(0, 90_000, MOST), MOST);
}

#[test]
fn who_sleeps_at_once_tries_now_and_then() {
    for seed in [0, 1, 0x1234_5678, u32::MAX] {
        let tries = (0..8000).filter(|count| limit(0, (*count, seed), MOST) == MOST);
        let tries = tries.count();
        assert!((800..1200).contains(&tries), "{tries} of 8000");
        assert!((0..80).all(|count| limit(9_000, (count, seed), MOST) == 9_000));
    }
}

#[test]
fn who_counts_its_own_way_tries_with_the_other_now_and_then() {
    for (one, other) in [(0, 1), (7, 0x1234_5678), (0x8000_0000, 0x89ab_cdef)] {
        for ahead in [0, 1] {
            let tries = |count, seed| limit(0, (count, seed), MOST) == MOST;
            let both = (0..4000).filter(|count| tries(*count, one) && tries(count + ahead, other));
            assert!(both.count() >= 3, "{one:x} and {other:x}, {ahead} ahead");
        }
    }
}

#[test]
fn nobody_stays_awake_who_must_not() {
    assert_eq!(after(0, 0, 0), 0);
    assert_eq!(after(0, 1, 0), 0);
    assert_eq!(limit(0, (0, 0), 0), 0);
    // Not any more either.
    assert_eq!(limit(MOST, (1, 0), 0), 0);
    assert_eq!(limit(MOST, (1, 0), 10), 10);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn it_stays_within_what_is_allowed(now: u32, waited: u64, most: u32, seed: u32) {
        prop_assert!(after(now, waited, most) <= most);
        prop_assert!(limit(now, (waited as u32, seed), most) <= most);
        if waited <= u64::from(most) {
            prop_assert!(after(now, waited, most) >= now.min(most));
        } else {
            prop_assert!(after(now, waited, most) <= now);
        }
    }
}
