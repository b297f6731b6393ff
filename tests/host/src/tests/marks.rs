// SPDX-License-Identifier: GPL-2.0

//! Operations that complete in any order, against a set, and marks that the driver never returned.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::config;
use crate::logic::marks::{Numbers, Origin, Sequence, Unknown, WINDOW, decode, encode, origin};

#[test]
fn watermark_waits_for_the_first_transfer() {
    let mut tracker = Numbers::new();
    let numbers: Vec<Sequence> = (0..3).filter_map(|_| tracker.begin()).collect();
    assert_eq!(numbers, [Sequence(1), Sequence(2), Sequence(3)]);
    assert!(!tracker.end(numbers[2], false, false));
    assert!(!tracker.end(numbers[1], false, false));
    assert_eq!(tracker.watermark(), Sequence(0));
    assert!(!tracker.is_complete(numbers[1]));
    assert!(tracker.end(numbers[0], false, false));
    assert_eq!(tracker.watermark(), Sequence(3));
    assert!(tracker.is_complete(numbers[2]));
}

#[test]
fn full_window_opens_when_its_first_transfer_completes() {
    let mut tracker = Numbers::new();
    for _ in 0..WINDOW {
        assert!(tracker.begin().is_some());
    }
    assert_eq!(tracker.begin(), None);
    for number in 2..=WINDOW {
        assert!(!tracker.end(Sequence(number), false, false));
    }
    assert_eq!(tracker.begin(), None);
    assert!(tracker.end(Sequence(1), false, false));
    assert_eq!(tracker.watermark(), Sequence(WINDOW));
    assert_eq!(tracker.begin(), Some(Sequence(WINDOW + 1)));
    // The bits of the last round are cleared.
    assert_eq!(tracker.begin(), Some(Sequence(WINDOW + 2)));
    assert!(tracker.end(Sequence(WINDOW + 1), false, false));
    assert_eq!(tracker.watermark(), Sequence(WINDOW + 1));
}

#[test]
fn end_of_a_number_not_outstanding_is_ignored() {
    let mut tracker = Numbers::new();
    assert!(!tracker.end(Sequence(1), false, false));
    tracker.begin();
    tracker.begin();
    for wrong in [0, 3, 1 + WINDOW, u64::MAX] {
        assert!(!tracker.end(Sequence(wrong), false, false));
    }
    assert!(tracker.end(Sequence(1), false, false));
    assert!(!tracker.end(Sequence(1), false, false));
    assert_eq!(tracker.watermark(), Sequence(1));
}

#[test]
fn encoded_marks_are_positive_and_small_numbers_are_refused() {
    for number in [0, 1, (1 << 29) - 1, 1 << 29, 1 << 31, u64::MAX] {
        for origin in [Origin::Own, Origin::Peer] {
            assert!(encode(Sequence(number), origin) > 0);
        }
    }
    for number in [0, 1, 2, -1, i32::MIN, (1 << 30) - 1] {
        assert_eq!(origin(number), Err(Unknown), "{number}");
        assert_eq!(decode(number, Sequence(u64::MAX)), Err(Unknown), "{number}");
    }
}

#[test]
fn future_marks_are_refused() {
    let mark = encode(Sequence(10), Origin::Own);
    assert_eq!(decode(mark, Sequence(9)), Err(Unknown));
    assert_eq!(decode(mark, Sequence(10)), Ok((Origin::Own, Sequence(10))));
    // Nothing was started, so the only mark is the one of no transfer.
    let nothing = encode(Sequence(0), Origin::Own);
    assert_eq!(decode(nothing, Sequence(0)), Ok((Origin::Own, Sequence(0))));
}

#[test]
fn too_old_marks_are_refused() {
    let mark = encode(Sequence(5), Origin::Peer);
    let known = Sequence(5 + (1 << 28));
    assert_eq!(decode(mark, known), Ok((Origin::Peer, Sequence(5))));
    assert_eq!(decode(mark, Sequence(known.0 + 1)), Err(Unknown));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn tracker_agrees_with_a_set(
        steps in prop::collection::vec((any::<bool>(), 1..200_usize, any::<u64>()), 1..400),
    ) {
        let mut tracker = Numbers::new();
        let mut outstanding = BTreeSet::new();
        let mut last = 0;
        for (begin, count, pick) in steps {
            for round in 0..count as u64 {
                let watermark = |set: &BTreeSet<u64>| set.first().map_or(last, |first| first - 1);
                let before = watermark(&outstanding);
                if begin {
                    let number = tracker.begin();
                    if last - before >= WINDOW {
                        prop_assert_eq!(number, None);
                        break;
                    }
                    last += 1;
                    prop_assert_eq!(number, Some(Sequence(last)));
                    outstanding.insert(last);
                } else {
                    // Most numbers are around the window, whether their transfers are in flight or
                    // not.
                    let number = match pick.wrapping_add(round.wrapping_mul(0x9e37_79b9)) {
                        wild if wild % 16 == 0 => wild,
                        near => before.saturating_sub(10) + near % (WINDOW + 20),
                    };
                    outstanding.remove(&number);
                    let moved = tracker.end(Sequence(number), false, false);
                    prop_assert_eq!(moved, watermark(&outstanding) != before);
                }
                let now = outstanding.first().map_or(last, |first| first - 1);
                prop_assert_eq!(tracker.watermark(), Sequence(now));
                prop_assert_eq!(tracker.last_issued(), Sequence(last));
                prop_assert_eq!(tracker.in_flight(), outstanding.len() as u64);
            }
        }
    }

    #[test]
    fn encoded_mark_decodes_to_itself(number: u64, behind in 0..=1_u64 << 28, peer: bool) {
        let origin = if peer { Origin::Peer } else { Origin::Own };
        let last = number.saturating_add(behind);
        let mark = encode(Sequence(number), origin);
        prop_assert!(mark > 0);
        prop_assert_eq!(decode(mark, Sequence(last)), Ok((origin, Sequence(number))));
    }

    /// For any mark that user space passes, the result is a number that was issued.
    #[test]
    fn forged_mark_decodes_to_an_issued_number_or_none(
        mark: i32,
        last in prop_oneof![0..1000_u64, any::<u64>()],
    ) {
        if let Ok((origin, number)) = decode(mark, Sequence(last)) {
            prop_assert!(number.0 <= last && last - number.0 <= 1 << 28);
            prop_assert_eq!(encode(number, origin), mark);
        }
    }
}
