// SPDX-License-Identifier: GPL-2.0
//! All that SCIF promises, where writes across the link are seen late and out of order, as PCI Express
//! allows it (Documentation/pcie-order.rst). A few seeds; more with `lab-tests --weak-order`.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::WeakOrder;
use lab::WeakOrderEngines;
use lab::Windows;

use crate::harness::Need;
use crate::harness::Test;
use crate::scif_conformance;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A pair with such an order.
const fn weak(seed: u64, engines: WeakOrderEngines, windows: Windows) -> Need {
    Need {
        weak_order: Some(WeakOrder { seed, engines }),
        windows,
        ..SCIF_PAIR
    }
}

/// Windows that are mapped over all of the peer's memory.
const fn flat(seed: u64) -> Need {
    weak(seed, WeakOrderEngines::Switch, Windows::Aperture)
}

/// Small ones that trap.
const fn bounce(seed: u64, engines: WeakOrderEngines) -> Need {
    weak(seed, engines, Windows::Trapped { size: 1 << 20 })
}

/// Something has overtaken something, or nothing was tried.
fn check_overtaken(lab: &Lab) -> Result<()> {
    for (node, counters) in lab.counters()?.iter().enumerate() {
        ensure!(
            counters.total.overtaken > 0,
            "nothing of node {node} has overtaken anything"
        );
    }
    Ok(())
}

fn conformance(lab: &Lab) -> Result<()> {
    scif_conformance::run(lab, "two")?;
    check_overtaken(lab)?;
    scif_conformance::nothing_left(lab)
}

/// What is promised of the order of things, and of ends; the rest of the suite takes minutes where all is staged, and
/// goes by the same ways.
fn staged(lab: &Lab) -> Result<()> {
    let mut options = vec!["--staged", "both"];
    for cases in [
        "access_*", "async_*", "both_*", "close_*", "copies_*", "kill*", "mark_*", "ordered",
        "signal_*", "sync_*", "wait_*",
    ] {
        options.extend(["--only", cases]);
    }
    scif_conformance::run_with(lab, "two", &options)?;
    check_overtaken(lab)?;
    scif_conformance::nothing_left(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_order::flat_1", flat(1), conformance)
        .seconds(300)
        .releases_engine(),
    Test::new(
        "scif_order::bounce_1",
        bounce(1, WeakOrderEngines::Switch),
        staged,
    )
    .seconds(300)
    .releases_engine(),
];
