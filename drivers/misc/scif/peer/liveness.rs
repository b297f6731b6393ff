// SPDX-License-Identifier: GPL-2.0

//! Signs of life.
//!
//! Both sides count up a word in the other's memory, driven by the ticks of the transport. A word
//! that stands still for too long means that the peer is lost. So does an answer that does not come in
//! time: others can live on a peer that beats and does nothing else, but nobody who waits for it. All
//! functions may be called in any context, those of one peer one at a time, but for
//! [`Liveness::expect_answer_within`].

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// See the head of this file.
pub(crate) struct Liveness {
    /// In milliseconds.
    timeout: u32,
    own_beat: Atomic<u64>,
    last_peer_beat: Atomic<u64>,
    silent_milliseconds: Atomic<u32>,
    /// How many are left for an answer of each kind; 0 if none is waited for.
    left_milliseconds: [Atomic<u32>; Answerer::COUNT],
}

/// What of a peer has to do something in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answerer {
    /// What copies for this node.
    Pushes,
    /// What empties slots.
    Staging,
}

impl Answerer {
    const COUNT: usize = 2;
}

impl Liveness {
    pub(super) const fn new(timeout: u32) -> Self {
        Self {
            timeout,
            own_beat: Atomic::new(0),
            last_peer_beat: Atomic::new(0),
            silent_milliseconds: Atomic::new(0),
            left_milliseconds: [const { Atomic::new(0) }; Answerer::COUNT],
        }
    }

    /// The peer counts as lost unless this is said anew, or taken back with none, within so many milliseconds.
    pub(crate) fn expect_answer_within(&self, whose: Answerer, milliseconds: Option<u32>) {
        if let Some(left) = self.left_milliseconds.get(whose as usize) {
            left.store(milliseconds.unwrap_or(0), Relaxed);
        }
    }

    /// As [`Self::expect_answer_within`], if one is waited for: a part of it has come.
    pub(crate) fn extend_answer(&self, whose: Answerer, milliseconds: u32) {
        if let Some(word) = self.left_milliseconds.get(whose as usize) {
            let left = word.load(Relaxed);
            if left != 0 {
                let _ = word.cmpxchg(left, milliseconds, Relaxed);
            }
        }
    }

    /// Whether an answer is late, `milliseconds` after the last look.
    pub(super) fn is_overdue(&self, milliseconds: u32) -> bool {
        let mut overdue = false;
        for word in &self.left_milliseconds {
            match word.load(Relaxed) {
                0 => (),
                left if left <= milliseconds => overdue = true,
                left => {
                    // If it has just been said anew, that counts.
                    let _ = word.cmpxchg(left, left - milliseconds, Relaxed);
                }
            }
        }
        overdue
    }

    /// The next sign of life of this side.
    pub(super) fn beat(&self) -> u64 {
        self.own_beat.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Whether the peer's word has stood still for too long, `milliseconds` after the last look.
    pub(super) fn is_silent(&self, peer_beat: u64, milliseconds: u32) -> bool {
        if self.last_peer_beat.xchg(peer_beat, Relaxed) != peer_beat {
            self.silent_milliseconds.store(0, Relaxed);
            return false;
        }
        let silent = self
            .silent_milliseconds
            .load(Relaxed)
            .saturating_add(milliseconds);
        self.silent_milliseconds.store(silent, Relaxed);
        silent >= self.timeout
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
        let expect = |left| liveness.expect_answer_within(Answerer::Pushes, left);
        expect(Some(100));
        assert!(!liveness.is_overdue(60));
        assert!(liveness.is_overdue(40));
        expect(Some(100));
        assert!(!liveness.is_overdue(99));
        expect(None);
        assert!(!liveness.is_overdue(99));
        // Who gives a part of it has more time; who owes nothing needs none.
        liveness.extend_answer(Answerer::Pushes, 10);
        assert!(!liveness.is_overdue(99));
        expect(Some(10));
        liveness.extend_answer(Answerer::Pushes, 100);
        assert!(!liveness.is_overdue(99));
        expect(None);
        // One that is in time does not speak for the other.
        liveness.expect_answer_within(Answerer::Staging, Some(100));
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
