// SPDX-License-Identifier: GPL-2.0
//! The marks of `logic/news.rs`, one step after another. `interleavings.rs` tests concurrent steps.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::config;
use crate::logic::control_block::{ControlGeometry, LARGEST};
use crate::logic::news::{Marks, News, SLOTS_OF_GROUP};

struct Memory {
    bytes: RefCell<Vec<u8>>,
    loads: Cell<usize>,
}

impl Memory {
    fn of(news: News) -> Self {
        Self {
            bytes: RefCell::new(vec![0; news.start() + news.size()]),
            loads: Cell::new(0),
        }
    }

    /// Stores the marks as a sender does.
    fn mark(&self, news: News, slot: u32) {
        let (slot, group) = news.places(slot);
        for place in [slot, group] {
            self.bytes.borrow_mut()[news.start() + place] = 1;
        }
    }
}

impl Marks for Memory {
    fn load(&self, at: usize) -> u64 {
        self.loads.set(self.loads.get() + 1);
        let bytes = self.bytes.borrow();
        u64::from_le_bytes(*bytes[at..].first_chunk().expect("a word"))
    }

    fn store(&self, at: usize, mark: u8) {
        self.bytes.borrow_mut()[at] = mark;
    }
}

fn taken(news: News, memory: &Memory) -> Vec<u32> {
    let mut slots = Vec::new();
    let next = news.take(memory, 0, |slot| {
        slots.push(slot);
        true
    });
    assert_eq!(next, None);
    slots
}

#[test]
fn taking_marks_costs_the_same_for_any_connection_count() {
    let news = LARGEST.news();
    let memory = Memory::of(news);
    assert!(taken(news, &memory).is_empty());
    assert_eq!(memory.loads.take(), 8);
    memory.mark(news, news.slot(20_000));
    assert_eq!(taken(news, &memory), [20_000 % 4096]);
    assert_eq!(memory.loads.take(), 16);
}

#[test]
fn adjacent_connection_ids_share_no_slot() {
    for len in [64 << 10, 1 << 20, 4 << 20] {
        let news = ControlGeometry::for_aperture(len).news();
        let slots: BTreeSet<u32> = (7..7 + news.slots()).map(|id| news.slot(id)).collect();
        assert_eq!(slots.len(), news.slots() as usize);
    }
}

#[test]
fn endless_marks_do_not_hide_other_marks() {
    let news = LARGEST.news();
    let memory = Memory::of(news);
    let (busy, quiet) = ([0, 1, 70], [2, 69, 71, 4095]);
    let mut missing = BTreeSet::from(quiet);
    quiet.iter().for_each(|slot| memory.mark(news, *slot));
    let mut next = 0;
    for _ in 0..busy.len() + quiet.len() {
        busy.iter().for_each(|slot| memory.mark(news, *slot));
        let one = |slot| {
            missing.remove(&slot);
            false
        };
        next = news.take(&memory, next, one).expect("there are more");
    }
    assert!(missing.is_empty(), "{missing:?}");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_mark_is_taken_once(len: u64, connections: Vec<u32>, most in 1usize..20, first: u32) {
        let news = ControlGeometry::for_aperture(len).news();
        let mut from = news.slot(first);
        let memory = Memory::of(news);
        let marked: BTreeSet<u32> = connections.iter().map(|id| news.slot(*id)).collect();
        marked.iter().for_each(|slot| memory.mark(news, *slot));
        let mut found = Vec::new();
        // A reader that stops early comes back.
        loop {
            let mut left = most;
            let next = news.take(&memory, from, |slot| {
                found.push(slot);
                left -= 1;
                left > 0
            });
            prop_assert!(next.is_some() || left > 0);
            let Some(next) = next else { break };
            from = next;
        }
        found.sort_unstable();
        prop_assert!(found.iter().eq(&marked));
        prop_assert!(memory.bytes.borrow().iter().all(|byte| *byte == 0));
    }

    /// A hostile writer may store any bytes.
    #[test]
    fn any_mark_bytes_yield_valid_slots(
        len: u64,
        seed in prop::collection::vec(any::<u8>(), 1..99),
    ) {
        let news = ControlGeometry::for_aperture(len).news();
        let memory = Memory::of(news);
        let bytes = seed.iter().cycle();
        memory.bytes.borrow_mut()[news.start()..].iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        let found = taken(news, &memory);
        prop_assert!(found.iter().all(|slot| *slot < news.slots()));
        prop_assert!(found.len() <= (news.slots() / SLOTS_OF_GROUP * SLOTS_OF_GROUP) as usize);
    }
}
