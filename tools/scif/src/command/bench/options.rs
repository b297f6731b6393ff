// SPDX-License-Identifier: GPL-2.0

//! Options that several measurements have.

use super::overview::parse_copy_size;
use super::overview::parse_seconds;
use crate::command::port::DEFAULT_PORT;
use crate::command::port::parse_port;
use crate::device::Rma;
use crate::transport::Wait;
use clap::ValueEnum;
use serde::Serialize;
use std::time::Duration;

/// The largest copy.
const LARGEST: u64 = crate::server::LARGEST_BENCH as u64;

/// The options of all measurements.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// The server's node; with --transport tcp, its address and port
    pub peer: String,
    /// Seconds for each size
    #[arg(long, default_value_t = 0.5, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Operations for each size and connection, instead of --seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: Option<u64>,
    /// Seconds of warm-up before each size
    #[arg(long, value_name = "SECONDS", default_value_t = 0.1, value_parser = parse_seconds)]
    pub warm_up: f64,
    /// The port of the server
    #[arg(long, default_value_t = DEFAULT_PORT, value_parser = parse_port)]
    pub port: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Common {
    /// Returns the time to measure.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the time to warm up.
    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }
}

/// The option of measurements that have sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Sizes {
    /// Sizes, 1 B to 64 MiB; by default powers of 4
    #[arg(long, value_delimiter = ',', value_parser = parse_copy_size)]
    sizes: Vec<u64>,
}

/// Returns the sizes that are measured by default.
pub fn sizes_from(smallest: u64) -> Vec<u64> {
    std::iter::successors(Some(smallest), |size| Some(size * 4))
        .take_while(|size| *size <= LARGEST)
        .collect()
}

impl Sizes {
    /// Returns the sizes of the command line, or all from `smallest` up.
    pub fn list(&self, smallest: u64) -> Vec<u64> {
        if self.sizes.is_empty() {
            sizes_from(smallest)
        } else {
            self.sizes.clone()
        }
    }

    /// Returns the largest size.
    pub fn largest(&self, smallest: u64) -> u64 {
        (self.list(smallest).into_iter().max()).unwrap_or(smallest)
    }
}

/// The options of measurements that several threads can make.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Parallel {
    /// Number of threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Number of connections, over which the threads are spread; by default one for each thread
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: Option<u16>,
}

impl Parallel {
    /// Returns the number of connections of each thread.
    pub fn connections(&self) -> Vec<usize> {
        let threads = usize::from(self.threads);
        let all = usize::from(self.connections.unwrap_or(0)).max(threads);
        (0..threads)
            .map(|thread| all / threads + usize::from(thread < all % threads))
            .collect()
    }
}

/// The carrier of the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// SCIF.
    #[default]
    Scif,
    /// A ring over SCIF that both sides map, without a system call for each message; for messages
    /// only.
    Ring,
    /// TCP, for comparison.
    Tcp,
}

/// The option of measurements that are possible over TCP as well.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Transport {
    /// The carrier of the messages
    #[arg(long, value_enum, default_value_t = Carrier::Scif)]
    pub transport: Carrier,
}

/// The option of measurements that wait for messages.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Waiting {
    /// Poll for messages on both sides, instead of sleeping
    #[arg(long)]
    pub poll: bool,
}

impl Waiting {
    /// Returns the way to wait.
    pub fn wait(&self) -> Wait {
        match self.poll {
            true => Wait::Polling,
            false => Wait::Sleeping,
        }
    }
}

/// The options for CPU or DMA engine.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Engine {
    /// The CPU copies
    #[arg(long, conflicts_with_all = ["dma", "auto"])]
    cpu: bool,
    /// The DMA engine copies: the same as --auto, as no flag of SCIF excludes the CPU
    #[arg(long, conflicts_with = "auto")]
    dma: bool,
    /// The driver chooses (the default): the DMA engine, unless the copy is too small for it
    #[arg(long)]
    auto: bool,
}

impl Engine {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        match (self.cpu, self.dma) {
            (true, _) => "cpu",
            (_, true) => "dma",
            _ => "auto",
        }
    }

    /// Returns the flags of a copy.
    pub fn flags(&self, sync: bool) -> Rma {
        Rma {
            cpu: self.cpu,
            sync: sync || self.cpu,
            ..Rma::default()
        }
    }
}
