// SPDX-License-Identifier: GPL-2.0

//! The gate, one step after another. `interleavings.rs` tests it with several threads.

use proptest::prelude::*;

use super::config;
use crate::logic::gate::Gate;

#[test]
fn last_leave_of_a_closed_gate_returns_true() {
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
fn leave_of_an_open_gate_returns_false() {
    let gate = Gate::new();
    assert!(gate.enter());
    assert!(!gate.leave());
    assert!(gate.is_idle());
}

#[test]
fn leave_without_enter_changes_nothing() {
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
    fn gate_agrees_with_a_counter(steps in prop::collection::vec(0..20_u8, 1..100)) {
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
