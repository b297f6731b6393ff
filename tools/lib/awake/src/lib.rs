// SPDX-License-Identifier: LGPL-2.1

//! Staying awake for a moment before a sleep, as long as that has been worth it lately.
//!
//! The peer rings no doorbell for who has not said that it sleeps, so what comes meanwhile takes neither an
//! interrupt nor a wake-up. How long at most is what the driver allows its own calls (`busy_poll_us`). A wait
//! that was over within that makes the next ones stay awake for twice as long as it took, one that was not makes
//! them shorter, down to nothing. Two who wake each other would never learn how fast they could be; so now and then
//! a few waits in a row are given all the time. When that is, is left to chance: those of the other must fall together
//! with them, and both count the same waits.

use std::fs;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::hash::RandomState;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// What an administrator allows, in microseconds.
const PARAMETER: &str = "/sys/module/scif/parameters/busy_poll_us";

/// The longest, whatever the parameter says.
const LONGEST: Duration = Duration::from_millis(10);

/// How long what was read of it is believed.
const BELIEVED: Duration = Duration::from_millis(100);

/// Less is not worth looking at the clock.
const FIRST: Duration = Duration::from_micros(8);

/// So many waits in a row try to stay awake, or do not.
const IN_A_ROW: u64 = 4;

/// One of so many such rows does, as a power of two.
const ROWS_BITS: u32 = 2;

#[derive(Clone, Copy)]
struct Lesson {
    now: Duration,
    most: Duration,
    waits: u64,
    seed: u64,
    read: Option<Instant>,
}

/// See the head of this file.
pub struct Awake(Mutex<Lesson>);

impl Default for Awake {
    fn default() -> Self {
        Self::new()
    }
}

fn allowed() -> Duration {
    let text = fs::read_to_string(PARAMETER).unwrap_or_default();
    let microseconds = text.trim().parse().unwrap_or(0);
    Duration::from_micros(microseconds).min(LONGEST)
}

impl Lesson {
    fn limit(&mut self) -> Duration {
        self.waits = self.waits.wrapping_add(1);
        match self.now.is_zero() && self.tries() {
            true => self.most,
            false => self.now,
        }
    }

    fn tries(&self) -> bool {
        let row = (self.waits / IN_A_ROW) ^ self.seed;
        // Its upper bits are well mixed, as the factor is odd and has many bits.
        row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ROWS_BITS) == 0
    }

    fn learn(&mut self, waited: Duration) {
        let next = match waited <= self.most {
            true => self.now.max(waited * 2).max(FIRST),
            false if self.now / 2 < FIRST => Duration::ZERO,
            false => self.now / 2,
        };
        self.now = next.min(self.most);
    }

    fn allow(&mut self, most: Duration) {
        if self.read.is_none() {
            self.now = most;
        }
        self.most = most;
        self.now = self.now.min(most);
    }
}

impl Awake {
    /// With nothing learnt.
    pub fn new() -> Self {
        Self(Mutex::new(Lesson {
            now: Duration::ZERO,
            most: Duration::ZERO,
            waits: 0,
            seed: RandomState::new().build_hasher().finish(),
            read: None,
        }))
    }

    /// A panic leaves it consistent.
    fn lesson(&self) -> MutexGuard<'_, Lesson> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to stay awake now.
    pub fn limit(&self) -> Duration {
        let mut lesson = self.lesson();
        if lesson.read.is_none_or(|read| read.elapsed() > BELIEVED) {
            lesson.allow(allowed());
            lesson.read = Some(Instant::now());
        }
        lesson.limit()
    }

    /// A wait took so long, sleep and all.
    pub fn learn(&self, waited: Duration) {
        self.lesson().learn(waited);
    }

    /// Nothing has come in that time.
    pub fn learn_of_nothing(&self, waited: Duration) {
        let mut lesson = self.lesson();
        // Who hardly waits learns nothing.
        if waited >= lesson.most {
            lesson.learn(Duration::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lesson(most: u64) -> Lesson {
        let mut lesson = Lesson {
            now: Duration::ZERO,
            most: Duration::ZERO,
            waits: 0,
            seed: 7,
            read: None,
        };
        lesson.allow(Duration::from_micros(most));
        lesson.read = Some(Instant::now());
        lesson
    }

    #[test]
    fn who_waits_long_soon_sleeps_at_once() {
        let mut lesson = lesson(200);
        assert_eq!(lesson.limit(), Duration::from_micros(200));
        for _ in 0..6 {
            lesson.learn(Duration::from_millis(5));
        }
        let limits: Vec<_> = (0..4000).map(|_| lesson.limit()).collect();
        let tries = limits.iter().filter(|limit| !limit.is_zero()).count();
        assert!((800..1200).contains(&tries), "{tries}");
    }

    #[test]
    fn who_is_answered_in_time_stays_awake() {
        let mut lesson = lesson(200);
        lesson.now = Duration::ZERO;
        lesson.learn(Duration::from_micros(30));
        lesson.learn(Duration::from_micros(20));
        assert_eq!(lesson.limit(), Duration::from_micros(60));
        lesson.learn(Duration::from_micros(150));
        assert_eq!(lesson.limit(), Duration::from_micros(200));
    }

    #[test]
    fn nobody_stays_awake_who_may_not() {
        let mut lesson = lesson(0);
        for _ in 0..20 {
            assert!(lesson.limit().is_zero());
            lesson.learn(Duration::from_micros(1));
        }
        lesson.allow(Duration::from_micros(100));
        lesson.learn(Duration::from_micros(1));
        assert_eq!(lesson.limit(), FIRST);
    }
}
