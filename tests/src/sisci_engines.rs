// SPDX-License-Identifier: GPL-2.0
//! SISCI transfers whose engine is lost while they run. Each queue reports its own failure
//! (tests/sisci/engine.c).

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::harness::Test;
use crate::need::Need;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// A pair whose engines take a second for two of the program's transfers, so that the test can
/// unbind the driver meanwhile.
const SLOW_ENGINE: Need = Need {
    engine_rate: Some(2_000_000),
    ..SCIF_PAIR
};

fn fail(lab: &Lab, how: &str) -> Result<()> {
    // Makes the engine copy, though the CPU is faster.
    scif::set_parameter(lab, "dma_threshold", "0")?;
    let serve = [scif::built("build/sisci/sisci-loss")?, "serve".to_owned()];
    let server = lab
        .command(1, serve)?
        .timeout(lab.hang_limit(100))
        .spawn()?;
    server.wait_for("serving", lab.hang_limit(20))?;
    let engine = format!("0000:00:{:02x}.0", lab::dma_slot(0));
    let program = scif::built("build/sisci/sisci-engine")?;
    let output = lab
        .command(0, [program.as_str(), "1", &engine, how])?
        .timeout(lab.hang_limit(70))
        .run()?
        .success()?;
    ensure!(output.stdout().trim() == how, "{}", output.stdout());
    server.signal(15);
    let ended = server.wait_timeout(lab.hang_limit(20))?;
    ended.context("the server hangs")?.success()?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    scif::unload_everywhere(lab)
}

/// A program that only polls sees both queues fail.
fn poll_sees_both_failures(lab: &Lab) -> Result<()> {
    fail(lab, "polled")
}

/// A wait for the second queue does not consume the failure of the first one.
fn wait_keeps_other_failure(lab: &Lab) -> Result<()> {
    fail(lab, "waited")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "sisci_engines::poll_sees_both_failures",
        SLOW_ENGINE,
        poll_sees_both_failures,
    )
    .seconds(120)
    .loses_engine()
    .by_name(),
    Test::new(
        "sisci_engines::wait_keeps_other_failure",
        SLOW_ENGINE,
        wait_keeps_other_failure,
    )
    .seconds(120)
    .loses_engine()
    .by_name(),
];
