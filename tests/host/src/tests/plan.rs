// SPDX-License-Identifier: GPL-2.0

//! Plans against copying byte by byte.

use proptest::prelude::*;

use super::config;
use super::extents::table;
use crate::logic::extents::Extent;
use crate::logic::plan::{CACHE_LINE, Linear, Plan, Segment, Short, Walk, split_tail};

/// A walk over given runs, which may be false.
#[derive(Clone, Debug)]
struct Runs(Vec<(u64, u64)>);

impl Walk for Runs {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        let first = self.0.first_mut()?;
        if first.1 <= limit {
            Some(self.0.remove(0))
        } else {
            let run = (first.0, limit);
            *first = (first.0 + limit, first.1 - limit);
            Some(run)
        }
    }
}

/// A walk that ignores the limit.
struct Unbounded(Vec<(u64, u64)>);

impl Walk for Unbounded {
    fn next(&mut self, _: u64) -> Option<(u64, u64)> {
        self.0.pop()
    }
}

fn linear(address: u64, len: u64) -> Linear {
    Linear::new(address, len).expect("a good range")
}

#[test]
fn planned_segments_are_contiguous_on_both_sides() {
    let plan = Plan::new(
        Runs(vec![(100, 10), (200, 10)]),
        Runs(vec![(300, 5), (400, 15)]),
        18,
        8,
    );
    let segments: Result<Vec<Segment>, Short> = plan.collect();
    let segment = |destination, source, len| Segment {
        destination,
        source,
        len,
    };
    assert_eq!(
        segments,
        Ok(vec![
            segment(100, 300, 5),
            segment(105, 400, 5),
            segment(200, 405, 8),
        ])
    );
}

#[test]
fn plan_ends_with_an_error_if_a_side_is_short() {
    let mut plan = Plan::new(linear(0, 100), linear(1000, 30), 40, u64::MAX);
    assert_eq!(
        plan.next(),
        Some(Ok(Segment {
            destination: 0,
            source: 1000,
            len: 30
        }))
    );
    assert_eq!(plan.next(), Some(Err(Short)));
    assert_eq!(plan.next(), None);
}

#[test]
fn empty_copy_has_no_segment() {
    assert_eq!(Plan::new(linear(0, 0), linear(0, 0), 0, 1).next(), None);
}

#[test]
fn linear_walk_beyond_the_last_address_is_refused() {
    assert!(Linear::new(u64::MAX, 1).is_none());
    assert_eq!(linear(u64::MAX - 1, 1).next(9), Some((u64::MAX - 1, 1)));
}

#[test]
fn split_tail_cuts_at_the_last_cache_line() {
    assert_eq!(split_tail(0, 0), (0, 0));
    assert_eq!(split_tail(0, 1), (0, 1));
    assert_eq!(split_tail(0, 64), (0, 64));
    assert_eq!(split_tail(0, 65), (64, 1));
    assert_eq!(split_tail(0, 128), (64, 64));
    assert_eq!(split_tail(63, 2), (1, 1));
    assert_eq!(split_tail(1, 63), (0, 63));
    assert_eq!(split_tail(u64::MAX, u64::MAX), (u64::MAX - 62, 62));
}

fn runs() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..1000_u64, 1..50_u64), 0..12)
}

fn bytes(runs: &[(u64, u64)]) -> Vec<u64> {
    runs.iter().flat_map(|(at, len)| *at..*at + *len).collect()
}

#[test]
fn segment_splits_at_the_given_length() {
    let segment = |destination, source, len| Segment {
        destination,
        source,
        len,
    };
    let whole = segment(100, 9000, 30);
    let parts = whole.split(20);
    assert_eq!(
        parts,
        (segment(100, 9000, 20), Some(segment(120, 9020, 10)))
    );
    assert_eq!(whole.split(30), (whole, None));
    assert_eq!(whole.split(u64::MAX), (whole, None));
    assert_eq!(whole.split(0).0.len, 1);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn segments_copy_every_byte_once(
        destination in runs(),
        source in runs(),
        len in 0..300_u64,
        max_segment in 0..70_u64,
    ) {
        let (to, from) = (bytes(&destination), bytes(&source));
        let enough = to.len().min(from.len()) as u64 >= len;
        let mut copied = Vec::new();
        let mut failed = false;
        for segment in Plan::new(Runs(destination), Runs(source), len, max_segment) {
            prop_assert!(!failed);
            match segment {
                Ok(segment) => {
                    prop_assert!(0 < segment.len && segment.len <= max_segment.max(1));
                    copied.extend((0..segment.len).map(|byte| {
                        (segment.destination + byte, segment.source + byte)
                    }));
                }
                Err(Short) => failed = true,
            }
        }
        prop_assert_eq!(failed, !enough);
        if failed {
            prop_assert!((copied.len() as u64) < len);
        } else {
            prop_assert_eq!(copied.len() as u64, len);
        }
        let pairs: Vec<(u64, u64)> = to.into_iter().zip(from).take(copied.len()).collect();
        prop_assert_eq!(copied, pairs);
    }

    /// A plan of a body and then one of a tail cover the whole copy.
    #[test]
    fn body_and_tail_plans_cover_the_whole_copy(
        list in prop::collection::vec((0..10_000_u64, 1..100_u64), 1..12),
        skip in 0..100_u64,
        max_segment in 1..70_u64,
    ) {
        let list: Vec<Extent> = list
            .into_iter()
            .map(|(address, len)| Extent::new(address, len).expect("a good extent"))
            .collect();
        let extents = table(&list);
        let len = extents.len().saturating_sub(skip);
        let (body, tail) = split_tail(skip, len);
        prop_assert_eq!(body + tail, len);
        let mut at = 0;
        for part in [body, tail] {
            let (destination, source) = (linear(at, part), extents.walk(skip + at));
            for segment in Plan::new(destination, source, part, max_segment) {
                let segment = segment.expect("enough on both sides");
                prop_assert_eq!(segment.destination, at);
                let (address, contiguous) = extents.at(skip + at).expect("inside");
                prop_assert_eq!(segment.source, address);
                prop_assert!(segment.len <= contiguous);
                at += segment.len;
            }
        }
        prop_assert_eq!(at, len);
    }

    #[test]
    fn plan_of_invalid_walks_never_overflows(
        destination in prop::collection::vec(any::<(u64, u64)>(), 0..5),
        source in prop::collection::vec(any::<(u64, u64)>(), 0..5),
        len: u64,
        max_segment in 1_u64 << 58..,
    ) {
        let mut sum = 0;
        let plan = Plan::new(Unbounded(destination), Unbounded(source), len, max_segment);
        for segment in plan.flatten() {
            sum += segment.len;
            prop_assert!(segment.destination.checked_add(segment.len).is_some());
            prop_assert!(segment.source.checked_add(segment.len).is_some());
        }
        prop_assert!(sum <= len);
    }

    #[test]
    fn split_tail_is_the_last_cache_line_for_any_range(
        address in 0..1_u64 << 40,
        len in 1..1_u64 << 40,
    ) {
        let (body, tail) = split_tail(address, len);
        prop_assert_eq!(body + tail, len);
        prop_assert!((1..=CACHE_LINE).contains(&tail));
        let line = |byte: u64| byte / CACHE_LINE;
        let last = address + len - 1;
        prop_assert_eq!(line(address + body), line(last));
        prop_assert!(body == 0 || line(address + body - 1) < line(last));
    }
}
