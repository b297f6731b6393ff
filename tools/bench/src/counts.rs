// SPDX-License-Identifier: GPL-2.0
//! What operations cost on the bus and in the kernels, counted: these numbers do not depend on how
//! fast the machine is.
//!
//! Each is the difference of a run of many operations and one of few, so that what is done once, for the
//! connection and the handshake, does not count.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use anyhow::bail;
use lab::Counters;
use lab::GuestCounters;
use lab::Lab;
use serde::Serialize;

use crate::parameters;
use crate::parameters::ASLEEP;
use crate::parameters::BY_ENGINE;
use crate::parameters::Setting;
use crate::run;
use crate::setup::Bridge;

/// Operations of the two runs.
const FEW: u64 = 10;
const MANY: u64 = 1010;

/// Between two looks whether the engines have come to rest, and how many of these there are at most.
const LOOK: Duration = Duration::from_millis(200);
const MOST_LOOKS: usize = 100;

/// What one operation costs both nodes together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cost {
    /// Registers that were read.
    pub trapped_reads: f64,
    /// Registers that were written.
    pub trapped_writes: f64,
    /// Doorbells that were rung.
    pub doorbells: f64,
    /// Interrupts of the bridge and of the engines.
    pub interrupts: f64,
    /// Descriptors of the engines.
    pub descriptors: f64,
    /// How often the client slept.
    pub sleeps: f64,
}

/// The costs by operation.
pub type Costs = BTreeMap<&'static str, Cost>;

pub const TRIP: &str = "round trip of 8 B";
pub const TRIP_ASLEEP: &str = "round trip of 8 B, both sleep";
pub const TRIP_POLLING: &str = "round trip of 8 B, both poll";
pub const STREAM_ASLEEP: &str =
    "message of 64 B in a stream, the receiver sleeps at once when there is none";
pub const STREAM_POLLING: &str = "message of 64 B in a stream, the receiver polls";
pub const RING: &str = "message of 64 B over a mapped ring";
pub const RING_TRIP: &str = "round trip of 8 B over a mapped ring, both poll";
pub const WRITE_CPU: &str = "write of 64 B by CPU, synchronous";
pub const WRITE_SYNC: &str = "write of 64 KiB, synchronous";
pub const WRITE_DEEP: &str = "write of 64 KiB, 8 in flight";
pub const READ_DEEP: &str = "read of 64 KiB, 8 in flight";
pub const WINDOW: &str = "register and unregister 4 KiB";
pub const CONNECTION: &str = "connect and close";

/// What is counted, with a setting of the module and how the tool is called.
const OPERATIONS: &[(&str, Option<Setting>, &[&str])] = &[
    (TRIP, None, &["send-lat", "1", "--sizes", "8"]),
    (
        TRIP_ASLEEP,
        Some(ASLEEP),
        &["send-lat", "1", "--sizes", "8"],
    ),
    (
        TRIP_POLLING,
        None,
        &["send-lat", "1", "--sizes", "8", "--poll"],
    ),
    (
        STREAM_ASLEEP,
        Some(ASLEEP),
        &["send-bw", "1", "--sizes", "64"],
    ),
    (
        STREAM_POLLING,
        None,
        &["send-bw", "1", "--sizes", "64", "--poll"],
    ),
    (
        RING,
        None,
        &[
            "send-bw",
            "1",
            "--sizes",
            "64",
            "--transport",
            "ring",
            "--poll",
        ],
    ),
    (
        RING_TRIP,
        None,
        &[
            "send-lat",
            "1",
            "--sizes",
            "8",
            "--transport",
            "ring",
            "--poll",
        ],
    ),
    (
        WRITE_CPU,
        None,
        &["write-lat", "1", "--sizes", "64", "--cpu"],
    ),
    (
        WRITE_SYNC,
        Some(BY_ENGINE),
        &["write-lat", "1", "--sizes", "64K", "--dma"],
    ),
    (
        WRITE_DEEP,
        Some(BY_ENGINE),
        &["write-bw", "1", "--sizes", "64K", "--dma"],
    ),
    (
        READ_DEEP,
        Some(BY_ENGINE),
        &["read-bw", "1", "--sizes", "64K", "--dma"],
    ),
    (WINDOW, None, &["register", "1", "--sizes", "4K"]),
    (CONNECTION, None, &["connect", "1"]),
];

/// Counts all operations.
pub fn count(lab: &Lab) -> Result<Costs> {
    settle(lab)?;
    OPERATIONS
        .iter()
        .map(|(name, setting, arguments)| {
            let cost = match setting {
                Some(setting) => parameters::with(lab, *setting, || cost(lab, arguments)),
                None => cost(lab, arguments),
            };
            Ok((*name, cost?))
        })
        .collect()
}

/// With the first connection the driver measures its engines, on the processors that are counted on: waits
/// until they have nothing to do any more.
fn settle(lab: &Lab) -> Result<()> {
    let few = FEW.to_string();
    run::bench(
        lab,
        &["send-lat", "1", "--sizes", "8", "--iterations", &few],
    )?;
    let mut before = None;
    for _ in 0..MOST_LOOKS {
        let now: u64 = lab
            .counters()?
            .iter()
            .map(|guest| guest.total.dma_descriptors)
            .sum();
        if before.replace(now) == Some(now) {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    bail!("the engines are still copying");
}

fn cost(lab: &Lab, arguments: &[&str]) -> Result<Cost> {
    let few = totals(lab, arguments, FEW)?;
    let many = totals(lab, arguments, MANY)?;
    let each = |what: fn(&Cost) -> f64| (what(&many) - what(&few)) / (MANY - FEW) as f64;
    Ok(Cost {
        trapped_reads: each(|cost| cost.trapped_reads),
        trapped_writes: each(|cost| cost.trapped_writes),
        doorbells: each(|cost| cost.doorbells),
        interrupts: each(|cost| cost.interrupts),
        descriptors: each(|cost| cost.descriptors),
        sleeps: each(|cost| cost.sleeps),
    })
}

/// The sum of a counter of SCIF's bridges; the others are not in use meanwhile.
fn bridges(counters: &[GuestCounters], what: fn(&Counters) -> u64) -> f64 {
    let sums = counters.iter().map(|guest| guest.sum("ntb", what));
    sums.sum::<u64>() as f64
}

fn totals(lab: &Lab, arguments: &[&str], iterations: u64) -> Result<Cost> {
    let iterations = iterations.to_string();
    let more = ["--warm-up", "0", "--iterations", &iterations];
    let arguments = [arguments, &more].concat();
    let before = interrupts(lab)?;
    lab.reset_counters()?;
    let report = run::bench(lab, &arguments)?;
    let counters = lab.counters()?;
    let after = interrupts(lab)?;
    let switches = &report["results"][0]["context_switches"]["voluntary"];
    Ok(Cost {
        trapped_reads: bridges(&counters, |c| c.trapped_reads),
        trapped_writes: bridges(&counters, |c| c.trapped_writes),
        doorbells: bridges(&counters, |c| c.doorbells),
        interrupts: after - before,
        descriptors: counters
            .iter()
            .map(|guest| guest.total.dma_descriptors as f64)
            .sum(),
        sleeps: switches.as_f64().unwrap_or(f64::NAN),
    })
}

/// Of SCIF's bridge and all engines, in both nodes.
fn interrupts(lab: &Lab) -> Result<f64> {
    let mut sum = 0;
    for node in 0..2 {
        sum += sum_of(&lab.node(node).read("/proc/interrupts")?, |line| {
            line.contains(&Bridge::Scif.device()) || line.contains("plx_dma")
        });
    }
    Ok(sum as f64)
}

/// The sum over all processors of the lines that are wanted.
fn sum_of(text: &str, wanted: impl Fn(&str) -> bool) -> u64 {
    text.lines()
        .filter(|line| wanted(line))
        .flat_map(|line| {
            line.split_whitespace()
                .skip(1)
                .map_while(|word| word.parse::<u64>().ok())
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_added_up() {
        let text =
            "       CPU0  CPU1\n 24:  5  7  PCI-MSIX-0000:00:05.0  0-edge ndev\n 25: 1 1 IO-APIC\n";
        assert_eq!(sum_of(text, |line| line.contains("0000:00:05.0")), 12);
    }
}
