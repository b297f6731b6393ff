// SPDX-License-Identifier: GPL-2.0

//! `reflective_bench`: writes to all nodes on which a server runs.

use std::sync::Arc;

use scif::command::bench::work::Times;
use scif::command::bench::work::Work;

use super::control;
use super::dma::Transfers;
use super::report;
use super::test::Bench;
use super::test::Test;
use crate::api::Map;
use crate::api::RemoteSegment;
use crate::error::Result;
use crate::ffi;

type WorkResult = scif::error::Result<()>;

/// The test of broadcast segments.
pub struct Broadcast {
    map: Arc<Map>,
    transfers: Transfers,
}

struct Copies {
    map: Arc<Map>,
    bytes: Vec<u8>,
}

impl Work for Copies {
    fn begin(&mut self, _count: u64) -> WorkResult {
        Ok(())
    }

    fn step(&mut self, _times: &mut Times) -> WorkResult {
        // Unchanged bytes might not be sent.
        if let Some(first) = self.bytes.first_mut() {
            *first = first.wrapping_add(1);
        }
        self.map.copy(0, &self.bytes)?;
        Ok(())
    }

    fn end(&mut self, _times: &mut Times) -> WorkResult {
        Ok(())
    }
}

impl Broadcast {
    /// Connects to the group.
    pub fn new(bench: &Bench) -> Result<Self> {
        let (node, group) = (ffi::ALL_NODES, control::GROUP);
        let remote = RemoteSegment::connect(&bench.sisci, node, group, ffi::BROADCAST)?;
        Ok(Self {
            map: Arc::new(remote.map(control::LARGEST)?),
            transfers: Transfers::new(bench, remote)?,
        })
    }
}

impl Test for Broadcast {
    fn round(&mut self, bench: &mut Bench) -> Result<()> {
        for size in bench.sizes.clone() {
            let work = Copies {
                map: self.map.clone(),
                bytes: vec![0xa5; size],
            };
            bench.throughput(report::BROADCAST, report::MEMCPY, size, work)?;
            let work = self.transfers.step(size, 0);
            bench.throughput(report::BROADCAST, report::PUSH, size, work)?;
            bench.reference(|bench, reference| {
                let work = reference.copies(size, scif::device::Protection::Write);
                bench.throughput(report::BROADCAST, report::WRITETO, size, work)
            })?;
        }
        Ok(())
    }
}
