// SPDX-License-Identifier: GPL-2.0
//! The samples for SISCI, run as a reader would try them: between two and three nodes, with a link
//! that fails and comes back, and with a side that is killed.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::Output;
use lab::Process;

use crate::harness::Test;
use crate::libscif::sample;
use crate::scif;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_star::SCIF_STAR;

/// Exit status of a sample that has lost the other side.
const LOST: i32 = 4;

/// Exit status of a sample that does not find the other side.
const NOT_FOUND: i32 = 3;

/// Time for which a link is down. It is long enough that both nodes notice, and shorter than the
/// time that the samples and the library wait for the link.
const AWAY: Duration = Duration::from_secs(2);

fn sisci_sample(name: &str) -> Result<String> {
    sample(&format!("sisci/{name}"))
}

/// Returns a node's id in SISCI.
fn id(node: usize) -> String {
    (4 * (node + 1)).to_string()
}

/// Starts a side to which others connect, and waits until they can.
fn start(lab: &Lab, node: usize, argv: &[&str]) -> Result<Process> {
    let process = lab
        .command(node, argv.iter().copied())?
        .timeout(lab.hang_limit(60))
        .spawn()?;
    process.wait_for("waits for", lab.hang_limit(20))?;
    Ok(process)
}

fn run(lab: &Lab, node: usize, argv: &[&str]) -> Result<Output> {
    lab.command(node, argv.iter().copied())?
        .timeout(lab.hang_limit(60))
        .run()
}

fn says(output: Output, text: &str) -> Result<()> {
    ensure!(output.stdout().contains(text), "no '{text}': {output}");
    output.success()?;
    Ok(())
}

/// Waits until the process ends by itself, and checks its status and its messages.
fn ends(lab: &Lab, process: &Process, status: i32, text: &str) -> Result<()> {
    let output = process.wait_timeout(lab.hang_limit(30))?;
    let output = output.context("the process does not end")?.status(status)?;
    ensure!(output.stderr().contains(text), "no '{text}': {output}");
    Ok(())
}

fn takes_link_away(lab: &Lab) -> Result<()> {
    lab.set_link(0, 1, false)?;
    thread::sleep(AWAY * lab.slowness());
    lab.set_link(0, 1, true)
}

/// Usage errors have another exit status than failures.
fn usage_error_has_own_status(lab: &Lab) -> Result<()> {
    for name in ["pingpong", "dma_ring", "interrupts", "replog"] {
        let program = sisci_sample(name)?;
        let output = run(lab, 0, &[&program, "--help"])?.success()?;
        ensure!(output.stdout().contains("usage: "), "{output}");
        let output = run(lab, 0, &[&program, "nonsense"])?.status(2)?;
        ensure!(output.stderr().contains("usage: "), "{output}");
    }
    let pingpong = sisci_sample("pingpong")?;
    let output = run(lab, 0, &[&pingpong, "client", "x"])?.status(2)?;
    ensure!(output.stderr().contains("'x' is not a node's id"));
    let output = run(lab, 0, &[&pingpong, "client", "244"])?.status(NOT_FOUND)?;
    ensure!(output.stderr().contains("node 244: "), "{output}");
    ensure!(output.stderr().contains("sisci-info"), "{output}");
    Ok(())
}

fn pingpong(lab: &Lab) -> Result<()> {
    let program = sisci_sample("pingpong")?;
    for (client, server) in [(0, 1), (1, 0), (0, 0)] {
        let serving = start(lab, server, &[&program, "server"])?;
        let output = run(lab, client, &[&program, "client", &id(server), "200"])?;
        says(output, &format!("200 round trips with node {}", id(server)))?;
        says(
            serving.wait()?,
            &format!("200 numbers from node {}", id(client)),
        )?;
    }
    Ok(())
}

/// Both ends wait for a link that comes back. If one end is killed, the other end notices.
fn pingpong_survives_link_failure(lab: &Lab) -> Result<()> {
    let program = sisci_sample("pingpong")?;
    let endless = [&*program, "client", &id(1), "1000000000"];
    for killed in [0, 1] {
        let server = start(lab, 1, &[&program, "server"])?;
        let client = lab
            .command(0, endless)?
            .timeout(lab.hang_limit(120))
            .spawn()?;
        for side in [&client, &server] {
            side.wait_for("plays with", lab.hang_limit(30))?;
        }
        takes_link_away(lab)?;
        client.wait_for("is back", lab.hang_limit(30))?;
        server.wait_for("is back", lab.hang_limit(30))?;
        thread::sleep(Duration::from_millis(500));
        let (victim, other) = match killed {
            0 => (&client, &server),
            _ => (&server, &client),
        };
        ensure!(victim.is_running() && other.is_running(), "one has ended");
        victim.signal(9);
        ends(lab, other, LOST, "is lost")?;
        victim.wait_timeout(lab.hang_limit(20))?;
    }
    Ok(())
}

/// The output is the input, which is longer than the ring.
fn dma_ring(lab: &Lab) -> Result<()> {
    let program = sisci_sample("dma_ring")?;
    for (client, server, size) in [(0, 1, 5_000_011), (1, 0, 0), (0, 0, 70_000)] {
        let hash = scif::make_file(lab, "dma-ring-in", size)?;
        let serve = format!("exec {program} server >/exchange/dma-ring-out");
        let serving = start(lab, server, &["sh", "-c", &serve])?;
        let send = format!(
            "exec {program} client {} </exchange/dma-ring-in",
            id(server)
        );
        let output = run(lab, client, &["sh", "-c", &send])?.success()?;
        let told = format!("{size} bytes for node {}", id(server));
        ensure!(output.stderr().contains(&told), "{output}");
        serving.wait()?.success()?;
        let path = lab.paths().exchange().join("dma-ring-out");
        ensure!(scif::hash_of(&path)? == hash, "{size} bytes came changed");
    }
    Ok(())
}

fn dma_ring_reports_loss(lab: &Lab) -> Result<()> {
    let program = sisci_sample("dma_ring")?;
    let serve = format!("exec {program} server >/dev/null");
    let send = format!("exec {program} client {} </dev/zero", id(1));
    for killed in [0, 1] {
        let server = start(lab, 1, &["sh", "-c", &serve])?;
        let client = lab.spawn(0, ["sh", "-c", &send])?;
        client.wait_for("gives to", lab.hang_limit(30))?;
        server.wait_for("takes from", lab.hang_limit(30))?;
        // Kills one end in the middle of the transfers.
        thread::sleep(Duration::from_millis(200));
        ensure!(client.is_running() && server.is_running(), "one has ended");
        let (victim, other) = match killed {
            0 => (&client, &server),
            _ => (&server, &client),
        };
        victim.signal(9);
        let output = other.wait_timeout(lab.hang_limit(30))?;
        output.context("it does not end")?.status(LOST)?;
        victim.wait_timeout(lab.hang_limit(20))?;
    }
    Ok(())
}

fn interrupts(lab: &Lab) -> Result<()> {
    let program = sisci_sample("interrupts")?;
    for (client, server, count) in [(0, 1, "1"), (1, 0, "100"), (0, 0, "7")] {
        let serving = start(lab, server, &[&program, "server"])?;
        let words = [&*program, "client", &id(server), count, "good morning"];
        let told = format!("node {} was told {count} times", id(server));
        says(run(lab, client, &words)?, &told)?;
        let heard = format!("{count} interrupts, and the text: good morning");
        says(serving.wait()?, &heard)?;
    }
    // Only one program can have the number.
    let serving = start(lab, 1, &[&program, "server"])?;
    let output = run(lab, 1, &[&program, "server"])?.status(1)?;
    ensure!(output.stderr().contains("another program"), "{output}");
    serving.kill();
    Ok(())
}

/// Starts the writer of a replicated log on node 0. A caller that waits for its output has to read
/// it.
fn start_writer(lab: &Lab, program: &str) -> Result<Process> {
    lab.command(0, [program, "writer", &id(1), &id(2)])?
        .stdin_piped()
        .timeout(lab.hang_limit(60))
        .spawn()
}

fn append(lab: &Lab, writer: &Process, number: usize, nodes: usize) -> Result<()> {
    writer.write(format!("record number {number}\n").as_bytes())?;
    let safe = format!("record {number} is safe on {nodes} nodes");
    writer.wait_for(&safe, lab.hang_limit(30))
}

fn replicated_log(lab: &Lab) -> Result<()> {
    let program = sisci_sample("replog")?;
    let replica = |node| start(lab, node, &[&program, "replica"]);
    let replicas = [replica(1)?, replica(2)?];
    let writer = start_writer(lab, &program)?;
    for number in 1..=50 {
        append(lab, &writer, number, 2)?;
    }
    writer.close_stdin();
    says(writer.wait()?, "50 records on 2 nodes")?;
    for replica in replicas {
        let output = replica.wait()?;
        ensure!(output.stdout().contains("\n50: record number 50\n"));
        says(output, "50 records, all")?;
    }
    Ok(())
}

/// If a replica is killed, the log goes on with the other one. If the writer is killed, a replica
/// prints its content.
fn replog_survives_killed_process(lab: &Lab) -> Result<()> {
    let program = sisci_sample("replog")?;
    let replica = |node| start(lab, node, &[&program, "replica"]);
    let replicas = [replica(1)?, replica(2)?];
    let writer = start_writer(lab, &program)?;
    append(lab, &writer, 1, 2)?;
    replicas[0].signal(9);
    // The replica might take another record before it is dead.
    let gone = replicas[0].wait_timeout(lab.hang_limit(20))?;
    ensure!(gone.is_some(), "a replica does not end");
    append(lab, &writer, 2, 1)?;
    ensure!(
        writer.stderr().contains("node 8 is lost: it is no replica"),
        "{}",
        writer.stderr()
    );
    takes_away_from(lab, 2)?;
    append(lab, &writer, 3, 1)?;
    writer.signal(9);
    replicas[1].wait_for("3 records, and no end", lab.hang_limit(30))?;
    ends(lab, &replicas[1], LOST, "is lost")
}

/// Takes a replica's link away for a moment, which is shorter than the writer's patience.
fn takes_away_from(lab: &Lab, node: usize) -> Result<()> {
    lab.set_link(0, node, false)?;
    thread::sleep(AWAY / 2);
    lab.set_link(0, node, true)?;
    scif::online(lab, 0, node)?;
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "sisci_samples::usage_error_has_own_status",
        SCIF_PAIR,
        usage_error_has_own_status,
    ),
    Test::new("sisci_samples::pingpong", SCIF_PAIR, pingpong),
    Test::new(
        "sisci_samples::pingpong_survives_link_failure",
        SCIF_PAIR,
        pingpong_survives_link_failure,
    )
    .seconds(120)
    .loses_nodes()
    .by_name(),
    Test::new("sisci_samples::dma_ring", SCIF_PAIR, dma_ring),
    Test::new(
        "sisci_samples::dma_ring_reports_loss",
        SCIF_PAIR,
        dma_ring_reports_loss,
    )
    .loses_nodes(),
    Test::new("sisci_samples::interrupts", SCIF_PAIR, interrupts),
    Test::new("sisci_samples::replog", SCIF_STAR, replicated_log),
    Test::new(
        "sisci_samples::replog_survives_killed_process",
        SCIF_STAR,
        replog_survives_killed_process,
    )
    .seconds(120)
    .loses_nodes(),
];
