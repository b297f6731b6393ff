// SPDX-License-Identifier: GPL-2.0

//! The module's pure logic, compiled for the host.
//!
//! The crate includes the files below `drivers/misc/scif/logic/` unchanged. As a library they are
//! held to the kernel's rules: `core` only, the kernel's edition, and no code that can panic. Test
//! builds add the tests of this crate: unit and property tests against simple models. They also
//! compile the concurrent files a second time with loom's atomics, and run all interleavings of a
//! few threads.

#![cfg_attr(not(test), no_std)]

#[cfg_attr(not(test), expect(dead_code, reason = "the kernel is the user"))]
#[cfg_attr(test, allow(dead_code, reason = "tests need not call everything"))]
#[deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used,
    // The kernel's own list has these lints.
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ignored_unit_patterns,
    unreachable_pub,
    unsafe_code
)]
#[path = "../../../drivers/misc/scif/logic"]
mod logic {
    pub(crate) mod address_space;
    #[path = "../../../../tests/host/src/atomic.rs"]
    pub(crate) mod atomic;
    pub(crate) mod awake;
    pub(crate) mod budget;
    pub(crate) mod control_block;
    pub(crate) mod copy_costs;
    pub(crate) mod doorbells;
    pub(crate) mod envelope;
    pub(crate) mod extents;
    pub(crate) mod frame_messages;
    pub(crate) mod frame_ring;
    pub(crate) mod gate;
    pub(crate) mod handshake;
    pub(crate) mod hello;
    pub(crate) mod link_rate;
    pub(crate) mod log_limit;
    pub(crate) mod marks;
    pub(crate) mod messages;
    pub(crate) mod news;
    pub(crate) mod parts;
    pub(crate) mod plan;
    pub(crate) mod registrations;
    pub(crate) mod ring;
    pub(crate) mod staging;
    pub(crate) mod stores;
    pub(crate) mod update;
    pub(crate) mod window_set;
}

/// The files that threads share, with loom's atomics.
#[cfg(test)]
#[allow(dead_code, reason = "tests need not call everything")]
#[expect(clippy::duplicate_mod, reason = "the second copy has other atomics")]
#[path = "../../../drivers/misc/scif/logic"]
mod loom_logic {
    #[path = "../../../../tests/host/src/loom_atomic.rs"]
    pub(crate) mod atomic;
    pub(crate) mod gate;
    pub(crate) mod news;
    pub(crate) mod ring;
    pub(crate) mod stores;
    pub(crate) mod update;
}

#[cfg(test)]
mod tests;
