// SPDX-License-Identifier: GPL-2.0
//! A sleeper is interrupted on the CPU on which it sleeps. The tests count interrupts by CPU, for
//! processes that stay on their CPU. A wake-up from another CPU costs an additional interrupt
//! between the two.

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

/// Number of round trips in which steering has to settle. It may try each vector of a bridge, and a
/// connection is made and closed.
const TRIALS: u64 = 80;

/// Returns how often the NTB of a node has interrupted each of its CPUs.
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

/// Two processes sleep for each other's messages, each on a CPU of its node, in all four
/// combinations.
fn sleeper_is_woken_on_its_cpu(lab: &Lab) -> Result<()> {
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
            ensure!(rose.len() == 2, "not two CPUs");
            let (here, elsewhere) = (rose[processors[node]], rose[1 - processors[node]]);
            ensure!(
                here >= ROUND_TRIPS / 2,
                "another CPU has woken the sleeper on CPU {} of node {node}: {rose:?}",
                processors[node]
            );
            ensure!(
                elsewhere <= TRIALS,
                "CPU {} of node {node} was interrupted for a sleeper on the other CPU: {rose:?}",
                1 - processors[node]
            );
        }
    }
    server.stop()
}

/// The tests of this file.
pub const TESTS: &[Test] = &[
    Test::new(
        "scif_steering::sleeper_is_woken_on_its_cpu",
        SCIF_PAIR,
        sleeper_is_woken_on_its_cpu,
    )
    .seconds(180)
    .by_name(),
    Test::new(
        "scif_steering::gen3_sleeper_is_woken_on_its_cpu",
        GEN3,
        sleeper_is_woken_on_its_cpu,
    )
    .seconds(180)
    .by_name(),
];
