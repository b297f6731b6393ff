// SPDX-License-Identifier: GPL-2.0
//! When the copies of a DMA engine are over. Arithmetic: it knows neither memory nor clock.
//!
//! An engine executes one descriptor after the other. What a copy takes is the longest of
//! what the engine, the wires and the round trips take, which all go on at once.
//!
//! An engine that is woken late is behind its time. As long as the next descriptor is there before
//! the last one is said to be over, that time is made up for with the next ones, so a rate is exact over
//! many descriptors even if each takes less than a wake-up is late. What is too much to be
//! made up for is lost, and [`Pace::take_lost`] says how much: then the machine is too slow for
//! the figures.

use super::figures::EngineFigures;
use super::link::Crossing;
use super::picoseconds::Picoseconds;
use crate::bus::Route;

/// The most that is made up for. More would be a burst that no hardware has.
const MOST_BEHIND: Picoseconds = Picoseconds::nanoseconds(20_000_000);

/// An engine's time.
pub struct Pace {
    figures: Option<EngineFigures>,
    /// By number of the NTB function of the guest; nothing where a link takes no time.
    crossings: Vec<Option<Crossing>>,
    /// When what it was given so far is over.
    time: Picoseconds,
    /// There was something to do all the time since then.
    busy: bool,
    lost: Picoseconds,
    reads: Option<Reads>,
}

/// What a descriptor has read across a link so far.
struct Reads {
    begin: Picoseconds,
    bytes: u64,
}

impl Pace {
    /// An engine that has done nothing, in a guest with such ends of links.
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

    /// It finds a descriptor.
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

    /// It goes on with a copy.
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

    /// Gives up what is too much to be made up for.
    fn lose(&mut self, now: Picoseconds) {
        let earliest = now.since(MOST_BEHIND);
        self.lost = self.lost + earliest.since(self.time);
        self.time = self.time.max(earliest);
    }

    /// When what it was given so far is over.
    pub fn time(&self) -> Picoseconds {
        self.time
    }

    /// How much time is lost since the last look, in whole microseconds.
    pub fn take_lost(&mut self) -> u64 {
        let (microseconds, rest) = self.lost.split_microseconds();
        self.lost = rest;
        microseconds
    }

    /// It finds nothing more to do.
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

    /// How long engines take that begin at once and copy so much in descriptors of 1 MiB,
    /// each in turn as real ones get theirs.
    fn together(paces: &mut [Pace], route: fn(u64) -> Route, bytes: u64) -> Picoseconds {
        let mut left: Vec<u64> = paces.iter().map(|_| bytes).collect();
        // Who is behind the others is the next to ask.
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
    fn the_slowest_part_decides() {
        let slow = engine(1_000_000_000);
        let mut pace = pace(slow, &link());
        pace.begin(at(1000));
        pace.copy(pace.time(), &local(1000));
        assert_eq!(pace.time(), at(1000 + 250 + 1000));
        pace.copy(pace.time(), &write(1000));
        assert_eq!(pace.time(), at(1000 + 250 + 2000));
        // Waiting for the other side.
        pace.copy(pace.time(), &read(8));
        assert_eq!(pace.time(), at(1000 + 250 + 2000 + 900));
    }

    #[test]
    fn an_engine_alone_has_no_link_and_a_link_alone_no_engine() {
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
        // A port that is not there has no link to take time.
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
    fn four_engines_copy_four_times_as_much_until_the_link_is_full() {
        const BYTES: u64 = 16 << 20;
        let speedup = |route: fn(u64) -> Route, rate: u64| {
            let take = |count: usize| {
                let link = link();
                let mut paces: Vec<_> = (0..count).map(|_| pace(engine(rate), &link)).collect();
                together(&mut paces, route, BYTES)
            };
            4.0 / ratio(take(4), take(1))
        };
        // 4 of 1 GB/s fit into 6.6 GB/s, 4 of 4.5 GB/s do not, nor 4 that read 2.3 GB/s.
        let fits = speedup(write, 1_000_000_000);
        assert!(fits > 3.9, "{fits}");
        let full = speedup(write, 4_500_000_000);
        assert!((1.4..1.5).contains(&full), "{full}");
        let full = speedup(read, 4_500_000_000);
        assert!((2.9..3.0).contains(&full), "{full}");
    }

    #[test]
    fn reading_across_the_link_is_slow_and_small_reads_more_so() {
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
    fn the_read_of_a_descriptor_in_chunks_takes_what_it_takes_in_one() {
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
    fn what_is_too_late_is_lost_and_said() {
        let mut pace = pace(engine(1_000_000_000), &link());
        pace.begin(at(0));
        // In time, and late by less than can be made up for.
        pace.begin(at(250));
        pace.begin(at(20_000_500));
        assert_eq!(pace.time(), at(750));
        assert_eq!(pace.lost, at(0));
        // Too late by 100 ns, and by 2 us: together 2 whole ones, and a rest that is kept.
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
    fn a_long_copy_of_a_slow_machine_is_late_meanwhile() {
        let mut pace = pace(engine(1_000_000_000), &link());
        pace.begin(at(0));
        pace.copy(at(250), &local(1000));
        pace.copy(at(50_000_000), &local(1000));
        assert_eq!(pace.time(), at(30_001_000));
        assert_eq!(pace.take_lost(), 29_998);
    }

    #[test]
    fn engines_that_wait_for_round_trips_do_not_wait_for_each_other() {
        let link = link();
        let mut paces: Vec<_> = (0..4).map(|_| pace(engine(4_500_000_000), &link)).collect();
        // Each wakes late and then does much at once, when the others have been there.
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
        /// However late it wakes, the rate over many small descriptors is that of the model.
        #[test]
        fn rates_are_exact_however_late(
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
            // Nobody is further behind than one wake-up.
            prop_assert!(now.since(expected) <= at(late));
        }

        /// Whatever engines do together, no more passes the link than it can carry.
        #[test]
        fn a_link_is_never_faster_than_it_is(
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
