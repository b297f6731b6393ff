// SPDX-License-Identifier: GPL-2.0

//! The count at which the peer is to ring, and whether those who wait have been told.
//!
//! There is one wish for all who wait: whoever is about to sleep, or polls, replaces it. So a wish may be
//! replaced at the moment when the peer has moved its counter there, and has not looked yet what is
//! wished: it finds the new wish, and rings for the old one no more. Whoever sleeps for that would sleep
//! for ever. Therefore
//!
//! - who replaces a wish of which nobody was told looks at the counter *after* the new one has arrived, and
//!   tells everybody itself if the counter has reached the old one. If it has not, the peer moves it later,
//!   and sees the new wish then;
//! - who wishes for what the counter has passed already tells everybody, too: the peer does not ring for that
//!   any more. This happens to whoever was held up since he looked, while others went on; what they wished for is
//!   replaced, and they wish anew ([`is_missed`]);
//! - who is rung for notes that, and tells everybody, whatever is left by then of what came.

use super::{
    atomic::AtomicU64,
    ring::has_reached,
    update::update, //
};

/// Everybody was told of the wish, which is the bits below.
const TOLD: u64 = 1 << 32;

/// Whether the peer may ring no more for what those who wait want: the wish is `value` now, in the place of
/// `before` unless everybody was told of that, and the counter was here afterwards.
pub(crate) fn is_missed(value: u32, before: Option<u32>, counter: u32) -> bool {
    has_reached(value, counter) || before.is_some_and(|before| has_reached(before, counter))
}

/// See the head of this file.
pub(crate) struct WishState {
    state: AtomicU64,
}

impl WishState {
    /// No wish: 0 stands there, for which nobody waits.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(TOLD),
        }
    }

    /// Whether this is what the peer has been told last, and nobody was told since: it will be answered. One
    /// that was answered has to be made anew, though it be the same number: counters go around.
    pub(crate) fn is_open_at(&self, value: u32) -> bool {
        self.state.load() == u64::from(value)
    }

    /// Whether this is what the peer has been told last.
    pub(crate) fn stands_at(&self, value: u32) -> bool {
        self.state.load() as u32 == value
    }

    /// The peer knows of another wish now. Returns the one before, unless everybody was told of it: see
    /// the head of this file for what has to follow.
    #[must_use = "the peer may have missed it"]
    pub(crate) fn replace(&self, value: u32) -> Option<u32> {
        let before = update(&self.state, |_| Some(value.into()))?;
        (before & TOLD == 0).then_some(before as u32)
    }

    /// The doorbell rang, maybe for something else, and the counter is here. Says whether everybody is to
    /// be told now.
    #[must_use = "nobody else tells them"]
    pub(crate) fn is_answered_at(&self, counter: u32) -> bool {
        let told = update(&self.state, |state| {
            let is_due = state & TOLD == 0 && has_reached(state as u32, counter);
            is_due.then_some(state | TOLD)
        });
        told.is_some()
    }
}
