// SPDX-License-Identifier: GPL-2.0
//! The time of transfers across a link: its two lanes, and its figures.
//!
//! Ends are numbered as those of [`crate::ntb::link::Link`]; an end has the lane on which it
//! sends.

use std::sync::Arc;

use super::figures::LinkFigures;
use super::lane::Lane;
use super::picoseconds::Picoseconds;

/// Bytes of a doorbell, which is a write.
const DOORBELL: u64 = 4;

/// Bytes of posted writes that a bridge takes before it holds up the sender. An assumption.
const BUFFER: u64 = 8 << 10;

/// A link that takes time.
pub struct LinkModel {
    figures: LinkFigures,
    lanes: [Lane; 2],
}

/// One end of a link.
#[derive(Clone)]
pub struct Crossing {
    link: Arc<LinkModel>,
    end: usize,
}

impl LinkModel {
    /// Creates a link without transfers.
    pub fn new(figures: LinkFigures) -> Self {
        Self {
            figures,
            lanes: Default::default(),
        }
    }
}

impl Crossing {
    /// Creates an end; 0 is upstream.
    pub fn new(link: &Arc<LinkModel>, end: usize) -> Self {
        Self {
            link: Arc::clone(link),
            end: end & 1,
        }
    }

    fn out(&self) -> &Lane {
        &self.link.lanes[self.end]
    }

    fn back(&self) -> &Lane {
        &self.link.lanes[1 - self.end]
    }

    /// Begins a write of `bytes` by an engine of this end. Returns when the engine has sent them.
    pub fn copy_out(&self, begin: Picoseconds, bytes: u64) -> Picoseconds {
        self.out().pass(begin, self.link.figures.write(bytes))
    }

    /// Continues a read by an engine of this end at `now`, with `bytes` more of `total` since
    /// `begin`. Returns when the engine has them.
    pub fn copy_in(
        &self,
        begin: Picoseconds,
        total: u64,
        now: Picoseconds,
        bytes: u64,
    ) -> Picoseconds {
        let figures = &self.link.figures;
        let asked = self.out().pass(now, figures.requests(bytes));
        let passed = self.back().pass(asked, figures.completions(bytes));
        passed.max(begin + figures.round_trips(total))
    }

    /// Reads `bytes` from the other end by a CPU of this end. Returns when the CPU has them.
    pub fn load(&self, now: Picoseconds, bytes: u64) -> Picoseconds {
        let figures = &self.link.figures;
        let asked = self.out().pass(now, figures.requests(bytes));
        let passed = self.back().pass(asked, figures.completions(bytes));
        passed.max(now + Picoseconds::nanoseconds(figures.read_ns))
    }

    /// Writes `bytes` to the other end by a CPU of this end. Returns when the CPU can go on: mostly
    /// at once.
    pub fn store(&self, now: Picoseconds, bytes: u64) -> Picoseconds {
        let figures = &self.link.figures;
        let passed = self.out().pass(now, figures.write(bytes));
        let buffer = Picoseconds::of_bytes(BUFFER, figures.bandwidth);
        now + passed.since(now + buffer)
    }

    /// Reads an own register by a CPU of this end. Returns when the CPU has the value.
    pub fn register_read(&self, now: Picoseconds) -> Picoseconds {
        now + Picoseconds::nanoseconds(self.link.figures.register_read_ns)
    }

    /// Rings a doorbell by a CPU of this end. Returns when the other end sees it: behind all
    /// earlier writes.
    pub fn ring(&self, now: Picoseconds) -> Picoseconds {
        let figures = &self.link.figures;
        let passed = self.out().pass(now, figures.write(DOORBELL));
        passed + Picoseconds::nanoseconds(figures.posted_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEN3: LinkFigures = LinkFigures::GEN3_X8;

    fn ends() -> [Crossing; 2] {
        let link = Arc::new(LinkModel::new(GEN3));
        [Crossing::new(&link, 0), Crossing::new(&link, 1)]
    }

    #[test]
    fn link_directions_do_not_delay_each_other() {
        let [up, down] = ends();
        let now = Picoseconds::nanoseconds(5);
        let one = up.copy_out(now, 1 << 20);
        assert_eq!(one, now + GEN3.write(1 << 20));
        assert_eq!(down.copy_out(now, 1 << 20), one);
        assert_eq!(up.copy_out(now, 1 << 20), one + GEN3.write(1 << 20));
    }

    #[test]
    fn read_waits_for_a_round_trip_and_a_busy_return_path() {
        let [up, down] = ends();
        let now = Picoseconds::ZERO;
        let trip = Picoseconds::nanoseconds(GEN3.read_ns);
        assert_eq!(up.load(now, 8), trip);
        assert_eq!(up.copy_in(now, 64, now, 64), trip);
        let full = down.copy_out(now, 1 << 20);
        assert!(up.copy_in(now, 64, now, 64) > full);
    }

    #[test]
    fn doorbell_does_not_overtake_earlier_writes() {
        let [up, _] = ends();
        let now = Picoseconds::ZERO;
        let posted = Picoseconds::nanoseconds(GEN3.posted_ns);
        assert_eq!(up.ring(now), GEN3.write(4) + posted);
        let written = up.copy_out(now, 1 << 16);
        assert_eq!(up.ring(now), written + GEN3.write(4) + posted);
    }

    #[test]
    fn store_waits_only_for_a_full_buffer() {
        let [up, _] = ends();
        let now = Picoseconds::nanoseconds(7);
        let mut held = 0;
        for _ in 0..1000 {
            if up.store(now, 8) > now {
                held += 1;
            }
        }
        // 8 bytes are 32 bytes on the wire; each write rounds up.
        let expected = 1000 - BUFFER / 32;
        assert!((expected..=expected + 1).contains(&held), "{held}");
        let later = now + Picoseconds::nanoseconds(1_000_000);
        assert_eq!(up.store(later, 8), later);
    }
}
