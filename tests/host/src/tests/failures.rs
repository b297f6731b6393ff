// SPDX-License-Identifier: GPL-2.0

//! Failures in any order against a list of all of them.

use proptest::prelude::*;

use super::config;
use crate::logic::marks::Failures;
use crate::logic::marks::Sequence;

#[test]
fn a_failure_concerns_what_stands_behind_it() {
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
fn each_that_was_asked_for_before_the_report_says_so() {
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
fn what_lies_behind_a_report_is_for_the_next_one() {
    let mut failures = Failures::default();
    failures.add(Sequence(3));
    failures.add(Sequence(7));
    assert!(failures.report(Sequence(4), Sequence(8)));
    assert!(failures.concern(Sequence(9)) && failures.report(Sequence(9), Sequence(9)));
    assert!(failures.concern(Sequence(9)) && !failures.concern(Sequence(10)));
}

#[test]
fn a_caller_who_was_told_goes_on() {
    let mut failures = Failures::default();
    failures.add_reported(Sequence(5), Sequence(6));
    assert!(!failures.concern(Sequence(4)) && !failures.concern(Sequence(7)));
    assert!(failures.concern(Sequence(5)) && failures.concern(Sequence(6)));
    // Of others nobody has been told.
    failures.add(Sequence(4));
    failures.add_reported(Sequence(8), Sequence(8));
    assert!(failures.concern(Sequence(100)));
}

#[test]
fn what_lies_between_two_reports_has_not_failed() {
    let mut failures = Failures::default();
    for number in 0..20 {
        let failed = Sequence(1 + 100 * number);
        failures.add_reported(failed, failed);
        assert!(failures.concern(failed) && !failures.concern(Sequence(failed.0 + 1)));
        assert!(number == 0 || !failures.concern(Sequence(failed.0 - 1)));
    }
    // Of old ones only the bounds are kept.
    assert!(failures.concern(Sequence(1)) && failures.concern(Sequence(150)));
}

/// What happens at an end, by how far back the transfer is that it is about.
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

    /// A number is never said to be good that is not, and who asks anew after a report hears nothing of it.
    #[test]
    fn no_failure_is_left_out(steps in prop::collection::vec((0..4_u64, step()), 0..40)) {
        let mut failures = Failures::default();
        // Each with the last one that had been started when it was reported, once it was.
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
