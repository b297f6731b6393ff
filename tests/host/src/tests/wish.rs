// SPDX-License-Identifier: GPL-2.0
//! `logic/ring.rs`, one step after another; all at once it is in `interleavings.rs`.

use crate::logic::ring::{WishState, is_missed};

#[test]
fn a_wish_is_answered_once() {
    let wish = WishState::new();
    assert_eq!(wish.replace(10), None);
    assert!(wish.stands_at(10) && wish.is_open_at(10));
    assert!(!wish.is_answered_at(9));
    assert!(wish.is_answered_at(10) && !wish.is_answered_at(11));
    assert!(wish.stands_at(10) && !wish.is_open_at(10));
}

/// Nobody has slept while the counter went around once, and now the wish is the same number again.
#[test]
fn the_same_number_is_another_wish_when_the_counter_has_gone_around() {
    let wish = WishState::new();
    assert_eq!(wish.replace(10), None);
    assert!(wish.is_answered_at(10));
    // Whoever sleeps for it has to make it anew.
    assert!(!wish.is_open_at(10));
    assert_eq!(wish.replace(10), None);
    assert!(!is_missed(10, None, 9));
    assert!(wish.is_answered_at(10));
}

#[test]
fn who_is_replaced_before_he_was_told_is_said() {
    let wish = WishState::new();
    assert_eq!(wish.replace(10), None);
    assert_eq!(wish.replace(20), Some(10));
    assert!(is_missed(20, Some(10), 10) && !is_missed(20, Some(10), 9));
}
