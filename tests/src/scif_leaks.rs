// SPDX-License-Identifier: GPL-2.0
//! After all other tests of a lab: the debug kernel finds no memory that nobody knows.
//!
//! That connections, windows and pinned pages are let go is looked at after each test, see
//! `scif::check_idle`.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::harness::Test;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss::USUAL_PAIR;
use crate::scif_star::SCIF_STAR;

fn none(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_leaks::pair", SCIF_PAIR, none).on_debug(),
    Test::new("scif_leaks::pair_with_losses", USUAL_PAIR, none).on_debug(),
    Test::new("scif_leaks::star", SCIF_STAR, none).on_debug(),
];
