// SPDX-License-Identifier: GPL-2.0

//! The port table against a set.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::config;
use crate::logic::ports::{FIRST_DYNAMIC, InUse, PortTable};

#[test]
fn zeroed_memory_is_an_empty_table() {
    // What the kernel relies on when it makes one in place.
    // SAFETY: A table is made of integers only.
    let mut zeroed: PortTable = unsafe { std::mem::zeroed() };
    let mut table = PortTable::new();
    for port in 0..=u16::MAX {
        assert!(!zeroed.is_used(port) && !table.is_used(port));
    }
    assert_eq!(zeroed.allocate_any(), table.allocate_any());
}

#[test]
fn port_zero_cannot_be_had() {
    let mut table = PortTable::new();
    assert_eq!(table.allocate(0), Err(InUse));
    assert!(!table.free(0));
}

#[test]
fn a_port_is_had_once() {
    let mut table = PortTable::new();
    for port in [1, 63, 64, 1023, 1088, u16::MAX] {
        assert_eq!(table.allocate(port), Ok(()));
        assert_eq!(table.allocate(port), Err(InUse));
        assert!(table.is_used(port));
        assert!(table.free(port));
        assert!(!table.free(port));
        assert!(!table.is_used(port));
    }
}

#[test]
fn freed_ports_come_back_last() {
    let mut table = PortTable::new();
    assert_eq!(table.allocate_any(), Some(FIRST_DYNAMIC));
    assert!(table.free(FIRST_DYNAMIC));
    for port in FIRST_DYNAMIC + 1..=u16::MAX {
        assert_eq!(table.allocate_any(), Some(port));
    }
    assert_eq!(table.allocate_any(), Some(FIRST_DYNAMIC));
    assert_eq!(table.allocate_any(), None);
    assert!(table.free(2000));
    assert_eq!(table.allocate_any(), Some(2000));
    assert_eq!(table.allocate_any(), None);
}

#[test]
fn ports_that_were_asked_for_are_skipped() {
    let mut table = PortTable::new();
    for port in FIRST_DYNAMIC..FIRST_DYNAMIC + 200 {
        assert_eq!(table.allocate(port), Ok(()));
    }
    assert_eq!(table.allocate_any(), Some(FIRST_DYNAMIC + 200));
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u16),
    Any,
    Free(u16),
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![
        any::<u16>(),
        FIRST_DYNAMIC..FIRST_DYNAMIC + 20,
        (u16::MAX - 5)..=u16::MAX,
        0_u16..3
    ]
}

proptest! {
    // Each case looks at all ports several times.
    #![proptest_config(Config { cases: config().cases / 8, ..config() })]

    #[test]
    fn behaves_as_a_set(
        // Nearly full tables are where it goes round.
        first_taken in prop_oneof![Just(u16::MAX), FIRST_DYNAMIC..u16::MAX],
        steps in prop::collection::vec(
            prop_oneof![
                port().prop_map(Step::Allocate),
                Just(Step::Any),
                port().prop_map(Step::Free),
            ],
            1..200,
        ),
    ) {
        let mut table = PortTable::new();
        let mut model = BTreeSet::new();
        for port in first_taken..u16::MAX {
            prop_assert_eq!(table.allocate(port), Ok(()));
            model.insert(port);
        }
        for step in steps {
            match step {
                Step::Allocate(port) => {
                    let expected = if port != 0 && model.insert(port) { Ok(()) } else { Err(InUse) };
                    prop_assert_eq!(table.allocate(port), expected);
                }
                Step::Any => match table.allocate_any() {
                    Some(port) => {
                        prop_assert!(port >= FIRST_DYNAMIC);
                        prop_assert!(model.insert(port));
                    }
                    None => prop_assert_eq!(
                        model.range(FIRST_DYNAMIC..).count(),
                        usize::from(u16::MAX - FIRST_DYNAMIC) + 1
                    ),
                },
                Step::Free(port) => prop_assert_eq!(table.free(port), model.remove(&port)),
            }
        }
        for port in 0..=u16::MAX {
            prop_assert_eq!(table.is_used(port), model.contains(&port));
        }
    }
}
