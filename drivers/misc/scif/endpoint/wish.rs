// SPDX-License-Identifier: GPL-2.0

//! A value of one of the peer's counters at which the peer is to ring: a word in the peer's memory.
//!
//! It is read back before it counts as made: see `rings.rs` for why, and what has to follow. The peer
//! answers it with one doorbell; it stands until the next one replaces it.
//!
//! Lock: `turn` is held for a store and a load over the bus, nothing is taken under it.

use crate::transport::outbound::Reached;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        barrier,
        SpinLock, //
    },
};

/// See the head of this file.
#[pin_data]
pub(super) struct Wish {
    /// Where it stands in the header of the peer's ring.
    word: usize,
    /// What stands there: before anything is written, what no counter reaches. Written under `turn`.
    value: Atomic<u32>,
    #[pin]
    turn: SpinLock<()>,
}

impl Wish {
    pub(super) fn none(word: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            word,
            value: Atomic::new(0),
            turn <- new_spinlock!((), "Wish::turn"),
        })
    }

    /// Whether this is what the peer has been told last.
    pub(super) fn stands_at(&self, value: u32) -> bool {
        self.value.load(Acquire) == value
    }

    /// Tells the peer, whose header that is.
    pub(super) fn make(&self, header: &Reached<'_>, value: u32) -> Result {
        let _turn = self.turn.lock();
        if self.stands_at(value) {
            // Who has written it has read it back.
            return Ok(());
        }
        header.write_u32(self.word, value)?;
        // The store leaves before the load, which brings what the peer has stored before.
        barrier::mb(barrier::Full);
        header.read_u32(self.word)?;
        barrier::mb(barrier::Full);
        self.value.store(value, Release);
        Ok(())
    }
}
