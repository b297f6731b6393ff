// SPDX-License-Identifier: GPL-2.0
//! The writes in flight in one direction of a link, and the rules of when each arrives.
//!
//! - A stream keeps its order: no write arrives before an earlier one of the same stream.
//! - Each write is held, or not, for as many operations as its stream draws. An operation is a
//!   write of any stream, or a read that pushes. A caller may wait for other events than an
//!   operation, so a held write arrives after a limited time.
//! - A stream does not hold more than a bridge would: beyond that the oldest writes arrive.
//! - Writes that are pushed arrive before [`Traffic::push`] returns.
//!
//! This module has no clock and no memory: the caller passes the time, and is given the writes that
//! arrive.

use std::collections::VecDeque;
use std::time::Instant;

use super::chance::Chance;

/// The most that a stream holds, in bytes.
const MOST: u64 = 64 << 10;

/// A write that has not arrived.
struct Held<T> {
    item: T,
    bytes: u64,
    /// The number among all posted writes.
    number: u64,
    /// The operation after which the write arrives, and the latest time.
    operation: u64,
    latest: Instant,
}

struct Stream<T> {
    /// None if no write of the stream is held.
    chance: Option<Chance>,
    under_way: VecDeque<Held<T>>,
    bytes: u64,
}

/// The writes in flight in one direction.
pub struct Traffic<T> {
    streams: Vec<Stream<T>>,
    operations: u64,
    overtaken: u64,
}

impl<T> Stream<T> {
    fn new(chance: Option<Chance>) -> Self {
        Self {
            chance,
            under_way: VecDeque::new(),
            bytes: 0,
        }
    }

    fn pop_if(&mut self, due: impl FnOnce(&Held<T>) -> bool) -> Option<Held<T>> {
        if !due(self.under_way.front()?) {
            return None;
        }
        let held = self.under_way.pop_front()?;
        self.bytes -= held.bytes;
        Some(held)
    }
}

impl<T> Traffic<T> {
    /// Creates the streams; a stream without a chance holds no write.
    pub fn new(chances: impl IntoIterator<Item = Option<Chance>>) -> Self {
        Self {
            streams: chances.into_iter().map(Stream::new).collect(),
            operations: 0,
            overtaken: 0,
        }
    }

    /// Makes the streams draw from these from now on; writes in flight stay as they are.
    pub fn draw_from(&mut self, chances: impl IntoIterator<Item = Option<Chance>>) {
        for (stream, chance) in self.streams.iter_mut().zip(chances) {
            stream.chance = chance;
        }
    }

    /// Posts a write. `arrive` gets the writes that arrive now, in order. A stream that does not
    /// exist holds no write.
    pub fn post(
        &mut self,
        stream: usize,
        (item, bytes): (T, u64),
        now: Instant,
        mut arrive: impl FnMut(T),
    ) {
        self.operations += 1;
        // Writes that were due before arrive first.
        self.arrive_due(now, &mut arrive);
        let number = self.operations;
        let Some(writer) = self.streams.get_mut(stream) else {
            arrive(item);
            return;
        };
        let hold = writer.chance.as_mut().and_then(Chance::draw);
        let operations = hold.map_or(0, |hold| hold.operations);
        writer.bytes += bytes;
        writer.under_way.push_back(Held {
            item,
            bytes,
            number,
            operation: number + operations,
            latest: hold.map_or(now, |hold| now + hold.time),
        });
        while let Some(held) = self.pop_surplus(stream) {
            self.note(stream, held.number);
            arrive(held.item);
        }
        self.arrive_due(now, &mut arrive);
    }

    fn pop_surplus(&mut self, stream: usize) -> Option<Held<T>> {
        let stream = self.streams.get_mut(stream)?;
        let surplus = stream.bytes > MOST;
        stream.pop_if(|_| surplus)
    }

    /// Pushes these streams ahead of a read.
    pub fn push(
        &mut self,
        streams: impl IntoIterator<Item = usize>,
        now: Instant,
        mut arrive: impl FnMut(T),
    ) {
        self.operations += 1;
        for index in streams {
            while let Some(held) = self.pop(index, |_| true) {
                arrive(held.item);
            }
        }
        self.arrive_due(now, arrive);
    }

    /// Lets all writes arrive that are due.
    pub fn arrive_due(&mut self, now: Instant, mut arrive: impl FnMut(T)) {
        let operations = self.operations;
        for index in 0..self.streams.len() {
            let due = |held: &Held<T>| held.operation <= operations || held.latest <= now;
            while let Some(held) = self.pop(index, due) {
                arrive(held.item);
            }
        }
    }

    fn pop(&mut self, index: usize, due: impl FnOnce(&Held<T>) -> bool) -> Option<Held<T>> {
        let held = self.streams.get_mut(index)?.pop_if(due)?;
        self.note(index, held.number);
        Some(held)
    }

    /// Notes that a write of a stream arrives, and counts it if an earlier one is still held.
    fn note(&mut self, index: usize, number: u64) {
        let mut others = self.streams.iter().enumerate();
        let overtakes = others.any(|(other, stream)| {
            other != index && (stream.under_way.front()).is_some_and(|held| held.number < number)
        });
        self.overtaken += u64::from(overtakes);
    }

    /// Returns when the next write must arrive, if one is in flight.
    pub fn deadline(&self) -> Option<Instant> {
        let fronts = self.streams.iter().filter_map(|s| s.under_way.front());
        fronts.map(|held| held.latest).min()
    }

    /// Returns how many writes have overtaken earlier ones since the last call.
    pub fn take_overtaken(&mut self) -> u64 {
        std::mem::take(&mut self.overtaken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::chance::LONG;
    use super::*;

    const STREAMS: usize = 4;

    /// A step of the test.
    #[derive(Debug, Clone)]
    enum Operation {
        Post(usize, u64),
        Push(usize),
        Wait(Duration),
    }

    fn operations() -> impl Strategy<Value = Vec<Operation>> {
        let operation = prop_oneof![
            8 => (0..STREAMS, 0u64..9000).prop_map(|(stream, bytes)| Operation::Post(stream, bytes)),
            1 => (0..STREAMS).prop_map(Operation::Push),
            1 => (0u64..5_000).prop_map(|us| Operation::Wait(Duration::from_micros(us))),
        ];
        prop::collection::vec(operation, 0..200)
    }

    /// A run that numbers the writes and lets them arrive as `operations` says. Keeps the numbers
    /// that have arrived, and the stream of each write.
    struct Run {
        traffic: Traffic<usize>,
        now: Instant,
        streams: Vec<usize>,
        arrived: Vec<usize>,
    }

    fn chances(seed: u64) -> impl Iterator<Item = Option<Chance>> {
        (0..STREAMS as u64).map(move |stream| Some(Chance::new(seed, stream, LONG)))
    }

    impl Run {
        fn new(seed: u64) -> Self {
            Self {
                traffic: Traffic::new(chances(seed)),
                now: Instant::now(),
                streams: Vec::new(),
                arrived: Vec::new(),
            }
        }

        fn step(&mut self, operation: &Operation) {
            let arrive = |number| self.arrived.push(number);
            match *operation {
                Operation::Post(stream, bytes) => {
                    let number = self.streams.len();
                    self.streams.push(stream);
                    self.traffic.post(stream, (number, bytes), self.now, arrive);
                }
                Operation::Push(stream) => self.traffic.push([stream], self.now, arrive),
                Operation::Wait(time) => {
                    self.now += time;
                    self.traffic.arrive_due(self.now, arrive);
                }
            }
        }

        fn of_stream(&self, stream: usize, all: impl Iterator<Item = usize>) -> Vec<usize> {
            all.filter(|number| self.streams[*number] == stream)
                .collect()
        }
    }

    proptest! {
        #[test]
        fn stream_keeps_its_order_and_loses_nothing(seed: u64, operations in operations()) {
            let mut run = Run::new(seed);
            for operation in &operations {
                run.step(operation);
                if let Operation::Push(stream) = *operation {
                    // All writes of the stream have arrived.
                    let posted = run.of_stream(stream, 0..run.streams.len());
                    let arrived = run.of_stream(stream, run.arrived.iter().copied());
                    prop_assert_eq!(posted, arrived);
                }
                let held = run.traffic.streams.iter().map(|stream| stream.bytes);
                prop_assert!(held.max().is_none_or(|most| most <= MOST));
                prop_assert!(run.traffic.deadline().is_none_or(|deadline| deadline > run.now));
            }
            run.step(&Operation::Wait(Duration::from_secs(1)));
            prop_assert_eq!(run.arrived.len(), run.streams.len());
            prop_assert_eq!(run.traffic.deadline(), None);
            for stream in 0..STREAMS {
                let arrived = run.of_stream(stream, run.arrived.iter().copied());
                prop_assert!(arrived.is_sorted());
            }
        }

        #[test]
        fn same_seed_gives_the_same_arrivals(seed: u64, operations in operations()) {
            let (mut one, mut other) = (Run::new(seed), Run::new(seed));
            other.now += Duration::from_secs(9);
            for operation in &operations {
                one.step(operation);
                other.step(operation);
                prop_assert_eq!(&one.arrived, &other.arrived);
            }
        }

        /// Draws before another seed is given make no difference to later ones.
        #[test]
        fn seed_given_later_acts_like_a_fresh_one(
            seed: u64,
            before in operations(),
            operations in operations(),
        ) {
            let (mut fresh, mut other) = (Run::new(seed), Run::new(!seed));
            for operation in &before {
                other.step(operation);
            }
            other.step(&Operation::Wait(Duration::from_secs(1)));
            let earlier = other.arrived.len();
            other.traffic.draw_from(chances(seed));
            for operation in &operations {
                fresh.step(operation);
                other.step(operation);
                let later = other.arrived[earlier..].iter().map(|number| number - earlier);
                prop_assert_eq!(&fresh.arrived, &later.collect::<Vec<_>>());
            }
        }

        /// Of two writes of different streams, each can arrive first for some seed.
        #[test]
        fn different_streams_may_overtake_each_other(first in 0..STREAMS, second in 0..STREAMS) {
            prop_assume!(first != second);
            let overtaken = (0..100).filter(|seed| {
                let mut run = Run::new(*seed);
                run.step(&Operation::Post(first, 8));
                run.step(&Operation::Post(second, 8));
                let overtakes = run.arrived == [1];
                assert_eq!(run.traffic.take_overtaken(), u64::from(overtakes));
                overtakes
            });
            let count = overtaken.count();
            prop_assert!((5..95).contains(&count), "{count}");
        }
    }

    #[test]
    fn items_without_a_hold_arrive_at_once() {
        let mut traffic = Traffic::new([None, None]);
        let mut arrived = Vec::new();
        for number in 0..100 {
            let item = (number, 1 << 20);
            traffic.post(number % 3, item, Instant::now(), |item| arrived.push(item));
        }
        assert_eq!(arrived, (0..100).collect::<Vec<_>>());
        assert_eq!(traffic.take_overtaken(), 0);
    }
}
