// SPDX-License-Identifier: GPL-2.0

//! The control ring against a queue, and against a lying peer.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config;
use crate::logic::control_block::{Corrupt, SlotReader, SlotWriter};

fn pair(slots: u32) -> (SlotWriter, SlotReader) {
    (
        SlotWriter::new(slots).expect("some slots"),
        SlotReader::new(slots).expect("some slots"),
    )
}

#[test]
fn ring_without_slots_is_refused() {
    assert!(SlotWriter::new(0).is_none());
    assert!(SlotReader::new(0).is_none());
}

#[test]
fn zeroed_slots_are_an_empty_ring() {
    let (mut writer, mut reader) = pair(3);
    assert_eq!(reader.expected(), (0, 1));
    assert_eq!(reader.is_ready(0), Ok(false));
    assert_eq!(writer.reserve(), Some((0, 1)));
    assert_eq!(reader.is_ready(1), Ok(true));
    reader.advance();
    assert_eq!(reader.consumed(), 1);
    assert_eq!(reader.expected(), (1, 2));
    assert_eq!(reader.is_ready(0), Ok(false));
}

#[test]
fn slot_of_the_last_round_is_not_ready() {
    let (_, mut reader) = pair(3);
    for _ in 0..3 {
        reader.advance();
    }
    assert_eq!(reader.expected(), (0, 4));
    assert_eq!(reader.is_ready(1), Ok(false));
    assert_eq!(reader.is_ready(4), Ok(true));
    // 0 is valid in the first round only. 7 would have overwritten 4.
    for found in [0, 2, 3, 5, 7, u64::MAX] {
        assert_eq!(reader.is_ready(found), Err(Corrupt));
    }
}

#[test]
fn full_ring_reserves_no_slot() {
    let (mut writer, _) = pair(2);
    assert_eq!(writer.free(), 2);
    assert_eq!(writer.reserve(), Some((0, 1)));
    assert_eq!(writer.reserve(), Some((1, 2)));
    assert_eq!(writer.reserve(), None);
    assert_eq!(writer.free(), 0);
    assert_eq!(writer.acknowledge(1), Ok(true));
    assert_eq!(writer.reserve(), Some((0, 3)));
    assert_eq!(writer.reserve(), None);
}

#[test]
fn invalid_acknowledgement_is_refused_without_effect() {
    let (mut writer, _) = pair(2);
    writer.reserve();
    writer.reserve();
    assert_eq!(writer.acknowledge(3), Err(Corrupt));
    assert_eq!(writer.free(), 0);
    assert_eq!(writer.acknowledge(2), Ok(true));
    assert_eq!(writer.acknowledge(1), Err(Corrupt));
    assert_eq!(writer.acknowledge(2), Ok(false));
    assert_eq!(writer.free(), 2);
}

#[derive(Clone, Debug)]
enum Step {
    Write,
    Read,
    Acknowledge,
    Lie(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Write),
        4 => Just(Step::Read),
        2 => Just(Step::Acknowledge),
        1 => any::<u64>().prop_map(Step::Lie),
    ]
}

proptest! {
    #![proptest_config(config())]

    /// Messages arrive in order and once. A false sequence number is either refused or possible.
    #[test]
    fn slots_agree_with_a_queue(
        slots in 1_u32..9,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let (mut writer, mut reader) = pair(slots);
        let mut memory = vec![0_u64; slots as usize];
        let mut under_way = VecDeque::new();
        let mut acknowledged = 0;
        for step in steps {
            match step {
                Step::Write => {
                    let full = writer.written() - acknowledged == u64::from(slots);
                    match writer.reserve() {
                        None => prop_assert!(full),
                        Some((slot, sequence)) => {
                            prop_assert!(!full);
                            memory[slot as usize] = sequence;
                            under_way.push_back(sequence);
                        }
                    }
                }
                Step::Read => {
                    let (slot, sequence) = reader.expected();
                    let ready = reader.is_ready(memory[slot as usize]);
                    prop_assert_eq!(ready, Ok(!under_way.is_empty()));
                    if let Some(message) = under_way.pop_front() {
                        prop_assert_eq!(message, sequence);
                        reader.advance();
                    }
                }
                Step::Acknowledge => {
                    let has_moved = acknowledged != reader.consumed();
                    acknowledged = reader.consumed();
                    prop_assert_eq!(writer.acknowledge(acknowledged), Ok(has_moved));
                }
                Step::Lie(consumed) => {
                    if consumed < acknowledged || consumed > writer.written() {
                        prop_assert!(writer.acknowledge(consumed).is_err());
                    }
                }
            }
            prop_assert_eq!(
                u64::from(writer.free()),
                u64::from(slots) - (writer.written() - acknowledged)
            );
        }
    }

    #[test]
    fn any_acknowledgement_leaves_a_valid_free_count(
        slots in 1_u32..9,
        consumed in prop::collection::vec(prop_oneof![0_u64..20, any::<u64>()], 1..50),
    ) {
        let (mut writer, _) = pair(slots);
        for consumed in consumed {
            while writer.reserve().is_some() {}
            let _ = writer.acknowledge(consumed);
            prop_assert!(writer.free() <= slots);
        }
    }
}

#[test]
fn arrived_slots_are_counted_up_to_the_first_gap() {
    let (_, mut reader) = pair(4);
    let arrived = |reader: &SlotReader, slots: [u64; 4]| {
        reader.arrived(|index| Ok::<_, ()>(slots[index as usize]))
    };
    assert_eq!(arrived(&reader, [0; 4]), Ok(0));
    assert_eq!(arrived(&reader, [1, 2, 0, 4]), Ok(2));
    assert_eq!(arrived(&reader, [1, 2, 3, 4]), Ok(4));
    reader.advance();
    reader.advance();
    assert_eq!(arrived(&reader, [1, 2, 0, 0]), Ok(2));
    assert_eq!(arrived(&reader, [5, 6, 3, 4]), Ok(6));
    assert!(reader.arrived(|_| Err(())).is_err());
}
