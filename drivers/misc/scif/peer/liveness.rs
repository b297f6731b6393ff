// SPDX-License-Identifier: GPL-2.0

//! Heartbeats.
//!
//! Each side counts up a word in the other's memory, driven by the ticks of the transport. A peer
//! whose word stands still for too long is lost. A peer that does not do in time what it was asked
//! for is lost, too. It may beat and do nothing else, and its waiters would hang. The functions may
//! be called in any context, but one at a time for each peer. The functions of a [`Countdown`] that
//! set it may be called at any time.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};

/// The time that the peer has for an action, if it owes one. All times are in milliseconds.
pub(crate) struct Countdown {
    /// Time limit. 0 if the countdown is stopped.
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

    /// Starts the countdown anew with `limit`, or stops it if `limit` is `None`.
    pub(crate) fn set(&self, limit: Option<u32>) {
        self.restart();
        self.allow(limit.unwrap_or(0));
    }

    /// Changes the limit, counted from the last start. 0 stops the countdown.
    pub(crate) fn allow(&self, limit: u32) {
        self.limit.store(limit, Relaxed);
    }

    /// Starts a running countdown anew, as the peer has made progress.
    pub(crate) fn restart(&self) {
        self.passed.store(0, Relaxed);
    }

    pub(super) fn runs(&self) -> bool {
        self.limit.load(Relaxed) != 0
    }

    /// Returns whether the time is over. `milliseconds` have passed since the last call. Once over,
    /// the countdown stays over until it is started anew.
    pub(super) fn is_over_after(&self, milliseconds: u32) -> bool {
        let limit = self.limit.load(Relaxed);
        if limit == 0 {
            return false;
        }
        let passed = self.passed.load(Relaxed);
        let now = passed.saturating_add(milliseconds);
        // If the countdown was restarted at the same time, the restart wins.
        self.passed.cmpxchg(passed, now, Relaxed).is_ok() && now >= limit
    }
}

/// The heartbeats of a peer, and the time that it has for its duties.
pub(crate) struct Liveness {
    /// Time limit for a heartbeat, in milliseconds.
    timeout: u32,
    own_beat: Atomic<u64>,
    last_peer_beat: Atomic<u64>,
    /// Countdown to the next heartbeat.
    beat: Countdown,
    /// Countdown for copies that the peer makes on request of this node.
    pub(crate) peer_reads: Countdown,
    /// Countdown for slots that the peer has to empty.
    pub(crate) staging: Countdown,
}

impl Liveness {
    pub(super) const fn new(timeout: u32) -> Self {
        Self {
            timeout,
            own_beat: Atomic::new(0),
            last_peer_beat: Atomic::new(0),
            beat: Countdown::new(timeout),
            peer_reads: Countdown::new(0),
            staging: Countdown::new(0),
        }
    }

    /// Returns whether the peer is late with a duty. `milliseconds` have passed since the last
    /// call.
    pub(super) fn is_overdue(&self, milliseconds: u32) -> bool {
        let late =
            [&self.peer_reads, &self.staging].map(|answer| answer.is_over_after(milliseconds));
        late.contains(&true)
    }

    /// Returns the next heartbeat of this side.
    pub(super) fn beat(&self) -> u64 {
        self.own_beat.fetch_add(1, Relaxed).wrapping_add(1)
    }

    /// Returns whether the peer's word has stood still for too long. `milliseconds` have passed
    /// since the last call.
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
    fn unchanged_heartbeat_is_silence_after_the_limit() {
        let liveness = Liveness::new(100);
        assert!(!liveness.is_silent(1, 1000));
        assert!(!liveness.is_silent(1, 60));
        assert!(!liveness.is_silent(2, 60));
        // Each heartbeat starts the countdown anew.
        assert!(!liveness.is_silent(2, 60));
        assert!(liveness.is_silent(2, 40));
        assert!(liveness.is_silent(2, u32::MAX));
        assert!(!liveness.is_silent(3, u32::MAX));
    }

    #[test]
    fn answer_is_overdue_after_its_time_limit() {
        let liveness = Liveness::new(100);
        assert!(!liveness.is_overdue(u32::MAX));
        let expect = |left| liveness.peer_reads.set(left);
        expect(Some(100));
        assert!(!liveness.is_overdue(60));
        assert!(liveness.is_overdue(40));
        expect(Some(100));
        assert!(!liveness.is_overdue(99));
        expect(None);
        assert!(!liveness.is_overdue(99));
        // A peer that makes progress gets more time. A peer that owes nothing needs none.
        liveness.peer_reads.restart();
        assert!(!liveness.is_overdue(99));
        expect(Some(100));
        assert!(!liveness.is_overdue(99));
        liveness.peer_reads.restart();
        assert!(!liveness.is_overdue(99));
        // More work allows more time, but is no progress.
        liveness.peer_reads.allow(200);
        assert!(!liveness.is_overdue(99));
        liveness.peer_reads.allow(100);
        assert!(liveness.is_overdue(0));
        expect(None);
        // Progress on one duty does not excuse the other.
        liveness.staging.set(Some(100));
        expect(Some(200));
        assert!(!liveness.is_overdue(60));
        expect(None);
        assert!(liveness.is_overdue(60));
    }

    #[test]
    fn consecutive_heartbeats_differ() {
        let liveness = Liveness::new(100);
        assert!(liveness.beat() != 0);
        assert!(liveness.beat() != liveness.beat());
    }
}
