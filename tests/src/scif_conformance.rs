// SPDX-License-Identifier: GPL-2.0
//! The conformance suite (tests/conformance) on one node without any device, on two nodes and on
//! three. `make conformance` shows its results case by case.
//!
//! Afterwards no connections, windows or pinned pages may remain (`scif::check_idle`), nor
//! unreferenced memory, and the module can be unloaded.

use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Error;
use lab::Lab;
use lab::Output;
use lab::Process;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::ONE;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_star::SCIF_STAR;

/// One node that has only the module.
pub const BARE: Need = Need {
    dma_channels: 0,
    scif: Loaded::LongHeartbeat,
    ..ONE
};

/// The program of the suite.
const PROGRAM: &str = "conformance/conformance";

/// Returns the path of a suite's program in guests.
fn program(name: &str) -> Result<String> {
    scif::built(&format!("build/{name}"))
}

/// Returns the number of seconds after which a case counts as hung.
fn time_limit(lab: &Lab) -> String {
    lab.hang_limit(30).as_secs().to_string()
}

fn start_agent(lab: &Lab, name: &str, node: usize) -> Result<Process> {
    let argv = [&program(name)?, "agent", "--time-limit", &time_limit(lab)];
    let agent = lab
        .command(node, argv)?
        .timeout(lab.hang_limit(600))
        .spawn()
        .with_context(|| format!("the agent of node {node}"))?;
    agent.wait_for("agent on port", lab.hang_limit(20))?;
    Ok(agent)
}

/// Runs all cases on node 0, with the other nodes as peers.
pub fn run(lab: &Lab, topology: &str) -> Result<()> {
    run_with(lab, topology, &[])
}

/// Runs all cases with more options.
pub fn run_with(lab: &Lab, topology: &str, options: &[&str]) -> Result<()> {
    run_suite(lab, PROGRAM, topology, options)
}

/// Cases that fill rings, or store much by CPU. They take minutes where each store traps, and say
/// nothing about how windows are reached. Tests of labs whose stores trap run them by name.
const MANY_STORES: &[&str] = &[
    "all_[!b]*",
    "copies_all_flags",
    "poll_edges",
    "poll_full",
    "send_atomic",
    "send_block_all",
    "send_close_wakes",
    "send_interrupted_*",
    "send_nonblock_partial",
    "send_restarted",
    "send_room_again",
    "signal_after_data",
];

/// Runs the suite like [`run_with`], without the cases that take long where stores trap.
pub fn run_few_stores(lab: &Lab, topology: &str, options: &[&str]) -> Result<()> {
    let mut options = options.to_vec();
    add_cases(&mut options, "--except", MANY_STORES);
    run_with(lab, topology, &options)
}

/// Cases for each path of data between nodes, and of the notification that the data has arrived.
///
/// They cover windows that come and go, transfers with and without windows of the caller, marks and
/// signals, and processes that end meanwhile. They take half a minute where each store traps.
pub const EACH_WAY: &[&str] = &[
    "copies_plain",
    "copies_gap",
    "copies_large",
    "copies_beside_signals",
    "register_*",
    "unregister_*",
    "sync_*",
    "mark_*",
    "wait_*",
    "signal_local",
    "signal_remote",
    "v_*",
    "kill_*",
];

/// Runs [`EACH_WAY`] on two nodes, and checks that nothing remains.
pub fn run_each_way(lab: &Lab, options: &[&str]) -> Result<()> {
    let mut options = options.to_vec();
    add_cases(&mut options, "--only", EACH_WAY);
    run_few_stores(lab, "two", &options)?;
    nothing_left(lab)
}

/// Adds `--only` or `--except` for each of these patterns.
pub fn add_cases<'a>(options: &mut Vec<&'a str>, option: &'a str, cases: &[&'a str]) {
    options.extend(cases.iter().flat_map(|cases| [option, *cases]));
}

/// Runs the program of any suite.
pub fn run_suite(lab: &Lab, name: &str, topology: &str, options: &[&str]) -> Result<()> {
    let output = suite_output(lab, name, topology, options, lab.hang_limit(600))?;
    println!("      {}", slowest_cases(&output.stdout()));
    scif::check_tap(output)
}

/// Returns the slowest cases, from lines like "# 12 ms".
fn slowest_cases(text: &str) -> String {
    let mut cases: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (case, time) = line.split_once(" - ")?.1.rsplit_once(" # ")?;
            let milliseconds = time.strip_suffix(" ms")?.parse().ok()?;
            Some((milliseconds, case.split(' ').next()?))
        })
        .collect();
    cases.sort_unstable_by(|one, other| other.cmp(one));
    let named = cases.iter().take(4).map(|(milliseconds, case)| {
        let seconds = *milliseconds as f64 / 1000.0;
        format!("{case} {seconds:.1} s")
    });
    let named: Vec<String> = named.collect();
    format!("{} cases, the slowest: {}", cases.len(), named.join(", "))
}

/// Runs the suite and returns its output, whether cases pass or not. Returns an error if the suite
/// does not end within the limit.
pub fn output(lab: &Lab, topology: &str, options: &[&str], limit: Duration) -> Result<Output> {
    suite_output(lab, PROGRAM, topology, options, limit)
}

fn suite_output(
    lab: &Lab,
    name: &str,
    topology: &str,
    options: &[&str],
    limit: Duration,
) -> Result<Output> {
    let agents = (1..lab.nodes())
        .map(|node| start_agent(lab, name, node))
        .collect::<Result<Vec<Process>>>()?;
    let mut argv = vec![program(name)?, "run".to_owned()];
    argv.extend(["--topology", topology, "--time-limit", &time_limit(lab)].map(str::to_owned));
    argv.extend(options.iter().map(|option| (*option).to_owned()));
    for node in 1..lab.nodes() {
        argv.extend(["--peer".to_owned(), node.to_string()]);
    }
    let output = lab.command(0, argv)?.timeout(limit).run()?;
    let limit = limit.min(lab.hang_limit(20));
    for (node, agent) in (1..).zip(agents) {
        agent.signal(15);
        if agent.wait_timeout(limit)?.is_none() {
            bail!(Error::Timeout {
                node,
                command: "conformance agent".to_owned(),
                seconds: limit.as_secs(),
                output: String::new(),
            });
        }
    }
    Ok(output)
}

/// Returns the names of the cases that failed.
pub fn failed_cases(text: &str) -> Vec<&str> {
    let failed = text.lines().filter(|line| line.starts_with("not ok "));
    failed
        .filter_map(|line| line.split_once(" - ")?.1.split(' ').next())
        .collect()
}

/// Checks that no process holds resources of the module, and unloads it.
pub fn nothing_left(lab: &Lab) -> Result<()> {
    for node in 0..lab.nodes() {
        scif::check_idle(lab, node)?;
        let report = lab.kmemleak(node)?;
        ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
    }
    scif::unload_everywhere(lab)
}

fn loopback(lab: &Lab) -> Result<()> {
    run(lab, "loopback")?;
    nothing_left(lab)
}

/// Runs the whole suite on two nodes.
pub fn two(lab: &Lab) -> Result<()> {
    run(lab, "two")?;
    nothing_left(lab)
}

/// Runs the cases that take three nodes.
fn star(lab: &Lab) -> Result<()> {
    run_with(lab, "three", &["--only", "star_*"])?;
    nothing_left(lab)
}

fn three(lab: &Lab) -> Result<()> {
    run(lab, "three")?;
    nothing_left(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_conformance::loopback", BARE, loopback)
        .seconds(300)
        .leaves_disorder(),
    Test::new("scif_conformance::two", SCIF_PAIR, two)
        .seconds(300)
        .leaves_disorder(),
    Test::new("scif_conformance::star", SCIF_STAR, star).leaves_disorder(),
    Test::new("scif_conformance::three", SCIF_STAR, three)
        .seconds(300)
        .leaves_disorder()
        .by_name(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowest_cases_are_listed_first() {
        let text = "TAP version 13\nok 1 - a [x.y] # 12 ms\nnot ok 2 - b [x] # 2300 ms\n# b.c:1: x\n1..2\n";
        assert_eq!(
            slowest_cases(text),
            "2 cases, the slowest: b 2.3 s, a 0.0 s"
        );
    }
}
