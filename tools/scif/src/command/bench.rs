// SPDX-License-Identifier: GPL-2.0

//! `scif bench`: measures the speed of all operations, in the manner of perftest and fio.
//!
//! Without the name of a measurement it gives an overview. A measurement is a [`work::Work`], one
//! file for each kind. [`measure`] decides how often and in how many threads the work is done,
//! [`figures`] prints the results. Signals keep their usual effect during a measurement: they end
//! the process.

mod connections;
mod copies;
mod figures;
mod mapped;
pub mod measure;
pub mod messages;
mod options;
mod overview;
mod peer;
mod placed;
#[cfg(test)]
mod tests;
mod windows;
pub mod work;

use crate::error::Result;
use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  scif bench 1                              an overview in about ten seconds
  scif bench 1 --engine dma --sizes 1M,16M  large DMA copies only
  scif bench send-lat 1 --sizes 8 --poll    round trips, both sides poll
  scif bench write-bw 1 --dma --depth 8     throughput of the DMA engine, all sizes
  scif bench send-bw 1 --sizes 64 --transport ring
                                            small messages without a system call each
  scif bench send-bw 10.0.0.2:2050 --transport tcp
                                            the same messages over TCP";

/// Measure messages, remote memory access, windows, connections
///
/// The other node runs `scif serve --bench`, and for `--transport tcp` also with --tcp. If you name
/// a measurement, bench makes only that one, for many sizes and with percentiles. Without a name,
/// bench gives an overview of copies and message round trips. Reads by the CPU over a PCIe bridge
/// are slow, as the CPU waits for each cache line.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    measurement: Option<Measurement>,
    #[command(flatten)]
    overview: overview::Arguments,
}

impl Arguments {
    /// Returns whether JSON is wanted.
    pub fn json(&self) -> bool {
        self.measurement
            .as_ref()
            .map_or(self.overview.json, |measurement| measurement.common().json)
    }
}

#[derive(Debug, Subcommand)]
enum Measurement {
    SendLat(messages::Latency),
    SendBw(messages::Bandwidth),
    WriteLat(copies::WriteLatency),
    WriteBw(copies::WriteBandwidth),
    ReadLat(copies::ReadLatency),
    ReadBw(copies::ReadBandwidth),
    MmapLat(mapped::Latency),
    MmapBw(mapped::Bandwidth),
    Register(windows::Arguments),
    Connect(connections::Arguments),
}

impl Measurement {
    fn common(&self) -> &options::Common {
        match self {
            Self::SendLat(arguments) => &arguments.common,
            Self::SendBw(arguments) => &arguments.common,
            Self::WriteLat(arguments) => &arguments.common,
            Self::WriteBw(arguments) => &arguments.common,
            Self::ReadLat(arguments) => &arguments.common,
            Self::ReadBw(arguments) => &arguments.common,
            Self::MmapLat(arguments) => &arguments.common,
            Self::MmapBw(arguments) => &arguments.common,
            Self::Register(arguments) => &arguments.common,
            Self::Connect(arguments) => &arguments.common,
        }
    }

    fn run(&self) -> Result<()> {
        match self {
            Self::SendLat(arguments) => arguments.run(),
            Self::SendBw(arguments) => arguments.run(),
            Self::WriteLat(arguments) => arguments.run(),
            Self::WriteBw(arguments) => arguments.run(),
            Self::ReadLat(arguments) => arguments.run(),
            Self::ReadBw(arguments) => arguments.run(),
            Self::MmapLat(arguments) => arguments.run(),
            Self::MmapBw(arguments) => arguments.run(),
            Self::Register(arguments) => arguments.run(),
            Self::Connect(arguments) => arguments.run(),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.measurement {
        Some(measurement) => measurement.run(),
        None => overview::run(&arguments.overview),
    }
}
