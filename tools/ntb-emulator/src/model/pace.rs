// SPDX-License-Identifier: GPL-2.0
//! The time at which the copies of a DMA engine are over. This is arithmetic without memory and
//! clock.
//!
//! An engine executes one descriptor after the other. The engine, the wires and the round trips all
//! work at once, and a copy takes the longest of their times.
//!
//! An engine that is woken up late is behind its time. It makes up for that time with later
//! descriptors, as long as the next one is there before the last one is reported. So a rate is
//! exact over many descriptors, even if each takes less than a wake-up is late. Time that is too
//! much to make up for is lost, and [`Pace::take_lost`] returns it: then the machine is too slow
//! for the figures.

use super::figures::EngineFigures;
use super::link::Crossing;
use super::picoseconds::Picoseconds;
use crate::bus::Route;

/// The longest time that is made up for. A longer one would be a burst that no hardware has.
const MOST_BEHIND: Picoseconds = Picoseconds::nanoseconds(20_000_000);

/// The time of an engine.
pub struct Pace {
    figures: Option<EngineFigures>,
    /// The links, by index of the NTB function of the guest; none where a link takes no time.
    crossings: Vec<Option<Crossing>>,
    /// The time when all work so far is over.
    time: Picoseconds,
    /// Whether the engine has had work all the time since then.
    busy: bool,
    lost: Picoseconds,
    reads: Option<Reads>,
}

/// The reads of a descriptor across a link so far.
struct Reads {
    begin: Picoseconds,
    bytes: u64,
}

impl Pace {
    /// Creates the pace of an engine that has done nothing, in a guest with these ends of links.
    pub fn new(figures: Option<EngineFigures>, crossings: Vec<Option<Crossing>>) -> Self {
        Self {
            figures,
            crossings,
            time: Picoseconds::ZERO,
            busy: false,
            lost: Picoseconds::ZERO,
            reads: None,
        }
    }

    /// Begins a descriptor.
    pub fn begin(&mut self, now: Picoseconds) {
        if !self.busy {
            self.time = self.time.max(now);
            self.busy = true;
        }
        self.lose(now);
        let fetched = Picoseconds::nanoseconds(self.figures.map_or(0, |f| f.descriptor_ns));
        self.time = self.time + fetched;
        self.reads = None;
    }

    /// Continues a copy.
    pub fn copy(&mut self, now: Picoseconds, route: &Route) {
        self.lose(now);
        let begin = self.time;
        let busy = self.figures.map(|figures| figures.copy(route.length));
        let mut end = begin + busy.unwrap_or_default();
        if let Some(crossing) = crossing(&self.crossings, route.from) {
            let reads = self.reads.get_or_insert(Reads { begin, bytes: 0 });
            reads.bytes += route.length;
            end = end.max(crossing.copy_in(reads.begin, reads.bytes, begin, route.length));
        }
        if let Some(crossing) = crossing(&self.crossings, route.to) {
            end = end.max(crossing.copy_out(begin, route.length));
        }
        self.time = end;
    }

    /// Gives up the time that is too much to make up for.
    fn lose(&mut self, now: Picoseconds) {
        let earliest = now.since(MOST_BEHIND);
        self.lost = self.lost + earliest.since(self.time);
        self.time = self.time.max(earliest);
    }

    /// Returns when all work so far is over.
    pub fn time(&self) -> Picoseconds {
        self.time
    }

    /// Returns the time lost since the last call, in whole microseconds.
    pub fn take_lost(&mut self) -> u64 {
        let (microseconds, rest) = self.lost.split_microseconds();
        self.lost = rest;
        microseconds
    }

    /// Notes that the engine has no more work.
    pub fn idle(&mut self) {
        self.busy = false;
    }
}

fn crossing(crossings: &[Option<Crossing>], port: Option<usize>) -> Option<&Crossing> {
    crossings.get(port?)?.as_ref()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::figures::LinkFigures;
    use super::super::link::LinkModel;
    use super::*;

    const GEN3: LinkFigures = LinkFigures::GEN3_X8;
    const CHUNK: u64 = 64 << 10;

    fn at(nanoseconds: u64) -> Picoseconds {
        Picoseconds::nanoseconds(nanoseconds)
    }

    fn engine(bandwidth: u64) -> EngineFigures {
        EngineFigures {
            bandwidth,
            descriptor_ns: 250,
        }
    }

    fn pace(figures: EngineFigures, link: &Arc<LinkModel>) -> Pace {
        Pace::new(Some(figures), vec![Some(Crossing::new(link, 0))])
    }

    fn link() -> Arc<LinkModel> {
        Arc::new(LinkModel::new(GEN3))
    }

    fn write(length: u64) -> Route {
        Route {
            length,
            from: None,
            to: Some(0),
        }
    }

    fn read(length: u64) -> Route {
        Route {
            length,
            from: Some(0),
            to: None,
        }
    }

    fn local(length: u64) -> Route {
        Route {
            length,
            from: None,
            to: None,
        }
    }

    /// Returns how long engines take that begin at once and copy `bytes` in descriptors of 1 MiB,
    /// each in turn as real engines get their turns.
    fn together(paces: &mut [Pace], route: fn(u64) -> Route, bytes: u64) -> Picoseconds {
        let mut left: Vec<u64> = paces.iter().map(|_| bytes).collect();
        // The engine that is furthest behind is the next to ask.
        while let Some(next) = (0..paces.len())
            .filter(|&index| left[index] > 0)
            .min_by_key(|&index| paces[index].time())
        {
            let pace = &mut paces[next];
            if left[next] % (1 << 20) == 0 {
                pace.begin(pace.time());
            }
            pace.copy(pace.time(), &route(CHUNK));
            left[next] -= CHUNK;
        }
        paces.iter().map(Pace::time).max().unwrap()
    }

    fn ratio(one: Picoseconds, other: Picoseconds) -> f64 {
        one.as_duration().as_secs_f64() / other.as_duration().as_secs_f64()
    }

    #[test]
    fn slowest_part_decides_the_pace() {
        let slow = engine(1_000_000_000);
        let mut pace = pace(slow, &link());
        pace.begin(at(1000));
        pace.copy(pace.time(), &local(1000));
        assert_eq!(pace.time(), at(1000 + 250 + 1000));
        pace.copy(pace.time(), &write(1000));
        assert_eq!(pace.time(), at(1000 + 250 + 2000));
        // The engine waits for the other side.
        pace.copy(pace.time(), &read(8));
        assert_eq!(pace.time(), at(1000 + 250 + 2000 + 900));
    }

    #[test]
    fn missing_engine_or_link_figures_take_no_time() {
        let mut alone = Pace::new(Some(engine(1_000_000_000)), vec![None]);
        alone.begin(at(0));
        alone.copy(alone.time(), &read(100));
        alone.copy(alone.time(), &write(100));
        assert_eq!(alone.time(), at(450));
        let mut infinite = Pace::new(None, vec![Some(Crossing::new(&link(), 0))]);
        infinite.begin(at(0));
        infinite.copy(infinite.time(), &local(1 << 20));
        assert_eq!(infinite.time(), at(0));
        infinite.copy(infinite.time(), &write(1 << 20));
        assert_eq!(infinite.time(), GEN3.write(1 << 20));
        // A port that does not exist has no link to take time.
        infinite.copy(
            infinite.time(),
            &Route {
                to: Some(9),
                ..local(1 << 20)
            },
        );
        assert_eq!(infinite.time(), GEN3.write(1 << 20));
    }

    #[test]
    fn engines_scale_until_the_link_is_full() {
        const BYTES: u64 = 16 << 20;
        let speedup = |route: fn(u64) -> Route, rate: u64| {
            let take = |count: usize| {
                let link = link();
                let mut paces: Vec<_> = (0..count).map(|_| pace(engine(rate), &link)).collect();
                together(&mut paces, route, BYTES)
            };
            4.0 / ratio(take(4), take(1))
        };
        // 4 engines of 1 GB/s fit into 6.6 GB/s. 4 of 4.5 GB/s do not, nor do 4 that read 2.3 GB/s.
        let fits = speedup(write, 1_000_000_000);
        assert!(fits > 3.9, "{fits}");
        let full = speedup(write, 4_500_000_000);
        assert!((1.4..1.5).contains(&full), "{full}");
        let full = speedup(read, 4_500_000_000);
        assert!((2.9..3.0).contains(&full), "{full}");
    }

    #[test]
    fn reads_across_the_link_are_slower_than_writes() {
        let take = |route: fn(u64) -> Route, length: u64| {
            let mut pace = pace(EngineFigures::default(), &link());
            for _ in 0..1000 {
                pace.begin(pace.time());
                pace.copy(pace.time(), &route(length));
            }
            pace.time()
        };
        let large = ratio(take(read, CHUNK), take(write, CHUNK));
        assert!((1.8..2.2).contains(&large), "{large}");
        let small = ratio(take(read, 64), take(write, 64));
        assert!(small > 4.0, "{small}");
    }

    #[test]
    fn chunked_read_takes_as_long_as_a_whole_one() {
        let mut whole = Pace::new(None, vec![Some(Crossing::new(&link(), 0))]);
        whole.begin(at(0));
        whole.copy(whole.time(), &read(1 << 20));
        let mut parts = Pace::new(None, vec![Some(Crossing::new(&link(), 0))]);
        parts.begin(at(0));
        for _ in 0..1024 {
            parts.copy(parts.time(), &read(1024));
        }
        assert_eq!(parts.time(), whole.time());
        assert_eq!(parts.time(), GEN3.round_trips(1 << 20));
    }

    #[test]
    fn lateness_beyond_the_limit_is_counted_as_lost() {
        let mut pace = pace(engine(1_000_000_000), &link());
        pace.begin(at(0));
        // In time, and then late by less than the engine makes up for.
        pace.begin(at(250));
        pace.begin(at(20_000_500));
        assert_eq!(pace.time(), at(750));
        assert_eq!(pace.lost, at(0));
        // Too late by 100 ns, and by 2 us: together 2 whole microseconds, and a rest that is kept.
        pace.begin(at(20_000_850));
        assert_eq!(pace.time(), at(850 + 250));
        assert_eq!(pace.take_lost(), 0);
        pace.begin(at(20_003_100));
        assert_eq!(pace.time(), at(3100 + 250));
        assert_eq!(pace.take_lost(), 2);
        assert_eq!(pace.lost, at(100));
        // An idle engine has nothing to make up for.
        pace.idle();
        pace.begin(at(90_000_000));
        assert_eq!(pace.lost, at(100));
        assert_eq!(pace.time(), at(90_000_250));
    }

    #[test]
    fn long_copy_can_be_late_before_it_ends() {
        let mut pace = pace(engine(1_000_000_000), &link());
        pace.begin(at(0));
        pace.copy(at(250), &local(1000));
        pace.copy(at(50_000_000), &local(1000));
        assert_eq!(pace.time(), at(30_001_000));
        assert_eq!(pace.take_lost(), 29_998);
    }

    #[test]
    fn round_trips_of_several_engines_overlap() {
        let link = link();
        let mut paces: Vec<_> = (0..4).map(|_| pace(engine(4_500_000_000), &link)).collect();
        // Each engine wakes up late and then does much at once, when the others have been there.
        for _ in 0..10 {
            for pace in &mut paces {
                for _ in 0..20 {
                    pace.begin(pace.time());
                    pace.copy(pace.time(), &read(64));
                }
            }
        }
        let alone = at(200 * (250 + 900));
        for pace in &paces {
            let took = ratio(pace.time(), alone);
            assert!((1.0..1.05).contains(&took), "{took}");
        }
    }

    proptest! {
        /// However late the engine wakes up, the rate over many small descriptors is that of the
        /// model.
        #[test]
        fn late_wake_ups_do_not_change_the_modelled_rate(
            lengths in prop::collection::vec(1u64..5000, 200..400),
            late in 0u64..15_000_000,
        ) {
            let figures = engine(2_000_000_000);
            let mut pace = pace(figures, &link());
            let mut now = at(0);
            let mut expected = at(0);
            for length in lengths {
                pace.begin(now);
                pace.copy(pace.time(), &local(length));
                expected = expected + at(figures.descriptor_ns) + figures.copy(length);
                if pace.time() > now {
                    now = pace.time() + at(late);
                }
            }
            prop_assert_eq!(pace.time(), expected);
            prop_assert_eq!(pace.lost, at(0));
            // The engine is never further behind than one wake-up.
            prop_assert!(now.since(expected) <= at(late));
        }

        /// For any copies of several engines, no more bytes pass the link than it can carry.
        #[test]
        fn engines_together_never_exceed_the_link_rate(
            copies in prop::collection::vec((0usize..3, 1u64..200_000, any::<bool>()), 1..100),
        ) {
            let link = link();
            let mut paces: Vec<_> = (0..3).map(|_| pace(engine(10_000_000_000), &link)).collect();
            let (mut out, mut back) = (Picoseconds::ZERO, Picoseconds::ZERO);
            for (index, length, reads) in copies {
                let pace = &mut paces[index];
                pace.begin(pace.time());
                pace.copy(pace.time(), &if reads { read(length) } else { write(length) });
                if reads {
                    out = out + GEN3.requests(length);
                    back = back + GEN3.completions(length);
                } else {
                    out = out + GEN3.write(length);
                }
            }
            let end = paces.iter().map(Pace::time).max().unwrap();
            prop_assert!(end >= out.max(back));
        }
    }
}
