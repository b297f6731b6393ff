// SPDX-License-Identifier: GPL-2.0

//! The bell, one step after the other; see `interleavings.rs` for many threads.

use proptest::prelude::*;

use super::config;
use crate::logic::bell::Bell;

#[test]
fn nobody_holds_it() {
    let bell = Bell::new();
    assert!(bell.wanted() && bell.wanted());
    bell.hold();
    assert!(!bell.let_go());
}

#[test]
fn the_last_holder_rings_once_for_all() {
    let bell = Bell::new();
    bell.hold();
    bell.hold();
    assert!(!bell.wanted() && !bell.wanted());
    assert!(!bell.let_go());
    assert!(!bell.wanted());
    assert!(bell.let_go());
    bell.hold();
    assert!(!bell.let_go());
    assert!(bell.wanted());
}

#[test]
fn letting_go_without_holding_changes_nothing() {
    let bell = Bell::new();
    assert!(!bell.let_go());
    assert!(bell.wanted());
}

proptest! {
    #![proptest_config(config())]

    /// What is wanted is rung for, at the latest when nobody holds it any more.
    #[test]
    fn behaves_as_a_count_and_a_flag(steps in prop::collection::vec(0..3_u8, 1..100)) {
        let bell = Bell::new();
        let (mut holders, mut due) = (0, false);
        for step in steps {
            match step {
                0 => {
                    prop_assert_eq!(bell.wanted(), holders == 0);
                    due |= holders > 0;
                }
                1 => {
                    bell.hold();
                    holders += 1;
                }
                _ => {
                    prop_assert_eq!(bell.let_go(), holders == 1 && due);
                    due &= holders != 1;
                    holders = (holders - 1).max(0);
                }
            }
        }
    }
}
