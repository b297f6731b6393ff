// SPDX-License-Identifier: GPL-2.0
//! Reads that the peer's engine makes by writing. The tests force this for every size, because by
//! default it depends on measurements.

use anyhow::Result;
use anyhow::ensure;
use lab::Lab;
use lab::wait_until;

use crate::harness::Test;
use crate::loaded::Loaded;
use crate::need::PAIR;
use crate::scif;
use crate::scif::Server;
use crate::scif_conformance;
use crate::scif_engines;
use crate::scif_messages_and_rma;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Least number of bytes that node 0 reads, unless a test says otherwise.
const READ: u64 = 16 << 20;

/// Returns the bytes that the engines of both nodes move while node 0 reads `count` MiB from node
/// 1.
fn moved_by_reads(lab: &Lab, count: &str, depth: &str) -> Result<[u64; 2]> {
    let server = Server::start(lab, 1)?;
    let moved = |node| scif::dma_bytes(lab, node);
    let before = [moved(0)?, moved(1)?];
    let command = ["bench", "read-bw", "1", "--dma", "--sizes", "1M"];
    let how = ["--warm-up", "0", "--iterations", count, "--depth", depth];
    let arguments = [&command[..], &how].concat();
    scif::run_tool(lab, 0, &arguments)?.success()?;
    let after = [moved(0)?, moved(1)?];
    server.stop()?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

/// The parameter decides which node's engine copies.
fn threshold_selects_engine(lab: &Lab) -> Result<()> {
    let is_by_peer = |[here, there]: [u64; 2]| here == 0 && there >= READ;
    scif::all_by_peer(lab, || {
        let moved = moved_by_reads(lab, "16", "8")?;
        ensure!(is_by_peer(moved), "all by the peer: {moved:?}");
        // Requests more at once than a peer accepts.
        let [here, there] = moved_by_reads(lab, "512", "1024")?;
        ensure!(here + there >= 512 << 20, "{here} and {there} bytes");
        ensure!(there >= 256 << 20, "{there} bytes by the peer");
        scif::set_parameter(lab, "push_threshold", "1048575")?;
        let moved = moved_by_reads(lab, "16", "8")?;
        ensure!(is_by_peer(moved), "more than the limit: {moved:?}");
        scif::set_parameter(lab, "push_threshold", "1048576")?;
        let moved = moved_by_reads(lab, "16", "8")?;
        let [here, there] = moved;
        ensure!(
            here >= READ && there == 0,
            "not more than the limit: {moved:?}"
        );
        Ok(())
    })?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// Reads at odd offsets and lengths, into windows and into other memory.
fn odd_offsets_arrive(lab: &Lab) -> Result<()> {
    scif::all_by_peer(lab, || {
        for (client, server) in [(0, 1), (1, 0)] {
            scif_messages_and_rma::client_and_server(lab, client, server, 4)?;
        }
        let server = scif_engines::start_server(lab)?;
        let before = scif::dma_bytes(lab, 1)?;
        scif_engines::run_client(lab, &[])?;
        let moved = scif::dma_bytes(lab, 1)? - before;
        ensure!(moved > 0, "the peer's engine had nothing to do");
        scif_engines::stop(lab, server)
    })
}

/// Runs the whole conformance suite.
fn conformance(lab: &Lab) -> Result<()> {
    scif::all_by_peer(lab, || scif_conformance::run(lab, "two"))?;
    for node in 0..2 {
        scif::check_idle(lab, node)?;
    }
    Ok(())
}

/// A peer without an engine refuses to write, so this node's engine reads.
fn refused_read_uses_own_engine(lab: &Lab) -> Result<()> {
    const ALWAYS: &str = "dma_threshold=0 push_threshold=0";
    scif::load_with(lab, 0, Loaded::LongHeartbeat, ALWAYS)?;
    let none = format!("{ALWAYS} dma_channels=0");
    scif::load_with(lab, 1, Loaded::LongHeartbeat, &none)?;
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    scif_messages_and_rma::client_and_server(lab, 0, 1, 4)?;
    let [here, _] = moved_by_reads(lab, "16", "8")?;
    ensure!(here >= READ, "{here} bytes by this node");
    scif::unload_everywhere(lab)
}

/// If a peer has refused for lack of an engine, it is asked again when it may have an engine.
fn new_engine_is_asked(lab: &Lab) -> Result<()> {
    scif_engines::engine_driver(lab, 1, "unbind")?;
    for node in 0..2 {
        let parameters = "dma_threshold=0 push_threshold=0";
        scif::load_with(lab, node, Loaded::LongHeartbeat, parameters)?;
    }
    for (node, peer) in [(0, 1), (1, 0)] {
        scif::online(lab, node, peer)?;
    }
    let [here, there] = moved_by_reads(lab, "16", "8")?;
    ensure!(here >= READ && there == 0, "no engine: {here} and {there}");
    scif_engines::engine_driver(lab, 1, "bind")?;
    wait_until("reads are made by the peer", lab.hang_limit(30), || {
        let [_, there] = moved_by_reads(lab, "16", "8")?;
        Ok((there > 0).then_some(()))
    })?;
    scif::unload_everywhere(lab)
}

/// The peer's engine is lost while it writes. Transfers in flight may fail, and all others are
/// right.
fn engine_loss_fails_only_pending(lab: &Lab) -> Result<()> {
    scif::all_by_peer(lab, || {
        let server = scif_engines::start_server(lab)?;
        let before = scif::dma_bytes(lab, 1)?;
        let client = scif_engines::start_endless_client(lab)?;
        let moved = scif::dma_bytes(lab, 1)? - before;
        ensure!(moved > 0, "the peer's engine has nothing to do");
        scif_engines::engine_driver(lab, 1, "unbind")?;
        client.close_stdin();
        scif::check_tap(client.wait()?)?;
        scif_engines::run_client(lab, &[])?;
        scif_engines::stop(lab, server)
    })?;
    scif_engines::engine_driver(lab, 1, "bind")?;
    scif::unload_everywhere(lab)
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_peer_writes::threshold_selects_engine",
        SCIF_PAIR,
        threshold_selects_engine,
    )
    .seconds(120),
    Test::new(
        "scif_peer_writes::odd_offsets_arrive",
        SCIF_PAIR,
        odd_offsets_arrive,
    )
    .seconds(300)
    .by_name(),
    Test::new("scif_peer_writes::conformance", SCIF_PAIR, conformance)
        .seconds(300)
        .by_name(),
    Test::new(
        "scif_peer_writes::refused_read_uses_own_engine",
        PAIR,
        refused_read_uses_own_engine,
    )
    .seconds(120)
    .leaves_disorder()
    .by_name(),
    Test::new(
        "scif_peer_writes::new_engine_is_asked",
        PAIR,
        new_engine_is_asked,
    )
    .seconds(120)
    .loses_engine()
    .by_name(),
    Test::new(
        "scif_peer_writes::engine_loss_fails_only_pending",
        SCIF_PAIR,
        engine_loss_fails_only_pending,
    )
    .seconds(240)
    .loses_engine()
    .by_name(),
];
