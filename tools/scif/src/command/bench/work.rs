// SPDX-License-Identifier: GPL-2.0

//! An operation that can be repeated on one connection, and the times that it took.

use crate::error::Result;
use std::time::Duration;
use std::time::Instant;

/// The operation to measure.
///
/// A batch of `count` steps is between [`Work::begin`] and [`Work::end`]. The work of these two for
/// the sake of the measurement is no part of any step. But `end` waits until everything that the
/// steps have started is complete.
pub trait Work: Send {
    /// Prepares a batch of `count` steps.
    fn begin(&mut self, count: u64) -> Result<()>;
    /// Does one step.
    fn step(&mut self, times: &mut Times) -> Result<()>;
    /// Ends a batch after all its steps.
    fn end(&mut self, times: &mut Times) -> Result<()>;
}

/// The times of the parts of steps, in the order in which the parts were done.
#[derive(Clone, Debug)]
pub struct Times {
    parts: Vec<Vec<Duration>>,
}

impl Times {
    /// Makes room for that many parts, each of `count` steps. Without parts the clock is never
    /// read.
    pub fn new(parts: usize, count: u64) -> Self {
        let capacity = count.min(1 << 20) as usize;
        Self {
            parts: (0..parts).map(|_| Vec::with_capacity(capacity)).collect(),
        }
    }

    /// Does a part of a step.
    pub fn part<R>(&mut self, part: usize, work: impl FnOnce() -> R) -> R {
        match self.parts.get_mut(part) {
            Some(times) => {
                let started = Instant::now();
                let result = work();
                times.push(started.elapsed());
                result
            }
            None => work(),
        }
    }

    /// Adds the times of another thread.
    pub fn append(&mut self, other: Self) {
        for (own, mut others) in self.parts.iter_mut().zip(other.parts) {
            own.append(&mut others);
        }
    }

    /// Returns the times of each part.
    pub fn into_parts(self) -> Vec<Vec<Duration>> {
        self.parts
    }
}
