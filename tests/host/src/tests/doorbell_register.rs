// SPDX-License-Identifier: GPL-2.0

//! A doorbell that one side rings reaches the other side, and no other side.

use proptest::prelude::*;

use super::config;
use crate::logic::doorbells::DoorbellRegister;

#[test]
fn separate_registers_use_the_same_bits_at_both_ends() {
    let register = DoorbellRegister::of_each(0x7fff);
    assert_eq!(register.numbers(), 0x7fff);
    assert_eq!(register.own_bits(), 0x7fff);
    assert_eq!(register.to_peer_bits((1 << 14) | (1 << 20)), 1 << 14);
    assert_eq!(register.numbers_of(0xffff), 0x7fff);
}

#[test]
fn shared_register_splits_its_bits_between_both_ends() {
    let lower = DoorbellRegister::shared(0xffff_ffff, true);
    let upper = DoorbellRegister::shared(0xffff_ffff, false);
    assert_eq!(lower.numbers(), 0xffff);
    assert_eq!((lower.own_bits(), upper.own_bits()), (0xffff, 0xffff_0000));
    assert_eq!(lower.to_peer_bits(0b10), 0b10 << 16);
    assert_eq!(upper.to_peer_bits(0b10), 0b10);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn rung_bits_are_heard_by_the_peer_only(valid: u64, numbers: u64) {
        let lower = DoorbellRegister::shared(valid, true);
        let upper = DoorbellRegister::shared(valid, false);
        prop_assert_eq!(lower.own_bits() & upper.own_bits(), 0);
        for (here, there) in [(lower, upper), (upper, lower)] {
            let rung = here.to_peer_bits(numbers);
            prop_assert_eq!(rung & !valid, 0);
            prop_assert_eq!(here.numbers_of(rung), 0);
            prop_assert_eq!(there.numbers_of(rung), numbers & here.numbers());
            prop_assert_eq!(there.to_own_bits(numbers), rung);
        }
    }
}
