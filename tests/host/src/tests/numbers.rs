// SPDX-License-Identifier: GPL-2.0

//! Transfers that fail, and the failures that fences and signals of both sides report.

use proptest::prelude::*;

use super::config;
use crate::logic::marks::Asker::{self, Peer, This};
use crate::logic::marks::Numbers;
use crate::logic::marks::{REPORTS, Sequence, WINDOW};

/// Starts `count` transfers. Returns the numbers and the transfers in flight.
fn started(count: u64) -> (Numbers, Vec<Sequence>) {
    let mut numbers = Numbers::new();
    let all = (0..count).filter_map(|_| numbers.begin()).collect();
    (numbers, all)
}

#[test]
fn failure_reported_to_a_fence_still_fails_the_signal() {
    let (mut numbers, all) = started(3);
    let signal = numbers.last_issued();
    numbers.end(all[1], true, false);
    numbers.end(all[2], false, false);
    assert!(numbers.end(all[0], false, false));
    assert!(numbers.report_failure(This, signal));
    assert!(numbers.has_failed(This, signal));
}

#[test]
fn every_mark_covering_a_failure_reports_it() {
    let (mut numbers, all) = started(2);
    let (first, second) = (all[0], all[1]);
    numbers.end(first, true, false);
    numbers.end(second, false, false);
    for mark in [second, first, second] {
        assert!(numbers.report_failure(This, mark));
    }
}

#[test]
fn mark_requested_after_the_report_reports_no_failure() {
    let (mut numbers, all) = started(1);
    numbers.end(all[0], true, false);
    assert!(numbers.report_failure(This, all[0]));
    let later = numbers.last_issued();
    assert!(later > all[0] && numbers.is_complete(later));
    assert_eq!(numbers.in_flight(), 0);
    assert!(!numbers.has_failed(This, later) && !numbers.report_failure(This, later));
    // Transfers that start after the report change nothing.
    let next = numbers.begin().unwrap();
    numbers.end(next, false, false);
    assert!(!numbers.report_failure(This, next));
    // The first transfer's failure is still reported.
    assert!(numbers.report_failure(This, all[0]));
}

#[test]
fn failure_is_reported_to_each_side_separately() {
    let (mut numbers, all) = started(1);
    numbers.end(all[0], true, false);
    assert!(numbers.report_failure(This, all[0]));
    // The peer asks for a signal now. No failure was reported to the peer.
    let later = numbers.last_issued();
    assert!(numbers.has_failed(Peer, later) && !numbers.has_failed(This, later));
    assert!(numbers.report_failure(Peer, later));
    assert!(!numbers.has_failed(Peer, numbers.last_issued()));
}

#[test]
fn failure_returned_to_its_caller_is_reported_to_waiters() {
    let (mut numbers, all) = started(2);
    let mark = numbers.last_issued();
    numbers.end(all[1], true, true);
    numbers.end(all[0], false, false);
    for side in [This, Peer] {
        assert!(numbers.has_failed(side, mark) && !numbers.has_failed(side, all[0]));
        assert!(!numbers.report_failure(side, numbers.last_issued()));
        assert!(numbers.report_failure(side, mark));
    }
}

#[test]
fn failure_in_a_full_window_is_reported_again() {
    let (mut numbers, all) = started(WINDOW);
    numbers.end(all[3], true, true);
    let last = numbers.last_issued();
    assert!(numbers.has_failed(This, last));
    for number in all.iter().filter(|number| **number != all[3]) {
        numbers.end(*number, false, false);
    }
    let next = numbers.begin().unwrap();
    assert!(numbers.has_failed(This, last) && !numbers.has_failed(This, next));
}

/// A failure in the model: for each side, the last number issued when the failure was reported to
/// it.
#[derive(Debug)]
struct Failure {
    number: u64,
    /// Report to the callers of this side, and report to the peer.
    reported: [Option<u64>; 2],
}

/// A mark or a signal that a side has asked for. It stands for all transfers up to this number.
#[derive(Clone, Copy, Debug)]
struct Asked {
    asker: Asker,
    up_to: u64,
}

/// An event at an endpoint. The numbers choose among the transfers or requests that exist.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begins,
    Ends(usize),
    /// A transfer fails, and its caller gets the error or not.
    Fails(usize, bool),
    /// A side asks for a mark or a signal.
    IsAsked(bool),
    /// A fence waits for a mark or a signal.
    Waits(usize),
    /// A signal is due.
    Signals(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Begins),
        2 => any::<usize>().prop_map(Step::Ends),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, told)| Step::Fails(which, told)),
        3 => any::<bool>().prop_map(Step::IsAsked),
        4 => any::<usize>().prop_map(Step::Waits),
        2 => any::<usize>().prop_map(Step::Signals),
    ]
}

fn side(asker: Asker) -> usize {
    usize::from(asker == Peer)
}

proptest! {
    #![proptest_config(config())]

    /// Each mark and each signal reports the failures of the transfers that it stands for.
    ///
    /// Failures that were reported to its side before it was requested are left out. Order and
    /// number of the checks do not matter.
    #[test]
    fn marks_and_signals_report_exactly_the_failures_they_cover(
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let mut numbers = Numbers::new();
        let (mut under_way, mut failures) = (Vec::new(), Vec::<Failure>::new());
        let mut asked = Vec::new();
        let mut reports = 0;
        for step in steps {
            let last = numbers.last_issued().0;
            match step {
                Step::Begins => under_way.extend(numbers.begin()),
                Step::Ends(which) if !under_way.is_empty() => {
                    let number = under_way.remove(which % under_way.len());
                    numbers.end(number, false, false);
                }
                Step::Fails(which, told) if !under_way.is_empty() => {
                    let number = under_way.remove(which % under_way.len());
                    numbers.end(number, true, told);
                    reports += usize::from(told);
                    failures.push(Failure {
                        number: number.0,
                        reported: [told.then_some(last); 2],
                    });
                }
                Step::IsAsked(by_peer) => asked.push(Asked {
                    asker: if by_peer { Peer } else { This },
                    up_to: last,
                }),
                Step::Waits(which) | Step::Signals(which) if !asked.is_empty() => {
                    let one: Asked = asked[which % asked.len()];
                    if !numbers.is_complete(Sequence(one.up_to)) {
                        continue;
                    }
                    let side = side(one.asker);
                    let expected = failures.iter().any(|failure| {
                        failure.number <= one.up_to
                            && failure.reported[side].is_none_or(|last| one.up_to <= last)
                    });
                    if matches!(step, Step::Signals(_)) {
                        prop_assert_eq!(numbers.has_failed(one.asker, Sequence(one.up_to)), expected);
                        continue;
                    }
                    prop_assert_eq!(numbers.report_failure(one.asker, Sequence(one.up_to)), expected);
                    let fresh = failures.iter_mut().filter(|failure| {
                        failure.number <= one.up_to && failure.reported[side].is_none()
                    });
                    reports += usize::from(fresh.map(|f| f.reported[side] = Some(last)).count() > 0);
                }
                _ => (),
            }
            // After this many reports the numbers join old ones.
            if reports >= REPORTS {
                break;
            }
        }
    }
}
