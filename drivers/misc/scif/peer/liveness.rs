// SPDX-License-Identifier: GPL-2.0

//! Signs of life.
//!
//! Both sides count up a word in the other's memory, driven by the ticks of the transport. A word
//! that stands still for too long means that the peer is lost. So does an answer that does not come in
//! time: others can live on a peer that beats and does nothing else, but nobody who waits for it. All
//! functions may be called in any context, those of one peer one at a time, but for those of a [`Countdown`]
//! that set it.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The time within which the peer has to do something, if it has to. All times are in milliseconds.
pub(crate) struct Countdown {
    /// 0 if it does not run.
    limit: Atomic<u32>,
    passed: Atomic<u32>,
}

impl Countdown {
    pub(super) const fn new(limit: u32) -> Self {
        Self {
            limit: Atomic::new(limit),
            passed: Atomic::new(0),
        }
    }

    /// Begins anew, or stops.
    pub(crate) fn set(&self, limit: Option<u32>) {
        self.restart();
        self.allow(limit.unwrap_or(0));
    }

    /// Gives more or less time, from when it has begun; 0 stops it.
    pub(crate) fn allow(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
    }

    /// Begins anew if it runs: a part of what is waited for has come.
    pub(crate) fn restart(&self) {
        self.passed.store(0, Relaxed);
    }

    pub(super) fn runs(&self) -> bool {
        self.limit.load(Relaxed) != 0
    }

    /// Whether it is over, `milliseconds` after the last look. It stays so until it begins anew.
    pub(super) fn is_over_after(&self, milliseconds: u32) -> bool {
        let limit = self.limit.load(Relaxed);
        if limit == 0 {
            return false;
        }
        let passed = self.passed.load(Relaxed);
        let now = passed.saturating_add(milliseconds);
        // If it has just begun anew, that counts.
        self.passed.cmpxchg(passed, now, Relaxed).is_ok() && now >= limit
    }
}

/// See the head of this file.
pub(crate) struct Liveness {
    /// In milliseconds.
    timeout: u32,
    own_beat: Atomic<u64>,
    last_peer_beat: Atomic<u64>,
    /// For the next sign of life.
    beat: Countdown,
    /// For the copies that the peer makes for this node.
    pub(crate) pushes: Countdown,
    /// For the slots that the peer has to empty.
    pub(crate) staging: Countdown,
}

impl Liveness {
    pub(super) const fn new(timeout: u32) -> Self {
        Self {
            timeout,
            own_beat: Atomic::new(0),
            last_peer_beat: Atomic::new(0),
            beat: Countdown::new(timeout),
            pushes: Countdown::new(0),
            staging: Countdown::new(0),
        }
    }

    /// Whether the peer does not do in time what it was asked for, `milliseconds` after the last look.
    pub(super) fn is_overdue(&self, milliseconds: u32) -> bool {
        let late = [&self.pushes, &self.staging].map(|answer| answer.is_over_after(milliseconds));
        late.contains(&true)
    }

    /// The next sign of life of this side.
    pub(super) fn beat(&self) -> u64 {
        self.own_beat.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Whether the peer's word has stood still for too long, `milliseconds` after the last look.
    pub(super) fn is_silent(&self, peer_beat: u64, milliseconds: u32) -> bool {
        if self.last_peer_beat.xchg(peer_beat, Relaxed) != peer_beat {
            self.beat.set(Some(self.timeout));
            return false;
        }
        self.beat.is_over_after(milliseconds)
    }
}

#[kunit_tests(scif_peer_liveness)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_stands_still_for_too_long_is_silence() {
        let liveness = Liveness::new(100);
        assert!(!liveness.is_silent(1, 1000));
        assert!(!liveness.is_silent(1, 60));
        assert!(!liveness.is_silent(2, 60));
        // Counted anew after each sign of life.
        assert!(!liveness.is_silent(2, 60));
        assert!(liveness.is_silent(2, 40));
        assert!(liveness.is_silent(2, u32::MAX));
        assert!(!liveness.is_silent(3, u32::MAX));
    }

    #[test]
    fn an_answer_is_late_when_its_time_is_over() {
        let liveness = Liveness::new(100);
        assert!(!liveness.is_overdue(u32::MAX));
        let expect = |left| liveness.pushes.set(left);
        expect(Some(100));
        assert!(!liveness.is_overdue(60));
        assert!(liveness.is_overdue(40));
        expect(Some(100));
        assert!(!liveness.is_overdue(99));
        expect(None);
        assert!(!liveness.is_overdue(99));
        // Who gives a part of it has more time; who owes nothing needs none.
        liveness.pushes.restart();
        assert!(!liveness.is_overdue(99));
        expect(Some(100));
        assert!(!liveness.is_overdue(99));
        liveness.pushes.restart();
        assert!(!liveness.is_overdue(99));
        // More to do takes longer, but is no sign of progress.
        liveness.pushes.allow(200);
        assert!(!liveness.is_overdue(99));
        liveness.pushes.allow(100);
        assert!(liveness.is_overdue(0));
        expect(None);
        // One that is in time does not speak for the other.
        liveness.staging.set(Some(100));
        expect(Some(200));
        assert!(!liveness.is_overdue(60));
        expect(None);
        assert!(liveness.is_overdue(60));
    }

    #[test]
    fn no_two_signs_of_life_are_the_same() {
        let liveness = Liveness::new(100);
        assert!(liveness.beat() != 0);
        assert!(liveness.beat() != liveness.beat());
    }
}
