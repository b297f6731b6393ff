// SPDX-License-Identifier: GPL-2.0

//! `dma_bench`: transfers by DMA to the server's memory, and from it, one after the other.

use std::sync::Arc;

use scif::command::bench::work::Times;
use scif::command::bench::work::Work;
use scif::device::Protection;

use super::control;
use super::report;
use super::test::Bench;
use super::test::Test;
use crate::api::DmaQueue;
use crate::api::LocalSegment;
use crate::api::RemoteSegment;
use crate::error::Result;
use crate::ffi;

type WorkResult = scif::error::Result<()>;

/// Copies between a segment of this side and a remote one.
pub struct Transfers {
    queue: DmaQueue,
    local: Arc<LocalSegment>,
    remote: Arc<RemoteSegment>,
}

impl Transfers {
    /// Prepares transfers, with a segment of its own.
    pub fn new(bench: &Bench, remote: Arc<RemoteSegment>) -> Result<Self> {
        let size = control::LARGEST;
        Ok(Self {
            queue: DmaQueue::new(&bench.sisci)?,
            local: LocalSegment::new(&bench.sisci, 0, size, ffi::PRIVATE)?,
            remote,
        })
    }

    /// Returns a copy of `size` bytes.
    pub fn step(&self, size: usize, flags: u32) -> Step<'_> {
        Step {
            of: self,
            size,
            flags,
        }
    }
}

/// One copy, which waits until the bytes have arrived.
pub struct Step<'a> {
    of: &'a Transfers,
    size: usize,
    flags: u32,
}

impl Work for Step<'_> {
    fn begin(&mut self, _count: u64) -> WorkResult {
        Ok(())
    }

    fn step(&mut self, _times: &mut Times) -> WorkResult {
        let of = self.of;
        of.queue
            .copy(&of.local, &of.remote, self.size, self.flags)?;
        Ok(())
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        Ok(())
    }
}

/// The test of DMA.
pub struct Dma(Transfers);

impl Dma {
    /// Connects to the server's segment.
    pub fn new(bench: &Bench) -> Result<Self> {
        let remote = RemoteSegment::connect(&bench.sisci, bench.node, bench.id, 0)?;
        Ok(Self(Transfers::new(bench, remote)?))
    }
}

impl Test for Dma {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        for size in bench.sizes.clone() {
            for (line, flags, other, how) in [
                (report::PUSH, 0, report::WRITETO, Protection::Write),
                (
                    report::PULL,
                    ffi::DMA_READ,
                    report::READFROM,
                    Protection::Read,
                ),
            ] {
                let work = self.0.step(size, flags);
                bench.throughput(report::DMA, line, size, work)?;
                bench.reference(|bench, reference| {
                    let work = reference.copies(size, how);
                    bench.throughput(report::DMA, other, size, work)
                })?;
            }
        }
        Ok(())
    }
}
