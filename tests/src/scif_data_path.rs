// SPDX-License-Identifier: GPL-2.0
//! What messages and transfers cost on the bus, as the emulator counts it: a read across
//! PCIe stalls a processor, so there must not be any; doorbells are interrupts, so few.

use anyhow::Result;
use anyhow::ensure;
use lab::GuestCounters;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::SCIF_PAIR;

/// Nobody read a register of the NTB.
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

/// Two hundred round trips, with the connection for them.
fn messages(lab: &Lab) -> Result<()> {
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
        // One for each message if its receiver sleeps, none if not; and some for the connection.
        ensure!(
            doorbells <= ROUND_TRIPS + 50,
            "node {node} has rung {doorbells} doorbells for {ROUND_TRIPS} messages"
        );
        ensure!(guest.total.dropped == 0 && guest.total.dma_errors == 0);
    }
    server.stop()
}

/// Transfers of 4 MiB by the engine, both ways.
fn transfers(lab: &Lab) -> Result<()> {
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

/// Nodes that have nothing to do leave the bus alone: signs of life are plain writes.
fn idle(lab: &Lab) -> Result<()> {
    let beats = || -> Result<Vec<u64>> {
        let counters = lab.counters()?;
        no_reads(&counters)?;
        Ok(counters
            .iter()
            .map(|guest| guest.sum("ntb", |counters| counters.doorbells))
            .collect())
    };
    lab.reset_counters()?;
    // Each command in a guest takes longer than some beats.
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
    Test::new("scif_data_path::idle", SCIF_PAIR, idle),
    Test::new("scif_data_path::messages", SCIF_PAIR, messages),
    Test::new("scif_data_path::transfers", SCIF_PAIR, transfers),
];
