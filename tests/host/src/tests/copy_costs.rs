// SPDX-License-Identifier: GPL-2.0

//! The choice between CPU and engine.

use proptest::prelude::*;

use super::config;
use crate::logic::copy_costs::{Copier, CopyCosts};

/// Has `count` frames of `len` bytes copied at these costs. Returns how many of them went by engine.
fn copy(costs: &mut CopyCosts, len: u32, count: u32, by_cpu: u64, by_engine: u64) -> u32 {
    let mut engines = 0;
    for _ in 0..count {
        let copier = costs.choose(len);
        let nanoseconds = match copier {
            Copier::Cpu => by_cpu,
            Copier::Engine => by_engine,
        };
        costs.measured(copier, len, nanoseconds);
        engines += u32::from(copier == Copier::Engine);
    }
    engines
}

#[test]
fn both_are_tried_first() {
    let mut costs = CopyCosts::new();
    assert_eq!(costs.choose(65536), Copier::Cpu);
    // There may be no engine: the CPU copies then.
    costs.measured(Copier::Cpu, 65536, 10_000);
    assert_eq!(costs.choose(65536), Copier::Engine);
    costs.measured(Copier::Cpu, 65536, 10_000);
    assert_eq!(costs.choose(65536), Copier::Engine);
    costs.measured(Copier::Engine, 65536, 3_000);
    assert_eq!(costs.choose(65536), Copier::Engine);
    // Nothing is known of much smaller frames.
    assert_eq!(costs.choose(8192), Copier::Cpu);
}

#[test]
fn one_outlier_does_not_turn_the_choice() {
    let mut costs = CopyCosts::new();
    copy(&mut costs, 65536, 100, 10_000, 6_000);
    costs.measured(Copier::Engine, 65536, 1_000_000_000);
    let engines = copy(&mut costs, 65536, 128, 10_000, 6_000);
    assert_eq!(engines, 127);
}

proptest! {
    #![proptest_config(config())]

    /// The cheaper way is taken but for one of 128 frames.
    #[test]
    fn cheaper_way_is_taken(
        len in 4097_u32..=65600,
        by_cpu in 1000_u64..1_000_000,
        by_engine in 1000_u64..1_000_000,
    ) {
        prop_assume!(by_cpu.abs_diff(by_engine) * 10 > by_cpu);
        let mut costs = CopyCosts::new();
        copy(&mut costs, len, 2, by_cpu, by_engine);
        let engines = copy(&mut costs, len, 1280, by_cpu, by_engine);
        prop_assert_eq!(engines, if by_engine < by_cpu { 1270 } else { 10 });
    }

    /// When the costs change, the choice follows.
    #[test]
    fn choice_follows_the_costs(len in 4097_u32..=65600, first in 1_u64..20, then in 1_u64..20) {
        prop_assume!(first != then);
        let (few, many) = (first * 1000, then * 1000);
        let mut costs = CopyCosts::new();
        copy(&mut costs, len, 1000, few, many);
        copy(&mut costs, len, 10_000, many, few);
        let engines = copy(&mut costs, len, 1280, many, few);
        prop_assert_eq!(engines, if few < many { 1270 } else { 10 });
    }

    /// No measurement stops the choice, and frames of any size have one.
    #[test]
    fn any_measurement_is_taken(
        measured in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u64>()), 0..100),
    ) {
        let mut costs = CopyCosts::new();
        for (by_engine, len, nanoseconds) in measured {
            let copier = if by_engine { Copier::Engine } else { Copier::Cpu };
            costs.measured(copier, len, nanoseconds);
            costs.choose(len);
        }
    }
}
