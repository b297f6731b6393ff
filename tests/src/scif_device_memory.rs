// SPDX-License-Identifier: GPL-2.0
//! Memory of a device of this node that a peer reads and writes: in an arena, staged where it does not reach
//! it, and refused where it can be neither.
//!
//! The device is QEMU's ivshmem, whose BAR is nothing but memory. Only the end of it is used: the lower half is
//! the node's RAM once more.

use anyhow::Result;
use lab::Lab;

use crate::harness::Test;
use crate::need::Need;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_conformance;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Where guests have the device.
const DEVICE: &str = "/sys/bus/pci/devices/0000:00:1c.0";

const FLAT_PAIR: Need = Need {
    device_memory: true,
    ..SCIF_PAIR
};

/// Runs the cases for a device that need this.
fn cases(lab: &Lab, which: &str, more: &[&str]) -> Result<()> {
    let mut options = vec!["--device-memory", DEVICE, "--only", which];
    options.extend(more);
    scif_conformance::run_with(lab, "two", &options)?;
    scif_conformance::nothing_left(lab)
}

fn arena(lab: &Lab) -> Result<()> {
    cases(lab, "device_memory_*", &[])
}

fn bounce(lab: &Lab) -> Result<()> {
    cases(lab, "device_memory_*", &["--staged", "both"])
}

/// The aperture over the memory of the node does not lead to its devices.
fn flat(lab: &Lab) -> Result<()> {
    cases(lab, "device_unreached_*", &[])
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_device_memory::arena", ARENA_PAIR, arena).leaves_disorder(),
    Test::new("scif_device_memory::bounce", scif_bounce::USUAL, bounce).leaves_disorder(),
    Test::new("scif_device_memory::flat", FLAT_PAIR, flat)
        .leaves_disorder()
        .by_name(),
];
