// SPDX-License-Identifier: GPL-2.0
//! `logic/staging.rs`.

use proptest::prelude::*;

use super::config;
use crate::logic::staging::{Geometry, HEADER, Header, Kind, Parts};

fn header() -> impl Strategy<Value = Header> {
    let kind = prop_oneof![
        Just(Kind::Void),
        any::<u32>().prop_map(Kind::Data),
        any::<u64>().prop_map(Kind::Store),
    ];
    let ids = (any::<u64>(), any::<u32>(), any::<u64>());
    (ids, kind, any::<bool>()).prop_map(|((sequence, window, offset), kind, wants_doorbell)| {
        Header {
            sequence,
            window,
            offset,
            kind,
            wants_doorbell,
        }
    })
}

#[test]
fn staging_header_bytes_match_the_protocol() {
    let bytes = Header {
        sequence: 0x1122_3344_5566_7788,
        window: 7,
        offset: 0x1000,
        kind: Kind::Data(100),
        wants_doorbell: true,
    }
    .encode();
    assert_eq!(bytes[..8], 0x1122_3344_5566_7788_u64.to_le_bytes());
    assert_eq!(bytes[8..16], [7, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[16..24], 0x1000_u64.to_le_bytes());
    assert_eq!(bytes[24..32], 100_u64.to_le_bytes());
    assert_eq!(bytes[32..40], 1_u64.to_le_bytes());
    assert_eq!(bytes[40..56], [0; 16]);
}

#[test]
fn unwritten_memory_is_no_staging_header() {
    assert_eq!(Header::decode(&[0; HEADER]), None);
    assert_eq!(Header::decode(&[0xff; HEADER]), None);
}

#[test]
fn staging_slots_are_as_large_as_the_memory_allows() {
    let of = |len| Geometry::for_len(len).map(|geometry| (geometry.slots(), geometry.size()));
    assert_eq!(of(24 << 10), Some((4, 6 << 10)));
    assert_eq!(of(32 << 10), Some((4, 8 << 10)));
    assert_eq!(of((33 << 10) - 1), Some((4, 8 << 10)));
    assert_eq!(of(256 << 10), Some((4, 64 << 10)));
    assert_eq!(of(512 << 10), Some((4, 128 << 10)));
    assert_eq!(of(1 << 20), Some((4, 256 << 10)));
    assert_eq!(of(4 << 20), Some((16, 256 << 10)));
    assert_eq!(of(5 << 20), Some((16, 256 << 10)));
    assert_eq!(of(1 << 40), Some((64, 256 << 10)));
    assert_eq!((of(0), of(1), of(4095)), (None, None, None));
}

#[test]
fn invalid_staging_geometry_is_refused() {
    for (slots, size) in [
        (0, 4096),
        (3, 4096),
        (128, 4096),
        (4, 0),
        (4, 512),
        (4, 5000),
        (4, 512 << 10),
        (u32::MAX, u32::MAX),
    ] {
        assert_eq!(Geometry::new(slots, size), None, "{slots} of {size}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn encoded_staging_header_decodes_to_itself(header in header()) {
        prop_assert_eq!(Header::decode(&header.encode()), Some(header));
    }

    /// The words of a header may arrive one by one, in any order, over those of an earlier header.
    #[test]
    fn partly_written_staging_header_is_none(
        before in header(),
        header in header(),
        words in 0..255_u8,
    ) {
        prop_assume!(before != header);
        let (old, new) = (before.encode(), header.encode());
        let mut bytes = old;
        for word in (0..8).filter(|word| words & (1 << word) != 0) {
            bytes[word * 8..][..8].copy_from_slice(&new[word * 8..][..8]);
        }
        let found = Header::decode(&bytes);
        // If the missing words are the same in both headers, the header is complete.
        prop_assert!(found.is_none() || bytes == old || bytes == new);
    }

    #[test]
    fn any_header_bytes_decode_without_panic(bytes: [u8; HEADER]) {
        let _ = Header::decode(&bytes);
    }

    #[test]
    fn staging_slots_do_not_overlap(
        slots in 0..7_u32,
        size in 1..257_u32,
        sequence in 1..u64::MAX - 64,
    ) {
        let geometry = Geometry::new(1 << slots, size << 10).unwrap();
        let next = sequence + 1;
        prop_assert_eq!(geometry.index(next), (geometry.index(sequence) + 1) % (1 << slots));
        prop_assert!(geometry.header(sequence) + HEADER <= geometry.data(1));
        prop_assert!(geometry.data(sequence) + geometry.size() as usize <= geometry.wake_request());
        prop_assert!(geometry.wake_request() % 64 == 0 && geometry.wake_request() + 8 <= geometry.total());
        prop_assert!(geometry.verdict(sequence) + 8 <= geometry.credits());
        prop_assert!(geometry.verdict(sequence) >= 8);
        if slots > 0 {
            let apart = geometry.data(sequence).abs_diff(geometry.data(next));
            prop_assert!(apart >= geometry.size() as usize);
        }
    }

    /// For any piece: its parts cover it in order, one part for each slot.
    #[test]
    fn parts_cover_the_piece_in_order(
        first in header(),
        len in 0..5_000_000_u64,
        size in 1..257_u32,
    ) {
        let geometry = Geometry::new(4, size << 10).unwrap();
        let parts = Parts::new(first, len, geometry);
        let mut at = 0;
        for (index, part) in parts.enumerate() {
            prop_assert_eq!(part.at, at);
            prop_assert!(part.len > 0 && part.len <= geometry.size().into());
            prop_assert_eq!(part.header.kind, Kind::Data(part.len as u32));
            prop_assert_eq!(part.header.sequence, first.sequence.wrapping_add(index as u64));
            prop_assert_eq!(part.header.offset, first.offset.wrapping_add(at));
            prop_assert_eq!(part.header.window, first.window);
            at += part.len;
            // The writer asks for a report of the last part only.
            prop_assert_eq!(part.header.wants_doorbell, first.wants_doorbell && at == len);
        }
        prop_assert_eq!(at, len);
        prop_assert_eq!(parts.count() as u64, len.div_ceil(geometry.size().into()));
    }
}
