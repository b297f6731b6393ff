// SPDX-License-Identifier: GPL-2.0

//! Where processor and engine are even, against costs that are known.

use proptest::prelude::*;

use super::config;
use crate::logic::crossover::{Sample, limit};

const SIZES: [u64; 4] = [1 << 10, 4 << 10, 16 << 10, 64 << 10];

/// The largest that can come of these.
const FURTHEST: u64 = 64 << 10;

/// What copies take that cost so many nanoseconds to begin, and so many for each KiB.
fn samples(processor: (u64, u64), engine: (u64, u64)) -> Vec<Sample> {
    let cost = |(begin, each): (u64, u64), len| begin + each * (len >> 10);
    SIZES
        .map(|len| Sample {
            len,
            by_processor: cost(processor, len),
            by_engine: cost(engine, len),
        })
        .to_vec()
}

#[test]
fn between_what_was_measured() {
    // 1062 per KiB are allowed: even at 10 KiB, but for what is lost in dividing.
    let found = limit(&samples((0, 1000), (9_620, 100)));
    assert!(found.abs_diff(10 << 10) < 16, "{found}");
}

#[test]
fn an_engine_that_is_not_much_slower_copies() {
    // A sixteenth of 64 us are 4 us.
    assert_eq!(limit(&samples((0, 1000), (5_000, 1000))), FURTHEST);
    assert!(limit(&samples((0, 1000), (3_900, 1000))) < FURTHEST);
}

#[test]
fn what_was_not_measured_is_for_the_engine() {
    // Even at 100 KiB, and never.
    assert_eq!(limit(&samples((0, 1000), (90_000, 100))), FURTHEST);
    assert_eq!(limit(&samples((0, 100), (90_000, 100))), FURTHEST);
    assert_eq!(limit(&samples((0, 100), (90_000, 200))), FURTHEST);
    assert_eq!(limit(&samples((0, 1000), (900_000, 100))), FURTHEST);
}

#[test]
fn an_engine_that_is_always_faster_copies_all() {
    assert_eq!(limit(&samples((5_000, 1000), (4_000, 100))), 0);
    assert_eq!(limit(&[]), 0);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn straight_lines_meet_where_they_do(
        begin in 1_u64..10_000_000,
        fast in 0_u64..1000,
        slower in 1_u64..1000,
    ) {
        // What is allowed is a whole number of nanoseconds then.
        let samples = samples((0, 16 * (fast + slower)), (begin, 17 * fast));
        let even = (u128::from(begin) << 10) / (17 * u128::from(slower));
        let found = u128::from(limit(&samples));
        if even < 1 << 10 {
            prop_assert_eq!(found, 0);
        } else {
            let expected = even.min(u128::from(FURTHEST));
            prop_assert!(found.abs_diff(expected) <= 1, "{} instead of {}", found, expected);
        }
    }

    #[test]
    fn nothing_measured_is_too_odd(times: [(u64, u64); 4]) {
        let samples: Vec<_> = SIZES
            .into_iter()
            .zip(times)
            .map(|(len, (by_processor, by_engine))| Sample { len, by_processor, by_engine })
            .collect();
        prop_assert!(limit(&samples) <= FURTHEST);
    }
}
