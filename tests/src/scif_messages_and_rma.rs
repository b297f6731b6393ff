// SPDX-License-Identifier: GPL-2.0
//! The interface of /dev/scif between two nodes, used by an ordinary C program
//! (tests/programs/scif_abi.c): messages, and remote memory access by DMA and by CPU at odd offsets
//! and lengths.

use anyhow::Result;
use anyhow::ensure;
use lab::Flavour;
use lab::Lab;
use lab::Personality;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::Need;
use crate::need::PAIR;
use crate::scif;

/// A pair with the module.
pub const SCIF_PAIR: Need = Need {
    scif: Loaded::LongHeartbeat,
    ..PAIR
};

/// A pair of the older NTB, whose windows are aligned to their size.
pub const GEN3: Need = Need {
    personality: Personality::Gen3,
    ..SCIF_PAIR
};

/// A pair without DMA engines.
const NO_ENGINE: Need = Need {
    dma_channels: 0,
    ..SCIF_PAIR
};

/// Returns the MiB for each copy test: all of the promised 64, or fewer on the debug kernel, where
/// they would take too long.
fn amount(lab: &Lab) -> u32 {
    match lab.kernel().flavour() {
        Flavour::Stock | Flavour::Plain => 64,
        Flavour::Debug | Flavour::Kcsan => 4,
    }
}

/// Runs the client on one node against the server on the other.
pub fn client_and_server(lab: &Lab, client: usize, server: usize, mebibytes: u32) -> Result<()> {
    let program = scif::program("scif_abi")?;
    let limit = lab.hang_limit(300);
    let server = (server, lab.command(server, [&program, "server", "2101"])?);
    let (server_node, server) = (server.0, server.1.timeout(limit).spawn()?);
    server.wait_for("listening", lab.hang_limit(20))?;
    let argv = [
        program,
        "client".to_owned(),
        server_node.to_string(),
        "2101".to_owned(),
        mebibytes.to_string(),
    ];
    scif::check_tap(lab.command(client, argv)?.timeout(limit).run()?)?;
    // The client has asked the server to end.
    server.wait()?.success()?;
    Ok(())
}

/// Two nodes find each other by themselves, and take their ids from the sides of the NTB.
fn nodes_find_each_other(lab: &Lab) -> Result<()> {
    for (node, peer) in [(0, 1), (1, 0)] {
        let own = scif::seen(lab, node, node)?;
        ensure!(
            own.as_ref().is_some_and(|own| own.state == "self"),
            "{own:?}"
        );
        let seen = scif::online(lab, node, peer)?;
        let own_there = scif::seen(lab, peer, peer)?;
        ensure!(
            own_there.is_some_and(|own| own.generation == seen.generation),
            "node {node} takes node {peer} for another: {seen:?}"
        );
        ensure!(
            seen.link == "ntb:0000:00:05.0" && seen.aperture == "flat",
            "{seen:?}"
        );
        let text = scif::run_tool(lab, node, &["nodes"])?.success()?.stdout();
        ensure!(
            text.lines().count() == 3
                && text.lines().any(|line| {
                    let fields: Vec<&str> = line.split_whitespace().collect();
                    fields[..4] == [&*peer.to_string(), "online", "ntb:0000:00:05.0", "flat"]
                }),
            "scif nodes: {text}"
        );
    }
    Ok(())
}

fn from_0_to_1(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, 1, amount(lab))
}

fn from_1_to_0(lab: &Lab) -> Result<()> {
    client_and_server(lab, 1, 0, amount(lab))
}

/// Runs the client within a node that has links and an engine.
fn loopback(lab: &Lab) -> Result<()> {
    let program = scif::program("scif_abi")?;
    let output = lab
        .command(
            1,
            [
                program,
                "loopback".into(),
                "2102".into(),
                amount(lab).to_string(),
            ],
        )?
        .timeout(lab.hang_limit(300))
        .run()?;
    scif::check_tap(output)
}

/// Pings of all sizes, and a ping of a peer without a server.
fn all_sizes_are_echoed(lab: &Lab) -> Result<()> {
    let server = scif::Server::start(lab, 1)?;
    for size in ["0", "1", "56", "4095", "64K"] {
        let output = scif::run_tool(lab, 0, &["ping", "1", "-c", "20", "-i", "0", "-s", size])?;
        ensure!(
            output.stdout().contains("20 round trips"),
            "pings of {size} bytes: {output}"
        );
        output.success()?;
    }
    server.stop()?;
    let output = scif::run_tool(lab, 0, &["ping", "1"])?.status(3)?;
    ensure!(output.stderr().contains("ECONNREFUSED"), "{output}");
    let output = scif::run_tool(lab, 0, &["ping", "7"])?.status(3)?;
    ensure!(output.stderr().contains("no such node online"), "{output}");
    Ok(())
}

/// Runs the client where windows are aligned to their size.
fn gen3(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, 1, 4)?;
    client_and_server(lab, 1, 0, 4)
}

/// Runs the client where the CPU has to make all copies.
fn no_engine(lab: &Lab) -> Result<()> {
    client_and_server(lab, 0, 1, 4)?;
    for node in 0..2 {
        let counters = scif::counters(lab, node)?;
        ensure!(
            !counters.contains_key("dma_bytes"),
            "node {node} has an engine: {counters:?}"
        );
    }
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_messages_and_rma::nodes_find_each_other",
        SCIF_PAIR,
        nodes_find_each_other,
    ),
    Test::new(
        "scif_messages_and_rma::all_sizes_are_echoed",
        SCIF_PAIR,
        all_sizes_are_echoed,
    ),
    Test::new("scif_messages_and_rma::from_0_to_1", SCIF_PAIR, from_0_to_1)
        .seconds(300)
        .by_name(),
    Test::new("scif_messages_and_rma::from_1_to_0", SCIF_PAIR, from_1_to_0)
        .seconds(300)
        .by_name(),
    Test::new("scif_messages_and_rma::loopback", SCIF_PAIR, loopback)
        .seconds(300)
        .by_name(),
    Test::new("scif_messages_and_rma::gen3", GEN3, gen3)
        .seconds(180)
        .by_name(),
    Test::new("scif_messages_and_rma::no_engine", NO_ENGINE, no_engine)
        .seconds(180)
        .by_name(),
];
