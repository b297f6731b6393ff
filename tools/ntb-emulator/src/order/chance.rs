// SPDX-License-Identifier: GPL-2.0
//! For how long writes are held: one draw for each, from a generator that the seed and the stream
//! decide. So the n-th write of a stream is held for as many operations in each run.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use rand_chacha::rand_core::SeedableRng;

/// A write is held for up to two to this operations.
const MOST_OPERATIONS: u32 = 8;

/// How often the least time for which a write is held is doubled at most.
const MOST_DOUBLINGS: u32 = 6;

/// For processors and doorbells: what follows them does so soon, and much waits for them.
pub const SHORT: Duration = Duration::from_micros(50);
/// For engines: until their guest has noticed what they report, and the other one what that says, takes
/// milliseconds where guests are emulated.
pub const LONG: Duration = Duration::from_micros(500);

/// How long a write is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Until so many operations have followed in its direction.
    pub operations: u64,
    /// However few those are, not for longer than this.
    pub time: Duration,
}

/// The draws of one stream.
pub struct Chance {
    generator: ChaCha8Rng,
    shortest: Duration,
}

impl Chance {
    /// Those of the stream with this number, of all that the seed is for; what is held is so for no less
    /// than `shortest`, unless operations say so.
    pub fn new(seed: u64, stream: u64, shortest: Duration) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(stream);
        Self {
            generator,
            shortest,
        }
    }

    /// For the next write. Half of them are not held; of the others, short times are as likely as
    /// long ones.
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
    fn the_seed_and_the_stream_decide() {
        assert_eq!(draws(7, 2), draws(7, 2));
        assert_ne!(draws(7, 2), draws(8, 2));
        assert_ne!(draws(7, 2), draws(7, 3));
    }

    #[test]
    fn some_are_held_for_long_and_some_not_at_all() {
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
