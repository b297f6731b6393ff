// SPDX-License-Identifier: GPL-2.0

//! Transfers that fail, and what fences and signals of both sides hear of them.

use crate::logic::marks::Asker::{Peer, This};
use crate::logic::marks::Numbers;
use crate::logic::marks::{Sequence, WINDOW};

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
