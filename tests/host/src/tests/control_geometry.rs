// SPDX-License-Identifier: GPL-2.0
//! `logic/control_block.rs`.

use proptest::prelude::*;

use super::config;
use crate::logic::control_block::{
    ANNEX_SIZE, ANSWERS_OF_ONE, ControlGeometry, LARGEST, Lane, SLOTS_OFFSET,
};
use crate::logic::envelope::SLOT_SIZE;

/// The values that the other side knows must be the same in all versions that can talk to each
/// other.
#[test]
fn control_block_sizes_match_the_protocol() {
    let of = |len| {
        let geometry = ControlGeometry::for_aperture(len);
        (geometry.slots(), geometry.size())
    };
    assert_eq!(of(64 << 10), (8, 5696));
    assert_eq!(of((1 << 20) - 1), (8, 5696));
    assert_eq!(of(1 << 20), (64, 42304));
    assert_eq!(of(4 << 20), (256, 168_256));
    assert_eq!(ControlGeometry::for_aperture(u64::MAX), LARGEST);
}

#[test]
fn acknowledgement_is_due_at_every_half_ring() {
    for len in [64 << 10, 1 << 20, 4 << 20] {
        let geometry = ControlGeometry::for_aperture(len);
        let half = u64::from(geometry.slots()) / 2;
        for messages in 0..1000 {
            assert_eq!(geometry.is_half(messages), messages % half == 0);
            assert!(!geometry.is_half(messages) || geometry.is_due(messages));
            assert_eq!(geometry.is_due(messages), messages % half.min(16) == 0);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn parts_of_the_control_block_do_not_overlap(len: u64) {
        let geometry = ControlGeometry::for_aperture(len);
        let last = geometry.slots() - 1;
        prop_assert!(geometry.slots().is_power_of_two() && last > 0);
        prop_assert_eq!(geometry.slot(Lane::Requests, 0), SLOTS_OFFSET);
        prop_assert_eq!(geometry.slot(Lane::Requests, last) + SLOT_SIZE, geometry.annex(0));
        prop_assert_eq!(geometry.annex(last) + ANNEX_SIZE, geometry.slot(Lane::Answers, 0));
        let news = geometry.news();
        prop_assert_eq!(geometry.slot(Lane::Answers, last) + SLOT_SIZE, news.start());
        prop_assert_eq!(news.start() % 64, 0);
        prop_assert_eq!(news.start() + news.size(), geometry.size());
        // There is room for the handler of a request and for another sender.
        prop_assert!(geometry.slots() > ANSWERS_OF_ONE);
    }
}
