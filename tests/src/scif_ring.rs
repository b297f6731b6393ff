// SPDX-License-Identifier: GPL-2.0
//! Rings of libscif_ring, whose messages take no system call (tests/ring/message_ring.c).

use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::Process;

use crate::harness::Test;
use crate::libscif;
use crate::scif;
use crate::scif_arena;
use crate::scif_bounce;
use crate::scif_messages_and_rma::SCIF_PAIR;
use crate::scif_node_loss::USUAL_PAIR;

const PORT: &str = "2310";
const QUOTES_PORT: &str = "2311";

/// Returns the path of the test program in guests.
fn program() -> Result<String> {
    scif::built("build/ring-tests/message_ring")
}

fn start_server(lab: &Lab, node: usize) -> Result<Process> {
    let server = lab
        .command(node, [&*program()?, "server", PORT])?
        .timeout(lab.hang_limit(300))
        .spawn()?;
    server.wait_for("listening", lab.hang_limit(20))?;
    Ok(server)
}

/// Runs all tests of a client against a server on the other node.
fn client_and_server(lab: &Lab, client: usize, carrier: &str) -> Result<()> {
    let server = 1 - client;
    let serving = start_server(lab, server)?;
    let node = server.to_string();
    let output = lab
        .command(client, [&*program()?, "client", &node, PORT, carrier])?
        .timeout(lab.hang_limit(300))
        .run()?;
    let calls_are_forbidden = output.stdout().contains("system calls are forbidden");
    scif::check_tap(output)?;
    ensure!(
        calls_are_forbidden || carrier == "connection" || lab.kernel().flavour() != Flavour::Stock,
        "the client did not check whether messages take system calls"
    );
    // The client has asked the server to end.
    serving.wait()?.success()?;
    Ok(())
}

fn from_0_to_1(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, "mapped")
}

fn from_1_to_0(lab: &Lab) -> Result<()> {
    client_and_server(lab, 1, "mapped")
}

fn loopback(lab: &Lab) -> Result<()> {
    let output = lab
        .command(0, [&*program()?, "loopback", PORT, "mapped"])?
        .timeout(lab.hang_limit(300))
        .run()?;
    scif::check_tap(output)
}

/// If windows can't be mapped, the same program runs over the connection. A measurement of rings is
/// refused.
fn unmapped_ring_uses_connection(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, "connection")?;
    let server = scif::Server::start(lab, 1)?;
    let arguments = [
        "bench",
        "send-bw",
        "1",
        "--sizes",
        "64",
        "--transport",
        "ring",
    ];
    let output = scif::run_tool(lab, 0, &arguments)?;
    ensure!(
        output.code() != Some(0) && output.stderr().contains("EOPNOTSUPP"),
        "{output}"
    );
    server.stop()?;

    let quotes = &*quotes()?;
    let server = serve_quotes(lab, quotes)?;
    take_quotes(
        lab,
        quotes,
        "over the connection, as for a ring: Operation not supported",
    )?;
    server.kill();
    Ok(())
}

/// Takes quotes from node 1 with samples/ring/quotes, and checks the carrier that it reports.
pub fn take_quotes(lab: &Lab, quotes: &str, how: &str) -> Result<()> {
    let output = lab
        .exec(0, [quotes, "1", QUOTES_PORT, "20000"])?
        .success()?;
    let said = output.stdout();
    ensure!(
        said.contains(how) && said.contains("20000 quotes, "),
        "{output}"
    );
    Ok(())
}

fn quotes() -> Result<String> {
    libscif::sample("rings/quotes")
}

/// Starts the server of quotes on node 1.
pub fn serve_quotes(lab: &Lab, quotes: &str) -> Result<Process> {
    let server = lab.spawn(1, [quotes, "serve", QUOTES_PORT])?;
    server.wait_for("listening", lab.hang_limit(20))?;
    Ok(server)
}

/// The sample, whose server outlives a client that is killed.
fn sample_server_outlives_client(lab: &Lab) -> Result<()> {
    let quotes = &*quotes()?;
    let server = serve_quotes(lab, quotes)?;
    take_quotes(lab, quotes, "over a mapped ring")?;
    server.wait_for("node 0 has got 20000 quotes", lab.hang_limit(20))?;

    let endless = lab.spawn(0, [quotes, "1", QUOTES_PORT, "9000000000000"])?;
    endless.wait_for("over a mapped ring", lab.hang_limit(20))?;
    endless.signal(9);
    server.wait_for("Connection reset by peer after", lab.hang_limit(20))?;
    take_quotes(lab, quotes, "over a mapped ring")?;

    let refused = lab.exec(0, [quotes, "1", "2312"])?.status(1)?;
    ensure!(refused.stderr().contains("Connection refused"), "{refused}");
    server.kill();
    Ok(())
}

/// Checks the output of a program whose calls wait for a lost node: no process is killed, and each
/// call returns an error.
fn all_are_told(waiting: Process) -> Result<()> {
    let text = waiting.wait()?.success()?.stdout();
    for call in ["recv", "send", "poll", "stream", "take"] {
        let told = ["ECONNRESET", "ENODEV"].iter().any(|error| {
            text.lines()
                .any(|line| line == format!("{call} -1 {error}"))
        });
        ensure!(told, "{call} was not told:\n{text}");
    }
    Ok(())
}

fn start_waiting(lab: &Lab) -> Result<(Process, Process)> {
    let server = start_server(lab, 1)?;
    let waiting = lab
        .command(0, [&*program()?, "wait", "1", PORT])?
        .timeout(lab.hang_limit(60))
        .spawn()?;
    waiting.wait_for("waiting", lab.hang_limit(30))?;
    Ok((server, waiting))
}

/// The link goes down while rings are full, empty, and in use.
fn link_failure_ends_ring(lab: &Lab) -> Result<()> {
    for _ in 0..3 {
        let (server, waiting) = start_waiting(lab)?;
        lab.set_link(0, 1, false)?;
        all_are_told(waiting)?;
        drop(server);
        lab.set_link(0, 1, true)?;
        scif::online(lab, 0, 1)?;
        scif::online(lab, 1, 0)?;
    }
    from_0_to_1(lab)
}

/// The driver of the other node's bridge is unbound.
fn unbind_ends_ring(lab: &Lab) -> Result<()> {
    const DEVICE: &str = "0000:00:05.0";
    let driver = lab.shell(
        1,
        &format!("readlink -f /sys/bus/pci/devices/{DEVICE}/driver"),
    )?;
    let driver = driver.trim();
    let (server, waiting) = start_waiting(lab)?;
    lab.shell(1, &format!("echo {DEVICE} >'{driver}/unbind'"))?;
    all_are_told(waiting)?;
    drop(server);
    lab.shell(1, &format!("echo {DEVICE} >'{driver}/bind'"))?;
    scif::online(lab, 0, 1)?;
    scif::online(lab, 1, 0)?;
    Ok(())
}

/// Runs behind an IOMMU, where windows are mapped and the emulation traps each store to them.
fn arena(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, "slow")
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_ring::from_0_to_1", SCIF_PAIR, from_0_to_1).seconds(300),
    Test::new("scif_ring::from_1_to_0", SCIF_PAIR, from_1_to_0)
        .seconds(300)
        .by_name(),
    Test::new("scif_ring::loopback", SCIF_PAIR, loopback).seconds(300),
    Test::new(
        "scif_ring::unmapped_ring_uses_connection",
        scif_bounce::USUAL,
        unmapped_ring_uses_connection,
    )
    .seconds(300)
    .by_name(),
    Test::new("scif_ring::arena", scif_arena::ARENA_PAIR, arena)
        .seconds(300)
        .by_name(),
    Test::new(
        "scif_ring::sample_server_outlives_client",
        SCIF_PAIR,
        sample_server_outlives_client,
    ),
    Test::new(
        "scif_ring::link_failure_ends_ring",
        USUAL_PAIR,
        link_failure_ends_ring,
    )
    .seconds(300)
    .loses_nodes(),
    Test::new("scif_ring::unbind_ends_ring", USUAL_PAIR, unbind_ends_ring)
        .seconds(120)
        .loses_nodes(),
];
