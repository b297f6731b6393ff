// SPDX-License-Identifier: GPL-2.0
//! The cost of operations on the bus and in the kernels, as counts, which do not depend on the
//! speed of the machine.
//!
//! Each cost is the difference of a run of many operations and a run of few. So operations that are
//! done once, for the connection and the handshake, do not count.

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

/// Number of operations of the two runs.
const FEW: u64 = 10;
const MANY: u64 = 1010;

/// Interval of the checks whether the engines are at rest, and the largest number of checks.
const LOOK: Duration = Duration::from_millis(200);
const MOST_LOOKS: usize = 100;

/// The cost of one operation for both nodes together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cost {
    /// Registers read.
    pub trapped_reads: f64,
    /// Registers written.
    pub trapped_writes: f64,
    /// Doorbells rung.
    pub doorbells: f64,
    /// Interrupts of the bridge and of the engines.
    pub interrupts: f64,
    /// Descriptors of the engines.
    pub descriptors: f64,
    /// Number of times that the client slept.
    pub sleeps: f64,
}

impl Cost {
    /// Returns the cost of one of several equal parts of the operation.
    pub fn divided_by(&self, count: f64) -> Cost {
        Cost {
            trapped_reads: self.trapped_reads / count,
            trapped_writes: self.trapped_writes / count,
            doorbells: self.doorbells / count,
            interrupts: self.interrupts / count,
            descriptors: self.descriptors / count,
            sleeps: self.sleeps / count,
        }
    }
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

/// The operations, with a setting of the module and the arguments of the tool.
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

/// Waits until the engines are at rest. With the first connection the driver measures its engines,
/// on the same CPUs whose sleeps and interrupts are counted.
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
    let each = |counter: fn(&Cost) -> f64| (counter(&many) - counter(&few)) / (MANY - FEW) as f64;
    Ok(Cost {
        trapped_reads: each(|cost| cost.trapped_reads),
        trapped_writes: each(|cost| cost.trapped_writes),
        doorbells: each(|cost| cost.doorbells),
        interrupts: each(|cost| cost.interrupts),
        descriptors: each(|cost| cost.descriptors),
        sleeps: each(|cost| cost.sleeps),
    })
}

/// Returns the sum of a counter over SCIF's bridges; the other bridges are not in use meanwhile.
fn bridges(counters: &[GuestCounters], counter: fn(&Counters) -> u64) -> f64 {
    let sums = counters.iter().map(|guest| guest.sum("ntb", counter));
    sums.sum::<u64>() as f64
}

fn totals(lab: &Lab, arguments: &[&str], iterations: u64) -> Result<Cost> {
    let iterations = iterations.to_string();
    let more = ["--warm-up", "0", "--iterations", &iterations];
    let arguments = [arguments, &more].concat();
    let before = interrupts(lab, &Bridge::Scif.device())?;
    lab.reset_counters()?;
    let report = run::bench(lab, &arguments)?;
    let counters = lab.counters()?;
    let after = interrupts(lab, &Bridge::Scif.device())?;
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

/// Returns the interrupts of a bridge and of all engines, in both nodes.
pub fn interrupts(lab: &Lab, bridge: &str) -> Result<f64> {
    let mut sum = 0;
    for node in 0..2 {
        sum += sum_of(&lab.node(node).read("/proc/interrupts")?, |line| {
            line.contains(bridge) || line.contains("plx_dma")
        });
    }
    Ok(sum as f64)
}

/// Returns the sum over all CPUs of the wanted lines.
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
    fn interrupts_of_all_cpus_are_added_up() {
        let text =
            "       CPU0  CPU1\n 24:  5  7  PCI-MSIX-0000:00:05.0  0-edge ndev\n 25: 1 1 IO-APIC\n";
        assert_eq!(sum_of(text, |line| line.contains("0000:00:05.0")), 12);
    }
}
