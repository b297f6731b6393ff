// SPDX-License-Identifier: GPL-2.0
//! What is under way in one direction of a link, and what of it arrives when.
//!
//! - A stream keeps its order: nothing arrives before what was posted to the same stream earlier.
//! - Each write is held, or not, for as many operations as its stream draws; an operation is a write
//!   of any stream, or a read that pushes. Whoever waits for something else than an operation waits
//!   in vain, so what is held arrives after a time at the latest.
//! - A stream does not hold more than a bridge would: then the oldest arrive.
//! - What is pushed arrives before [`Traffic::push`] returns.
//!
//! No clock and no memory here: the caller says what time it is, and is told what arrives.

use std::collections::VecDeque;
use std::time::Instant;

use super::chance::Chance;

/// The most that a stream holds, in bytes.
const MOST: u64 = 64 << 10;

/// A write that has not arrived.
struct Held<T> {
    item: T,
    bytes: u64,
    /// Its place among all that were posted.
    number: u64,
    /// After which operation it arrives, and when at the latest.
    operation: u64,
    latest: Instant,
}

struct Stream<T> {
    /// None if nothing of it is held.
    chance: Option<Chance>,
    under_way: VecDeque<Held<T>>,
    bytes: u64,
}

/// See the head of this file.
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
    /// Streams that draw like this; one without a chance is not held.
    pub fn new(chances: impl IntoIterator<Item = Option<Chance>>) -> Self {
        Self {
            streams: chances.into_iter().map(Stream::new).collect(),
            operations: 0,
            overtaken: 0,
        }
    }

    /// The streams draw like this from now on; what is under way stays as it is.
    pub fn draw_from(&mut self, chances: impl IntoIterator<Item = Option<Chance>>) {
        for (stream, chance) in self.streams.iter_mut().zip(chances) {
            stream.chance = chance;
        }
    }

    /// Something is written. `arrive` gets what arrives now, in order. A stream that does not exist
    /// holds nothing.
    pub fn post(
        &mut self,
        stream: usize,
        (item, bytes): (T, u64),
        now: Instant,
        mut arrive: impl FnMut(T),
    ) {
        self.operations += 1;
        // What was due before.
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

    /// A read pushes these streams ahead of it.
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

    /// What has to arrive by now does.
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

    /// Something of a stream arrives: counts it if it was not the first to be posted.
    fn note(&mut self, index: usize, number: u64) {
        let mut others = self.streams.iter().enumerate();
        let overtakes = others.any(|(other, stream)| {
            other != index && (stream.under_way.front()).is_some_and(|held| held.number < number)
        });
        self.overtaken += u64::from(overtakes);
    }

    /// When something has to arrive, if something is under way.
    pub fn deadline(&self) -> Option<Instant> {
        let fronts = self.streams.iter().filter_map(|s| s.under_way.front());
        fronts.map(|held| held.latest).min()
    }

    /// How many have overtaken something that was posted before, since this was asked last.
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

    /// What somebody does.
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

    /// Numbers the writes, and has them arrive where `operations` says. After each operation the
    /// numbers that have arrived, and the stream of each write.
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
        fn a_stream_keeps_its_order_and_loses_nothing(seed: u64, operations in operations()) {
            let mut run = Run::new(seed);
            for operation in &operations {
                run.step(operation);
                if let Operation::Push(stream) = *operation {
                    // All of it is there.
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
        fn the_same_seed_does_the_same(seed: u64, operations in operations()) {
            let (mut one, mut other) = (Run::new(seed), Run::new(seed));
            other.now += Duration::from_secs(9);
            for operation in &operations {
                one.step(operation);
                other.step(operation);
                prop_assert_eq!(&one.arrived, &other.arrived);
            }
        }

        /// What was drawn before another seed is given makes no difference to what comes after it.
        #[test]
        fn a_seed_can_be_given_later(
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

        /// Whatever two streams write, one after the other, comes in either order for some seed.
        #[test]
        fn streams_overtake_each_other(first in 0..STREAMS, second in 0..STREAMS) {
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
    fn what_is_not_held_arrives_at_once() {
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
