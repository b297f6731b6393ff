// SPDX-License-Identifier: GPL-2.0
//! An engine that takes its time: [`Pace`] says when something is over, this waits for it.
//!
//! Used by the thread of its engine alone; the lock is for that of the reader.

use std::sync::Arc;

use parking_lot::Mutex;

use super::clock::Clock;
use super::pace::Pace;
use super::picoseconds::Picoseconds;
use crate::bus::Route;

/// The most that is copied at once: what others wait for where a lane is shared, and by how
/// much the first byte of a copy is later than it might be.
pub const CHUNK: u64 = 64 << 10;

/// How long it sleeps without a look whether it is to stop.
const SLICE: Picoseconds = Picoseconds::nanoseconds(10_000_000);

/// An engine's pace, and the clock it goes by.
pub struct Pacer {
    pace: Mutex<Pace>,
    clock: Arc<dyn Clock>,
}

impl Pacer {
    /// An engine that keeps that pace.
    pub fn new(pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self {
            pace: Mutex::new(pace),
            clock,
        }
    }

    /// It finds a descriptor. Returns how many microseconds are lost for ever.
    pub fn begin(&self) -> u64 {
        let mut pace = self.pace.lock();
        pace.begin(self.clock.now());
        pace.take_lost()
    }

    /// It goes on with a copy.
    pub fn copy(&self, route: &Route) {
        self.pace.lock().copy(self.clock.now(), route);
    }

    /// It finds nothing more to do.
    pub fn idle(&self) {
        self.pace.lock().idle();
    }

    /// Waits until what it was given is over, or until it is to stop. Returns whether it is
    /// over.
    pub fn wait(&self, stop: impl Fn() -> bool) -> bool {
        let end = self.pace.lock().time();
        loop {
            if stop() {
                return false;
            }
            let now = self.clock.now();
            if now >= end {
                return true;
            }
            self.clock.sleep_until(end.min(now + SLICE));
        }
    }
}
