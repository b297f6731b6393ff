// SPDX-License-Identifier: GPL-2.0

//! Index arithmetic of a byte ring that two nodes share.
//!
//! The producer counts the bytes it has put in, the consumer those it has taken out. Both counters
//! run freely through all of `u32` and wrap; the place in the ring is the counter modulo the size.
//! As the size is a power of two and at most 2^30, "full" and "empty" stay different and a
//! difference above the size can only be a lie or a broken bus.
//!
//! One of the two counters always comes from the peer: read it **once** from shared memory, give
//! that copy to [`Geometry::used`] or [`Geometry::free`], and treat [`Corrupt`] as the end of the
//! connection. What passes that check can be used without any further one: [`Geometry::spans`]
//! never leaves the ring, whatever it is given.
//!
//! # Where a ring begins
//!
//! Who sends and receives much has memory that begins at a large power of two, as large mappings do, and
//! so does the memory of a large ring. Then each byte and its copy lie at the same place modulo any smaller
//! power of two, all the way, and what finds its entries by such places (the caches of translations of
//! emulated processors, the sets of caches) finds both at one. So the first byte does not lie at offset
//! 0, but at [`SKEW`], an odd number of pages.
//!
//! # A ring that moves
//!
//! A ring may move to a larger area, once, while it is in use. The counters know nothing of it: byte *n* of the
//! stream is byte *n*, in either area. The second area holds all bytes from the *move* on, a value of the
//! producer's counter, and the first one all before. The producer alone moves, when it writes: it says from which
//! count on, in a word of its own, before it moves its counter. So a consumer that has seen the counter sees the
//! move, and the move is never taken back.
//!
//! The second area is larger than the first, and the producer counts as free only what it has
//! beyond *all* bytes that wait: so what waits in the first one can't be overwritten, and what goes
//! into the second one always fits, whether anybody consumes or not.
//!
//! The word comes from the peer: read it once, give that copy to [`moved_at`], and treat
//! [`Corrupt`] as the end of the connection.
//!
//! This file owns no memory, moves no bytes and orders no memory accesses; that is the caller's part.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// The place of the byte with index 0, modulo the size; see the head of this file. Both ends have to agree.
pub(crate) const SKEW: u32 = 13 << 12;

/// The counters of a ring contradict each other: more bytes lie in it than it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The size of a ring.
///
/// # Invariants
///
/// `size` is a power of two and at most [`Geometry::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    size: u32,
}

impl Geometry {
    /// The largest ring: the counters can then never be mistaken for each other.
    pub(crate) const MAX: u32 = 1 << 30;

    /// A ring of `size` bytes, if that is a power of two not above [`Self::MAX`].
    pub(crate) const fn new(size: u32) -> Option<Self> {
        if size.is_power_of_two() && size <= Self::MAX {
            // INVARIANT: Just checked.
            Some(Self { size })
        } else {
            None
        }
    }

    /// How many bytes the ring holds.
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// How many bytes wait to be taken out.
    pub(crate) const fn used(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        let used = produced.wrapping_sub(consumed);
        if used > self.size {
            return Err(Corrupt);
        }
        Ok(used)
    }

    /// How many bytes can be put in.
    pub(crate) fn free(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        let used = self.used(produced, consumed)?;
        // `used` is at most the size.
        Ok(self.size.wrapping_sub(used))
    }

    /// Where the `len` bytes from counter value `index` on lie, as (offset, length) pairs.
    ///
    /// The second pair is empty unless the bytes wrap around the end. A `len` above the size is
    /// taken as the size, so that both pairs always lie inside the ring.
    pub(crate) fn spans(&self, index: u32, len: u32) -> [(u32, u32); 2] {
        let len = len.min(self.size);
        // The size is a power of two, so that `size - 1` is the mask of the offsets.
        let offset = index.wrapping_add(SKEW) & self.size.wrapping_sub(1);
        let first = len.min(self.size.wrapping_sub(offset));
        [(offset, first), (0, len.wrapping_sub(first))]
    }

    /// The counter value after `len` more bytes.
    pub(crate) const fn advance(index: u32, len: u32) -> u32 {
        index.wrapping_add(len)
    }
}

/// Whether a counter that goes from `before` to `after` gets to `wanted`, or beyond, just now.
///
/// Of all moves of a counter, one does: it is there that somebody who waits for `wanted` is woken. A
/// `wanted` that the counter is at, or has passed, is not reached any more, until it has wrapped.
pub(crate) const fn reaches(wanted: u32, before: u32, after: u32) -> bool {
    after.wrapping_sub(wanted) < after.wrapping_sub(before)
}

/// Whether a counter that is at `counter` has got to `wanted` within its last 2^31 steps.
pub(crate) const fn has_reached(wanted: u32, counter: u32) -> bool {
    counter.wrapping_sub(wanted) <= u32::MAX / 2
}

/// A bit that only a word has that was written.
const MOVED: u64 = 1 << 32;

/// The word that says that all bytes from `produced` on lie in the second area.
pub(crate) const fn move_at(produced: u32) -> u64 {
    // A widening cast.
    MOVED | produced as u64
}

/// From which count on the bytes lie in the second area, if the word says that they do at all.
pub(crate) fn moved_at(word: u64) -> Option<u32> {
    // The lower half.
    (word & MOVED != 0).then_some(word as u32)
}

/// How many of `count` bytes from counter value `consumed` on lie in an area of this size; the
/// others lie in the second one. `moved` is where that begins, if the producer has moved there.
pub(crate) fn in_first_area(
    area: &Geometry,
    consumed: u32,
    count: u32,
    moved: Option<u32>,
) -> Result<u32, Corrupt> {
    let end = moved.unwrap_or(consumed.wrapping_add(count));
    // More than the area holds is also a move to before what was consumed.
    Ok(area.used(end, consumed)?.min(count))
}

/// Everybody was told of the wish, which is the bits below.
const TOLD: u64 = 1 << 32;

/// Whether the peer may ring no more for what those who wait want: the wish is `value` now, in the place of
/// `before` unless everybody was told of that, and the counter was here afterwards.
pub(crate) fn is_missed(value: u32, before: Option<u32>, counter: u32) -> bool {
    has_reached(value, counter) || before.is_some_and(|before| has_reached(before, counter))
}

/// The count at which the peer is to ring, and whether those who wait have been told.
///
/// There is one wish for all who wait: whoever is about to sleep, or polls, replaces it. So a wish may be
/// replaced at the moment when the peer has moved its counter there, and has not looked yet what is
/// wished: it finds the new wish, and rings for the old one no more. Whoever sleeps for that would sleep
/// for ever. Therefore
///
/// - who replaces a wish of which nobody was told looks at the counter *after* the new one has arrived, and
///   tells everybody itself if the counter has reached the old one. If it has not, the peer moves it later,
///   and sees the new wish then;
/// - who wishes for what the counter has passed already tells everybody, too: the peer does not ring for that
///   any more. This happens to whoever was held up since he looked, while others went on; what they wished for is
///   replaced, and they wish anew ([`is_missed`]);
/// - who is rung for notes that, and tells everybody, whatever is left by then of what came.
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
    /// [`WishState`] for what has to follow.
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
