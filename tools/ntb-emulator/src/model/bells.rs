// SPDX-License-Identifier: GPL-2.0
//! Doorbells under way across a link that takes time. Those of one direction arrive in the
//! order in which they were rung, so a queue and a thread for each will do.

use std::sync::mpsc::Receiver;
use std::sync::mpsc::Sender;
use std::sync::mpsc::channel;

use super::clock::Clock;
use super::picoseconds::Picoseconds;

/// A doorbell under way.
struct Bell {
    arrival: Picoseconds,
    source: usize,
}

/// Where doorbells are rung.
pub struct Rope(Sender<Bell>);

/// Where they arrive.
pub struct Bells(Receiver<Bell>);

/// One direction.
pub fn bells() -> (Rope, Bells) {
    let (sender, receiver) = channel();
    (Rope(sender), Bells(receiver))
}

impl Rope {
    /// A doorbell that arrives then. After the ones before it, if that is later.
    pub fn ring(&self, source: usize, arrival: Picoseconds) {
        // If nobody listens any more, the process is about to end.
        let _ = self.0.send(Bell { arrival, source });
    }
}

impl Bells {
    /// Returns the next one when it arrives, or nothing if nobody is left to ring.
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
    fn none_arrives_early_or_out_of_order() {
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
