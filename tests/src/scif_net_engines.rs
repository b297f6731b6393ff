// SPDX-License-Identifier: GPL-2.0
//! Engines that go while `scif_net` gives them frames.
//!
//! A node sends a file by TCP. Checksums are not computed, so a frame with wrong bytes would end up
//! in the file of the receiver.

use anyhow::Result;
use anyhow::bail;
use anyhow::ensure;
use lab::Lab;
use lab::Process;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::PAIR;
use crate::scif;
use crate::scif_engines;
use crate::scif_net;

/// The file that node 0 sends, and the file that node 1 receives.
const FILE: &str = "/run/scif-net-file";

/// Returns the digest of the file of a node.
fn digest(lab: &Lab, node: usize) -> Result<String> {
    let said = lab.shell(node, &format!("sha256sum <{FILE}"))?;
    Ok(said.trim().to_owned())
}

/// Returns the digest of each 64 KiB of the file of a node.
fn parts(lab: &Lab, node: usize) -> Result<Vec<String>> {
    let script = format!(
        "cd /run; split --bytes 64K --suffix-length 6 {FILE} part.
        md5sum part.* | cut --characters 1-32; rm part.*"
    );
    let said = lab.shell(node, &script)?;
    Ok(said.lines().map(str::to_owned).collect())
}

/// Waits until node 1 has received more than `count` bytes, or the sender has ended.
fn received(lab: &Lab, client: &Process, count: u64) -> Result<u64> {
    wait_until("frames", lab.hang_limit(60), || {
        let now = scif_net::count(lab, 1, "rx_bytes")?;
        Ok((now > count || !client.is_running()).then_some(now))
    })
}

/// Starts to send the file from node 0 to node 1. Returns the client and the server.
fn begin(lab: &Lab) -> Result<[Process; 2]> {
    let server = lab.spawn(
        1,
        [
            "iperf3",
            "--server",
            "--one-off",
            "--forceflush",
            "--file",
            FILE,
        ],
    )?;
    server.wait_for("Server listening", lab.hang_limit(20))?;
    let to = scif_net::address(1);
    let client = lab.spawn(
        0,
        // On one CPU, so that it keeps to one queue.
        [
            "taskset", "1", "iperf3", "--client", &to, "--time", "600", "--file", FILE,
        ],
    )?;
    Ok([client, server])
}

/// Waits until the file was sent, and checks that it has arrived.
fn end(lab: &Lab, [client, server]: [Process; 2]) -> Result<()> {
    client.wait()?.success()?;
    server.wait()?.success()?;
    if digest(lab, 0)? != digest(lab, 1)? {
        let [sent, received] = [parts(lab, 0)?, parts(lab, 1)?];
        let pairs = sent.iter().zip(&received).enumerate();
        let wrong: Vec<usize> = pairs
            .filter_map(|(number, (sent, received))| (sent != received).then_some(number))
            .collect();
        bail!(
            "the file has arrived with other bytes: these of {} parts of 64 KiB, {} of them received: {wrong:?}",
            sent.len(),
            received.len()
        );
    }
    Ok(())
}

/// Sends the file, and meanwhile unbinds and binds the driver of the engine again and again. Returns
/// how often.
fn send_file(lab: &Lab) -> Result<usize> {
    let [client, server] = begin(lab)?;
    let (mut unbound, mut seen) = (0, scif_net::count(lab, 1, "rx_bytes")?);
    while client.is_running() {
        // Much has passed, so that the engine is at work.
        seen = received(lab, &client, seen + (4 << 20))?;
        scif_engines::engine_driver(lab, 0, "unbind")?;
        unbound += 1;
        seen = received(lab, &client, seen)?;
        scif_engines::engine_driver(lab, 0, "bind")?;
    }
    end(lab, [client, server])?;
    Ok(unbound)
}

/// The driver of the engine is unbound and bound again while the engine copies frames. The
/// connection goes on, and all bytes arrive unchanged.
fn lost_engine_spoils_no_frame(lab: &Lab) -> Result<()> {
    scif_net::joined(lab)?;
    scif::set_parameter(lab, "dma_threshold", "4096")?;
    lab.shell(0, &format!("head -c 96M /dev/urandom >{FILE}"))?;
    let mut unbound = 0;
    // An engine without frames goes unnoticed.
    let lost = wait_until(
        "an engine that is lost with frames",
        lab.hang_limit(90),
        || {
            unbound += send_file(lab)?;
            let lost = scif_engines::losses_said(lab)?;
            Ok((lost > 0).then_some(lost))
        },
    )?;
    println!("      {unbound} times unbound, {lost} times with frames");
    for node in 0..2 {
        lab.shell(node, &format!("rm {FILE}"))?;
        scif::check_idle(lab, node)?;
    }
    scif::set_parameter(lab, "dma_threshold", "-1")?;
    scif_net::unload(lab)
}

/// A queue gives its frames to two engines by turns. All bytes arrive in order.
fn engines_take_turns(lab: &Lab) -> Result<()> {
    for node in 0..2 {
        let parameters = "dma_channels=4 dma_threshold=4096";
        scif::load_with(lab, node, Loaded::LongHeartbeat, parameters)?;
        scif_net::load_net(lab, node)?;
    }
    (0..2).try_for_each(|node| scif_net::set_up(lab, node))?;
    lab.shell(0, &format!("head -c 32M /dev/urandom >{FILE}"))?;
    end(lab, begin(lab)?)?;
    let counters = scif::counters(lab, 0)?;
    let bytes = |engine| counters.get(&format!("engine_{engine}_bytes")).copied();
    let mut engines: Vec<u64> = (0..).map_while(bytes).collect();
    engines.sort_unstable();
    // Engines that are busy leave frames to the CPU. With one engine for the queue, the second would
    // have copied next to nothing.
    ensure!(
        matches!(engines[..], [_, _, second, first] if first > 1 << 20 && second > first / 2),
        "the engines have copied {engines:?} bytes"
    );
    for node in 0..2 {
        lab.shell(node, &format!("rm {FILE}"))?;
        scif::check_idle(lab, node)?;
    }
    scif_net::unload(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_net_engines::lost_engine_spoils_no_frame",
        PAIR,
        lost_engine_spoils_no_frame,
    )
    .seconds(60)
    .loses_engine(),
    Test::new(
        "scif_net_engines::engines_take_turns",
        scif_engines::FOUR_ENGINES,
        engines_take_turns,
    )
    .seconds(30)
    .by_name(),
];
