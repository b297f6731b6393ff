// SPDX-License-Identifier: GPL-2.0
//! Apertures that are made of several memory windows of a bridge.
//!
//! The tests of arena and bounce mode have such ones, too; here is what is about where one window ends and the next
//! begins, and how many are used.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Windows;

use crate::harness::Test;
use crate::need::Need;
use crate::scif;
use crate::scif_arena;
use crate::scif_bounce;
use crate::scif_idt;
use crate::scif_messages_and_rma::SCIF_PAIR;

const PORT: &str = "2403";

/// Half of a node's memory, of which those with the debug kernel have more otherwise.
const HALF: u64 = 256 << 20;

/// No window covers the memory of a node, but two do.
const FLAT_PAIR: Need = Need {
    windows: Windows::Trapped { size: HALF },
    append: &["mem=512M"],
    ..SCIF_PAIR
};

fn check_links(lab: &Lab, mode: &str, len: u64) -> Result<()> {
    let len = len.to_string();
    let wanted = [
        ("state", "up"),
        ("aperture", mode),
        ("aperture_bytes", &len),
        ("own_aperture", mode),
        ("own_bytes", &len),
    ];
    scif_idt::check_links(lab, &wanted)
}

/// A registered window of so many MiB is read and written in all ways, across the ends of all pages.
fn cross(lab: &Lab, mebibytes: &str) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_seam", &["server", PORT], 600)?;
    scif::run_tap(lab, 0, "scif_seam", &["client", "1", PORT, mebibytes], 300)?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// It finds no place in one of the two windows alone.
fn arena(lab: &Lab) -> Result<()> {
    cross(lab, "24")
}

/// Memory on both sides of the seam, which bus addresses lie where is left to chance.
fn flat(lab: &Lab) -> Result<()> {
    check_links(lab, "flat", 2 * HALF)?;
    for node in 0..lab.nodes() {
        let log = lab.dmesg(node)?;
        ensure!(
            log.contains("its aperture is made of 2 memory windows"),
            "node {node} does not say how many there are:\n{log}"
        );
    }
    cross(lab, "64")
}

/// An administrator can have fewer than there are.
fn one(lab: &Lab) -> Result<()> {
    check_links(lab, "bounce", 64 << 10)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_windows::arena", scif_arena::ARENA_PAIR, arena).seconds(120),
    Test::new("scif_windows::flat", FLAT_PAIR, flat)
        .seconds(300)
        .by_name(),
    Test::new(
        "scif_windows::conformance",
        FLAT_PAIR,
        scif_arena::conformance,
    )
    .seconds(300)
    .leaves_disorder()
    .by_name(),
    Test::new("scif_windows::one", scif_bounce::SMALL, one).by_name(),
];
