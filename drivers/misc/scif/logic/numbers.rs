// SPDX-License-Identifier: GPL-2.0

//! The numbers of one end's transfers: which have ended, and who hears of those that have failed.
//!
//! Failures are kept twice, as this end's fences and signals know them, and as those know them that the peer
//! asks for: each side is told by its own. Once one was reported, what is asked for later is told from what was
//! asked for before by its number: the report takes one, which no transfer has.
//!
//! No locking: the caller has a lock around it anyway.

use super::{
    failures::Failures,
    marks::{
        MarkTracker,
        Sequence, //
    }, //
};

/// Which side has asked for a fence or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    This,
    Peer,
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Numbers {
    tracker: MarkTracker,
    /// How many have ended.
    ended: u64,
    failed: Failures,
    failed_for_peer: Failures,
}

impl Numbers {
    /// No transfer was started.
    pub(crate) fn new() -> Self {
        Self {
            tracker: MarkTracker::new(),
            ended: 0,
            failed: Failures::default(),
            failed_for_peer: Failures::default(),
        }
    }

    /// Which have been started, and up to which one all have ended.
    pub(crate) fn tracker(&self) -> &MarkTracker {
        &self.tracker
    }

    /// How many have been started and have not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.tracker.last_issued().0.saturating_sub(self.ended)
    }

    /// Gives the next number to a transfer. `None` if too many are under way: wait for an end.
    pub(crate) fn begin(&mut self) -> Option<Sequence> {
        self.tracker.begin()
    }

    /// A transfer has ended; if it has `failed`, its caller is told so if that `is_reported`. Returns whether
    /// the number moved up to which all have ended.
    pub(crate) fn end(&mut self, sequence: Sequence, failed: bool, is_reported: bool) -> bool {
        self.ended = self.ended.saturating_add(1);
        let moved = self.tracker.complete(sequence);
        if !failed {
            return moved;
        }
        let last = self.tracker.last_issued();
        for asker in [Asker::This, Asker::Peer] {
            match is_reported {
                true => self.failures(asker).add_reported(sequence, last),
                false => self.failures(asker).add(sequence),
            }
        }
        if is_reported {
            self.skip_number();
        }
        moved
    }

    /// Whether a failure concerns a signal of this side that stands for all up to `sequence`, which have ended.
    pub(crate) fn has_failed(&mut self, asker: Asker, sequence: Sequence) -> bool {
        self.failures(asker).concern(sequence)
    }

    /// As [`Self::has_failed`], of a fence, which reports it.
    pub(crate) fn report_failure(&mut self, asker: Asker, sequence: Sequence) -> bool {
        let last = self.tracker.last_issued();
        if self.failures(asker).report(sequence, last) {
            self.skip_number();
        }
        self.has_failed(asker, sequence)
    }

    fn failures(&mut self, asker: Asker) -> &mut Failures {
        match asker {
            Asker::This => &mut self.failed,
            Asker::Peer => &mut self.failed_for_peer,
        }
    }

    /// Gives a number to no transfer. If too many are under way for that, what is asked for until the next one
    /// starts hears of the failure, too.
    fn skip_number(&mut self) {
        if let Some(none) = self.tracker.begin() {
            self.tracker.complete(none);
            self.ended = self.ended.saturating_add(1);
        }
    }
}
