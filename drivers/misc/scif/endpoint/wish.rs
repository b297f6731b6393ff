// SPDX-License-Identifier: GPL-2.0

//! A value of one of the peer's counters at which the peer is to ring: a word in the peer's memory.
//!
//! It is read back before it counts as made: see `rings/waking.rs` for why, and what has to follow. The peer
//! answers it with one doorbell; it stands until the next one replaces it, and who replaces it tells
//! those who waited for it if the peer may not (`logic/ring.rs`).
//!
//! Lock: `turn` is held for a store and a load over the bus, nothing is taken under it.

use crate::{
    logic::ring::{
        is_missed,
        WishState, //
    },
    sys::{
        reached::Reached,
        shared_memory::SharedMemory, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// See the head of this file.
#[pin_data]
pub(super) struct Wish {
    /// Where it stands in the header of the peer's ring.
    word: usize,
    /// Where the counter stands in the header of ours.
    counter: usize,
    /// Replaced under `turn`.
    state: WishState,
    #[pin]
    turn: SpinLock<()>,
}

impl Wish {
    pub(super) fn none(word: usize, counter: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            word,
            counter,
            state: WishState::new(),
            turn <- new_spinlock!((), "Wish::turn"),
        })
    }

    /// Whether this is what the peer has been told last.
    pub(super) fn stands_at(&self, value: u32) -> bool {
        self.state.stands_at(value)
    }

    /// Tells the peer; `theirs` is the header of its ring, `ours` of our own. `moved`: it was told before to answer
    /// by another doorbell. Says whether those who wait are to be woken, as the peer may ring no more for what they
    /// wait for, or where nobody hears it.
    pub(super) fn make(
        &self,
        theirs: &Reached<'_>,
        ours: &SharedMemory,
        value: u32,
        moved: bool,
    ) -> Result<bool> {
        let _turn = self.turn.lock();
        let before = match !moved && self.state.is_open_at(value) {
            // Who has written it has read it back, or does so, and has everybody woken then.
            true => None,
            false => self.replace(theirs, value)?,
        };
        Ok(is_missed(
            value,
            before,
            ours.load_acquire_u32(self.counter)?,
        ))
    }

    /// Under `turn`: as [`WishState::replace`].
    fn replace(&self, theirs: &Reached<'_>, value: u32) -> Result<Option<u32>> {
        theirs.write_u32(self.word, value)?;
        theirs.read_back(self.word)?;
        Ok(self.state.replace(value))
    }

    /// The doorbell rang, maybe for something else. Says whether those who wait are to be woken. Any
    /// context.
    pub(super) fn is_answered(&self, ours: &SharedMemory) -> bool {
        ours.load_acquire_u32(self.counter)
            .is_ok_and(|counter| self.state.is_answered_at(counter))
    }
}
