// SPDX-License-Identifier: GPL-2.0
//! One direction of a link whose order is weak: from the initiators of one end to the other end.
//!
//! Writes arrive with the lock of the direction held, so in the order of the model. The caller
//! holds no other lock of a link: an arriving write takes those locks.

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

/// A write in flight, of a session of the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// A write through a window.
    Write {
        /// The window.
        window: usize,
        /// The offset in the window.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// Number of times that the link had gone down when the write was posted.
        session: u64,
    },
    /// Doorbells of one write.
    Bell {
        /// The doorbells, as bits.
        sources: u64,
        /// Number of times that the link had gone down when the doorbells were posted.
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

/// One direction of a link whose order is weak.
pub struct Direction {
    traffic: Mutex<Traffic<Posted>>,
    /// Signalled when a new write is in flight.
    posted: Condvar,
    engines: Engines,
    streams: usize,
    /// The number of this direction among all directions of the emulator.
    number: usize,
    /// Whether stores of CPUs may be held.
    sees_stores: bool,
    counters: Arc<Counters>,
}

impl Direction {
    /// Creates the direction with this number, from an end with this number of engines.
    /// `sees_stores` says that CPUs reach the other end only through accesses that trap. If they do
    /// not, some of their stores arrive at once, and so all of them must.
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

    /// Makes all decisions follow from this seed from now on, as if the emulator had just started:
    /// the next write of each stream is its first. Writes in flight keep their times.
    pub fn reseed(&self, seed: u64) {
        let chances = Self::chances(seed, self.number, self.streams, self.sees_stores);
        self.traffic.lock().draw_from(chances);
    }

    /// Returns the counters of the function that sends.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Posts a write.
    pub fn post(&self, initiator: Initiator, posted: Posted, arrive: impl FnMut(Posted)) {
        let mut traffic = self.traffic.lock();
        let bytes = posted.bytes();
        traffic.post(initiator.stream(), (posted, bytes), Instant::now(), arrive);
        self.count(&mut traffic);
        self.posted.notify_one();
    }

    /// Pushes writes ahead of a read by an initiator of the sending end. The read stays behind the
    /// initiator's own writes, and behind those of initiators that share its way.
    pub fn push(&self, reader: Initiator, arrive: impl FnMut(Posted)) {
        self.push_streams(self.way_of(reader), arrive);
    }

    /// Pushes writes ahead of the answer to a read by the other end. The answer stays behind
    /// earlier writes of the CPUs, as it comes from their root, too. Not if the answer is for an
    /// engine in the switch: there its way and theirs part.
    pub fn push_by_answer(&self, reader: Initiator, arrive: impl FnMut(Posted)) {
        match (reader, self.engines) {
            (Initiator::Engine(_), Engines::Switch) => {}
            _ => self.push_streams(self.way_of(Initiator::Processor), arrive),
        }
    }

    /// Returns the streams that share the way with an initiator. Doorbells never do: the bridge
    /// makes them.
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

    /// Lets writes arrive that no other call delivers, for ever.
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
