// SPDX-License-Identifier: GPL-2.0

//! What is said of slots: their headers, and a ring for a peer that sleeps.

use super::{
    Outbox,
    State, //
};
use crate::{
    logic::staging::{
        Header,
        Kind,
        HEADER,
        SLEEPS, //
    },
    sys::reached::flush_writes,
    transport::doorbell, //
};
use kernel::{
    prelude::*,
    sync::barrier, //
};

impl State {
    /// The peer is about to be rung, if it was not since it has gone to sleep for this time: says whether that is so.
    fn note_rung(&mut self, sleeps: u64) -> bool {
        let is_asleep = self.answered != sleeps;
        self.answered = sleeps;
        is_asleep
    }
}

impl Outbox {
    /// Puts a header there, and rings if that is needed.
    pub(super) fn tell(&self, header: &Header) -> Result {
        let address = self.header_address(header.sequence);
        let place = self.peer.path().reach(address, HEADER as u64)?;
        place.write(0, &header.encode())?;
        flush_writes();
        self.note_ready([header.sequence]);
        Ok(())
    }

    /// These slots have their headers. Any context.
    pub(super) fn note_ready(&self, sequences: impl IntoIterator<Item = u64>) {
        let rings = {
            let mut state = self.state.lock();
            for sequence in sequences {
                // One that was emptied meanwhile may have been taken for something else.
                if sequence > state.emptied {
                    state.ready |= self.bit(sequence);
                }
            }
            self.has_to_ring(&mut state)
        };
        if rings.unwrap_or(false) {
            self.peer.path().ring(doorbell::DATA);
        }
    }

    /// Whether the peer sleeps, and has not emptied what it could empty: then it counts as rung. One that has emptied
    /// it, and sleeps, does not: it would not look. Any context.
    fn has_to_ring(&self, state: &mut State) -> Result<bool> {
        // What was stored comes before what is loaded: see `logic/staging.rs`.
        barrier::mb(barrier::Full);
        let sleeps = self.credits.load_acquire_u64(SLEEPS)?;
        // At least what it had emptied when it went to sleep.
        let emptied = self.credits.load_acquire_u64(0)?;
        let next = self.bit(emptied.wrapping_add(1));
        let is_due = state.ready & next != 0 && emptied < state.taken;
        Ok(is_due && state.note_rung(sleeps))
    }

    /// A slot that was taken can't be filled: says so to the peer, and its transfer hears of it from who could
    /// not. Process context.
    pub(super) fn void(&self, sequence: u64) {
        let header = Header {
            sequence,
            window: 0,
            offset: 0,
            kind: Kind::Void,
            tell: true,
        };
        // Only a peer that is lost can't be told.
        let _ = self.tell(&header);
    }

    /// Does so for those that an engine could not fill.
    pub(super) fn void_unfilled(&self) {
        let (unfilled, taken) = {
            let state = self.state.lock();
            (state.unfilled, state.taken)
        };
        if unfilled == 0 {
            return;
        }
        // Those that had their headers all the same, and were emptied, are left alone.
        let emptied = self.credits.load_acquire_u64(0).unwrap_or(0);
        let slots = u64::from(self.geometry.slots());
        for sequence in taken.saturating_sub(slots) + 1..=taken {
            if unfilled & self.bit(sequence) != 0 && sequence > emptied {
                self.void(sequence);
            }
        }
        // Not before: nobody takes them as long as they are there.
        self.change_busy(&mut self.state.lock(), |state| state.unfilled &= !unfilled);
    }
}
