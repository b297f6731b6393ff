// SPDX-License-Identifier: GPL-2.0
//! Wake-up requests of `logic/ring.rs`, one step after another. `interleavings.rs` tests concurrent
//! steps.

use crate::logic::ring::{WakeRequestState, is_missed};

#[test]
fn wake_request_is_answered_once() {
    let request = WakeRequestState::new();
    assert_eq!(request.replace(10), None);
    assert!(request.stands_at(10) && request.is_open_at(10));
    assert!(!request.is_answered_at(9));
    assert!(request.is_answered_at(10) && !request.is_answered_at(11));
    assert!(request.stands_at(10) && !request.is_open_at(10));
}

/// The counter has gone around once without a sleeper, and the new request is for the same number.
#[test]
fn reused_number_after_wraparound_is_a_new_wake_request() {
    let request = WakeRequestState::new();
    assert_eq!(request.replace(10), None);
    assert!(request.is_answered_at(10));
    // A sleeper for this number has to make the request anew.
    assert!(!request.is_open_at(10));
    assert_eq!(request.replace(10), None);
    assert!(!is_missed(10, None, 9));
    assert!(request.is_answered_at(10));
}

#[test]
fn replaced_unanswered_wake_request_is_returned() {
    let request = WakeRequestState::new();
    assert_eq!(request.replace(10), None);
    assert_eq!(request.replace(20), Some(10));
    assert!(is_missed(20, Some(10), 10) && !is_missed(20, Some(10), 9));
}
