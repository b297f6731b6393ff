// SPDX-License-Identifier: GPL-2.0
//! Runs after all other tests of a lab: the debug kernel finds no memory without references.
//!
//! `scif::check_idle` checks after each test that connections, windows and pinned pages are
//! released.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::harness::Test;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss::USUAL_PAIR;
use crate::scif_star::SCIF_STAR;

fn nothing_leaked(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_leaks::pair", SCIF_PAIR, nothing_leaked).on_debug(),
    Test::new("scif_leaks::pair_with_losses", USUAL_PAIR, nothing_leaked).on_debug(),
    Test::new("scif_leaks::star", SCIF_STAR, nothing_leaked).on_debug(),
];
