// SPDX-License-Identifier: GPL-2.0

//! A ring that moves to a larger area, against a queue, and against false words.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config;
use crate::logic::ring::Geometry;
use crate::logic::ring::{in_first_area, move_at, moved_at};

fn geometry(size: u32) -> Geometry {
    Geometry::new(size).expect("a good size")
}

#[test]
fn unwritten_move_word_is_no_move() {
    assert_eq!(moved_at(0), None);
    assert_eq!(moved_at(u64::from(u32::MAX)), None);
    for at in [0, 1, u32::MAX] {
        assert_eq!(moved_at(move_at(at)), Some(at));
    }
}

#[test]
fn first_area_holds_unread_bytes_up_to_the_move() {
    let area = geometry(16);
    assert_eq!(in_first_area(&area, 0, 16, None), Ok(16));
    assert!(in_first_area(&area, 0, 17, None).is_err());
    assert_eq!(in_first_area(&area, 0, 16, Some(5)), Ok(5));
    assert_eq!(in_first_area(&area, 5, 100, Some(5)), Ok(0));
    // The move lies behind the requested count.
    assert_eq!(in_first_area(&area, 0, 3, Some(16)), Ok(3));
    assert!(in_first_area(&area, 0, 3, Some(17)).is_err());
    assert!(in_first_area(&area, 6, 3, Some(5)).is_err());
    assert_eq!(in_first_area(&area, u32::MAX - 1, 9, Some(3)), Ok(5));
}

/// Both ends of a ring, as the module has them.
struct Ring {
    areas: Vec<(Geometry, Vec<u8>)>,
    word: u64,
    produced: u32,
    consumed: u32,
    has_moved: bool,
    reading: usize,
}

impl Ring {
    fn new(size: u32, start: u32) -> Self {
        Self {
            areas: vec![(geometry(size), vec![0; size as usize])],
            word: 0,
            produced: start,
            consumed: start,
            has_moved: false,
            reading: 0,
        }
    }

    /// Makes the second area as the consumer does, and notifies the producer.
    fn grow(&mut self, size: u32) {
        if self.areas.len() == 1 {
            self.areas.push((geometry(size), vec![0; size as usize]));
        }
    }

    fn produce(&mut self, wanted: u32, mut next: impl FnMut() -> u8) {
        let last = self.areas.len() - 1;
        let ring = self.areas[last].0;
        let count = wanted.min(ring.free(self.produced, self.consumed).expect("honest"));
        if last == 1 && !self.has_moved {
            self.word = move_at(self.produced);
            self.has_moved = true;
        }
        for (offset, len) in ring.spans(self.produced, count) {
            for place in &mut self.areas[last].1[offset as usize..(offset + len) as usize] {
                *place = next();
            }
        }
        self.produced = Geometry::advance(self.produced, count);
    }

    fn consume(&mut self, wanted: u32, mut taken: impl FnMut(u8)) {
        let largest = self.areas.last().expect("one").0;
        let used = largest.used(self.produced, self.consumed).expect("honest");
        let mut left = wanted.min(used);
        while left > 0 {
            let (area, memory) = &self.areas[self.reading];
            let offered = self.reading + 1 < self.areas.len();
            let moved = moved_at(self.word).filter(|_| offered);
            let count = in_first_area(area, self.consumed, left, moved).expect("honest");
            if count == 0 {
                self.reading += 1;
                continue;
            }
            for (offset, len) in area.spans(self.consumed, count) {
                for byte in &memory[offset as usize..(offset + len) as usize] {
                    taken(*byte);
                }
            }
            self.consumed = Geometry::advance(self.consumed, count);
            left -= count;
        }
    }
}

proptest! {
    #![proptest_config(config())]

    /// Bytes come out in the order they went in, whenever the ring grows in between.
    #[test]
    fn bytes_leave_a_growing_ring_in_order(
        shift in 0_u32..4,
        start in prop_oneof![any::<u32>(), (u32::MAX - 100)..],
        steps in prop::collection::vec((0..4, 0_u32..600), 1..300),
    ) {
        const LIMIT: u32 = 512;
        let mut ring = Ring::new(1 << shift, start);
        let mut model = VecDeque::new();
        let mut byte = 0_u8;
        for (step, wanted) in steps {
            match step {
                0 => ring.grow(LIMIT),
                1 | 2 => ring.produce(wanted, || {
                    byte = byte.wrapping_mul(5).wrapping_add(wanted as u8 | 1);
                    model.push_back(byte);
                    byte
                }),
                _ => {
                    let mut taken = Vec::new();
                    ring.consume(wanted, |byte| taken.push(byte));
                    let expected: Vec<_> = model.drain(..taken.len()).collect();
                    prop_assert_eq!(taken, expected);
                }
            }
            let unread = ring.produced.wrapping_sub(ring.consumed);
            prop_assert_eq!(unread as usize, model.len());
        }
    }

    /// For any words, the consumer reads only within the area.
    #[test]
    fn any_move_word_stays_inside_the_area(
        shift in 0_u32..=30,
        consumed: u32,
        count: u32,
        word in prop_oneof![any::<u64>(), (0_u64..64).prop_map(|at| (1 << 32) | at)],
    ) {
        let area = geometry(1 << shift);
        if let Ok(found) = in_first_area(&area, consumed, count, moved_at(word)) {
            prop_assert!(found <= count && found <= area.size());
        }
    }
}
