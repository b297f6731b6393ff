// SPDX-License-Identifier: GPL-2.0
//! Many rounds of losses under TCP: a node is killed, the link flaps, and modules are loaded anew.
//!
//! `SCIF_NET_ROUNDS` is the number of rounds, 16 by default. In each one TCP carries data, and after
//! it the carrier is back within the promised time. Every eight rounds, nothing is in use and
//! nothing was reported. Node 0 lives on: at the end it has lost no memory, and on the debug kernel
//! neither node has memory without a reference.

use std::env;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::Process;

use crate::harness::Test;
use crate::need::PAIR;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif_net;
use crate::verdict::Promise;

/// Limit from the end of an event until both nodes have a carrier again.
const CARRIER: Promise = Promise {
    name: "the carrier of a network device is back",
    seconds: 5.0,
};

/// Limit from the loss of a peer until its device has gone or has no carrier.
const TOLD: Promise = Promise {
    name: "a network device whose peer is lost has no carrier",
    seconds: 2.0,
};

/// A loss.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Node 1 is killed, and boots again.
    Kill,
    LinkLoss,
    /// scif_net of a node is unloaded and loaded.
    ReloadNet(usize),
    /// scif_net and scif of a node are.
    ReloadBoth(usize),
}

/// The losses of a cycle. Its end is checked more closely than that of a round.
const CYCLE: [Event; 8] = [
    Event::Kill,
    Event::LinkLoss,
    Event::ReloadNet(0),
    Event::ReloadBoth(1),
    Event::LinkLoss,
    Event::ReloadNet(1),
    Event::ReloadBoth(0),
    Event::LinkLoss,
];

/// KiB by which the unreclaimable memory of node 0 may grow after the first cycle, in which caches
/// grow.
const DRIFT: i64 = 8 << 10;

/// Seconds of each round on the reference machine, with a boot.
const ROUND: u64 = 25;

fn rounds() -> Result<usize> {
    let rounds = env::var("SCIF_NET_ROUNDS").unwrap_or_else(|_| "16".to_owned());
    let rounds: usize = rounds
        .parse()
        .with_context(|| format!("SCIF_NET_ROUNDS={rounds}"))?;
    ensure!(
        rounds >= 2 * CYCLE.len() && rounds % CYCLE.len() == 0,
        "SCIF_NET_ROUNDS={rounds}: give a multiple of {}, and at least {}",
        CYCLE.len(),
        2 * CYCLE.len()
    );
    Ok(rounds)
}

/// Starts a stream from node 0 to node 1 that goes on until it is killed. It leaves the CPUs to
/// programs that want them, so that the test itself is not delayed.
fn stream(lab: &Lab) -> Result<[Process; 2]> {
    let server = scif_net::serve(lab, 1)?;
    let to = scif_net::address(1);
    let client = lab.spawn(
        0,
        [
            "nice",
            "-n",
            "19",
            "iperf3",
            "--client",
            &to,
            "--time",
            "3600",
            "--parallel",
            "2",
            "--forceflush",
        ],
    )?;
    // The line of the first second: bytes have passed.
    client.wait_for("bits/sec", lab.hang_limit(20))?;
    Ok([client, server])
}

/// Causes a loss, and waits until the others are told. The stream of the round is not of use any
/// more. Returns the end of the event, and the node whose device is a new one.
fn cause(
    lab: &Lab,
    event: Event,
    circumstances: &Circumstances<'_>,
) -> Result<(Instant, Option<usize>)> {
    let told_since = |node: usize, since: Instant| {
        scif_net::carrier(lab, node, "scif0", false)?;
        TOLD.check(circumstances, since.elapsed())
    };
    let new = match event {
        Event::Kill => {
            lab.kill(1)?;
            told_since(0, Instant::now())?;
            lab.restart(1)?;
            scif_net::load(lab, 1)?;
            Some(1)
        }
        Event::LinkLoss => {
            lab.set_link(0, 1, false)?;
            let pulled = Instant::now();
            scif_net::carrier(lab, 0, "scif0", false)?;
            told_since(1, pulled)?;
            lab.set_link(0, 1, true)?;
            None
        }
        Event::ReloadNet(node) => {
            lab.rmmod(node, "scif_net")?;
            told_since(1 - node, Instant::now())?;
            scif_net::load_net(lab, node)?;
            Some(node)
        }
        Event::ReloadBoth(node) => {
            lab.rmmod(node, "scif_net")?;
            lab.rmmod(node, "scif")?;
            told_since(1 - node, Instant::now())?;
            scif_net::load(lab, node)?;
            Some(node)
        }
    };
    Ok((Instant::now(), new))
}

/// Returns the unreclaimable memory of a node in KiB. Cached memory is dropped before.
fn memory(lab: &Lab, node: usize) -> Result<i64> {
    let said = lab.shell(
        node,
        "sync; echo 3 >/proc/sys/vm/drop_caches
         sed -n 's/^SUnreclaim: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
    )?;
    said.trim().parse().context(said)
}

/// Loses something while TCP sends. Returns the time until both nodes had a carrier.
fn one_round(lab: &Lab, event: Event, circumstances: &Circumstances<'_>) -> Result<Duration> {
    let processes = stream(lab)?;
    let (ended, new) = cause(lab, event, circumstances)?;
    if let Some(node) = new {
        scif_net::set_up(lab, node)?;
    }
    for node in 0..2 {
        scif_net::carrier(lab, node, "scif0", true)?;
    }
    let took = ended.elapsed();
    for process in processes {
        process.kill();
        // The process of a node that was killed has no result.
        let _ = process.wait();
    }
    CARRIER.check(circumstances, took)?;
    Ok(took)
}

/// Checks that TCP carries data, that nothing is in use afterwards, and that no kernel has reported
/// anything since its boot.
fn end_cycle(lab: &Lab) -> Result<()> {
    scif_net::iperf(lab, &["--bytes", "4M"])?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
        lab.check_kernel_log_except(node, &["taints kernel", "is lost: ", "scif: node 65535 "])?;
    }
    Ok(())
}

/// Nothing leaks, nothing is reported, and each loss is told and repaired within the promised time.
fn rounds_of_losses(lab: &Lab) -> Result<()> {
    let rounds = rounds()?;
    scif_net::joined(lab)?;
    let mut before = None;
    for cycle in 0..rounds / CYCLE.len() {
        let circumstances = Circumstances::before(lab, &[0, 1])?;
        for (round, event) in (cycle * CYCLE.len() + 1..).zip(CYCLE) {
            let start = Instant::now();
            let back = one_round(lab, event, &circumstances)
                .with_context(|| format!("round {round}, {event:?}"))?;
            println!(
                "      round {round} of {rounds}, {event:?}: carrier after {:.1} s, {:.1} s in all",
                back.as_secs_f64(),
                start.elapsed().as_secs_f64()
            );
        }
        end_cycle(lab).with_context(|| format!("after {} cycles", cycle + 1))?;
        if before.is_none() {
            before = Some(memory(lab, 0)?);
        }
    }
    let drift = memory(lab, 0)? - before.context("no rounds")?;
    println!("      node 0: {drift} KiB more since the first cycle");
    ensure!(drift < DRIFT, "node 0 has {drift} KiB more in slabs");
    scif_net::unload(lab)?;
    if lab.kernel().flavour() == Flavour::Debug {
        for node in 0..2 {
            let report = lab.kmemleak(node)?;
            ensure!(report.is_empty(), "node {node} has leaked:\n{report}");
        }
    }
    Ok(())
}

/// Returns the time that the rounds take. The test itself reports a number that can't be parsed.
fn lasts() -> Duration {
    Duration::from_secs(ROUND * rounds().unwrap_or(0) as u64 * 8)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[Test::new("scif_net_long::rounds", PAIR, rounds_of_losses)
    .seconds(300)
    .lasts(lasts)
    .loses_nodes()
    .leaves_disorder()
    .expects(&["is lost: "])
    .by_name()];
