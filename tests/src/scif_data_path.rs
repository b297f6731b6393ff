// SPDX-License-Identifier: GPL-2.0
//! The cost of messages and transfers on the bus, as the emulator counts it. A read across PCIe
//! stalls a CPU, so there must be none. Doorbells are interrupts, so there must be few.

use anyhow::Result;
use anyhow::ensure;
use lab::GuestCounters;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Checks that no node has read a register of the NTB.
fn no_reads(counters: &[GuestCounters]) -> Result<()> {
    for (node, guest) in counters.iter().enumerate() {
        let reads = guest.sum("ntb", |counters| counters.trapped_reads);
        ensure!(
            guest.functions.iter().any(|f| f.name.starts_with("ntb")),
            "the emulator names no NTB: {guest:?}"
        );
        ensure!(reads == 0, "node {node} has read {reads} registers");
    }
    Ok(())
}

/// Two hundred round trips, including the connection for them.
fn messages_read_no_register(lab: &Lab) -> Result<()> {
    const ROUND_TRIPS: u64 = 200;
    let server = Server::start(lab, 1)?;
    lab.reset_counters()?;
    let trips = ROUND_TRIPS.to_string();
    scif::run_tool(lab, 0, &["ping", "1", "-q", "-i", "0", "-c", &trips])?.success()?;
    let counters = lab.counters()?;
    no_reads(&counters)?;
    for (node, guest) in counters.iter().enumerate() {
        let doorbells = guest.sum("ntb", |counters| counters.doorbells);
        println!(
            "      node {node}: {:.2} doorbells for each message",
            doorbells as f64 / ROUND_TRIPS as f64
        );
        // Each message takes one doorbell if its receiver sleeps, and none otherwise. The
        // connection takes some.
        ensure!(
            doorbells <= ROUND_TRIPS + 50,
            "node {node} has rung {doorbells} doorbells for {ROUND_TRIPS} messages"
        );
        ensure!(guest.total.dropped == 0 && guest.total.dma_errors == 0);
    }
    server.stop()
}

/// Transfers of 4 MiB by the engine, in both directions.
fn transfers_read_no_register(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    for direction in ["write", "read"] {
        lab.reset_counters()?;
        let arguments = [
            "bench",
            "1",
            "--engine",
            "dma",
            "--direction",
            direction,
            "--sizes",
            "4M",
            "--seconds",
            "0",
            "--messages",
            "0",
        ];
        scif::run_tool(lab, 0, &arguments)?.success()?;
        let counters = lab.counters()?;
        no_reads(&counters)?;
        let moved: u64 = counters.iter().map(|guest| guest.total.dma_bytes).sum();
        ensure!(
            moved >= 4 << 20,
            "{direction}: the engines have moved {moved} bytes"
        );
        for guest in &counters {
            ensure!(guest.total.dropped == 0 && guest.total.dma_errors == 0);
        }
    }
    server.stop()
}

/// Idle nodes leave the bus alone: heartbeats are plain writes.
fn idle_nodes_ring_no_doorbell(lab: &Lab) -> Result<()> {
    let beats = || -> Result<Vec<u64>> {
        let counters = lab.counters()?;
        no_reads(&counters)?;
        Ok(counters
            .iter()
            .map(|guest| guest.sum("ntb", |counters| counters.doorbells))
            .collect())
    };
    lab.reset_counters()?;
    // Each command in a guest takes longer than some heartbeats.
    for _ in 0..10 {
        for node in 0..2 {
            scif::online(lab, node, 1 - node)?;
        }
    }
    let doorbells = beats()?;
    ensure!(
        doorbells == [0, 0],
        "doorbells of idle nodes: {doorbells:?}"
    );
    Ok(())
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_data_path::idle_nodes_ring_no_doorbell",
        SCIF_PAIR,
        idle_nodes_ring_no_doorbell,
    ),
    Test::new(
        "scif_data_path::messages_read_no_register",
        SCIF_PAIR,
        messages_read_no_register,
    ),
    Test::new(
        "scif_data_path::transfers_read_no_register",
        SCIF_PAIR,
        transfers_read_no_register,
    ),
];
