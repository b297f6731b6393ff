// SPDX-License-Identifier: GPL-2.0
//! Other kernel modules as clients: a module that checks the whole of `linux/scif.h`
//! (tests/modules/client_test), the bus of the peers, the resources that a module leaves behind,
//! and the samples.

use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::kernel_log;
use lab::wait_until;

use crate::harness::Test;
use crate::libscif;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_mutants;

/// A node with only the module.
pub const SCIF_ALONE: Need = Need {
    dma_channels: 0,
    scif: Loaded::LongHeartbeat,
    ..ONE
};

/// Folder of the devices of the nodes.
const DEVICES: &str = "/sys/bus/scif_peer/devices";

/// Loads a module that was built with the module under test. `folder` is samples, tests or rust.
pub fn load(lab: &Lab, node: usize, folder: &str, name: &str, parameters: &str) -> Result<()> {
    let module = lab.built(&format!("{folder}/{name}.ko"))?;
    lab.insmod(node, module, parameters)
}

/// Returns a node's kernel log since the test began.
fn log(lab: &Lab, node: usize) -> Result<String> {
    Ok(kernel_log::since_mark(&lab.dmesg(node)?).to_owned())
}

/// Waits until a node's kernel has logged a text.
fn wait_for_line(lab: &Lab, node: usize, text: &str) -> Result<()> {
    let condition = format!("node {node} says '{text}'");
    wait_until(&condition, lab.hang_limit(20), || {
        Ok(log(lab, node)?.contains(text).then_some(()))
    })
}

/// Runs the checks of the test module on a node. The module stays loaded while they run.
fn run_checks(lab: &Lab, node: usize, parameters: &str) -> Result<()> {
    let before = log(lab, node)?.lines().count();
    let loaded = load(lab, node, "tests", "scif_client_test", parameters);
    let said = log(lab, node)?;
    let said: Vec<&str> = said.lines().skip(before).collect();
    let failed: Vec<&str> = said
        .iter()
        .filter(|line| line.contains("not ok"))
        .copied()
        .collect();
    ensure!(
        failed.is_empty(),
        "{} checks failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    loaded.with_context(|| said.join("\n"))?;
    let summary = said
        .iter()
        .find(|line| line.contains(" passed, 0 failed"))
        .with_context(|| format!("no summary in:\n{}", said.join("\n")))?;
    let passed = said.iter().filter(|line| line.contains(": ok - ")).count();
    ensure!(passed > 0, "nothing was checked");
    println!("      {}", summary.split("] ").last().unwrap_or(summary));
    lab.rmmod(node, "scif_client_test")
}

/// Runs all checks within a node.
fn loopback(lab: &Lab) -> Result<()> {
    run_checks(lab, 0, "")?;
    scif::check_idle(lab, 0)
}

/// Runs all checks between two nodes, in both directions.
fn between_nodes(lab: &Lab) -> Result<()> {
    for (server, client) in [(1, 0), (0, 1)] {
        load(lab, server, "tests", "scif_client_test", "role=server")?;
        run_checks(lab, client, &format!("role=client node={server}"))?;
        lab.rmmod(server, "scif_client_test")?;
        for node in 0..2 {
            scif::check_idle(lab, node)?;
        }
    }
    Ok(())
}

/// A module that does not close its endpoints is named in the log, and the endpoints are closed.
/// The module under test can be unloaded afterwards.
fn forgotten_endpoints_are_closed(lab: &Lab) -> Result<()> {
    for _ in 0..2 {
        load(lab, 0, "tests", "scif_forgetful", "")?;
        let refused = lab.exec(0, ["rmmod", "scif"])?;
        ensure!(
            refused.code() != Some(0),
            "scif.ko can be unloaded although a module uses it"
        );
        lab.rmmod(0, "scif_forgetful")?;
    }
    let said = log(lab, 0)?;
    let named = said
        .lines()
        .filter(|line| {
            line.contains(
                "module scif_forgetful has gone and left 2 endpoint(s) open, 1 client(s) \
                 registered, 1 piece(s) of memory pinned",
            )
        })
        .count();
    ensure!(named == 2, "it is named {named} times, not twice:\n{said}");
    scif::check_idle(lab, 0)?;
    lab.rmmod(0, "scif")?;
    scif::load(lab, 0, Loaded::LongHeartbeat)
}

/// Returns the content of a file of a peer's device on the bus.
fn attribute(lab: &Lab, node: usize, peer: usize, name: &str) -> Result<String> {
    let text = lab
        .node(node)
        .read(&format!("{DEVICES}/node{peer}/{name}"))?;
    Ok(text.trim_end().to_owned())
}

/// Returns the nodes that have a device, in order.
fn devices(lab: &Lab, node: usize) -> Result<Vec<String>> {
    let said = lab.shell(node, &format!("ls {DEVICES}"))?;
    Ok(said.split_whitespace().map(str::to_owned).collect())
}

fn wait_for_devices(lab: &Lab, node: usize, wanted: &[&str]) -> Result<()> {
    let condition = format!("node {node} has the devices {wanted:?}");
    wait_until(&condition, lab.hang_limit(20), || {
        Ok((devices(lab, node)? == wanted).then_some(()))
    })
}

/// Each online node is a device whose files have the same values as debugfs. The device goes and
/// comes with the node.
fn node_devices_match_debugfs(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        wait_for_devices(lab, node, &["node0", "node1"])?;
        for peer in 0..2 {
            let seen = scif::seen(lab, node, peer)?.context("debugfs does not know the node")?;
            let told = ["node", "state", "link", "aperture", "generation"]
                .map(|name| attribute(lab, node, peer, name));
            let [id, state, link, aperture, generation] = told;
            ensure!(
                (id?, state?, link?, aperture?, generation?)
                    == (
                        peer.to_string(),
                        seen.state.clone(),
                        seen.link.clone(),
                        seen.aperture.clone(),
                        seen.generation.clone()
                    ),
                "the bus and debugfs differ: {seen:?}"
            );
        }
        let uevent = attribute(lab, node, 1, "uevent")?;
        ensure!(uevent.contains("SCIF_NODE=1"), "the uevent says '{uevent}'");
    }
    ensure!(attribute(lab, 0, 1, "connections")? == "0");
    let before = scif::online(lab, 0, 1)?;
    lab.rmmod(1, "scif")?;
    wait_for_devices(lab, 0, &["node0"])?;
    scif::load(lab, 1, Loaded::LongHeartbeat)?;
    scif::online(lab, 1, 0)?;
    for node in 0..2 {
        wait_for_devices(lab, node, &["node0", "node1"])?;
    }
    let after = attribute(lab, 0, 1, "generation")?;
    ensure!(
        after != before.generation,
        "node 1 is back, and its device still says {after}"
    );
    Ok(())
}

/// Lets the sample `hello` send three texts from node 0 to a port that echoes.
fn say_hello(lab: &Lab, node: &str, port: &str) -> Result<()> {
    let hello = libscif::sample("hello")?;
    for _ in 0..3 {
        let said = lab.exec(0, [hello.as_str(), node, port, "is anybody there?"])?;
        ensure!(
            said.stdout().contains("is anybody there?"),
            "{}{}",
            said.stdout(),
            said.stderr()
        );
        said.success()?;
    }
    Ok(())
}

/// The sample echoes the texts of the sample `hello`, and can be unloaded while a client is
/// connected.
fn echo(lab: &Lab) -> Result<()> {
    load(lab, 1, "samples", "scif_echo", "port=2400")?;
    say_hello(lab, "1", "2400")?;
    lab.rmmod(1, "scif_echo")?;
    scif::check_idle(lab, 1)
}

/// Tests the sample in Rust.
fn rust_echo(lab: &Lab) -> Result<()> {
    load(lab, 0, "rust", "scif_rust_echo", "")?;
    let hello = libscif::sample("hello")?;
    say_hello(lab, "0", "3001")?;
    // The sample is unloaded in the middle of a connection, which ends.
    let client = lab.spawn(
        0,
        [
            "sh".to_owned(),
            "-c".to_owned(),
            format!("while {hello} 0 3001 'and now?'; do :; done"),
        ],
    )?;
    wait_until("a peer is connected", lab.hang_limit(20), || {
        Ok((!client.stdout().is_empty()).then_some(()))
    })?;
    lab.rmmod(0, "scif_rust_echo")?;
    client.wait()?;
    scif::check_idle(lab, 0)
}

/// Two nodes with the heartbeat sample see each other's beats, and notice when one node is gone.
fn heartbeat(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        load(lab, node, "samples", "scif_heartbeat", "")?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        wait_for_line(lab, node, &format!("node{peer}: "))?;
    }
    lab.rmmod(1, "scif_heartbeat")?;
    lab.rmmod(0, "scif_heartbeat")?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Lets node 0 load this module file, and returns what insmod prints if it fails.
fn insmod(lab: &Lab, module: &Path) -> Result<Option<String>> {
    let output = lab.exec(0, ["insmod", &module.display().to_string()])?;
    Ok((output.code() != Some(0)).then(|| output.to_string()))
}

/// A sister module that was built with another `scif.ko` is refused before it does anything. The
/// other `scif.ko` is that of a mutant, which has a sister of its own.
fn other_sister_is_refused(lab: &Lab) -> Result<()> {
    let other = scif_mutants::build(lab, "second-look")?;
    lab.rmmod(0, "scif")?;
    let parameters = scif::parameters(lab, 0, Loaded::LongHeartbeat)?;
    lab.insmod(0, &other, &parameters)?;
    let refused = insmod(lab, &scif::net_module(lab)?)?;
    let refused = refused.context("the module of another build was loaded")?;
    let said = log(lab, 0)?;
    ensure!(
        said.contains("scif: refusing a module that was built with another scif.ko"),
        "insmod says {refused}, and the log:\n{said}"
    );
    let failed = insmod(lab, &other.with_file_name("net/scif_net.ko"))?;
    ensure!(failed.is_none(), "its own sister is refused: {failed:?}");
    lab.rmmod(0, "scif_net")?;
    lab.rmmod(0, "scif")?;
    scif::load(lab, 0, Loaded::LongHeartbeat)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_kernel::loopback", SCIF_ALONE, loopback).seconds(120),
    Test::new(
        "scif_kernel::forgotten_endpoints_are_closed",
        SCIF_ALONE,
        forgotten_endpoints_are_closed,
    )
    .expects(&["module scif_forgetful has gone and left"]),
    Test::new("scif_kernel::rust_echo", SCIF_ALONE, rust_echo),
    // Building the mutant takes a minute.
    Test::new(
        "scif_kernel::other_sister_is_refused",
        SCIF_ALONE,
        other_sister_is_refused,
    )
    .seconds(300)
    .expects(&["refusing a module that was built with another scif.ko"])
    .by_name(),
    Test::new("scif_kernel::between_nodes", SCIF_PAIR, between_nodes).seconds(240),
    Test::new("scif_kernel::echo", SCIF_PAIR, echo),
    Test::new("scif_kernel::heartbeat", SCIF_PAIR, heartbeat),
    Test::new(
        "scif_kernel::node_devices_match_debugfs",
        SCIF_PAIR,
        node_devices_match_debugfs,
    )
    .leaves_disorder()
    .by_name(),
];
