// SPDX-License-Identifier: GPL-2.0
//! An engine that takes its time: [`Pace`] computes when an operation is over, and the pacer waits
//! for it.
//!
//! Only the thread of its engine uses it. The lock is there because the engine is shared.

use std::sync::Arc;

use parking_lot::Mutex;

use super::clock::Clock;
use super::pace::Pace;
use super::picoseconds::Picoseconds;
use crate::bus::Route;

/// Largest size that is copied at once. Other engines wait that long where a lane is shared, and
/// the first byte of a copy is late by that much.
pub const CHUNK: u64 = 64 << 10;

/// Longest sleep without a check whether to stop.
const SLICE: Picoseconds = Picoseconds::nanoseconds(10_000_000);

/// The pace of an engine, and the clock of the pace.
pub struct Pacer {
    pace: Mutex<Pace>,
    clock: Arc<dyn Clock>,
}

impl Pacer {
    /// Creates a pacer for this pace.
    pub fn new(pace: Pace, clock: Arc<dyn Clock>) -> Self {
        Self {
            pace: Mutex::new(pace),
            clock,
        }
    }

    /// Begins a descriptor. Returns how many microseconds are lost for ever.
    pub fn begin(&self) -> u64 {
        let mut pace = self.pace.lock();
        pace.begin(self.clock.now());
        pace.take_lost()
    }

    /// Continues a copy.
    pub fn copy(&self, route: &Route) {
        self.pace.lock().copy(self.clock.now(), route);
    }

    /// Notes that the engine has no more work.
    pub fn idle(&self) {
        self.pace.lock().idle();
    }

    /// Waits until the work so far is over, or until `stop` returns true. Returns whether the work
    /// is over.
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
