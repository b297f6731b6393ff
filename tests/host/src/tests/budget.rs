// SPDX-License-Identifier: GPL-2.0

//! The budget of events. `log_limit.rs` tests it for any times.

use crate::logic::budget::Budget;

#[test]
fn budget_has_a_burst_and_then_one_event_per_period() {
    let budget = Budget::new(4, 10);
    assert!(!budget.take(3, 5));
    assert!(budget.take(3, 1) && budget.take(3, 3));
    assert!(!budget.take(12, 1));
    assert!(budget.take(13, 1) && !budget.take(13, 1));
    assert!(!budget.take(32, 2) && budget.take(33, 2));
    assert!(budget.take(1000, 4) && !budget.take(1000, 1));
}
