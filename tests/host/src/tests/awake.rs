// SPDX-License-Identifier: GPL-2.0

//! How long to stay awake: bounds, and where it ends up.

use proptest::prelude::*;

use super::config;
use crate::logic::awake::{after, at_first, limit};

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
fn who_sleeps_at_once_tries_now_and_then() {
    let tries = (0..80).filter(|count| limit(0, *count, MOST) == MOST);
    assert_eq!(tries.count(), 10);
    assert!((0..80).all(|count| limit(9_000, count, MOST) == 9_000));
}

#[test]
fn nobody_stays_awake_who_must_not() {
    assert_eq!(at_first(0), 0);
    assert_eq!(after(0, 0, 0), 0);
    assert_eq!(after(0, 1, 0), 0);
    assert_eq!(limit(0, 0, 0), 0);
    // Not any more either.
    assert_eq!(limit(MOST, 1, 0), 0);
    assert_eq!(limit(MOST, 1, 10), 10);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn it_stays_within_what_is_allowed(now: u32, waited: u64, most: u32) {
        prop_assert!(at_first(most) <= most);
        prop_assert!(after(now, waited, most) <= most);
        prop_assert!(limit(now, waited as u32, most) <= most);
        if waited <= u64::from(most) {
            prop_assert!(after(now, waited, most) >= now.min(most));
        } else {
            prop_assert!(after(now, waited, most) <= now);
        }
    }
}
