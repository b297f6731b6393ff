// SPDX-License-Identifier: GPL-2.0
//! A peer reads and writes memory of a device of this node. In arena mode the window is direct.
//! Where the peer does not reach the device, transfers are staged. Where neither is possible, the
//! registration is refused.
//!
//! The device is QEMU's ivshmem, whose BAR is plain memory. Only the end of the BAR is used,
//! because the lower half is the node's RAM once more.

use anyhow::Result;
use lab::Lab;

use crate::harness::Test;
use crate::need::Need;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_conformance;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Path of the device in guests.
const DEVICE: &str = "/sys/bus/pci/devices/0000:00:1c.0";

const FLAT_PAIR: Need = Need {
    device_memory: true,
    ..SCIF_PAIR
};

/// Runs the cases that need a device.
fn cases(lab: &Lab, which: &str, more: &[&str]) -> Result<()> {
    let mut options = vec!["--device-memory", DEVICE, "--only", which];
    options.extend(more);
    scif_conformance::run_with(lab, "two", &options)?;
    scif_conformance::nothing_left(lab)
}

fn arena_reaches_device(lab: &Lab) -> Result<()> {
    cases(lab, "device_memory_*", &[])
}

fn bounce_stages_device_data(lab: &Lab) -> Result<()> {
    cases(lab, "device_memory_*", &["--staged", "both"])
}

/// The aperture over the memory of the node does not lead to its devices.
fn flat_refuses_device(lab: &Lab) -> Result<()> {
    cases(lab, "device_unreached_*", &[])
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_device_memory::arena_reaches_device",
        ARENA_PAIR,
        arena_reaches_device,
    )
    .leaves_disorder(),
    Test::new(
        "scif_device_memory::bounce_stages_device_data",
        scif_bounce::USUAL,
        bounce_stages_device_data,
    )
    .leaves_disorder(),
    Test::new(
        "scif_device_memory::flat_refuses_device",
        FLAT_PAIR,
        flat_refuses_device,
    )
    .leaves_disorder()
    .by_name(),
];
