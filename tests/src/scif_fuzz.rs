// SPDX-License-Identifier: GPL-2.0
//! Random calls beside a model that predicts their results.
//!
//! Either one thread makes the calls, or crowds of processes and threads that share their endpoints
//! and windows (tests/fuzz).

use std::env;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::Process;

use crate::bystander;
use crate::harness::Test;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_conformance::BARE;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Returns the number of calls of a run. `SCIF_FUZZ_CALLS` sets another number, for a long night.
fn calls(lab: &Lab) -> String {
    let calls = match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 400_000,
        Flavour::Debug | Flavour::Kcsan => 200_000,
    };
    env::var("SCIF_FUZZ_CALLS").unwrap_or_else(|_| calls.to_string())
}

/// Returns the seed of the first run of 2000 calls. `SCIF_FUZZ_SEED` sets another one; the default
/// is always the same.
fn seed() -> String {
    env::var("SCIF_FUZZ_SEED").unwrap_or_else(|_| "0".to_owned())
}

/// Calls that have to succeed now and then, as runs in which they always fail test little.
const SUCCEED: &[&str] = &[
    "accept",
    "bind",
    "connect",
    "copy",
    "copy_memory",
    "listen",
    "map",
    "mark",
    "receive",
    "register",
    "send",
    "send_all",
    "signal",
    "unregister",
];

/// Number of times that each of these calls has to succeed in a hundred thousand calls.
const OFTEN: u64 = 100;

/// Returns how often a call has succeeded, from the table that the program prints.
fn succeeded(text: &str, word: &str) -> Result<u64> {
    let mut rows = text.lines().map(|line| line.split_whitespace());
    let succeeded = rows.find_map(|mut row| {
        let is_row = row.next() == Some(word);
        is_row.then(|| row.next()?.parse().ok()).flatten()
    });
    succeeded.with_context(|| format!("{word} is not in\n{text}"))
}

fn model(lab: &Lab) -> Result<()> {
    let program = scif::built("target/release/scif-fuzz")?;
    let (seed, calls) = (seed(), calls(lab));
    let argv = [&*program, "run", "--seed", &seed, "--calls", &calls];
    let output = lab
        .command(0, argv)?
        .timeout(lab.hang_limit(600))
        .run()?
        .success()?;
    let text = &output.stdout();
    let hundred_thousands = calls.parse::<u64>()? / 100_000;
    for word in SUCCEED {
        let succeeded = succeeded(text, word)?;
        ensure!(
            succeeded >= OFTEN * hundred_thousands,
            "{word} succeeded {succeeded} times only\n{text}"
        );
    }
    println!("      {}", text.lines().last().unwrap_or("?"));
    scif::check_idle(lab, 0)
}

/// Script that runs a program while the kernel's workers get hardly any CPU time, so that their
/// messages arrive late.
const LATE: &str = "
workers=$(pgrep kworker/)
for worker in $workers; do chrt --idle --pid 0 $worker; done
for loop in 1 2 3; do timeout 60 sh -c 'while :; do :; done' & loops=\"$loops $!\"; done
\"$0\" replay -
code=$?
kill $loops
for worker in $workers; do chrt --other --pid 0 $worker; done
exit $code";

/// Closes an accepted endpoint before its peer collects the result of the connect. The peer then
/// sees the close before it uses the connection.
fn close_before_connect_returns(lab: &Lab) -> Result<()> {
    let mut calls = "open slot=0\nbind slot=0 port=3100\nlisten slot=0 backlog=2\n".to_owned();
    for _ in 0..10 {
        calls += "open slot=1\nconnect slot=1 port=3100\n";
        calls += "open slot=2\naccept slot=0 into=2 flags=0\nclose slot=2\n";
        calls += "connect slot=1 port=3100\nreceive slot=1 len=8 flags=0\nclose slot=1\n";
    }
    let program = scif::built("target/release/scif-fuzz")?;
    lab.command(0, ["sh", "-c", LATE, &program])?
        .stdin(calls)
        .timeout(lab.hang_limit(60))
        .run()?
        .success()?;
    scif::check_idle(lab, 0)
}

// ----- crowds -----------------------------------------------------------------------------------------------------------

/// Returns the time for which crowds run, and runs with endpoints on two nodes. `SCIF_FUZZ_SECONDS`
/// sets another time, for a long night.
fn seconds() -> u64 {
    let asked = env::var("SCIF_FUZZ_SECONDS").ok();
    asked.and_then(|asked| asked.parse().ok()).unwrap_or(15)
}

fn lasts() -> Duration {
    Duration::from_secs(seconds())
}

/// Returns the factor by which a guest may be slower than a fast machine.
fn slow(lab: &Lab) -> u32 {
    5 * lab.slowness()
}

/// Starts crowds on a node that connect to another node, or to the node itself.
fn crowds(lab: &Lab, node: usize, peer: usize, is_staged: bool) -> Result<Process> {
    let program = scif::built("target/release/scif-fuzz")?;
    // Each node has other crowds than its peer.
    let seed = seed().parse::<u64>()? + node as u64 * 1_000_000;
    let argv = [
        program,
        "crowd".to_owned(),
        format!("--seed={seed}"),
        format!("--calls={}", u64::MAX),
        format!("--seconds={}", seconds()),
        format!("--peer={peer}"),
        format!("--slow={}", slow(lab)),
        format!("--staged={is_staged}"),
    ];
    lab.command(node, argv)?
        .timeout(Duration::from_secs(seconds()) + lab.hang_limit(120))
        .spawn()
}

/// Calls that have to succeed now and then in crowds, as crowds in which they always fail test
/// little.
const CROWDS_SUCCEED: &[&str] = &["accept", "connect", "receive", "register", "send"];

/// Waits for crowds to end, beside a bystander on node 0.
fn ended(lab: &Lab, all: Vec<Process>) -> Result<()> {
    let mut texts = Vec::new();
    bystander::beside(lab, 0, || {
        for crowds in all {
            texts.push(crowds.wait()?.success()?.stdout());
        }
        Ok(())
    })?;
    for word in CROWDS_SUCCEED {
        let counts = texts.iter().map(|text| succeeded(text, word));
        let sum = counts.sum::<Result<u64>>()?;
        ensure!(sum > 0, "{word} never succeeded\n{}", texts.concat());
    }
    for text in texts {
        println!("      {}", text.lines().last().unwrap_or("?"));
    }
    for node in 0..lab.nodes() {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Fails unless crowds of one node find a fault of the module.
pub fn crowds_fail(lab: &Lab) -> Result<()> {
    let output = crowds(lab, 0, 0, false)?.wait()?;
    let failed = output.status(1).context("crowds find nothing wrong")?;
    let text = failed.stdout();
    println!("      {}", text.lines().next().unwrap_or("?"));
    Ok(())
}

/// Runs a crowd of processes and threads on one node.
fn crowd(lab: &Lab) -> Result<()> {
    ended(lab, vec![crowds(lab, 0, 0, false)?])
}

/// Runs a crowd on each of two nodes, which connects to the other node.
fn two_crowds(lab: &Lab, is_staged: bool) -> Result<()> {
    let one = crowds(lab, 0, 1, is_staged)?;
    ended(lab, vec![one, crowds(lab, 1, 0, is_staged)?])
}

fn crowd_flat(lab: &Lab) -> Result<()> {
    two_crowds(lab, false)
}

fn crowd_staged(lab: &Lab) -> Result<()> {
    two_crowds(lab, true)
}

/// Runs the model with one thread, half of whose endpoints are on the other node.
fn two_nodes(lab: &Lab, is_staged: bool) -> Result<()> {
    let program = scif::built("target/release/scif-fuzz")?;
    let limit = Duration::from_secs(seconds()) + lab.hang_limit(120);
    let agent = lab
        .command(1, [&*program, "agent"])?
        .timeout(limit)
        .spawn()?;
    agent.wait_for("agent at port", lab.hang_limit(20))?;
    let argv = [
        program,
        "run".to_owned(),
        format!("--seed={}", seed()),
        format!("--calls={}", usize::MAX),
        format!("--seconds={}", seconds()),
        "--peer=1".to_owned(),
        format!("--staged={is_staged}"),
    ];
    let output = lab.command(0, argv)?.timeout(limit).run()?.success()?;
    agent.kill();
    agent.wait()?;
    let text = output.stdout();
    for word in SUCCEED {
        // Staged windows can't be mapped.
        let is_possible = !(is_staged && *word == "map");
        let count = succeeded(&text, word)?;
        ensure!(count > 0 || !is_possible, "{word} never succeeded\n{text}");
    }
    println!("      {}", text.lines().last().unwrap_or("?"));
    for node in 0..lab.nodes() {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

fn two_flat(lab: &Lab) -> Result<()> {
    two_nodes(lab, false)
}

fn two_staged(lab: &Lab) -> Result<()> {
    two_nodes(lab, true)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_fuzz::model", BARE, model)
        .seconds(120)
        .lasts(lasts),
    Test::new(
        "scif_fuzz::close_before_connect_returns",
        BARE,
        close_before_connect_returns,
    ),
    Test::new("scif_fuzz::model_flat", SCIF_PAIR, two_flat)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::model_arena", ARENA_PAIR, two_staged)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::model_bounce", scif_bounce::USUAL, two_staged)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::crowd", BARE, crowd)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::crowd_flat", SCIF_PAIR, crowd_flat)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::crowd_arena", ARENA_PAIR, crowd_staged)
        .seconds(120)
        .lasts(lasts),
    Test::new("scif_fuzz::crowd_bounce", scif_bounce::USUAL, crowd_staged)
        .seconds(120)
        .lasts(lasts),
    Test::new(
        "scif_fuzz::crowd_small_aperture",
        scif_bounce::SMALL,
        crowd_staged,
    )
    .seconds(120)
    .lasts(lasts)
    .by_name(),
];
