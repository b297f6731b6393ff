// SPDX-License-Identifier: GPL-2.0
//! Who sleeps is interrupted where he sleeps: counted by processor, for processes that stay where they
//! were put. To wake somebody on another processor costs an interrupt between the two more.

use anyhow::Context;
use anyhow::Result;
use anyhow::ensure;
use lab::Lab;

use crate::harness::Test;
use crate::scif;
use crate::scif::Server;
use crate::scif_messages_and_rma::GEN3;
use crate::scif_messages_and_rma::SCIF_PAIR;

const ROUND_TRIPS: u64 = 500;

/// The vectors of a bridge are tried one by one at most, and there is a connection to be made and ended.
const TRIALS: u64 = 80;

/// How often the NTB of a node has interrupted each of its processors.
fn by_processor(lab: &Lab, node: usize) -> Result<Vec<u64>> {
    let text = lab.node(node).read("/proc/interrupts")?;
    let processors = text.lines().next().context("nothing there")?;
    let mut sums = vec![0; processors.split_whitespace().count()];
    for line in text.lines().filter(|line| line.contains("ndev_vec_isr")) {
        let counts = line.split_whitespace().skip(1);
        for (sum, word) in sums.iter_mut().zip(counts) {
            *sum += word.parse::<u64>().with_context(|| line.to_owned())?;
        }
    }
    Ok(sums)
}

/// Two processes that sleep for each other's messages, each on a processor of its node; all four ways.
fn sleepers(lab: &Lab) -> Result<()> {
    scif::with_parameter(lab, "busy_poll_us", "0", || sleep_at_once(lab))
}

fn sleep_at_once(lab: &Lab) -> Result<()> {
    let server = Server::start(lab, 1)?;
    for processors in [[0, 0], [0, 1], [1, 0], [1, 1]] {
        let [client, served] = processors.map(|processor| processor.to_string());
        lab.shell(
            1,
            &format!("for p in $(pidof scif); do taskset -acp {served} $p || exit; done"),
        )?;
        let before = [by_processor(lab, 0)?, by_processor(lab, 1)?];
        let tool = scif::tool()?;
        let trips = ROUND_TRIPS.to_string();
        let bench = [
            "bench",
            "send-lat",
            "1",
            "--sizes",
            "8",
            "--iterations",
            &trips,
        ];
        let argv = [&["taskset", "-c", &client, &tool], &bench[..]].concat();
        lab.command(0, argv)?.run()?.success()?;
        for node in 0..2 {
            let after = by_processor(lab, node)?;
            let rose: Vec<u64> = after
                .iter()
                .zip(&before[node])
                .map(|(a, b)| a - b)
                .collect();
            println!("      {processors:?}: node {node} was interrupted {rose:?} times");
            ensure!(rose.len() == 2, "not two processors");
            let (here, elsewhere) = (rose[processors[node]], rose[1 - processors[node]]);
            ensure!(
                here >= ROUND_TRIPS / 2,
                "who sleeps on processor {} of node {node} was woken from elsewhere: {rose:?}",
                processors[node]
            );
            ensure!(
                elsewhere <= TRIALS,
                "processor {} of node {node} was interrupted for who sleeps on the other: {rose:?}",
                1 - processors[node]
            );
        }
    }
    server.stop()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new("scif_steering::sleepers", SCIF_PAIR, sleepers)
        .seconds(180)
        .by_name(),
    Test::new("scif_steering::gen3", GEN3, sleepers)
        .seconds(180)
        .by_name(),
];
