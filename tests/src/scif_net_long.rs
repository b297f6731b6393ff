// SPDX-License-Identifier: GPL-2.0
//! Many rounds of losses under TCP: a node is killed, the link flaps, and modules are loaded anew.
//!
//! `SCIF_NET_ROUNDS` is the number of rounds, 8 by default. After each round the carrier is back
//! within the promised time, and TCP carries data. At the end no memory is lost, and on the debug
//! kernel none is without a reference.

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

/// Number of the first rounds, in which caches grow.
const FIRST: usize = 4;

/// KiB by which the kernel's unreclaimable memory may grow after the first rounds.
const DRIFT: i64 = 8 << 10;

/// Seconds of each round on the reference machine, with a boot.
const ROUND: u64 = 25;

fn rounds() -> Result<usize> {
    let rounds = env::var("SCIF_NET_ROUNDS").unwrap_or_else(|_| "8".to_owned());
    let rounds: usize = rounds
        .parse()
        .with_context(|| format!("SCIF_NET_ROUNDS={rounds}"))?;
    ensure!(rounds >= FIRST + 4, "at least {} rounds", FIRST + 4);
    Ok(rounds)
}

/// Starts a stream from node 0 to node 1 that goes on until it is killed.
fn stream(lab: &Lab) -> Result<[Process; 2]> {
    let server = scif_net::serve(lab, 1)?;
    let to = scif_net::address(1);
    let client = lab.spawn(
        0,
        [
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

/// Waits until the device of a node has gone, or has no carrier.
fn told(lab: &Lab, node: usize) -> Result<()> {
    let file = "cat /sys/class/net/scif0/carrier 2>/dev/null || echo 0";
    lab::wait_until("no carrier", lab.hang_limit(20), || {
        Ok((lab.shell(node, file)?.trim() == "0").then_some(()))
    })
}

/// Gives a node's device an address again, if it has none, and waits for the carrier.
fn back(lab: &Lab, node: usize) -> Result<()> {
    let has_address = "ip addr show dev scif0 2>/dev/null | grep -c 'inet ' || true";
    if lab.shell(node, has_address)?.trim() == "1" {
        return scif_net::carrier(lab, node, "scif0", true);
    }
    scif_net::set_up(lab, node)
}

/// The kinds of losses, by turns.
const EVENTS: [&str; 4] = [
    "kill",
    "link loss",
    "reload of scif_net",
    "reload of both modules",
];

/// Causes a loss. The stream of the round is not of use any more. Returns the end of the event.
fn event(lab: &Lab, number: usize, circumstances: &Circumstances<'_>) -> Result<Instant> {
    let node = number / EVENTS.len() % 2;
    match number % EVENTS.len() {
        0 => {
            lab.kill(node)?;
            let killed = Instant::now();
            told(lab, 1 - node)?;
            TOLD.check(circumstances, killed.elapsed())?;
            lab.restart(node)?;
            scif_net::load(lab, node)?;
        }
        1 => {
            lab.set_link(0, 1, false)?;
            let pulled = Instant::now();
            (0..2).try_for_each(|node| told(lab, node))?;
            TOLD.check(circumstances, pulled.elapsed())?;
            lab.set_link(0, 1, true)?;
        }
        2 => {
            lab.rmmod(node, "scif_net")?;
            let gone = Instant::now();
            told(lab, 1 - node)?;
            TOLD.check(circumstances, gone.elapsed())?;
            scif_net::load_net(lab, node)?;
        }
        _ => {
            lab.rmmod(node, "scif_net")?;
            lab.rmmod(node, "scif")?;
            let gone = Instant::now();
            told(lab, 1 - node)?;
            TOLD.check(circumstances, gone.elapsed())?;
            scif_net::load(lab, node)?;
        }
    }
    Ok(Instant::now())
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

/// Loses something while TCP sends, and checks that all works again. Returns the time until both nodes
/// had a carrier.
fn one_round(lab: &Lab, number: usize) -> Result<Duration> {
    let circumstances = Circumstances::before(lab, &[0, 1])?;
    let processes = stream(lab)?;
    let ended = event(lab, number, &circumstances)?;
    for node in 0..2 {
        back(lab, node)?;
    }
    let took = ended.elapsed();
    for process in processes {
        process.kill();
        // The process of a node that was killed has no result.
        let _ = process.wait();
    }
    CARRIER.check(&circumstances, took)?;
    scif_net::iperf(lab, &["--bytes", "4M"])?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
        lab.check_kernel_log_except(node, &["taints kernel", "is lost: ", "scif: node 65535 "])?;
    }
    Ok(took)
}

/// Nothing leaks, nothing is reported, and each loss is told and repaired within the promised time.
fn rounds_of_losses(lab: &Lab) -> Result<()> {
    let rounds = rounds()?;
    scif_net::joined(lab)?;
    let mut boots = [lab.boot_id(0)?, lab.boot_id(1)?];
    let mut before: [Option<(usize, i64)>; 2] = [None; 2];
    for number in 0..rounds {
        let start = Instant::now();
        let back = one_round(lab, number).with_context(|| format!("round {number}"))?;
        println!(
            "      round {number} of {rounds}, {}: carrier after {:.1} s, {:.1} s in all",
            EVENTS[number % EVENTS.len()],
            back.as_secs_f64(),
            start.elapsed().as_secs_f64()
        );
        for node in 0..2 {
            // A node that has booted anew has other memory.
            let boot = lab.boot_id(node)?;
            if boot != boots[node] || before[node].is_none() {
                boots[node] = boot;
                before[node] = Some((number, memory(lab, node)?));
            }
        }
    }
    for (node, before) in before.into_iter().enumerate() {
        let (number, before) = before.context("no rounds")?;
        let drift = memory(lab, node)? - before;
        println!("      node {node}: {drift} KiB more since round {number}");
        ensure!(drift < DRIFT, "node {node} has {drift} KiB more in slabs");
    }
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
