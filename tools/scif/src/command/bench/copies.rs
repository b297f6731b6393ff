// SPDX-License-Identifier: GPL-2.0

//! `write-lat`, `write-bw`, `read-lat` and `read-bw`: copies to and from the peer's window.
//!
//! For latency each copy is complete on return. For throughput some copies are in flight, and marks
//! tell when they are complete: one mark for half of them, so that the other half is in flight
//! during the wait. Copies go to places in turn, of which there are as many as copies in flight.

use super::figures::Row;
use super::figures::Setup;
use super::figures::show;
use super::measure::Plan;
use super::measure::measure;
use super::messages;
use super::options::Carrier;
use super::options::Common;
use super::options::Engine;
use super::options::Parallel;
use super::options::Sizes;
use super::options::Transport as CarrierOption;
use super::overview::Direction;
use super::peer;
use super::windows::hold;
use super::work::Times;
use super::work::Work;
use crate::client;
use crate::device::Mark;
use crate::device::Protection;
use crate::device::Rma;
use crate::error::Error;
use crate::error::Result;
use crate::protocol::Window;
use crate::region::Pages;
use crate::region::Region;
use crate::session::Session;
use crate::transport::Transport;
use crate::transport::Wait;
use std::collections::VecDeque;
use std::sync::Arc;

/// A huge page, on most machines.
const HUGE: u64 = 2 << 20;

/// The options of all copies.
#[derive(Debug, clap::Args)]
pub struct Copying {
    #[command(flatten)]
    sizes: Sizes,
    #[command(flatten)]
    parallel: Parallel,
    #[command(flatten)]
    engine: Engine,
    /// Use huge pages for the local memory, as far as the kernel has them
    #[arg(long)]
    huge_pages: bool,
}

/// Single copies to the peer's memory
///
/// Each copy is complete before the next one starts.
#[derive(Debug, clap::Args)]
pub struct WriteLatency {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    copying: Copying,
    /// Number of other windows of the endpoint, each of one page
    #[arg(long, value_name = "N", default_value_t = 0)]
    held: u32,
}

/// Copies to the peer's memory, some in flight
///
/// TCP and rings have no such copies. Over them the measurement is the stream of send-bw.
#[derive(Debug, clap::Args)]
pub struct WriteBandwidth {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    copying: Copying,
    #[command(flatten)]
    transport: CarrierOption,
    /// Copies in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

/// Single copies from the peer's memory
///
/// Each copy is complete before the next one starts.
#[derive(Debug, clap::Args)]
pub struct ReadLatency {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    copying: Copying,
    /// Number of other windows of the endpoint, each of one page
    #[arg(long, value_name = "N", default_value_t = 0)]
    held: u32,
}

/// Copies from the peer's memory, some in flight
#[derive(Debug, clap::Args)]
pub struct ReadBandwidth {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    copying: Copying,
    /// Copies in flight
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,
}

impl WriteLatency {
    pub(super) fn run(&self) -> Result<()> {
        (self.copying).latency("write-lat", &self.common, Direction::Write, self.held)
    }
}

impl ReadLatency {
    pub(super) fn run(&self) -> Result<()> {
        (self.copying).latency("read-lat", &self.common, Direction::Read, self.held)
    }
}

impl WriteBandwidth {
    pub(super) fn run(&self) -> Result<()> {
        let Copying {
            sizes, parallel, ..
        } = &self.copying;
        match self.transport.transport {
            Carrier::Scif => {
                (self.copying).bandwidth("write-bw", &self.common, Direction::Write, self.depth)
            }
            carrier @ (Carrier::Ring | Carrier::Tcp) => {
                let wait = Wait::Sleeping;
                messages::one_way("write-bw", &self.common, sizes, *parallel, carrier, wait)
            }
        }
    }
}

impl ReadBandwidth {
    pub(super) fn run(&self) -> Result<()> {
        (self.copying).bandwidth("read-bw", &self.common, Direction::Read, self.depth)
    }
}

impl Copying {
    fn pages(&self) -> Pages {
        match self.huge_pages {
            true => Pages::Huge,
            false => Pages::Small,
        }
    }

    fn latency(
        &self,
        measurement: &'static str,
        common: &Common,
        direction: Direction,
        held: u32,
    ) -> Result<()> {
        let how = How {
            direction,
            flags: self.engine.flags(true),
            depth: 1,
        };
        self.run(measurement, common, how, &["copy"], held)
    }

    fn bandwidth(
        &self,
        measurement: &'static str,
        common: &Common,
        direction: Direction,
        depth: u16,
    ) -> Result<()> {
        let how = How {
            direction,
            flags: self.engine.flags(false),
            depth: depth.into(),
        };
        self.run(measurement, common, how, &[], 0)
    }

    fn run(
        &self,
        measurement: &'static str,
        common: &Common,
        how: How,
        parts: &[&'static str],
        held: u32,
    ) -> Result<()> {
        let mut sessions = peer::several(&self.parallel, || peer::scif(common))?;
        let largest = self.sizes.largest(1);
        let mut ends = Vec::new();
        for thread in &mut sessions {
            let works = thread
                .iter_mut()
                .map(|session| Copies::new(session, largest * how.depth as u64, self.pages(), how));
            ends.push(works.collect::<Result<Vec<_>>>()?);
        }
        for work in ends.iter_mut().flatten() {
            hold(work.session, held)?;
        }
        let plan = Plan::new(common, parts.len());
        let mut rows = Vec::new();
        for size in self.sizes.list(1) {
            for work in ends.iter_mut().flatten() {
                work.size = size;
            }
            rows.push(Row::of(Some(size), measure(&mut ends, &plan)?, parts));
        }
        let setup = Setup {
            measurement,
            peer: common.peer.clone(),
            engine: Some(self.engine.name()),
            depth: Some(how.depth),
            threads: ends.len(),
            connections: ends.iter().map(Vec::len).sum(),
            ..Setup::default()
        };
        show(setup, rows, common.json)
    }
}

/// The way to copy.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The direction.
    pub direction: Direction,
    /// CPU or DMA, and whether the copy is complete on return.
    pub flags: Rma,
    /// Number of copies in flight.
    pub depth: usize,
}

/// Copies on one connection.
pub struct Copies<'a, T> {
    session: &'a mut Session<T>,
    window: Window,
    local: i64,
    /// The number of bytes that both windows have.
    span: u64,
    /// The size of each copy.
    pub size: u64,
    how: How,
    next: u64,
    /// Number of copies started since the last mark.
    unmarked: usize,
    marks: VecDeque<Mark>,
}

impl<'a, T: Transport> Copies<'a, T> {
    /// Makes windows for copies of `room` bytes in all, or of as many as are possible.
    pub fn new(session: &'a mut Session<T>, room: u64, pages: Pages, how: How) -> Result<Self> {
        // Less than a huge page would not be a huge page.
        let room = room
            .next_multiple_of(HUGE)
            .min(crate::server::LARGEST_BENCH as u64);
        let window = client::bench_window(session, room as u32)?;
        let region = Arc::new(
            Region::of_pages(room as usize, pages)
                .map_err(Error::local("cannot allocate a window"))?,
        );
        // The content is not zero, in case any component treats zeroes in a special manner.
        let pattern: Vec<u8> = (0..region.len()).map(|index| (index % 251) as u8).collect();
        region
            .write(0, &pattern)
            .map_err(Error::local("cannot fill the window"))?;
        let local = session.register(&region, Protection::ReadWrite)?;
        Ok(Self {
            window,
            local,
            span: (region.len() as u64).min(window.buffer.into()),
            size: 1,
            how,
            next: 0,
            unmarked: 0,
            marks: VecDeque::new(),
            session,
        })
    }

    fn copy(&self) -> std::io::Result<()> {
        let step = self.size.next_multiple_of(64);
        let places = (self.span / step).clamp(1, self.how.depth as u64);
        let offset = (self.next % places * step) as i64;
        let (local, remote) = (self.local + offset, self.window.offset + offset);
        let transport = self.session.transport();
        let size = self.size as usize;
        match self.how.direction {
            Direction::Write => transport.write_to(local, size, remote, self.how.flags),
            Direction::Read => transport.read_from(local, size, remote, self.how.flags),
        }
    }

    /// Marks the copies started so far, and waits until no more than `marks` are outstanding.
    fn mark(&mut self, marks: usize) -> std::io::Result<()> {
        let transport = self.session.transport();
        if self.unmarked > 0 {
            self.marks.push_back(transport.mark()?);
            self.unmarked = 0;
        }
        while self.marks.len() > marks {
            if let Some(mark) = self.marks.pop_front() {
                transport.wait(mark)?;
            }
        }
        Ok(())
    }
}

impl<T: Transport + Send> Work for Copies<'_, T> {
    fn begin(&mut self, _count: u64) -> Result<()> {
        self.session.set_activity("the measurement");
        self.next = 0;
        Ok(())
    }

    fn step(&mut self, times: &mut Times) -> Result<()> {
        let mut done = times.part(0, || self.copy());
        self.next += 1;
        if !self.how.flags.sync {
            self.unmarked += 1;
            let group = (self.how.depth / 2).max(1);
            if done.is_ok() && self.unmarked >= group {
                done = self.mark(self.how.depth / group - 1);
            }
        }
        done.map_err(|error| self.session.explain(error))
    }

    fn end(&mut self, _times: &mut Times) -> Result<()> {
        self.mark(0).map_err(|error| self.session.explain(error))
    }
}
