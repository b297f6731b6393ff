// SPDX-License-Identifier: GPL-2.0

//! Apertures in parts, against a list of all addresses in them.

use proptest::prelude::*;

use super::config;
use super::extents::empty;
use crate::logic::extents::Extent;
use crate::logic::window_set::{MOST_WINDOWS, Seams, Shape, WindowSet, cut, of_several};

const PART: u64 = 1 << 16;

fn parts(bits: u16, base: u64, len: u64) -> Option<Vec<(u32, u64, u64)>> {
    let set = WindowSet::from_bits(bits)?;
    set.parts(base, len).map(Iterator::collect)
}

#[test]
fn single_window_has_no_seams() {
    // Neither the length nor the start of the aperture matters.
    assert_eq!(parts(0b100, 4096, 12_345), Some(vec![(2, 4096, 12_345)]));
    let seams = WindowSet::of([2]).and_then(|set| set.seams(12_345));
    assert_eq!(seams, Some(Seams::NONE));
    assert_eq!(Seams::NONE.locate(u64::MAX / 2), (0, u64::MAX / 2));
}

#[test]
fn several_windows_lead_to_parts_in_numeric_order() {
    let set = WindowSet::of([5, 0, 1]).expect("windows");
    assert_eq!((set.bits(), set.count()), (0b10_0011, 3));
    let base = 7 * PART;
    assert_eq!(
        parts(set.bits(), base, 3 * PART),
        Some(vec![
            (0, base, PART),
            (1, base + PART, PART),
            (5, base + 2 * PART, PART)
        ])
    );
    let seams = set.seams(3 * PART).expect("seams");
    assert_eq!(seams.locate(2 * PART + 5), (2, 5));
    let shape = Shape {
        len: 3 * PART,
        seams,
    };
    assert_eq!(shape.longest(), PART);
}

#[test]
fn invalid_window_sets_of_a_peer_are_refused() {
    assert_eq!(WindowSet::from_bits(0), None);
    assert_eq!(WindowSet::of([MOST_WINDOWS]), None);
    assert_eq!(WindowSet::of([]), None);
    // Not aligned; not in equal parts; not a power of two; empty; beyond all addresses.
    assert_eq!(parts(0b11, 4096, 2 * PART), None);
    assert_eq!(parts(0b11, 0, 2 * PART + 1), None);
    assert_eq!(parts(0b11, 0, 2 * 12_345), None);
    assert_eq!(parts(0b11, 0, 0), None);
    assert_eq!(parts(0b11, u64::MAX - PART + 1, 2 * PART), None);
    assert_eq!(parts(0b1, u64::MAX, 2), None);
}

#[test]
fn several_windows_are_used_if_they_expose_more_than_one() {
    let of = |sizes: &[u64], most| of_several(sizes.iter().copied(), most);
    assert_eq!(of(&[PART, PART], 16), Some((2, PART)));
    assert_eq!(of(&[PART, PART], 1), None);
    assert_eq!(of(&[PART], 16), None);
    assert_eq!(of(&[], 16), None);
    // Only half of the larger window would be used.
    assert_eq!(of(&[2 * PART, PART], 16), None);
    assert_eq!(of(&[2 * PART, PART, PART], 16), Some((3, PART)));
    assert_eq!(of(&[2 * PART, 2 * PART, PART], 16), Some((2, 2 * PART)));
    // The size of a part is a power of two.
    assert_eq!(of(&[3 * PART, 3 * PART], 16), Some((2, 2 * PART)));
    assert_eq!(of(&[5 * PART, PART, 0, 0], 16), None);
    assert_eq!(of(&[PART; 40], 40), Some((MOST_WINDOWS, PART)));
}

#[test]
fn extents_cut_at_a_seam_are_not_merged() {
    let seams = Seams::every(PART).expect("a power of two");
    // The first extent crosses two seams, the second begins at the end of the first, the third
    // begins at a seam.
    let extents = [
        (PART / 2, 2 * PART),
        (5 * PART / 2, PART / 2),
        (3 * PART, 7),
    ];
    let mut table = empty();
    table.entries.reserve(6);
    for (address, len) in extents {
        for part in cut(Extent::new(address, len).expect("memory"), seams) {
            let may_join = !seams.is_at(part.address());
            assert_eq!(table.add(part, may_join), Some(()));
        }
    }
    let places = table.entries().iter();
    let places: Vec<_> = places
        .map(|entry| (entry.extent.address(), entry.extent.len()))
        .collect();
    assert_eq!(
        places,
        [
            (PART / 2, PART / 2),
            (PART, PART),
            (2 * PART, PART),
            (3 * PART, 7)
        ]
    );
}

#[test]
fn seams_divide_an_aperture_into_ranges() {
    let seams = Seams::every(4).expect("a power of two");
    let ranges: Vec<_> = seams.ranges(10).collect();
    assert_eq!(ranges, [0..4, 4..8, 8..10]);
    let mut whole = Seams::NONE.ranges(10);
    assert_eq!((whole.next(), whole.next()), (Some(0..10), None));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn cut_extents_cover_the_same_memory(
        address in 0..u64::MAX / 2,
        len in 1..40 * PART,
        shift in 12_u32..20,
    ) {
        let seams = Seams::every(1 << shift).expect("a power of two");
        let extent = Extent::new(address, len).expect("memory");
        let mut end = address;
        let mut count = 0;
        for part in cut(extent, seams) {
            prop_assert_eq!(part.address(), end);
            prop_assert!(count == 0 || seams.is_at(end));
            let first = seams.locate(part.address()).0;
            prop_assert_eq!(first, seams.locate(part.end() - 1).0);
            end = part.end();
            count += 1;
        }
        prop_assert_eq!(end, extent.end());
        let crossed = ((extent.end() - 1) >> shift) - (address >> shift);
        prop_assert_eq!(count, crossed + 1);
    }

    #[test]
    fn window_parts_cover_the_aperture(
        bits in 1_u16..,
        base in 0_u64..1 << 30,
        shift in 12_u32..24,
    ) {
        let part = 1_u64 << shift;
        let base = base / part * part;
        let len = u64::from(bits.count_ones()) * part;
        let set = WindowSet::from_bits(bits).expect("windows");
        let seams = set.seams(len).expect("seams");
        let mut end = base;
        for (index, (window, start, len)) in set.parts(base, len).expect("parts").enumerate() {
            prop_assert!(bits & (1 << window) != 0);
            prop_assert_eq!(start, end);
            prop_assert_eq!(seams.locate(start - base), (if set.count() > 1 { index } else { 0 }, 0));
            end += len;
        }
        prop_assert_eq!(end, base + len);
    }

    #[test]
    fn any_window_words_of_a_peer_never_overflow(bits: u16, base: u64, len: u64) {
        if let Some(parts) = parts(bits, base, len) {
            prop_assert_eq!(parts.len() as u32, bits.count_ones());
            prop_assert!(parts.iter().all(|(_, start, part)| start.checked_add(*part).is_some()));
        }
    }
}
