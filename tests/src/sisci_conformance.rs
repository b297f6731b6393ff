// SPDX-License-Identifier: GPL-2.0
//! The conformance suite of SISCI (tests/sisci) on one node without any device, on two nodes and on
//! three. Afterwards no resources may remain, as after the suite of SCIF.

use anyhow::Result;
use lab::Lab;

use crate::harness::Test;
use crate::scif_conformance;
use crate::scif_conformance::BARE;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_star::SCIF_STAR;

fn run(lab: &Lab, topology: &str) -> Result<()> {
    scif_conformance::run_suite(lab, "sisci/sisci-conformance", topology, &[])?;
    scif_conformance::nothing_left(lab)
}

fn loopback(lab: &Lab) -> Result<()> {
    run(lab, "loopback")
}

fn two(lab: &Lab) -> Result<()> {
    run(lab, "two")
}

fn three(lab: &Lab) -> Result<()> {
    run(lab, "three")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("sisci_conformance::loopback", BARE, loopback)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
    Test::new("sisci_conformance::two", SCIF_PAIR, two)
        .seconds(300)
        .leaves_disorder(),
    Test::new("sisci_conformance::three", SCIF_STAR, three)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
];
