// SPDX-License-Identifier: GPL-2.0

//! `scibench2`: stores by the CPU to mapped memory of the server.

use std::sync::Arc;

use scif::command::bench::work::Times;
use scif::command::bench::work::Work;
use scif::mapping::drain;

use super::control;
use super::report;
use super::test::Bench;
use super::test::Test;
use crate::api::Map;
use crate::api::RemoteSegment;
use crate::api::Sequence;
use crate::error::Result;

type WorkResult = scif::error::Result<()>;

/// The test of stores.
pub struct Stores {
    map: Arc<Map>,
    sequence: Arc<Sequence>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Stores follow each other without a flush.
    Stores,
    /// Each store is sent before the next one.
    Flushed,
    /// `SCIMemCpy()`
    MemCpy,
}

struct Step {
    map: Arc<Map>,
    sequence: Arc<Sequence>,
    bytes: Vec<u8>,
    how: How,
}

impl Work for Step {
    fn begin(&mut self, _count: u64) -> WorkResult {
        Ok(())
    }

    fn step(&mut self, _times: &mut Times) -> WorkResult {
        match self.how {
            How::Stores => self.map.store(0, &self.bytes)?,
            How::MemCpy => self.map.copy(0, &self.bytes)?,
            How::Flushed => {
                self.map.store(0, &self.bytes)?;
                self.sequence.flush();
            }
        }
        Ok(())
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        drain();
        Ok(())
    }
}

impl Stores {
    /// Connects to the server's segment.
    pub fn new(bench: &Bench) -> Result<Self> {
        let segment = RemoteSegment::connect(&bench.sisci, bench.node, bench.id, 0)?;
        let map = Arc::new(segment.map(control::LARGEST)?);
        let sequence = Arc::new(map.sequence()?);
        Ok(Self { map, sequence })
    }

    fn step(&self, size: usize, how: How) -> Step {
        Step {
            map: self.map.clone(),
            sequence: self.sequence.clone(),
            bytes: vec![0xa5; size],
            how,
        }
    }
}

impl Test for Stores {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        for size in bench.sizes.clone() {
            let work = self.step(size, How::Stores);
            bench.throughput(report::PIO, report::STORES, size, work)?;
            bench.reference(|bench, reference| {
                let work = reference.stores(size, false);
                bench.throughput(report::PIO, report::MMAP, size, work)
            })?;
            let work = self.step(size, How::MemCpy);
            bench.throughput(report::PIO, report::MEMCPY, size, work)?;
            let work = self.step(size, How::Flushed);
            bench.mean(report::PIO_LATENCY, report::STORES, size, work)?;
            bench.reference(|bench, reference| {
                let work = reference.stores(size, true);
                bench.mean(report::PIO_LATENCY, report::MMAP, size, work)
            })?;
        }
        Ok(())
    }
}
