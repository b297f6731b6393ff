// SPDX-License-Identifier: GPL-2.0

//! Failures in any order against a list of all of them.

use proptest::prelude::*;

use super::config;
use crate::logic::marks::Failures;
use crate::logic::marks::Sequence;

#[test]
fn failure_concerns_its_own_and_later_numbers() {
    let mut failures = Failures::default();
    assert!(!failures.concern(Sequence(9)) && !failures.report(Sequence(9), Sequence(9)));
    failures.add(Sequence(5));
    failures.add(Sequence(3));
    assert!(!failures.concern(Sequence(2)) && !failures.report(Sequence(2), Sequence(9)));
    for up_to in 3..12 {
        assert!(failures.concern(Sequence(up_to)));
    }
}

#[test]
fn numbers_up_to_the_report_remain_failed() {
    let mut failures = Failures::default();
    failures.add(Sequence(3));
    assert!(failures.report(Sequence(4), Sequence(8)));
    for up_to in 3..=8 {
        assert!(failures.concern(Sequence(up_to)));
        assert!(!failures.report(Sequence(up_to), Sequence(20)));
    }
    assert!(!failures.concern(Sequence(2)) && !failures.concern(Sequence(9)));
}

#[test]
fn failure_after_a_report_is_reported_next() {
    let mut failures = Failures::default();
    failures.add(Sequence(3));
    failures.add(Sequence(7));
    assert!(failures.report(Sequence(4), Sequence(8)));
    assert!(failures.concern(Sequence(9)) && failures.report(Sequence(9), Sequence(9)));
    assert!(failures.concern(Sequence(9)) && !failures.concern(Sequence(10)));
}

#[test]
fn reported_failure_does_not_concern_later_numbers() {
    let mut failures = Failures::default();
    failures.add_reported(Sequence(5), Sequence(6));
    assert!(!failures.concern(Sequence(4)) && !failures.concern(Sequence(7)));
    assert!(failures.concern(Sequence(5)) && failures.concern(Sequence(6)));
    // The other failures were reported to no caller.
    failures.add(Sequence(4));
    failures.add_reported(Sequence(8), Sequence(8));
    assert!(failures.concern(Sequence(100)));
}

#[test]
fn numbers_between_two_reports_have_not_failed() {
    let mut failures = Failures::default();
    for number in 0..20 {
        let failed = Sequence(1 + 100 * number);
        failures.add_reported(failed, failed);
        assert!(failures.concern(failed) && !failures.concern(Sequence(failed.0 + 1)));
        assert!(number == 0 || !failures.concern(Sequence(failed.0 - 1)));
    }
    // Of old failures only the bounds are kept.
    assert!(failures.concern(Sequence(1)) && failures.concern(Sequence(150)));
}

/// An event at an endpoint, with the distance of its transfer from the last one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fails(u64),
    FailsAndIsTold(u64),
    IsAsked(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..8_u64).prop_map(Step::Fails),
        (0..8_u64).prop_map(Step::FailsAndIsTold),
        (0..8_u64).prop_map(Step::IsAsked),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// A failed transfer never counts as good. A request made after a report does not report the
    /// failure again.
    #[test]
    fn every_failure_is_reported_and_none_after_its_report(
        steps in prop::collection::vec((0..4_u64, step()), 0..40),
    ) {
        let mut failures = Failures::default();
        // Each failure, with the last number that was issued when the failure was reported, if it
        // was.
        let mut all: Vec<(u64, Option<u64>)> = Vec::new();
        let mut last = 8;
        for (more, step) in steps {
            last += more;
            match step {
                Step::Fails(back) => {
                    failures.add(Sequence(last - back));
                    all.push((last - back, None));
                }
                Step::FailsAndIsTold(back) => {
                    failures.add_reported(Sequence(last - back), Sequence(last));
                    all.push((last - back, Some(last)));
                    last += 1;
                }
                Step::IsAsked(back) => {
                    let up_to = last - back;
                    if failures.report(Sequence(up_to), Sequence(last)) {
                        for (number, reported) in &mut all {
                            if *number <= up_to {
                                reported.get_or_insert(last);
                            }
                        }
                        last += 1;
                    }
                }
            }
            let concerns = |up_to: u64| {
                all.iter().any(|(number, reported)| {
                    *number <= up_to && reported.is_none_or(|reported| up_to <= reported)
                })
            };
            for up_to in 0..=last {
                prop_assert!(failures.concern(Sequence(up_to)) || !concerns(up_to));
            }
            if all.iter().all(|(_, reported)| reported.is_some()) {
                prop_assert!(!failures.concern(Sequence(last + 1)));
            }
        }
    }
}
