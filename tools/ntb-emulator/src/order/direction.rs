// SPDX-License-Identifier: GPL-2.0
//! One direction of a link whose order is weak: from the initiators of one end to the other end.
//!
//! What arrives does so with the lock of the direction held, so in the order that the model says.
//! Who calls holds no other lock of a link: arriving takes those.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Condvar;
use parking_lot::Mutex;

use super::Engines;
use super::Initiator;
use super::WeakOrder;
use super::chance::Chance;
use super::chance::LONG;
use super::chance::SHORT;
use super::traffic::Traffic;
use crate::counters::Counters;

/// A write under way, of a session of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// Through a window.
    Write {
        /// Which one.
        window: usize,
        /// Where in it.
        offset: u64,
        /// What.
        data: Vec<u8>,
        /// How often the link has gone down before.
        session: u64,
    },
    /// Doorbells of one write.
    Bell {
        /// Which ones, as bits.
        sources: u64,
        /// As above.
        session: u64,
    },
}

impl Posted {
    fn bytes(&self) -> u64 {
        match self {
            Self::Write { data, .. } => data.len() as u64,
            Self::Bell { .. } => 4,
        }
    }
}

/// See the head of this file.
pub struct Direction {
    traffic: Mutex<Traffic<Posted>>,
    /// Something is under way that was not before.
    posted: Condvar,
    engines: Engines,
    streams: usize,
    /// The number of this direction among all of the emulator.
    number: usize,
    /// Whether what processors store may be held.
    sees_stores: bool,
    counters: Arc<Counters>,
}

impl Direction {
    /// The one with this number of all of an emulator, from an end with so many engines.
    /// `sees_stores` says whether processors have no way to the other end but through what traps: else
    /// some of their stores are there at once, and so all have to be.
    pub fn new(order: WeakOrder, number: usize, engines: usize, sees_stores: bool) -> Self {
        let streams = Initiator::streams(engines);
        let traffic = Traffic::new(Self::chances(order.seed, number, streams, sees_stores));
        Self {
            traffic: Mutex::new(traffic),
            posted: Condvar::new(),
            engines: order.engines,
            streams,
            number,
            sees_stores,
            counters: Arc::default(),
        }
    }

    fn chances(
        seed: u64,
        number: usize,
        streams: usize,
        sees_stores: bool,
    ) -> impl Iterator<Item = Option<Chance>> {
        (0..streams).map(move |stream| {
            let holds = sees_stores || stream != Initiator::Processor.stream();
            let number = (number * 256 + stream) as u64;
            let shortest = match stream < Initiator::Engine(0).stream() {
                true => SHORT,
                false => LONG,
            };
            holds.then(|| Chance::new(seed, number, shortest))
        })
    }

    /// From now on all follows from this seed, as if the emulator had just started: the next write of
    /// each stream is its first. What is under way is held for as long as it was to be.
    pub fn reseed(&self, seed: u64) {
        let chances = Self::chances(seed, self.number, self.streams, self.sees_stores);
        self.traffic.lock().draw_from(chances);
    }

    /// Those of the function that sends.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Somebody writes.
    pub fn post(&self, initiator: Initiator, posted: Posted, arrive: impl FnMut(Posted)) {
        let mut traffic = self.traffic.lock();
        let bytes = posted.bytes();
        traffic.post(initiator.stream(), (posted, bytes), Instant::now(), arrive);
        self.count(&mut traffic);
        self.posted.notify_one();
    }

    /// Somebody of the end that sends reads from the other one: that stays behind what he has written,
    /// and those with whom he shares the way.
    pub fn push(&self, reader: Initiator, arrive: impl FnMut(Posted)) {
        self.push_streams(self.way_of(reader), arrive);
    }

    /// The answer to a read by the other end comes this way: behind what the processors have written
    /// before, as it comes from their root, too. Not if it is for an engine in the switch: that is
    /// where their ways part.
    pub fn push_by_answer(&self, reader: Initiator, arrive: impl FnMut(Posted)) {
        match (reader, self.engines) {
            (Initiator::Engine(_), Engines::Switch) => {}
            _ => self.push_streams(self.way_of(Initiator::Processor), arrive),
        }
    }

    /// The streams that share the way with an initiator. No doorbell: the bridge makes it.
    fn way_of(&self, initiator: Initiator) -> Vec<usize> {
        match self.engines {
            Engines::Switch => vec![initiator.stream()],
            Engines::Root => (0..self.streams)
                .filter(|stream| *stream != Initiator::Bell.stream())
                .collect(),
        }
    }

    fn push_streams(&self, streams: Vec<usize>, arrive: impl FnMut(Posted)) {
        let mut traffic = self.traffic.lock();
        traffic.push(streams, Instant::now(), arrive);
        self.count(&mut traffic);
    }

    fn count(&self, traffic: &mut Traffic<Posted>) {
        let overtaken = traffic.take_overtaken();
        self.counters.overtaken.fetch_add(overtaken, Relaxed);
    }

    /// Lets arrive what nobody else does, for ever.
    pub fn run(&self, mut arrive: impl FnMut(Posted)) -> ! {
        let mut traffic = self.traffic.lock();
        loop {
            traffic.arrive_due(Instant::now(), &mut arrive);
            self.count(&mut traffic);
            match traffic.deadline() {
                Some(deadline) => {
                    self.posted.wait_until(&mut traffic, deadline);
                }
                None => self.posted.wait(&mut traffic),
            }
        }
    }
}
