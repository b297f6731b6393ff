// SPDX-License-Identifier: GPL-2.0
//! Kernel clients that come and go in the middle of transfers, many times: loaded and unloaded,
//! killed while they are being loaded, unloaded with all left open; programs of the same server that
//! are killed; and that server, and the module under test below it, which go and come back meanwhile.
//!
//! The rounds run in the guests, in tests/programs/scif_churn.sh; the module is tests/modules/churn.
//! What must not be is a report of a kernel, or something that is still held afterwards.

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

/// How often something ends in the middle; a fifth of that in each way. SCIF_CHURN_ROUNDS, for a quick
/// look or a long night.
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

/// The folder of the test's modules.
fn modules(lab: &Lab) -> Result<PathBuf> {
    let module = lab.built("tests/scif_churn.ko")?;
    Ok(module.with_file_name(""))
}

/// Runs the rounds on node 0, while the server on node 1 comes and goes; with these arguments the
/// module under test does, too.
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

/// The debug kernel finds no memory that nobody knows.
fn none_leaked(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    Ok(())
}

/// Clients and their server.
fn clients(lab: &Lab) -> Result<()> {
    churn(lab, &[])?;
    none_leaked(lab)
}

/// And the module under test on the server's node.
fn reloads(lab: &Lab) -> Result<()> {
    let parameters = scif::parameters(lab, 1, Loaded::LongHeartbeat)?;
    let mut arguments = vec![scif::module(lab)?.display().to_string()];
    arguments.extend(parameters.split_whitespace().map(str::to_owned));
    churn(lab, &arguments)?;
    none_leaked(lab)
}

/// What the kernel says of a client that forgets all it has.
const FORGOTTEN: &str = "module scif_churn has gone and left";

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_churn::clients", SCIF_PAIR, clients)
        .seconds(180)
        .expects(&[FORGOTTEN])
        .by_name(),
    Test::new("scif_churn::reloads", SCIF_PAIR, reloads)
        .seconds(180)
        .expects(&[FORGOTTEN])
        .leaves_disorder()
        .by_name(),
];
