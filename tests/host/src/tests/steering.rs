// SPDX-License-Identifier: GPL-2.0

//! Steering: the choice of the doorbell that wakes a sleeper.

use super::config;
use crate::logic::doorbells::Steering;
use proptest::prelude::*;

const DATA: u64 = 0xffff_fffc;

#[test]
fn doorbell_that_has_not_rung_is_kept() {
    let steering = Steering::new();
    assert_eq!(steering.better(DATA, 5, 0, 0), None);
    steering.rings_on(6, 0);
    assert_eq!(steering.better(DATA, 5, 0, 0), None);
}

#[test]
fn doorbell_that_rings_on_this_cpu_is_kept() {
    let steering = Steering::new();
    steering.rings_on(5, 3);
    steering.rings_on(6, 3);
    assert_eq!(steering.better(DATA, 5, 3, 1), None);
}

#[test]
fn doorbell_known_for_this_cpu_is_preferred() {
    let steering = Steering::new();
    steering.rings_on(5, 1);
    steering.rings_on(9, 0);
    for spread in 0..4 {
        assert_eq!(steering.better(DATA, 5, 0, spread), Some(9));
    }
    steering.rings_on(31, 0);
    let chosen: Vec<_> = (0..4).map(|n| steering.better(DATA, 5, 0, n)).collect();
    assert_eq!(chosen, [Some(9), Some(31), Some(9), Some(31)]);
}

#[test]
fn only_usable_doorbells_are_chosen() {
    let steering = Steering::new();
    steering.rings_on(5, 1);
    steering.rings_on(0, 0);
    steering.rings_on(63, 0);
    assert_eq!(steering.better(1 << 5, 5, 0, 0), None);
    assert_eq!(steering.better((1 << 5) | (1 << 7), 5, 0, 9), Some(7));
    // No doorbells have these numbers.
    steering.rings_on(64, 0);
    steering.rings_on(u32::MAX, 0);
    assert_eq!(steering.better(u64::MAX, 64, 0, 0), None);
    assert_eq!(steering.better(u64::MAX, 5, u32::MAX, 0), Some(1));
}

#[test]
fn moved_interrupt_vector_is_noticed_at_its_next_ring() {
    let steering = Steering::new();
    for doorbell in 2..32 {
        steering.rings_on(doorbell, doorbell % 2);
    }
    assert_eq!(steering.better(DATA, 4, 0, 0), None);
    steering.rings_on(4, 1);
    assert_eq!(steering.better(DATA, 4, 0, 0), Some(2));
}

proptest! {
    #![proptest_config(config())]

    /// A sleeper settles on a doorbell within as many rings as there are doorbells.
    ///
    /// If the sleeper's CPU has a vector, the sleeper finds it. Otherwise the sleeper gives up.
    #[test]
    fn doorbell_search_ends_within_one_ring_per_doorbell(
        vectors in prop::collection::vec(0_u32..5, 32),
        usable: u32,
        processor in 0_u32..5,
        spread: u32,
    ) {
        let steering = Steering::new();
        let usable = u64::from(usable | (1 << 7));
        let mut current = 7;
        let mut rings = 0;
        loop {
            rings += 1;
            prop_assert!(rings <= usable.count_ones());
            steering.rings_on(current, vectors[current as usize]);
            let Some(better) = steering.better(usable, current, processor, spread) else { break };
            prop_assert!((usable >> better) & 1 == 1);
            prop_assert_ne!(better, current);
            current = better;
        }
        let is_there = (0..32).any(|n| (usable >> n) & 1 == 1 && vectors[n] == processor);
        prop_assert_eq!(vectors[current as usize] == processor, is_there);
    }
}
