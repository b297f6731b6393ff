// SPDX-License-Identifier: GPL-2.0
//! Apertures that consist of several memory windows of a bridge.
//!
//! The tests of arena and bounce mode have such apertures, too. These tests are about the seam
//! between two windows, and about the number of windows that are used.

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

/// Half of a node's memory. By default, nodes with the debug kernel have more memory.
const HALF: u64 = 256 << 20;

/// A pair in which two windows together cover the memory of a node, but one does not.
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

/// Reads and writes a registered window of `mebibytes` MiB in all ways, across the ends of all
/// pages.
fn cross(lab: &Lab, mebibytes: &str) -> Result<()> {
    let server = scif::start_server(lab, 1, "scif_seam", &["server", PORT], 600)?;
    scif::run_tap(lab, 0, "scif_seam", &["client", "1", PORT, mebibytes], 300)?;
    server.signal(15);
    server.wait()?;
    Ok(())
}

/// The window does not fit into one of the two memory windows alone.
fn arena_window_spans_seam(lab: &Lab) -> Result<()> {
    cross(lab, "24")
}

/// The window has memory on both sides of the seam. The bus addresses are random.
fn flat_window_spans_seam(lab: &Lab) -> Result<()> {
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

/// An administrator can limit the number of windows that are used.
fn window_limit_is_kept(lab: &Lab) -> Result<()> {
    check_links(lab, "bounce", 64 << 10)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_windows::arena_window_spans_seam",
        scif_arena::ARENA_PAIR,
        arena_window_spans_seam,
    )
    .seconds(120),
    Test::new(
        "scif_windows::flat_window_spans_seam",
        FLAT_PAIR,
        flat_window_spans_seam,
    )
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
    Test::new(
        "scif_windows::window_limit_is_kept",
        scif_bounce::SMALL,
        window_limit_is_kept,
    )
    .by_name(),
];
