// SPDX-License-Identifier: GPL-2.0
//! Programs of XDP on the device of `scif_net`: `tests/programs/xdp_verdicts.bpf.c` decides by the
//! port of a datagram.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::need::PAIR;
use crate::scif;
use crate::scif_net;
use crate::scif_net_device::facts;

/// The ports of the program.
const DROP: u16 = 9001;
const SEND_BACK: u16 = 9002;
const REDIRECT: u16 = 9003;
const ABORT: u16 = 9004;

/// Datagrams of each kind.
const DATAGRAMS: u64 = 20;

/// Bytes of the headers of a datagram.
const HEADERS: usize = 28;

/// The usual MTU, and one with which packets take several pages.
const USUAL: usize = 1500;
const LARGE: usize = 9000;

/// Returns a statistic of node 1.
fn statistic(lab: &Lab, name: &str) -> Result<u64> {
    let facts = facts(lab, 1)?;
    facts["statistics"][name]
        .as_u64()
        .with_context(|| format!("there is no {name}: {facts:#}"))
}

/// Has node 0 send datagrams, the largest of this MTU among them, and wait for each to come back, or
/// not.
fn send(lab: &Lab, port: u16, mtu: usize, comes_back: bool) -> Result<()> {
    let largest = mtu - HEADERS;
    let wait = match comes_back {
        true => "assert s.recv(9000) == data, 'another datagram has come'",
        false => "pass",
    };
    let seconds = lab.hang_limit(20).as_secs();
    let script = format!(
        "import socket\n\
         s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.settimeout({seconds})\n\
         s.connect(('{}', {port}))\n\
         for number in range({DATAGRAMS}):\n    \
             data = bytes([number]) * (1 if number % 2 else {largest})\n    \
             s.send(data)\n    \
             {wait}\n",
        scif_net::address(1)
    );
    lab.command(0, ["python3", "-c", &script])?
        .timeout(lab.hang_limit(60))
        .run()?
        .success()?;
    Ok(())
}

/// Waits until a statistic of node 1 has grown by the datagrams.
fn counted(lab: &Lab, name: &str, before: u64) -> Result<()> {
    wait_until(name, lab.hang_limit(20), || {
        let now = statistic(lab, name)?;
        ensure!(now <= before + DATAGRAMS, "{name}: {before}, then {now}");
        Ok((now == before + DATAGRAMS).then_some(()))
    })
}

/// All verdicts do what they say.
fn verdicts(lab: &Lab, mtu: usize) -> Result<()> {
    for (port, name) in [(DROP, "rx_xdp_drops"), (ABORT, "rx_xdp_drops")] {
        let before = statistic(lab, name)?;
        send(lab, port, mtu, false)?;
        counted(lab, name, before)?;
    }
    for (port, name) in [
        (SEND_BACK, "rx_xdp_tx"),
        // To the device itself, which takes frames of other devices.
        (REDIRECT, "rx_xdp_redirects"),
    ] {
        let before = statistic(lab, name)?;
        send(lab, port, mtu, true)?;
        counted(lab, name, before)?;
    }
    Ok(())
}

/// TCP streams to node 1. Returns how many large frames it has received.
fn stream(lab: &Lab) -> Result<u64> {
    let before = statistic(lab, "rx_large")?;
    scif_net::iperf(lab, &["--bytes", "8M"])?;
    scif_net::iperf(lab, &["--bytes", "8M", "--reverse"])?;
    Ok(statistic(lab, "rx_large")? - before)
}

/// Checks that the streams to node 1 are cut, and lose no frame.
fn frames_are_cut(lab: &Lab, when: &str) -> Result<()> {
    let dropped = scif_net::count(lab, 1, "rx_dropped")?;
    let large = stream(lab)?;
    let more = scif_net::count(lab, 1, "rx_dropped")? - dropped;
    ensure!(
        large == 0 && more == 0,
        "{when}, node 1 has got {large} large frames, and dropped {more}"
    );
    Ok(())
}

/// Returns the shell command that gives the device of node 1 a program.
fn attach(section: &str) -> Result<String> {
    let object = scif::program("xdp_verdicts.bpf.o")?;
    Ok(format!(
        "ip -force link set scif0 xdpdrv object {object} section {section} 2>&1"
    ))
}

/// Programs that can see frames of several pages get them, and other programs do not.
fn large_packets(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        lab.shell(node, &format!("ip link set scif0 mtu {LARGE}"))?;
    }
    let said = lab.shell(1, &format!("! {}", attach("xdp")?))?;
    ensure!(said.contains("MTU is too large"), "{said}");
    lab.shell(1, &attach("xdp.frags")?)?;
    verdicts(lab, LARGE)?;
    frames_are_cut(lab, "with large packets")?;
    let said = lab.shell(1, &format!("! {}", attach("xdp")?))?;
    ensure!(said.contains("MTU is too large"), "{said}");

    // Node 0 goes on to send large ones.
    lab.shell(
        1,
        &format!("ip link set scif0 mtu {USUAL} && {}", attach("xdp")?),
    )?;
    let before = statistic(lab, "rx_xdp_drops")?;
    send(lab, SEND_BACK, LARGE, false)?;
    wait_until("dropped packets", lab.hang_limit(20), || {
        let now = statistic(lab, "rx_xdp_drops")?;
        Ok((now == before + DATAGRAMS / 2).then_some(()))
    })?;
    lab.shell(0, &format!("ip link set scif0 mtu {USUAL}"))?;
    Ok(())
}

/// The device of node 1 has a program. Node 0 cuts its frames for it, also after a reload.
fn programs_decide(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    let large = stream(lab)?;
    ensure!(large > 0, "the stream has no large frames");

    lab.shell(1, &attach("xdp")?)?;
    let shown = lab.shell(1, "ip -d link show scif0")?;
    ensure!(shown.contains("prog/xdp"), "{shown}");
    lab.shell(1, "! ip link set scif0 mtu 9000 2>&1")?;

    // The first answer shows that node 0 has the message, which it got before.
    verdicts(lab, USUAL)?;
    frames_are_cut(lab, "with a program")?;
    lab.shell(1, "ip link set scif0 xdpdrv off")?;
    large_packets(lab)?;

    // The session with node 0 is a new one then.
    for module in ["scif_net", "scif"] {
        lab.rmmod(0, module)?;
    }
    scif_net::carrier(lab, 1, "scif0", false)?;
    scif_net::load(lab, 0)?;
    scif_net::set_up(lab, 0)?;
    scif_net::carrier(lab, 1, "scif0", true)?;
    verdicts(lab, USUAL)?;
    frames_are_cut(lab, "after the reload")?;

    lab.shell(
        1,
        "ip link set scif0 xdpdrv off && ip link set scif0 mtu 9000",
    )?;
    lab.shell(1, "ip link set scif0 mtu 1500")?;
    wait_until("large frames", lab.hang_limit(60), || {
        Ok((stream(lab)? > 0).then_some(()))
    })?;

    // A device may go with its program.
    lab.shell(1, &attach("xdp")?)?;
    scif_net::unload(lab)?;
    // ip has the kernel compute the program's digest, if it can.
    lab.shell(
        1,
        "! grep -q '^algif_hash ' /proc/modules || modprobe -r algif_hash",
    )?;
    Ok(())
}

/// The tests of this file. The small kernels have no system call for programs.
pub const TESTS: &[Test] = &[
    Test::new("scif_net_xdp::programs_decide", PAIR, programs_decide)
        .seconds(40)
        .only_on(&[Flavour::Stock, Flavour::Debug]),
];
