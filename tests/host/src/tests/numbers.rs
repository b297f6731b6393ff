// SPDX-License-Identifier: GPL-2.0

//! Transfers that fail, and what fences and signals of both sides hear of them.

use proptest::prelude::*;

use super::config;
use crate::logic::marks::Asker::{self, Peer, This};
use crate::logic::marks::Numbers;
use crate::logic::marks::{REPORTS, Sequence, WINDOW};

/// Numbers of so many transfers that are under way, and those.
fn started(count: u64) -> (Numbers, Vec<Sequence>) {
    let mut numbers = Numbers::new();
    let all = (0..count).filter_map(|_| numbers.begin()).collect();
    (numbers, all)
}

#[test]
fn a_signal_is_not_stored_though_a_fence_has_reported_the_failure_before() {
    let (mut numbers, all) = started(3);
    let signal = numbers.last_issued();
    numbers.end(all[1], true, false);
    numbers.end(all[2], false, false);
    assert!(numbers.end(all[0], false, false));
    assert!(numbers.report_failure(This, signal));
    assert!(numbers.has_failed(This, signal));
}

#[test]
fn every_mark_that_stands_for_it_reports_it() {
    let (mut numbers, all) = started(2);
    let (first, second) = (all[0], all[1]);
    numbers.end(first, true, false);
    numbers.end(second, false, false);
    for mark in [second, first, second] {
        assert!(numbers.report_failure(This, mark));
    }
}

#[test]
fn what_is_asked_for_after_the_report_hears_nothing_of_it() {
    let (mut numbers, all) = started(1);
    numbers.end(all[0], true, false);
    assert!(numbers.report_failure(This, all[0]));
    let later = numbers.last_issued();
    assert!(later > all[0] && numbers.is_complete(later));
    assert_eq!(numbers.in_flight(), 0);
    assert!(!numbers.has_failed(This, later) && !numbers.report_failure(This, later));
    // Also behind transfers.
    let next = numbers.begin().unwrap();
    numbers.end(next, false, false);
    assert!(!numbers.report_failure(This, next));
    // And the first one still does.
    assert!(numbers.report_failure(This, all[0]));
}

#[test]
fn each_side_hears_of_it_by_its_own() {
    let (mut numbers, all) = started(1);
    numbers.end(all[0], true, false);
    assert!(numbers.report_failure(This, all[0]));
    // A signal that the peer asks for now: it was told of nothing.
    let later = numbers.last_issued();
    assert!(numbers.has_failed(Peer, later) && !numbers.has_failed(This, later));
    assert!(numbers.report_failure(Peer, later));
    assert!(!numbers.has_failed(Peer, numbers.last_issued()));
}

#[test]
fn a_failure_that_its_caller_hears_of_concerns_others_who_wait() {
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
fn without_a_number_for_the_report_it_is_heard_once_more() {
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

/// A failure, as a model keeps it: whom it was reported to, and which number had been given out by then.
#[derive(Debug)]
struct Failure {
    number: u64,
    /// Of this side's askers, and of the peer's.
    reported: [Option<u64>; 2],
}

/// What was asked for: it stands for all transfers up to this number.
#[derive(Clone, Copy, Debug)]
struct Asked {
    asker: Asker,
    up_to: u64,
}

/// What happens at an end. Numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begins,
    Ends(usize),
    /// It fails, and its caller is told or not.
    Fails(usize, bool),
    /// A mark or a signal is asked for.
    IsAsked(bool),
    /// A fence waits for one.
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

    /// Each mark and each signal hears of the failures that it stands for, but of those that its side had heard of before
    /// it was asked for, in whatever order they are looked at, and however often.
    #[test]
    fn each_hears_exactly_of_what_it_stands_for(steps in prop::collection::vec(step(), 0..60)) {
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
            // Behind so many reports old ones are joined.
            if reports >= REPORTS {
                break;
            }
        }
    }
}
