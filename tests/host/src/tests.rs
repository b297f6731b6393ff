// SPDX-License-Identifier: GPL-2.0

//! The tests, a file for each concept of the logic.
//!
//! Property tests run a fixed number of cases from a fixed seed (see [`config`]): the same ones
//! everywhere, every time. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` ask for more and other ones.

use proptest::test_runner::{Config, RngSeed};

mod address_space;
mod annex;
mod areas;
mod atomic;
mod awake;
mod budget;
mod control_geometry;
mod copy_costs;
mod doorbell_register;
mod envelope;
mod extents;
mod failures;
mod frame_ring;
mod gate;
mod handshake;
mod hello;
mod interleavings;
mod lanes;
mod link_rate;
mod log_limit;
mod longest_segment;
mod marks;
mod messages;
mod news;
mod numbers;
mod parts;
mod plan;
mod registrations;
mod ring;
mod sleeps;
mod slots;
mod staging;
mod steering;
mod wake_request;
mod window_set;

/// Returns the configuration of property tests, which write no files and use a fixed seed.
fn config() -> Config {
    let default = Config::default();
    Config {
        failure_persistence: None,
        rng_seed: match default.rng_seed {
            RngSeed::Random => RngSeed::Fixed(0x5c1f),
            fixed => fixed,
        },
        ..default
    }
}
