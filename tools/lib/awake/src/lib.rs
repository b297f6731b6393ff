// SPDX-License-Identifier: LGPL-2.1

//! Polling for a moment before a sleep, as long as that has paid off lately.
//!
//! The peer rings no doorbell for a waiter that has not said that it sleeps. So an event during the
//! polling takes neither an interrupt nor a wake-up. The longest time is what the driver allows its
//! own calls (`busy_poll_us`). If a wait completes within that time, the next waits poll for twice
//! as long as it took. If it does not, the next waits poll for a shorter time, down to none at all.
//! Two processes that wake each other would never learn how fast they could be. So now and then a
//! few waits in a row may poll for the longest time. Chance decides which: both processes count the
//! same waits, and their trials must fall together.

use std::fs;
use std::hash::BuildHasher;
use std::hash::Hasher;
use std::hash::RandomState;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

/// The parameter by which an administrator allows polling, in microseconds.
const PARAMETER: &str = "/sys/module/scif/parameters/busy_poll_us";

/// The longest time to poll, whatever the parameter says.
const LONGEST: Duration = Duration::from_millis(10);

/// Time for which a value of the parameter is used before the parameter is read again.
const BELIEVED: Duration = Duration::from_millis(100);

/// The shortest time to poll: a shorter one is not worth reading the clock.
const FIRST: Duration = Duration::from_micros(8);

/// Number of waits in a row that all try to poll, or all do not.
const IN_A_ROW: u64 = 4;

/// Number of bits of chance: one row in 2^`ROWS_BITS` tries to poll.
const ROWS_BITS: u32 = 2;

#[derive(Clone, Copy)]
struct Lesson {
    now: Duration,
    most: Duration,
    waits: u64,
    seed: u64,
    read: Option<Instant>,
}

/// The polling time of one kind of wait, learnt from earlier waits.
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
        // The upper bits of the product are well mixed, as the factor is odd and has many bits.
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
    /// Creates a value that has learnt nothing yet.
    pub fn new() -> Self {
        Self(Mutex::new(Lesson {
            now: Duration::ZERO,
            most: Duration::ZERO,
            waits: 0,
            seed: RandomState::new().build_hasher().finish(),
            read: None,
        }))
    }

    /// Locks the lesson. A panic leaves it consistent.
    fn lesson(&self) -> MutexGuard<'_, Lesson> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how long to poll now.
    pub fn limit(&self) -> Duration {
        let mut lesson = self.lesson();
        if lesson.read.is_none_or(|read| read.elapsed() > BELIEVED) {
            lesson.allow(allowed());
            lesson.read = Some(Instant::now());
        }
        lesson.limit()
    }

    /// Learns from a wait that took so long, including the sleep.
    pub fn learn(&self, waited: Duration) {
        self.lesson().learn(waited);
    }

    /// Learns from a wait of so long in which nothing came.
    pub fn learn_of_nothing(&self, waited: Duration) {
        let mut lesson = self.lesson();
        // A caller that hardly waits learns nothing.
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
    fn long_waits_soon_lower_the_polling_limit_to_zero() {
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
    fn short_waits_raise_the_polling_limit() {
        let mut lesson = lesson(200);
        lesson.now = Duration::ZERO;
        lesson.learn(Duration::from_micros(30));
        lesson.learn(Duration::from_micros(20));
        assert_eq!(lesson.limit(), Duration::from_micros(60));
        lesson.learn(Duration::from_micros(150));
        assert_eq!(lesson.limit(), Duration::from_micros(200));
    }

    #[test]
    fn zero_maximum_never_polls() {
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
