// SPDX-License-Identifier: GPL-2.0
//! Kernel clients that end in the middle of transfers, many times.
//!
//! Clients are loaded and unloaded, killed while they are being loaded, and unloaded with
//! everything open. Programs that use the same server are killed. Meanwhile the server, and the
//! module under test below it, are unloaded and loaded again.
//!
//! The rounds run in the guests, in tests/programs/scif_churn.sh. The module is
//! tests/modules/churn. The tests fail if a kernel reports an error, or if resources are held
//! afterwards.

use std::env;
use std::path::PathBuf;

use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::kernel_log;
use lab::paths;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Returns how often a client ends in the middle. Each way of ending gets a fifth of the rounds.
/// `SCIF_CHURN_ROUNDS` sets another number, for a quick check or a long night.
fn rounds(lab: &Lab) -> usize {
    let asked = env::var("SCIF_CHURN_ROUNDS").ok();
    match asked.and_then(|asked| asked.parse().ok()) {
        Some(asked) => asked,
        None => match lab.kernel().flavour() {
            Flavour::Stock | Flavour::Plain => 20,
            Flavour::Debug | Flavour::Kcsan => 200,
        },
    }
}

/// Returns the folder of the test's modules.
fn modules(lab: &Lab) -> Result<PathBuf> {
    let module = lab.built("tests/scif_churn.ko")?;
    Ok(module.with_file_name(""))
}

/// Runs the rounds on node 0, while the server on node 1 is unloaded and loaded again. With
/// `server_arguments`, the module under test is reloaded, too.
fn churn(lab: &Lab, server_arguments: &[String]) -> Result<()> {
    let limit = lab.hang_limit(20 * rounds(lab) as u64);
    let script = paths::repository().join("tests/programs/scif_churn.sh");
    let script = script.display().to_string();
    let modules = modules(lab)?.display().to_string();

    lab.shell(1, "rm -f /tmp/churn-over")?;
    let mut argv = vec![script.clone(), "server".to_owned(), modules.clone()];
    argv.extend_from_slice(server_arguments);
    let server = lab.command(1, argv)?.timeout(limit).spawn()?;
    server.wait_for("serving", lab.hang_limit(20))?;

    let count = rounds(lab).to_string();
    lab.command(0, [&*script, "client", "1", &count, &modules])?
        .timeout(limit)
        .run()?
        .success()?;
    lab.shell(1, "touch /tmp/churn-over")?;
    let said = server.wait()?.success()?.stdout();
    println!(
        "      {count} clients, {}",
        said.lines().last().unwrap_or("?")
    );

    for node in 0..2 {
        let log = lab.dmesg(node)?;
        let log = kernel_log::since_mark(&log);
        let wrong: Vec<&str> = log.lines().filter(|line| line.contains("not ok")).collect();
        ensure!(wrong.is_empty(), "node {node}:\n{}", wrong.join("\n"));
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Checks that the debug kernel finds no memory without references.
fn none_leaked(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

/// Clients end, and their server.
fn clients_and_server_end(lab: &Lab) -> Result<()> {
    churn(lab, &[])?;
    none_leaked(lab)
}

/// The module under test on the server's node is reloaded, too.
fn server_module_reloads(lab: &Lab) -> Result<()> {
    let parameters = scif::parameters(lab, 1, Loaded::LongHeartbeat)?;
    let mut arguments = vec![scif::module(lab)?.display().to_string()];
    arguments.extend(parameters.split_whitespace().map(str::to_owned));
    churn(lab, &arguments)?;
    none_leaked(lab)
}

/// The kernel's report of a client that does not close its endpoints.
const FORGOTTEN: &str = "module scif_churn has gone and left";

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_churn::clients_and_server_end",
        SCIF_PAIR,
        clients_and_server_end,
    )
    .seconds(180)
    .expects(&[FORGOTTEN])
    .by_name(),
    Test::new(
        "scif_churn::server_module_reloads",
        SCIF_PAIR,
        server_module_reloads,
    )
    .seconds(180)
    .expects(&[FORGOTTEN])
    .leaves_disorder()
    .by_name(),
];
