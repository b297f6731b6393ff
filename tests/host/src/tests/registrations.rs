// SPDX-License-Identifier: GPL-2.0

//! The table of kept registrations, against a table that is searched linearly.

use proptest::prelude::*;

use super::config;
use crate::logic::registrations::{Entry, Pages, find, least_recently_used, overlapping};

const PAGE_SHIFT: u32 = 12;

fn entry(pages: Pages, last_use: u64) -> Entry<()> {
    Entry {
        pages,
        last_use,
        registration: (),
    }
}

fn holding(space: usize, address: usize, len: usize, writable: bool) -> Option<Pages> {
    Pages::holding(space, address, len, writable, PAGE_SHIFT)
}

fn pages(space: usize, start: usize, count: usize, writable: bool) -> Pages {
    holding(space, start << PAGE_SHIFT, count << PAGE_SHIFT, writable).expect("some pages")
}

#[test]
fn byte_range_counts_all_touched_pages() {
    for (address, len, start, count) in [
        (0, 1, 0, 1),
        (0, 4096, 0, 1),
        (0, 4097, 0, 2),
        (4095, 1, 0, 1),
        (4095, 2, 0, 2),
        (4096, 1, 1, 1),
        (8191, 4098, 1, 3),
    ] {
        let pages = holding(7, address, len, false).expect("some pages");
        assert_eq!((pages.start(), pages.count()), (start, count));
        assert_eq!((pages.space, pages.writable), (7, false));
    }
    assert_eq!(holding(7, 0, 0, true), None);
    assert_eq!(holding(7, usize::MAX, 2, true), None);
    assert_eq!(
        holding(7, usize::MAX, 1, true).map(|pages| pages.count()),
        Some(1)
    );
    assert_eq!(Pages::holding(7, usize::MAX, 1, true, 0), None);
    assert_eq!(Pages::holding(7, 1, 1, true, 64), None);
}

#[test]
fn registration_serves_only_its_process_and_access() {
    let kept = [
        entry(pages(1, 10, 4, false), 0),
        entry(pages(1, 20, 4, true), 0),
    ];
    assert_eq!(find(&kept, &pages(1, 10, 4, false)), Some(0));
    assert_eq!(find(&kept, &pages(1, 12, 1, false)), Some(0));
    // A write needs a registration for writing. A read takes any.
    assert_eq!(find(&kept, &pages(1, 12, 1, true)), None);
    assert_eq!(find(&kept, &pages(1, 21, 2, true)), Some(1));
    assert_eq!(find(&kept, &pages(1, 21, 2, false)), Some(1));
    // The registration covers only a part of the pages.
    assert_eq!(find(&kept, &pages(1, 9, 2, false)), None);
    assert_eq!(find(&kept, &pages(1, 13, 2, false)), None);
    // The address is that of another process.
    assert_eq!(find(&kept, &pages(2, 12, 1, false)), None);
}

#[test]
fn adjacent_registrations_do_not_overlap() {
    let kept = [
        entry(pages(1, 0, 2, true), 5),
        entry(pages(1, 2, 2, true), 3),
        entry(pages(1, 4, 2, true), 4),
    ];
    assert_eq!(overlapping(&kept, &pages(1, 2, 2, true)), 1..2);
    assert_eq!(overlapping(&kept, &pages(1, 1, 2, true)), 0..2);
    assert_eq!(overlapping(&kept, &pages(1, 6, 2, true)), 3..3);
    assert_eq!(overlapping(&kept, &pages(1, 1, 4, false)), 0..0);
    assert_eq!(overlapping(&kept, &pages(2, 1, 4, true)), 3..3);
    assert_eq!(least_recently_used(&kept), Some(1));
    assert_eq!(least_recently_used::<()>(&[]), None);
}

#[test]
fn joined_registration_covers_both_within_the_limit() {
    let (one, other) = (pages(1, 2, 2, true), pages(1, 6, 1, true));
    assert_eq!(one.joined(&other, 5), Some(pages(1, 2, 5, true)));
    assert_eq!(other.joined(&one, 5), Some(pages(1, 2, 5, true)));
    assert_eq!(one.joined(&other, 4), None);
    assert_eq!(one.joined(&pages(2, 2, 2, true), 9), None);
    assert_eq!(one.joined(&pages(1, 2, 2, false), 9), None);
}

fn some_pages() -> impl Strategy<Value = Pages> {
    (1_usize..3, 0_usize..40, 1_usize..12, any::<bool>())
        .prop_map(|(space, start, count, writable)| pages(space, start, count, writable))
}

proptest! {
    #![proptest_config(config())]

    /// If the table is kept as the module keeps it, it stays in order and finds what a linear
    /// search finds.
    #[test]
    fn find_agrees_with_a_linear_search(wanted in prop::collection::vec(some_pages(), 1..60)) {
        const LIMIT: usize = 20;

        let mut kept: Vec<Entry<()>> = Vec::new();
        for (clock, wanted) in wanted.into_iter().enumerate() {
            let clock = clock as u64;
            let searched = kept.iter().any(|entry| entry.pages.serves(&wanted));
            match find(&kept, &wanted) {
                Some(index) => {
                    prop_assert!(kept[index].pages.serves(&wanted));
                    kept[index].last_use = clock;
                }
                None => {
                    prop_assert!(!searched);
                    let mut new = wanted;
                    for entry in &kept[overlapping(&kept, &wanted)] {
                        prop_assert!(entry.pages.overlaps(&wanted));
                        new = new.joined(&entry.pages, LIMIT).unwrap_or(new);
                    }
                    prop_assert!(new.serves(&wanted));
                    prop_assert!(new.count() <= LIMIT.max(wanted.count()));
                    let place = overlapping(&kept, &new);
                    kept.splice(place, [entry(new, clock)]);
                    prop_assert!(find(&kept, &wanted).is_some());
                }
            }
            for pair in kept.windows(2) {
                prop_assert!(pair[0].pages < pair[1].pages);
                prop_assert!(!pair[0].pages.overlaps(&pair[1].pages));
            }
            let oldest = kept.iter().map(|entry| entry.last_use).min();
            prop_assert_eq!(
                least_recently_used(&kept).map(|index| kept[index].last_use),
                oldest
            );
        }
    }
}
