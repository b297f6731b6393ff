// SPDX-License-Identifier: GPL-2.0

//! Up to which size transfers to and from a peer go by the processor when nobody says how.
//!
//! It is measured once for each peer, when there is the first connection with it: copies of some sizes
//! by the processor and by the first engine, one at a time and several at once, because a caller who
//! waits for the engine's interrupt is worse off than one who starts many. They go to and from a place
//! in the peer's memory that is there for that. `logic/crossover.rs` makes sizes of it. Until then, and
//! if that fails, some fixed sizes serve.
//!
//! How the slots of what is staged are filled and emptied (`staging.rs`) is measured likewise, in them.
//!
//! An administrator can say it instead, at any time (`dma_threshold`). Then nothing is measured before
//! there is a connection that is made when he leaves it to us.

use super::trial::TrialSite;
use crate::{
    arguments::Direction,
    logic::{
        control_geometry::SCRATCH_SIZE,
        crossover::{
            limit,
            Sample, //
        },
        plan::Segment, //
    },
    sync::once::Once,
    sys::{
        busy_wait::now,
        current,
        shared_memory::SharedMemory,
        tunables, //
    },
    transport::outbound::flush_writes,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// The sizes that are measured, up to the longest that is asked for, and at last that one.
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// The longest for who waits for the end. Who does not, wants his processor at once.
const LONGEST_ALONE: usize = 4 << 20;

/// How often each is: the best counts, the others were disturbed.
const TRIES: usize = 5;

/// How many copies "several at once" are.
const SEVERAL: usize = 8;

/// What serves before anything is known.
const WRITES_AT_FIRST: u64 = 1024;
const READS_AT_FIRST: u64 = 0;

/// Sizes, in bytes, up to which the processor copies.
struct Limits {
    /// For who waits for the end.
    alone: Atomic<u64>,
    /// For who does not.
    several: Atomic<u64>,
}

impl Limits {
    const fn new(both: u64) -> Self {
        Self {
            alone: Atomic::new(both),
            several: Atomic::new(both),
        }
    }
}

/// See the head of this file.
pub(super) struct Crossover {
    fixed: Option<u64>,
    reads: Limits,
    writes: Limits,
    pub(super) measured: Once,
}

/// What is measured with, and where: in `room` bytes from `there` on, as the peer names it. What is longer goes
/// there over and over.
struct Bench<'a> {
    site: &'a TrialSite<'a>,
    there: u64,
    room: usize,
    bytes: KVec<u8>,
}

/// The best of some tries, in nanoseconds.
fn best(mut attempt: impl FnMut() -> Result<u64>) -> Result<u64> {
    let mut best = u64::MAX;
    for _ in 0..TRIES {
        best = best.min(attempt()?);
        current::reschedule();
    }
    Ok(best)
}

impl<'a> Bench<'a> {
    fn new(site: &'a TrialSite<'a>, there: u64, room: usize) -> Result<Self> {
        let room = room.min(SCRATCH_SIZE);
        Ok(Self {
            site,
            there,
            room,
            bytes: KVec::from_elem(0, room, GFP_KERNEL)?,
        })
    }

    fn by_processor(&mut self, direction: Direction, len: usize) -> Result<u64> {
        let peer = self.site.peer;
        let _inside = peer.enter().ok_or(ENODEV)?;
        let place = peer.path().reach(self.there, self.room as u64)?;
        let start = now();
        for from in (0..len).step_by(self.room) {
            let some = self.room.min(len - from);
            let bytes = self.bytes.get_mut(..some).ok_or(EINVAL)?;
            match direction {
                Direction::Write => place.write(0, bytes)?,
                Direction::Read => place.read(0, bytes)?,
            }
        }
        flush_writes();
        Ok(u64::try_from(start.elapsed().as_nanos())?)
    }

    /// Memory of processes is scattered, as a rule: a segment for each page.
    fn segments(&self, direction: Direction, len: usize, count: usize) -> Result<KVVec<Segment>> {
        let here = self.site.here();
        let there = self.site.address(self.there, self.room)?;
        let mut segments = KVVec::with_capacity(count * len.div_ceil(PAGE_SIZE), GFP_KERNEL)?;
        for _ in 0..count {
            for start in (0..len).step_by(PAGE_SIZE) {
                let offset = start % self.room;
                let here = here + offset as u64;
                let there = there + offset as u64;
                let (destination, source) = match direction {
                    Direction::Write => (there, here),
                    Direction::Read => (here, there),
                };
                let segment = Segment {
                    destination,
                    source,
                    len: (len - start).min(PAGE_SIZE) as u64,
                };
                segments.push(segment, GFP_KERNEL)?;
            }
        }
        Ok(segments)
    }

    fn by_engine(&self, segments: &[Segment], count: usize) -> Result<u64> {
        let took = self.site.time(segments)?;
        took.checked_div(count as u64).ok_or(EINVAL)
    }

    /// How long one of `count` copies takes; by processor as in one of `known`, if there is such a one.
    fn sample(
        &mut self,
        direction: Direction,
        len: usize,
        count: usize,
        known: &[Sample],
    ) -> Result<Sample> {
        let segments = self.segments(direction, len, count)?;
        Ok(Sample {
            len: len as u64,
            by_processor: match known.iter().find(|known| known.len == len as u64) {
                Some(known) => known.by_processor,
                None => best(|| self.by_processor(direction, len))?,
            },
            by_engine: best(|| self.by_engine(&segments, count))?,
        })
    }

    /// Samples of engines that make `count` copies, of sizes up to `longest`.
    fn samples(
        &mut self,
        direction: Direction,
        count: usize,
        longest: usize,
        known: &[Sample],
    ) -> Result<KVec<Sample>> {
        samples(longest, |len| self.sample(direction, len, count, known))
    }
}

/// Samples of sizes up to `longest`, or until the engine is faster.
fn samples(
    longest: usize,
    mut sample: impl FnMut(usize) -> Result<Sample>,
) -> Result<KVec<Sample>> {
    let mut samples = KVec::with_capacity(SIZES.len() + 1, GFP_KERNEL)?;
    let shorter = SIZES.into_iter().filter(|len| *len < longest);
    for len in Iterator::chain(shorter, [longest]) {
        let sample = sample(len)?;
        samples.push(sample, GFP_KERNEL)?;
        // The processor takes long to read across a bridge: no more of that than needed.
        if sample.engine_wins() {
            break;
        }
    }
    Ok(samples)
}

/// What an administrator has said, if anything. Any context.
pub(super) fn said() -> Option<u64> {
    u64::try_from(tunables::dma_threshold()).ok()
}

/// The bytes up to which the processor writes faster than the engine to `there`, where the peer has `len` bytes
/// that mean nothing. May sleep.
pub(super) fn measure_writes(site: &TrialSite<'_>, there: u64, len: usize) -> Result<u64> {
    let samples = Bench::new(site, there, len)?.samples(Direction::Write, 1, len, &[])?;
    Ok(limit(&samples))
}

/// Memory of this node, as the processor finds it, and as an engine does, from which bytes are copied.
pub(super) struct Source<'a> {
    pub(super) memory: &'a SharedMemory,
    pub(super) bus_address: u64,
    /// Where they begin.
    pub(super) offset: usize,
}

/// The bytes up to which the processor copies faster than the engine from there to other memory of this node, of
/// sizes up to `longest`. May sleep.
pub(super) fn measure_copies(
    site: &TrialSite<'_>,
    source: &Source<'_>,
    longest: usize,
) -> Result<u64> {
    let mut bytes = KVec::from_elem(0, SCRATCH_SIZE, GFP_KERNEL)?;
    let mut by_processor = |len: usize| {
        let start = now();
        for from in (0..len).step_by(SCRATCH_SIZE) {
            let some = SCRATCH_SIZE.min(len - from);
            let bytes = bytes.get_mut(..some).ok_or(EINVAL)?;
            source.memory.read(source.offset + from, bytes)?;
        }
        Ok(u64::try_from(start.elapsed().as_nanos())?)
    };
    let segments = |len: usize| {
        (0..len).step_by(PAGE_SIZE).map(move |from| Segment {
            destination: site.here() + (from % SCRATCH_SIZE) as u64,
            source: source.bus_address + (source.offset + from) as u64,
            len: (len - from).min(PAGE_SIZE) as u64,
        })
    };
    let samples = samples(longest, |len| {
        Ok(Sample {
            len: len as u64,
            by_processor: best(|| by_processor(len))?,
            by_engine: best(|| site.time_copies(segments(len)))?,
        })
    })?;
    Ok(limit(&samples))
}

impl Crossover {
    /// Not measured yet. A `fixed` size is what an administrator would have said.
    pub(super) fn new(fixed: Option<u64>) -> Self {
        Self {
            fixed,
            reads: Limits::new(READS_AT_FIRST),
            writes: Limits::new(WRITES_AT_FIRST),
            measured: Once::new(),
        }
    }

    /// What was said, if anything. Any context.
    pub(super) fn said(&self) -> Option<u64> {
        self.fixed.or_else(said)
    }

    /// Whether a transfer of so many bytes goes by the processor, where there is an engine. Any
    /// context.
    pub(super) fn by_processor(&self, direction: Direction, len: u64, waits: bool) -> bool {
        let limits = match direction {
            Direction::Read => &self.reads,
            Direction::Write => &self.writes,
        };
        let limit = if waits {
            &limits.alone
        } else {
            &limits.several
        };
        len <= self.said().unwrap_or_else(|| limit.load(Relaxed))
    }

    /// May sleep.
    pub(super) fn measure(&self, site: &TrialSite<'_>) -> Result {
        let there = site.peer.scratch(SCRATCH_SIZE).ok_or(ENODEV)?;
        let mut bench = Bench::new(site, there, SCRATCH_SIZE)?;
        for (direction, limits) in [
            (Direction::Write, &self.writes),
            (Direction::Read, &self.reads),
        ] {
            let alone = bench.samples(direction, 1, LONGEST_ALONE, &[])?;
            limits.alone.store(limit(&alone), Relaxed);
            let several = bench.samples(direction, SEVERAL, SCRATCH_SIZE, &alone)?;
            limits.several.store(limit(&several), Relaxed);
        }
        pr_info!(
            "node {}: by processor up to {} bytes written, {} read; {} and {} when not waited for\n",
            site.peer.node(),
            self.writes.alone.load(Relaxed),
            self.reads.alone.load(Relaxed),
            self.writes.several.load(Relaxed),
            self.reads.several.load(Relaxed)
        );
        Ok(())
    }
}
