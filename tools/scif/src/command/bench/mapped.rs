// SPDX-License-Identifier: GPL-2.0

//! `mmap-lat` and `mmap-bw`: stores to the peer's memory, and loads from it, without the kernel.

use super::figures::Row;
use super::figures::Setup;
use super::figures::show;
use super::measure::Plan;
use super::measure::measure;
use super::options::Common;
use super::options::Parallel;
use super::options::Sizes;
use super::peer;
use super::placed::Placed;
use super::work::Times;
use super::work::Work;
use crate::client;
use crate::device::Protection;
use crate::error::Error;
use crate::error::Result;
use crate::mapping::Mapping;
use crate::mapping::drain;
use crate::session::Session;
use crate::transport::Connection;

/// The options of both measurements.
#[derive(Debug, clap::Args)]
pub struct Mapped {
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    parallel: Parallel,
    /// Load from the peer's memory instead of storing to it
    #[arg(long)]
    read: bool,
}

/// Single stores to the peer's mapped memory
///
/// Each store has left the CPU before the next store starts. The peer sees a store one bus transit
/// later.
#[derive(Debug, clap::Args)]
pub struct Latency {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    mapped: Mapped,
}

/// Stores to the peer's mapped memory, one after the other
#[derive(Debug, clap::Args)]
pub struct Bandwidth {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    mapped: Mapped,
}

impl Latency {
    pub(super) fn run(&self) -> Result<()> {
        let part = if self.mapped.read { "load" } else { "store" };
        self.mapped.run("mmap-lat", &self.common, true, &[part])
    }
}

impl Bandwidth {
    pub(super) fn run(&self) -> Result<()> {
        self.mapped.run("mmap-bw", &self.common, false, &[])
    }
}

impl Mapped {
    fn run(
        &self,
        measurement: &'static str,
        common: &Common,
        each_drained: bool,
        parts: &[&'static str],
    ) -> Result<()> {
        let largest = self.sizes.largest(1);
        let mut threads = peer::several(&self.parallel, || {
            Accesses::new(peer::scif(common)?, largest, self.read, each_drained)
        })?;
        let plan = Plan::new(common, parts.len());
        let mut rows = Vec::new();
        for size in self.sizes.list(1) {
            for work in threads.iter_mut().flatten() {
                work.buffer = Placed::beside(work.mapping.address(), size as usize);
            }
            rows.push(Row::of(Some(size), measure(&mut threads, &plan)?, parts));
        }
        let setup = Setup {
            measurement,
            peer: common.peer.clone(),
            engine: Some(if self.read { "load" } else { "store" }),
            threads: threads.len(),
            connections: threads.iter().map(Vec::len).sum(),
            ..Setup::default()
        };
        show(setup, rows, common.json)
    }
}

/// Stores or loads on one connection.
struct Accesses {
    mapping: Mapping,
    /// The session, which keeps the window.
    _session: Session<Connection>,
    buffer: Placed,
    read: bool,
    each_drained: bool,
}

impl Accesses {
    fn new(
        session: Session<Connection>,
        largest: u64,
        read: bool,
        each_drained: bool,
    ) -> Result<Self> {
        let window = client::bench_window(&session, largest as u32)?;
        let mapping = Mapping::new(
            session.transport().endpoint(),
            window.offset,
            window.buffer as usize,
            Protection::ReadWrite,
        )
        .map_err(|error| session.failed("cannot map the peer's window", error))?;
        Ok(Self {
            mapping,
            _session: session,
            buffer: Placed::default(),
            read,
            each_drained,
        })
    }
}

impl Work for Accesses {
    fn begin(&mut self, _count: u64) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> Result<()> {
        let (mapping, buffer) = (&self.mapping, self.buffer.bytes());
        let (read, each_drained) = (self.read, self.each_drained);
        times
            .part(0, || {
                if read {
                    return mapping.read(0, buffer);
                }
                mapping.write(0, buffer)?;
                if each_drained {
                    drain();
                }
                Ok(())
            })
            // The error is made only when it is needed, as the step is measured.
            .map_err(|error| Error::local("cannot reach the mapping")(error))
    }

    fn end(&mut self, _times: &mut Times) -> Result<()> {
        drain();
        Ok(())
    }
}
