// SPDX-License-Identifier: GPL-2.0

//! Options that several measurements take.

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

/// Of all measurements.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// The node; with --transport tcp an address and a port
    pub peer: String,
    /// Seconds for each size
    #[arg(long, default_value_t = 0.5, value_parser = parse_seconds)]
    pub seconds: f64,
    /// Operations for each size and connection, instead of a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub iterations: Option<u64>,
    /// Seconds before each size in which nothing is measured
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
    /// How long to measure.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// How long to warm up.
    pub fn warm_up(&self) -> Duration {
        Duration::from_secs_f64(self.warm_up)
    }
}

/// Of those that have sizes.
#[derive(Clone, Debug, clap::Args)]
pub struct Sizes {
    /// Sizes, 1 B to 64 MiB; by default powers of 4
    #[arg(long, value_delimiter = ',', value_parser = parse_copy_size)]
    sizes: Vec<u64>,
}

/// Those that are measured if nobody says which.
pub fn sizes_from(smallest: u64) -> Vec<u64> {
    std::iter::successors(Some(smallest), |size| Some(size * 4))
        .take_while(|size| *size <= LARGEST)
        .collect()
}

impl Sizes {
    /// Those that were asked for, or all from `smallest` up.
    pub fn list(&self, smallest: u64) -> Vec<u64> {
        if self.sizes.is_empty() {
            sizes_from(smallest)
        } else {
            self.sizes.clone()
        }
    }

    /// The largest of them.
    pub fn largest(&self, smallest: u64) -> u64 {
        (self.list(smallest).into_iter().max()).unwrap_or(smallest)
    }
}

/// Of those that several threads can do.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Parallel {
    /// Threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Connections, over which the threads are spread; as many as threads by default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: Option<u16>,
}

impl Parallel {
    /// How many connections each thread has.
    pub fn connections(&self) -> Vec<usize> {
        let threads = usize::from(self.threads);
        let all = usize::from(self.connections.unwrap_or(0)).max(threads);
        (0..threads)
            .map(|thread| all / threads + usize::from(thread < all % threads))
            .collect()
    }
}

/// What carries the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// SCIF.
    #[default]
    Scif,
    /// A ring that both sides map, over SCIF: no system call for a message. Only for messages.
    Ring,
    /// TCP, for comparison.
    Tcp,
}

/// Of those that can be done over TCP as well.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Transport {
    /// What carries the messages
    #[arg(long, value_enum, default_value_t = Carrier::Scif)]
    pub transport: Carrier,
}

/// Of those that wait for messages.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Waiting {
    /// Wait by asking again and again, on both sides, instead of sleeping
    #[arg(long)]
    pub poll: bool,
}

impl Waiting {
    /// How to wait.
    pub fn wait(&self) -> Wait {
        match self.poll {
            true => Wait::Polling,
            false => Wait::Sleeping,
        }
    }
}

/// Who copies.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Engine {
    /// The CPU copies
    #[arg(long, conflicts_with_all = ["dma", "auto"])]
    cpu: bool,
    /// The DMA engine copies: as --auto, for SCIF has no flag against the CPU
    #[arg(long, conflicts_with = "auto")]
    dma: bool,
    /// The driver chooses (the default): the DMA engine, unless the copy is too small for it
    #[arg(long)]
    auto: bool,
}

impl Engine {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match (self.cpu, self.dma) {
            (true, _) => "cpu",
            (_, true) => "dma",
            _ => "auto",
        }
    }

    /// The flags of a copy.
    pub fn flags(&self, sync: bool) -> Rma {
        Rma {
            cpu: self.cpu,
            sync: sync || self.cpu,
            ..Rma::default()
        }
    }
}
