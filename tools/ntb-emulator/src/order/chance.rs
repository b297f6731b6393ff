// SPDX-License-Identifier: GPL-2.0
//! The times for which writes are held: one draw for each write, from a generator that depends on
//! the seed and the stream. So in each run the n-th write of a stream is held for the same number
//! of operations.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use rand_chacha::rand_core::SeedableRng;

/// A write is held for up to 2^`MOST_OPERATIONS` operations.
const MOST_OPERATIONS: u32 = 8;

/// The least time for which a write is held is doubled up to this number of times.
const MOST_DOUBLINGS: u32 = 6;

/// The least time for CPUs and doorbells: the operations that follow them come soon, and much waits
/// for them.
pub const SHORT: Duration = Duration::from_micros(50);
/// The least time for engines: where guests are emulated, milliseconds pass until the engine's
/// guest has noticed its report and the other guest has seen the effect.
pub const LONG: Duration = Duration::from_micros(500);

/// The length of time that a write is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// However few operations follow, the write is not held for longer than this.
    pub operations: u64,
    /// However few operations follow, the write is not held for longer than this.
    pub time: Duration,
}

/// The draws of one stream.
pub struct Chance {
    generator: ChaCha8Rng,
    shortest: Duration,
}

impl Chance {
    /// Creates the draws of the stream with this number, of all streams of the seed. A write that
    /// is held is held for at least `shortest`, unless operations release it.
    pub fn new(seed: u64, stream: u64, shortest: Duration) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self {
            generator,
            shortest,
        }
    }

    /// Draws for the next write. Half of the writes are not held; for the others, short times are
    /// as likely as long ones.
    pub fn draw(&mut self) -> Option<Hold> {
        let bits = self.generator.next_u64();
        let part = |from: u32, choices: u32| (bits >> from) as u32 % choices;
        if bits & 1 == 0 {
            return None;
        }
        Some(Hold {
            operations: 1 << part(1, MOST_OPERATIONS + 1),
            time: self.shortest * (1 << part(32, MOST_DOUBLINGS + 1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, stream: u64) -> Vec<Option<Hold>> {
        let mut chance = Chance::new(seed, stream, LONG);
        (0..1000).map(|_| chance.draw()).collect()
    }

    #[test]
    fn seed_and_stream_determine_the_draws() {
        assert_eq!(draws(7, 2), draws(7, 2));
        assert_ne!(draws(7, 2), draws(8, 2));
        assert_ne!(draws(7, 2), draws(7, 3));
    }

    #[test]
    fn some_writes_are_held_long_and_some_not_at_all() {
        let all = draws(1, 0);
        let held: Vec<Hold> = all.iter().copied().flatten().collect();
        assert!((400..600).contains(&held.len()), "{}", held.len());
        for operations in [1, 256] {
            assert!(held.iter().any(|hold| hold.operations == operations));
        }
        for time in [LONG, Duration::from_millis(32)] {
            assert!(held.iter().any(|hold| hold.time == time));
        }
    }
}
