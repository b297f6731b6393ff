// SPDX-License-Identifier: GPL-2.0

//! Extent tables against a byte-by-byte list of addresses, and words from a hostile peer.

use std::ops::{Deref, DerefMut};

use proptest::prelude::*;

use super::config;
use crate::logic::extents::{Entry, Extent, Extents, Growing, max_packed_len, pack, unpack};
use crate::logic::plan::Walk;

fn extent(address: u64, len: u64) -> Extent {
    Extent::new(address, len).expect("a good extent")
}

/// Memory for the entries of a table.
#[derive(Default)]
pub(super) struct Room {
    entries: Vec<Entry>,
    room: usize,
}

impl Deref for Room {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.entries
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }
}

impl Room {
    pub(super) fn reserve(&mut self, additional: usize) {
        self.room = self.room.max(self.entries.len() + additional);
    }
}

impl Growing for Room {
    fn append(&mut self, entry: Entry) -> bool {
        let has_room = self.entries.len() < self.room;
        if has_room {
            self.entries.push(entry);
        }
        has_room
    }
}

pub(super) fn empty() -> Extents<Room> {
    Extents::default()
}

/// Returns a table of these extents, none of them joined with another.
pub(super) fn table(extents: &[Extent]) -> Extents<Room> {
    let mut table = empty();
    table.entries.reserve(extents.len());
    for extent in extents {
        assert_eq!(table.add(*extent, false), Some(()));
    }
    table
}

#[test]
fn extent_is_added_only_if_the_table_has_room() {
    let mut extents = empty();
    assert_eq!(extents.add(extent(10, 5), true), None);
    extents.entries.reserve(1);
    assert_eq!(extents.add(extent(10, 5), true), Some(()));
    // This extent joins the last one, so it takes no room.
    assert_eq!(extents.add(extent(15, 5), true), Some(()));
    assert_eq!(extents.add(extent(10, 5), true), None);
    assert_eq!((extents.entries().len(), extents.len()), (1, 10));
    extents.entries.reserve(1);
    assert_eq!(extents.add(extent(0, u64::MAX - 9), true), None);
    assert_eq!(extents.add(extent(0, u64::MAX - 10), true), Some(()));
    assert_eq!(extents.len(), u64::MAX);
    // The extent would fit alone, but not behind the others.
    let mut extents = empty();
    extents.entries.reserve(3);
    assert_eq!(extents.add(extent(0, 1 << 63), true), Some(()));
    assert_eq!(extents.add(extent(0, 1 << 62), true), Some(()));
    assert_eq!(extents.add(extent(1 << 62, 1 << 62), true), None);
    assert_eq!(extents.add(extent(1 << 62, 1), true), Some(()));
}

#[test]
fn empty_or_overflowing_extent_is_refused() {
    assert_eq!(Extent::new(5, 0), None);
    assert_eq!(Extent::new(u64::MAX, 1), None);
    assert_eq!(extent(u64::MAX - 1, 1).end(), u64::MAX);
}

#[test]
fn adjacent_extents_join_in_order_only() {
    assert_eq!(extent(0, 10).join(extent(10, 5)), Some(extent(0, 15)));
    assert_eq!(extent(0, 10).join(extent(11, 5)), None);
    assert_eq!(extent(10, 5).join(extent(0, 10)), None);
    assert_eq!(
        extent(0, 15).split_at(10),
        Some((extent(0, 10), extent(10, 5)))
    );
    assert_eq!(extent(0, 15).split_at(0), None);
    assert_eq!(extent(0, 15).split_at(15), None);
}

#[test]
fn empty_table_finds_nothing() {
    let empty = empty();
    assert_eq!((empty.len(), empty.at(0)), (0, None));
    assert_eq!(empty.walk(0).next(1), None);
}

#[test]
fn lookup_beyond_the_table_finds_nothing() {
    let extents = table(&[extent(100, 10)]);
    assert_eq!(extents.at(9), Some((109, 1)));
    assert_eq!(extents.at(10), None);
    assert_eq!(extents.entries().len(), 1);
}

#[test]
fn unaligned_or_too_large_extents_cannot_be_packed() {
    assert_eq!(pack(extent(0x1000, 0x1000), 12), Some(1 << 20));
    assert_eq!(pack(extent(0x1000, 0x3000), 12), Some((1 << 20) | 2));
    assert_eq!(max_packed_len(12), Some(1 << 32));
    assert_eq!(max_packed_len(44), None);
    assert_eq!(max_packed_len(u32::MAX), None);
    let top = (1 << 44) - 1;
    assert_eq!(pack(extent(top << 12, 1 << 32), 12), Some(u64::MAX));
    for (address, len, shift) in [
        (1, 0x1000, 12),
        (0, 0x800, 12),
        (0, (1 << 32) + 0x1000, 12),
        (1 << 56, 0x1000, 12),
        (0, 0x1000, 44),
        (0, 0x1000, 64),
    ] {
        assert_eq!(
            pack(extent(address, len), shift),
            None,
            "{address:#x} {len:#x}"
        );
    }
    assert_eq!(unpack(u64::MAX, 12), Some(extent(top << 12, 1 << 32)));
    // Larger pages reach less far up.
    assert_eq!(unpack(u64::MAX, 21), None);
    assert_eq!(unpack(u64::MAX, 64), None);
    assert_eq!(unpack(0, 12), Some(extent(0, 0x1000)));
}

fn small_extents() -> impl Strategy<Value = Vec<Extent>> {
    prop::collection::vec(
        (0..10_000_u64, 1..20_u64).prop_map(|(address, len)| extent(address, len)),
        0..20,
    )
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lookups_agree_with_a_list(list in small_extents()) {
        let extents = table(&list);
        let mut offset = 0;
        for extent in &list {
            for skip in 0..extent.len() {
                let expected = (extent.address() + skip, extent.len() - skip);
                prop_assert_eq!(extents.at(offset), Some(expected));
                offset += 1;
            }
        }
        prop_assert_eq!(extents.len(), offset);
        for beyond in [offset, offset + 1, u64::MAX] {
            prop_assert_eq!(extents.at(beyond), None);
        }
    }

    #[test]
    fn walks_agree_with_a_list(
        list in small_extents(),
        start in 0..200_u64,
        limits in prop::collection::vec(0..30_u64, 1..50),
    ) {
        let extents = table(&list);
        let addresses: Vec<u64> =
            list.iter().flat_map(|extent| extent.address()..extent.end()).collect();
        let mut rest = addresses.get(start as usize..).unwrap_or_default();
        let mut walk = extents.walk(start);
        for limit in limits {
            match walk.next(limit) {
                None => prop_assert!(limit == 0 || rest.is_empty()),
                Some((address, len)) => {
                    prop_assert!(0 < len && len <= limit);
                    let (run, behind) = rest.split_at(len as usize);
                    prop_assert!(run.iter().copied().eq(address..address + len));
                    rest = behind;
                }
            }
        }
    }

    #[test]
    fn added_extents_are_contiguous_and_merged(list in small_extents()) {
        let mut extents = empty();
        for extent in &list {
            extents.entries.reserve(1);
            prop_assert_eq!(extents.add(*extent, true), Some(()));
        }
        let mut end = 0;
        for entry in extents.entries() {
            prop_assert_eq!(entry.start, end);
            end += entry.extent.len();
        }
        let neighbours = extents.entries().windows(2);
        prop_assert!(neighbours.into_iter().all(|pair| pair[0].extent.join(pair[1].extent).is_none()));
        let mut walk = extents.walk(0);
        for address in list.iter().flat_map(|extent| extent.address()..extent.end()) {
            prop_assert_eq!(walk.next(1), Some((address, 1)));
        }
        prop_assert_eq!(walk.next(1), None);
    }

    #[test]
    fn any_packed_word_unpacks_to_a_valid_extent_or_none(packed: u64, shift in 0..70_u32) {
        if let Some(extent) = unpack(packed, shift) {
            prop_assert!(extent.len() > 0);
            prop_assert!(extent.address().checked_add(extent.len()).is_some());
            prop_assert_eq!(pack(extent, shift), Some(packed));
        }
    }

    #[test]
    fn packed_extent_unpacks_to_itself(
        frame in 0..1_u64 << 44,
        pages in 1..=1_u64 << 20,
        shift in 12..=16_u32,
    ) {
        if let Some(extent) = Extent::new(frame << shift, pages << shift) {
            let packed = pack(extent, shift).expect("an extent of pages");
            prop_assert_eq!(unpack(packed, shift), Some(extent));
        }
    }
}
