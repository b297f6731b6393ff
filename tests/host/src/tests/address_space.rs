// SPDX-License-Identifier: GPL-2.0

//! The address space against a `BTreeMap`, page by page.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::config;
use crate::logic::address_space::{
    InvalidRange, LIMIT, Piece, Range, RangeSource, Removal, choose_offset, covering, find,
    first_inside, overlaps, removal,
};

#[derive(Clone, Debug, Default)]
struct Tree(BTreeMap<u64, Range>);

impl Tree {
    fn insert(&mut self, range: Range) {
        self.0.insert(range.start(), range);
    }

    fn remove(&mut self, range: Range) {
        assert_eq!(self.0.remove(&range.start()), Some(range));
    }
}

impl RangeSource for Tree {
    fn at_or_before(&self, offset: u64) -> Option<Range> {
        self.0.range(..=offset).next_back().map(|(_, range)| *range)
    }

    fn at_or_after(&self, offset: u64) -> Option<Range> {
        self.0.range(offset..).next().map(|(_, range)| *range)
    }
}

fn range(start: u64, len: u64) -> Range {
    Range::from_parts(start, len).expect("a good range")
}

fn tree(ranges: &[(u64, u64)]) -> Tree {
    let mut tree = Tree::default();
    for (start, len) in ranges {
        tree.insert(range(*start, *len));
    }
    tree
}

#[test]
fn ranges_are_checked() {
    assert_eq!(Range::new(-1, 1), Err(InvalidRange));
    assert_eq!(Range::new(i64::MIN, 1), Err(InvalidRange));
    assert_eq!(Range::new(0, 0), Err(InvalidRange));
    assert_eq!(Range::new(i64::MAX, 1), Err(InvalidRange));
    assert_eq!(Range::new(1, u64::MAX), Err(InvalidRange));
    assert_eq!(Range::from_parts(u64::MAX, 1), Err(InvalidRange));
    let whole = Range::new(0, LIMIT).expect("the largest range");
    assert_eq!((whole.start(), whole.len(), whole.end()), (0, LIMIT, LIMIT));
    let last = Range::new(i64::MAX - 1, 1).expect("the last range");
    assert_eq!(last.offset(), i64::MAX - 1);
    assert!(whole.contains(&last) && !last.contains(&whole));
}

#[test]
fn alignment() {
    assert!(range(0x3000, 0x1000).is_aligned(12));
    assert!(!range(0x3001, 0x1000).is_aligned(12));
    assert!(!range(0x3000, 0x800).is_aligned(12));
    assert!(!range(0x3000, 0x1000).is_aligned(16));
    assert!(!range(0x3000, 0x1000).is_aligned(64));
    assert!(range(0x3001, 1).is_aligned(0));
}

#[test]
fn first_offsets_are_equal_on_both_sides() {
    assert_eq!(choose_offset(&tree(&[]), 0, 0x1000), Some(0));
    assert_eq!(choose_offset(&tree(&[]), 0x4000, 0x1000), Some(0x4000));
}

#[test]
fn places_are_found_from_the_hint_and_then_from_zero() {
    let windows = tree(&[(0x1000, 0x1000), (0x3000, 0x2000)]);
    assert_eq!(choose_offset(&windows, 0, 0x1000), Some(0));
    assert_eq!(choose_offset(&windows, 0, 0x2000), Some(0x5000));
    assert_eq!(choose_offset(&windows, 0x1000, 0x1000), Some(0x2000));
    // In the middle of a window.
    assert_eq!(choose_offset(&windows, 0x4000, 0x1000), Some(0x5000));
    assert_eq!(choose_offset(&windows, 0x4000, 0), None);
    let page = 0x1000;
    let last = LIMIT - LIMIT % page;
    let full_end = tree(&[(last - page, page)]);
    assert_eq!(choose_offset(&full_end, last - page, page), Some(0));
    assert_eq!(choose_offset(&full_end, last - page, last), None);
    assert_eq!(choose_offset(&full_end, u64::MAX, page), Some(0));
    assert_eq!(choose_offset(&full_end, 0, u64::MAX), None);
}

#[test]
fn a_place_may_begin_before_the_hint_and_reach_over_it() {
    // Nothing fits above the hint, but there is room below that the hint lies in.
    let windows = tree(&[(LIMIT - 100, 100)]);
    assert_eq!(choose_offset(&windows, 50, LIMIT - 100), Some(0));
}

#[test]
fn a_request_may_span_windows() {
    let windows = tree(&[(0, 10), (10, 10), (30, 10)]);
    let pieces: Vec<Piece> = covering(&windows, range(3, 12)).expect("no gap").collect();
    assert_eq!(
        pieces,
        [
            Piece {
                range: range(0, 10),
                offset: 3,
                len: 7
            },
            Piece {
                range: range(10, 10),
                offset: 0,
                len: 5
            }
        ]
    );
    assert!(covering(&windows, range(15, 20)).is_none());
    assert!(covering(&windows, range(25, 1)).is_none());
}

#[test]
fn removal_is_all_or_nothing() {
    let windows = tree(&[(0, 10), (10, 10), (30, 10)]);
    let inside = |start, len| removal(&windows, range(start, len));
    assert_eq!(inside(0, 40), Ok(3));
    assert_eq!(inside(5, 35), Err(Removal::Cuts));
    assert_eq!(inside(0, 35), Err(Removal::Cuts));
    assert_eq!(inside(12, 2), Err(Removal::Cuts));
    assert_eq!(inside(20, 10), Err(Removal::None));
    assert_eq!(inside(20, 20), Ok(1));
    assert_eq!(inside(100, 1), Err(Removal::None));
}

/// A source that answers whatever it was told to, looked at from any side.
struct Liar(Option<Range>, Option<Range>);

impl RangeSource for Liar {
    fn at_or_before(&self, _: u64) -> Option<Range> {
        self.0
    }

    fn at_or_after(&self, _: u64) -> Option<Range> {
        self.1
    }
}

const PAGES: u64 = 32;

fn small() -> impl Strategy<Value = Range> {
    (0..PAGES, 1..8_u64).prop_map(|(start, len)| range(start, len))
}

fn any_range() -> impl Strategy<Value = Range> {
    prop_oneof![
        small(),
        (any::<u64>(), any::<u64>()).prop_filter_map("no range", |(start, len)| Range::from_parts(
            start % LIMIT,
            len % LIMIT
        )
        .ok())
    ]
}

fn pages(range: &Range) -> std::ops::Range<u64> {
    range.start()..range.end()
}

proptest! {
    #![proptest_config(config())]

    /// Registers, finds, and unregisters as a set of pages would say.
    #[test]
    fn behaves_as_a_set_of_pages(
        steps in prop::collection::vec((0..4_u8, small(), 0..PAGES), 1..100),
    ) {
        let mut tree = Tree::default();
        let mut taken = BTreeSet::new();
        for (kind, request, hint) in steps {
            let any_taken = pages(&request).any(|page| taken.contains(&page));
            prop_assert_eq!(overlaps(&tree, request), any_taken);
            prop_assert_eq!(find(&tree, hint).is_some(), taken.contains(&hint));
            match kind {
                0 => {
                    if !any_taken {
                        tree.insert(request);
                        taken.extend(pages(&request));
                    }
                }
                1 => {
                    let len = request.len();
                    let fits = |at: &u64| (*at..*at + len).all(|page| !taken.contains(&page));
                    let chosen = choose_offset(&tree, hint, len);
                    // There is always room above all pages of the test.
                    prop_assert_eq!(chosen, (hint..).find(fits));
                    let place = range(chosen.expect("room"), len);
                    tree.insert(place);
                    taken.extend(pages(&place));
                }
                2 => {
                    let gap = pages(&request).find(|page| !taken.contains(page));
                    match covering(&tree, request) {
                        None => prop_assert!(gap.is_some()),
                        Some(pieces) => {
                            prop_assert_eq!(gap, None);
                            let mut at = request.start();
                            for piece in pieces {
                                prop_assert!(piece.len > 0);
                                prop_assert_eq!(piece.range.start() + piece.offset, at);
                                prop_assert!(piece.offset + piece.len <= piece.range.len());
                                at += piece.len;
                            }
                            prop_assert_eq!(at, request.end());
                        }
                    }
                }
                _ => {
                    let touched = || tree.0.values().filter(|r| r.intersects(&request));
                    let expected = if touched().any(|r| !request.contains(r)) {
                        Err(Removal::Cuts)
                    } else if touched().next().is_none() {
                        Err(Removal::None)
                    } else {
                        Ok(touched().copied().collect::<Vec<_>>())
                    };
                    let count = removal(&tree, request);
                    prop_assert_eq!(count, expected.as_ref().map(Vec::len).map_err(|why| *why));
                    if let Ok(mut expected) = expected.map(Vec::into_iter) {
                        let mut from = request.start();
                        while let Some(inside) = first_inside(&tree, from, request.end()) {
                            prop_assert_eq!(Some(inside), expected.next());
                            tree.remove(inside);
                            for page in pages(&inside) {
                                taken.remove(&page);
                            }
                            from = inside.end();
                        }
                        prop_assert_eq!(expected.next(), None);
                        prop_assert!(!overlaps(&tree, request));
                    }
                }
            }
        }
    }

    /// A full space below, so that the search has to come round to the hint from zero.
    #[test]
    fn the_search_comes_round(
        ranges in prop::collection::vec(small(), 0..20),
        hint in 0..PAGES + 8,
        len in 1..6_u64,
    ) {
        let mut tree = tree(&[(PAGES + 8, LIMIT - PAGES - 8)]);
        for range in ranges {
            if !overlaps(&tree, range) {
                tree.insert(range);
            }
        }
        let fits = |at: &u64| {
            *at + len <= PAGES + 8 && !overlaps(&tree, range(*at, len))
        };
        let expected = (hint..PAGES + 8).find(fits).or_else(|| (0..hint).find(fits));
        prop_assert_eq!(choose_offset(&tree, hint, len), expected);
    }

    /// No source makes these functions panic or run for ever.
    #[test]
    fn false_sources_do_no_harm(
        before in prop::option::of(any_range()),
        after in prop::option::of(any_range()),
        request in any_range(),
        hint: u64,
        len: u64,
    ) {
        let liar = Liar(before, after);
        overlaps(&liar, request);
        choose_offset(&liar, hint, len);
        if let Some(pieces) = covering(&liar, request) {
            prop_assert_eq!(pieces.map(|piece| piece.len).sum::<u64>(), request.len());
        }
        prop_assert!(removal(&liar, request).unwrap_or(0) < 3);
    }
}
