// SPDX-License-Identifier: GPL-2.0

//! The byte ring against a queue, and against false counters.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config;
use crate::logic::ring::{Corrupt, Geometry, SKEW, reaches};

fn geometry(size: u32) -> Geometry {
    Geometry::new(size).expect("a good size")
}

#[test]
fn ring_size_must_be_a_power_of_two() {
    for good in [1, 2, 64, 4096, 1 << 30] {
        assert_eq!(Geometry::new(good).map(|g| g.size()), Some(good));
    }
    for bad in [0, 3, 65, (1 << 30) + 1, 1 << 31, u32::MAX] {
        assert_eq!(Geometry::new(bad), None, "{bad}");
    }
}

#[test]
fn counters_beyond_the_ring_size_are_corrupt() {
    let ring = geometry(16);
    assert_eq!(ring.used(16, 0), Ok(16));
    assert_eq!(ring.free(16, 0), Ok(0));
    assert_eq!(ring.used(17, 0), Err(Corrupt));
    assert_eq!(ring.free(17, 0), Err(Corrupt));
    // The consumer is ahead of the producer.
    assert!(ring.used(0, 1).is_err());
}

#[test]
fn ring_counters_wrap_around() {
    let ring = geometry(16);
    assert_eq!(ring.used(3, u32::MAX - 4), Ok(8));
    assert_eq!(Geometry::advance(u32::MAX, 2), 1);
    assert_eq!(ring.spans(u32::MAX - 4, 8), [(11, 5), (0, 3)]);
}

#[test]
fn spans_cover_the_ring_exactly() {
    let ring = geometry(8);
    assert_eq!(ring.spans(0, 8), [(0, 8), (0, 0)]);
    assert_eq!(ring.spans(5, 3), [(5, 3), (0, 0)]);
    assert_eq!(ring.spans(5, 8), [(5, 3), (0, 5)]);
    assert_eq!(ring.spans(5, 0), [(5, 0), (0, 0)]);
    assert_eq!(ring.spans(5, u32::MAX), [(5, 3), (0, 5)]);
}

#[test]
fn large_ring_starts_with_a_skew() {
    let ring = geometry(1 << 20);
    assert_eq!(ring.spans(0, 8), [(SKEW, 8), (0, 0)]);
    assert_eq!(
        ring.spans(0, 1 << 20),
        [(SKEW, (1 << 20) - SKEW), (0, SKEW)]
    );
    // The skew is no multiple of two pages, nor of a larger power of two.
    assert_eq!(SKEW % (2 << 12), 1 << 12);
    // Nothing is shifted within a page.
    assert_eq!(geometry(2048).spans(5, 3), [(5, 3), (0, 0)]);
}

#[test]
fn wake_request_is_reached_once() {
    // The counter passes 5, and wraps.
    assert!(!reaches(5, 0, 4));
    assert!(reaches(5, 4, 5) && reaches(5, 0, 5) && reaches(5, 0, 9));
    assert!(!reaches(5, 5, 9) && !reaches(5, 6, 9));
    assert!(reaches(2, u32::MAX, 3) && !reaches(2, u32::MAX, 1));
    // A counter that does not move reaches nothing.
    assert!(!reaches(5, 5, 5) && !reaches(6, 5, 5));
    // Memory that was never written holds zero, so no ring begins with a doorbell.
    assert!(!reaches(0, 0, 1) && !reaches(0, 0, 1 << 30));
}

fn range((offset, len): (u32, u32)) -> std::ops::Range<usize> {
    offset as usize..(offset + len) as usize
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn spans_stay_inside_the_ring(shift in 0_u32..=30, index: u32, len: u32) {
        let ring = geometry(1 << shift);
        let spans = ring.spans(index, len);
        for (offset, len) in spans {
            prop_assert!(offset.checked_add(len).is_some_and(|end| end <= ring.size()));
        }
        prop_assert_eq!(spans[0].1 + spans[1].1, len.min(ring.size()));
        prop_assert!(spans[1].1 == 0 || spans[0].0 + spans[0].1 == ring.size());
    }

    #[test]
    fn wake_request_is_reached_by_exactly_one_counter_step(
        start: u32,
        ahead in 1_u32..1000,
        steps in proptest::collection::vec(1_u32..50, 1..100),
    ) {
        let wanted = start.wrapping_add(ahead);
        let mut counter = start;
        let mut rung = 0;
        for step in &steps {
            let after = Geometry::advance(counter, *step);
            rung += u32::from(reaches(wanted, counter, after));
            counter = after;
        }
        let sum: u32 = steps.iter().sum();
        prop_assert_eq!(rung, u32::from(sum >= ahead));
    }

    #[test]
    fn used_and_free_bytes_add_up_to_the_size(shift in 0_u32..=30, produced: u32, consumed: u32) {
        let ring = geometry(1 << shift);
        match ring.used(produced, consumed) {
            Ok(used) => {
                prop_assert_eq!(consumed.wrapping_add(used), produced);
                prop_assert_eq!(ring.free(produced, consumed), Ok(ring.size() - used));
            }
            Err(_) => prop_assert!(ring.free(produced, consumed).is_err()),
        }
    }

    /// Bytes come out in the order they went in, wherever the counters begin.
    #[test]
    fn ring_agrees_with_a_queue(
        shift in 0_u32..7,
        start: u32,
        steps in prop::collection::vec((any::<bool>(), 0_u32..100), 1..200),
    ) {
        let ring = geometry(1 << shift);
        let mut memory = vec![0_u8; 1 << shift];
        let mut model = VecDeque::new();
        let (mut produced, mut consumed) = (start, start);
        let mut next = 0_u8;
        for (produce, wanted) in steps {
            let used = ring.used(produced, consumed).expect("honest counters");
            prop_assert_eq!(used as usize, model.len());
            if produce {
                let len = wanted.min(ring.free(produced, consumed).expect("honest counters"));
                for span in ring.spans(produced, len) {
                    for byte in &mut memory[range(span)] {
                        *byte = next;
                        model.push_back(next);
                        next = next.wrapping_add(1);
                    }
                }
                produced = Geometry::advance(produced, len);
            } else {
                let len = wanted.min(used);
                for span in ring.spans(consumed, len) {
                    for byte in &memory[range(span)] {
                        prop_assert_eq!(Some(*byte), model.pop_front());
                    }
                }
                consumed = Geometry::advance(consumed, len);
            }
        }
    }
}
