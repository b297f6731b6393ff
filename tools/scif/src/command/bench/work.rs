// SPDX-License-Identifier: GPL-2.0

//! Something that can be done many times on one connection, and how long it took each time.

use crate::error::Result;
use std::time::Duration;
use std::time::Instant;

/// What is measured.
///
/// A batch of `count` steps is between [`Work::begin`] and [`Work::end`]; what these two do for the
/// sake of the measurement is no part of any step, but `end` waits until all that the steps have
/// started is done.
pub trait Work: Send {
    /// A batch of so many steps is to come.
    fn begin(&mut self, count: u64) -> Result<()>;
    /// Does it once.
    fn step(&mut self, times: &mut Times) -> Result<()>;
    /// All steps have been done.
    fn end(&mut self, times: &mut Times) -> Result<()>;
}

/// How long the parts of steps took, in the order in which they were done.
#[derive(Clone, Debug)]
pub struct Times {
    parts: Vec<Vec<Duration>>,
}

impl Times {
    /// For that many parts, each of `count` steps. Without parts nobody looks at a clock.
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

    /// Adds those of another thread.
    pub fn append(&mut self, other: Self) {
        for (own, mut others) in self.parts.iter_mut().zip(other.parts) {
            own.append(&mut others);
        }
    }

    /// Those of each part.
    pub fn into_parts(self) -> Vec<Vec<Duration>> {
        self.parts
    }
}
