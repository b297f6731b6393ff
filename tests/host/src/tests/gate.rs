// SPDX-License-Identifier: GPL-2.0

//! The gate, one step after the other; see `interleavings.rs` for many threads.

use proptest::prelude::*;

use super::config;
use crate::logic::gate::Gate;

#[test]
fn the_last_one_out_of_a_closed_gate_knows() {
    let gate = Gate::new();
    assert!(gate.enter() && gate.enter());
    assert!(!gate.leave());
    assert!(!gate.is_closed() && !gate.is_idle());
    gate.close();
    assert!(gate.is_closed() && !gate.is_idle());
    assert!(!gate.enter());
    assert!(gate.leave());
    assert!(gate.is_idle());
}

#[test]
fn leaving_an_open_gate_wakes_nobody() {
    let gate = Gate::new();
    assert!(gate.enter());
    assert!(!gate.leave());
    assert!(gate.is_idle());
}

#[test]
fn leaving_without_entering_changes_nothing() {
    let gate = Gate::new();
    assert!(!gate.leave());
    gate.close();
    assert!(!gate.leave());
    assert!(gate.is_closed() && gate.is_idle());
    assert!(!gate.enter());
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn behaves_as_a_counter(steps in prop::collection::vec(0..20_u8, 1..100)) {
        let gate = Gate::new();
        let (mut inside, mut closed) = (0, false);
        for step in steps {
            match step {
                0 => {
                    gate.close();
                    closed = true;
                }
                1..=10 => {
                    prop_assert_eq!(gate.enter(), !closed);
                    inside += u32::from(!closed);
                }
                _ => {
                    let last = closed && inside == 1;
                    prop_assert_eq!(gate.leave(), last);
                    inside = inside.saturating_sub(1);
                }
            }
            prop_assert_eq!(gate.is_idle(), inside == 0);
            prop_assert_eq!(gate.is_closed(), closed);
        }
    }
}
