// SPDX-License-Identifier: GPL-2.0
//! A hostile peer of `scif_net`: node 1 runs a module that lies about frames
//! (tests/hostile/frame-liar.patch).
//!
//! The liar fills the rings of node 0 with wrong counts, descriptors, headers and bytes, posts
//! buffers that do not exist, and offers and withdraws rings. Programs on both nodes send IP
//! meanwhile, and node 0 forwards some of it. Node 0 keeps what Documentation/security.rst promises:
//! memory and log are bounded, bystanders notice nothing, and an honest peer is served afterwards.
//!
//! `SCIF_HOSTILE_SEED` chooses another seed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::wait_until;

use crate::bystander::Bystander;
use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::promise::Circumstances;
use crate::scif;
use crate::scif_arena::ARENA_PAIR;
use crate::scif_bounce;
use crate::scif_hostile;
use crate::scif_hostile::Memory;
use crate::scif_mutants;
use crate::scif_net;

/// The nodes: the node under attack, and the node that lies.
const HONEST: usize = 0;
const HOSTILE: usize = 1;

/// File whose existence ends the loops on the nodes.
const OVER: &str = "/tmp/frame-liar-over";

/// Number of frames that the liar has to send at least, on a kernel without debugging.
const FRAMES: u64 = 3_000;

/// Returns the address of a node. Packets for 10.77/16 have to be forwarded back to the sender.
fn address(node: usize) -> String {
    format!("10.9.0.{}", node + 1)
}

/// Runs a script on a node again and again.
fn again_and_again(lab: &Lab, node: usize, script: &str) -> Result<Process> {
    let script = format!("while [ ! -e {OVER} ]; do {script}; done >/dev/null 2>&1");
    lab.command(node, ["sh", "-c", &script])?
        .timeout(Duration::from_secs(3600))
        .spawn()
}

/// Gives the device of a node its address and routes. The device keeps them when a session ends.
fn configure(lab: &Lab, node: usize) -> Result<()> {
    scif_net::wait_for_device(lab, node, "scif0")?;
    let (own, other) = (address(node), address(1 - node));
    // The emulator takes tens of milliseconds for a frame of 64 KiB if it traps each store. On the
    // only CPU of a node, nothing else runs meanwhile.
    let most = match scif_net::are_stores_mapped(lab) {
        true => 65536,
        false => 3000,
    };
    let script = format!(
        "ip link set scif0 gso_max_size {most} gso_ipv4_max_size {most} up
        ip addr add {own}/24 dev scif0
        ip route add 10.77.0.0/16 via {other} dev scif0"
    );
    lab.shell(node, &script)?;
    Ok(())
}

/// Tells each node the other's link address, as most sessions are over before ARP has found it on a
/// slow kernel.
fn introduce(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        let file = "/sys/class/net/scif0/address";
        let (to, link) = (address(1 - node), lab.node(1 - node).read(file)?);
        let link = link.trim();
        lab.shell(
            node,
            &format!("ip neigh replace {to} lladdr {link} dev scif0 nud permanent"),
        )?;
    }
    Ok(())
}

/// Starts the load: programs of both nodes that send and receive. Returns those of node 0, and
/// those of node 1. A program that a lie stops is killed, as late as its kernel is slow.
///
/// A node holds up to 4 MiB of fragments of packets that the liar has spoilt, for a second here
/// instead of 30, so that they are not taken for a leak afterwards.
fn load(lab: &Lab) -> Result<[Vec<Process>; 2]> {
    let mut started = [Vec::new(), Vec::new()];
    let honest = address(HONEST);
    let killed = |seconds: u32| format!("timeout -s KILL {}", seconds * lab.slowness());
    for (node, processes) in started.iter_mut().enumerate() {
        lab.shell(
            node,
            &format!(
                "rm -f {OVER}; echo 1 >/proc/sys/net/ipv4/ip_forward
                echo 1 >/proc/sys/net/ipv4/ipfrag_time"
            ),
        )?;
        configure(lab, node)?;
        for port in 5201..5205 {
            let server = format!("{} iperf3 --server --port {port}", killed(5));
            processes.push(again_and_again(lab, node, &server)?);
        }
    }
    introduce(lab)?;
    let [on_honest, on_hostile] = &mut started;
    // Has ARP ask, which no neighbour answers.
    let unknown = format!("{} ping -c 1 10.9.0.77 || sleep 0.1", killed(2));
    on_hostile.push(again_and_again(lab, HOSTILE, &unknown)?);
    for arguments in [
        "--port 5201",
        "--port 5202 --reverse",
        "--port 5203 --udp --bitrate 8M --length 1400",
        "--port 5204 --udp --bitrate 8M --length 30000",
    ] {
        let client = format!(
            "{} iperf3 --client {honest} --time 2 {arguments} || sleep 0.1",
            killed(4)
        );
        on_hostile.push(again_and_again(lab, HOSTILE, &client)?);
    }
    // Many frames from few processes, which take long to start on a slow kernel.
    for size in ["56", "1400", "20000"] {
        let flood = format!(
            "{} ping -f -W 1 -c 2000 -s {size} {honest} || sleep 0.1",
            killed(5)
        );
        on_hostile.push(again_and_again(lab, HOSTILE, &flood)?);
    }
    let forwarded = format!(
        "{} ping -i 0.01 -c 200 -s 1400 10.77.0.1 || sleep 0.1",
        killed(3)
    );
    on_hostile.push(again_and_again(lab, HOSTILE, &forwarded)?);
    let client = format!(
        "{} iperf3 --client {} --time 2 || sleep 0.1",
        killed(4),
        address(HOSTILE)
    );
    on_honest.push(again_and_again(lab, HONEST, &client)?);
    Ok(started)
}

/// Loads the modules that lie on node 1.
fn load_liar(lab: &Lab) -> Result<()> {
    let [scif, net] = scif_mutants::build_with_net(lab, "frame-liar")?;
    let seed = scif_hostile::from_environment("SCIF_HOSTILE_SEED", 34);
    let usual = scif::parameters(lab, HOSTILE, Loaded::LongHeartbeat)?;
    // The own measure of a sender leaves next to all frames of a slow kernel to the CPU.
    let parameters = format!("{usual} liar_seed={seed} dma_threshold=2048");
    lab.insmod(HOSTILE, &scif, &parameters)?;
    lab.insmod(HOSTILE, &net, "")
}

/// Reads the counts of the liar.
fn said(lab: &Lab) -> Result<BTreeMap<String, u64>> {
    let text = lab.node(HOSTILE).read(&format!("{}/liar", scif::DEBUGFS))?;
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs
        .map(|(name, value)| Ok((name.to_owned(), value.parse()?)))
        .collect()
}

/// Returns whether the liar has sent enough frames, some by an engine, and told each kind of lie but
/// one.
fn is_enough(counts: &BTreeMap<String, u64>, frames: u64, untold: Option<&str>) -> bool {
    let lies = counts.iter().filter(|(name, _)| name.starts_with("lie_"));
    let lies = lies.filter(|(name, _)| untold != Some(name.as_str()));
    let mut lies = lies.map(|(_, count)| *count);
    counts["frames"] >= frames && counts["by_engine"] != 0 && lies.all(|count| count != 0)
}

/// Sends in both directions between node 0, whose device is still there, and node 1, whose device
/// is new.
fn works_again(lab: &Lab) -> Result<()> {
    scif_net::set_up(lab, HOSTILE)?;
    scif_net::carrier(lab, HONEST, "scif0", true)?;
    for direction in [&[][..], &["--reverse"]] {
        let arguments = [&["--bytes", "64K"], direction].concat();
        let report = scif_net::iperf(lab, &arguments)?;
        let received = report["end"]["sum_received"]["bytes"].as_u64();
        ensure!(received > Some(0), "{:#}", report["end"]);
    }
    Ok(())
}

fn attack(lab: &Lab, frames: u64, untold: Option<&str>) -> Result<()> {
    // All that is checked takes that much longer, too.
    let frames = frames / u64::from(lab.slowness());
    scif_net::load(lab, HONEST)?;
    let around = Circumstances::before(lab, &[HONEST])?;
    let bystander = Bystander::start(lab, HONEST, HONEST)?;
    let before = Memory::settled(lab, HONEST)?;
    load_liar(lab)?;
    let running = load(lab)?;
    let start = Instant::now();
    let (mut counts, mut most) = (BTreeMap::new(), 0);
    wait_until("enough lies", lab.hang_limit(90), || {
        thread::sleep(Duration::from_secs(1));
        bystander
            .check()
            .with_context(|| format!("after {counts:?}"))?;
        let grown = before.grown(&Memory::of(lab, HONEST)?).largest();
        most = most.max(grown);
        ensure!(
            grown <= scif_hostile::most_while(lab),
            "node 0 has {grown} KiB more in use after {counts:?}"
        );
        counts = said(lab)?;
        Ok(is_enough(&counts, frames, untold).then_some(()))
    })
    .with_context(|| format!("{:?}", said(lab)))?;
    let seconds = start.elapsed().as_secs();
    println!("      {counts:?} in {seconds} s");
    for node in 0..2 {
        lab.shell(node, &format!("touch {OVER}"))?;
    }
    for process in running.into_iter().flatten() {
        let ended = process.wait_timeout(lab.hang_limit(20))?;
        ended.context("a program does not end")?;
    }
    bystander.end_undisturbed(&around)?;

    // The liar becomes honest.
    lab.rmmod(HOSTILE, "scif_net")?;
    lab.rmmod(HOSTILE, "scif")?;
    scif_net::load(lab, HOSTILE)?;
    works_again(lab)?;

    lab.rmmod(HOSTILE, "scif_net")?;
    lab.rmmod(HOSTILE, "scif")?;
    scif::check_idle(lab, HONEST)?;
    let after = scif_hostile::given_back(lab, &before)?;
    ensure!(
        after.largest() <= scif_hostile::most_after(lab),
        "node 0 has so many KiB more in use afterwards: {after:?}; sockets:\n{}",
        lab.node(HONEST).read("/proc/net/sockstat")?
    );
    let (ours, others) = scif_hostile::log_lines(lab)?;
    println!(
        "      {most} KiB meanwhile, afterwards {after:?}; {ours} lines of the module, {others} others"
    );
    let limit = scif_hostile::most_lines(start.elapsed());
    ensure!(
        ours + others <= limit,
        "node 0 has logged {ours} lines of the module and {others} others, and may {limit}"
    );
    lab.rmmod(HONEST, "scif_net")?;
    lab.rmmod(HONEST, "scif")?;
    let report = lab.kmemleak(HONEST)?;
    ensure!(report.is_empty(), "node 0 has leaked:\n{report}");
    Ok(())
}

const fn hostile(name: &'static str, need: Need, run: fn(&Lab) -> Result<()>) -> Test {
    let need = Need {
        scif: Loaded::No,
        ..need
    };
    Test::new(name, need, run)
        .seconds(120)
        .loses_nodes()
        .leaves_disorder()
        .expects(scif_hostile::CAUSED)
}

/// The tests of this file. Where each store traps, frames take long.
pub const TESTS: &[Test] = &[
    hostile("scif_net_hostile::flat", PAIR, |lab| {
        attack(lab, FRAMES, Some("lie_later"))
    }),
    hostile("scif_net_hostile::arena", ARENA_PAIR, |lab| {
        attack(lab, FRAMES / 6, None)
    }),
    hostile("scif_net_hostile::bounce", scif_bounce::USUAL, |lab| {
        attack(lab, FRAMES / 6, None)
    }),
];
