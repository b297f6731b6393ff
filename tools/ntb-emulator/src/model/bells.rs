// SPDX-License-Identifier: GPL-2.0
//! Doorbells in flight across a link that takes time. The doorbells of one direction arrive in the
//! order in which they were rung, so each direction has a queue and a thread.

use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;

use super::clock::Clock;
use super::picoseconds::Picoseconds;

/// A doorbell in flight.
struct Bell {
    arrival: Picoseconds,
    source: usize,
}

/// The sending side of doorbells.
pub struct Rope(Sender<Bell>);

/// The receiving side of doorbells.
pub struct Bells(Receiver<Bell>);

/// Creates both sides of one direction.
pub fn bells() -> (Rope, Bells) {
    let (sender, receiver) = channel();
    (Rope(sender), Bells(receiver))
}

impl Rope {
    /// Rings a doorbell that arrives at `arrival`, or after the ones before it if that is later.
    pub fn ring(&self, source: usize, arrival: Picoseconds) {
        // If the receiver is gone, the process is about to end.
        let _ = self.0.send(Bell { arrival, source });
    }
}

impl Bells {
    /// Waits until the next doorbell arrives, and returns it. Returns nothing if the sender is
    /// gone.
    pub fn next(&self, clock: &dyn Clock) -> Option<usize> {
        let Bell { arrival, source } = self.0.recv().ok()?;
        clock.sleep_until(arrival);
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::fake::Fake;
    use super::*;

    #[test]
    fn doorbells_arrive_in_order_and_not_early() {
        let at = Picoseconds::nanoseconds;
        let clock = Fake::default();
        let (rope, bells) = bells();
        for (source, arrival) in [(3, 100), (1, 100), (2, 50), (7, 400)] {
            rope.ring(source, at(arrival));
        }
        drop(rope);
        for expected in [(3, at(100)), (1, at(100)), (2, at(100)), (7, at(400))] {
            let source = bells.next(&clock).unwrap();
            assert_eq!((source, clock.now()), expected);
        }
        assert_eq!(bells.next(&clock), None);
    }
}
