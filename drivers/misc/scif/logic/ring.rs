// SPDX-License-Identifier: GPL-2.0

//! Index arithmetic of a byte ring that two nodes share.
//!
//! The producer counts the bytes that it has put in, the consumer those that it has taken out. Both
//! counters run freely through all of `u32` and wrap. The place in the ring is the counter modulo
//! the size. The size is a power of two and at most 2^30, so "full" and "empty" stay different. A
//! difference above the size can only be a lie or a broken bus.
//!
//! One of the two counters always comes from the peer. The caller reads it **once** from shared
//! memory, gives that copy to [`Geometry::used`] or [`Geometry::free`], and ends the connection on
//! [`Corrupt`]. A counter that passes this check needs no further one: [`Geometry::spans`] never
//! leaves the ring, for any arguments.
//!
//! # Where a ring begins
//!
//! A program that transfers much usually has a buffer that begins at a large power of two, as large
//! mappings do. So does the memory of a large ring. If the first byte of the ring lay at offset 0,
//! each byte and its copy would have the same address modulo any smaller power of two. The
//! translation caches of emulated CPUs and the sets of a cache are indexed by such addresses, so
//! both would compete for one entry. So the first byte lies at offset [`SKEW`], an odd number of
//! pages.
//!
//! # A ring that moves
//!
//! A ring may move to a larger area, once, while it is in use. The counters do not change: byte *n*
//! of the stream is byte *n* in either area. The *move* is a value of the producer's counter. The
//! first area holds all bytes before it, the second area all bytes from it on. Only the producer
//! moves the ring, when it writes. It stores the move in a word of its own before it advances its
//! counter. So a consumer that has seen the counter also sees the move. A move is never taken back.
//!
//! The second area is larger than the first. The producer counts as free only what the second area
//! has beyond *all* bytes that wait in either area. So bytes in the first area can't be
//! overwritten, and bytes for the second area always fit, even if the consumer does nothing.
//!
//! The word comes from the peer. The caller reads it once, gives that copy to [`moved_at`], and
//! ends the connection on [`Corrupt`].
//!
//! This file owns no memory, moves no bytes and orders no memory accesses; the caller does.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// Offset of the byte with index 0, modulo the size. Odd in pages, so that a byte and its copy in a
/// program's buffer do not compete for one cache entry. Both sides have to agree on it.
pub(crate) const SKEW: u32 = 13 << 12;

/// The error for counters that contradict each other: more bytes lie in the ring than it can hold.
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
    /// Size of the largest ring. Up to this size, the counters can't be mistaken for each other.
    pub(crate) const MAX: u32 = 1 << 30;

    /// Creates a ring of `size` bytes, if that is a power of two not above [`Self::MAX`].
    pub(crate) const fn new(size: u32) -> Option<Self> {
        if size.is_power_of_two() && size <= Self::MAX {
            // INVARIANT: Just checked.
            Some(Self { size })
        } else {
            None
        }
    }

    /// Returns how many bytes the ring holds.
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// Returns how many bytes wait to be taken out.
    pub(crate) const fn used(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        let used = produced.wrapping_sub(consumed);
        if used > self.size {
            return Err(Corrupt);
        }
        Ok(used)
    }

    /// Returns how many bytes can be put in.
    pub(crate) fn free(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        let used = self.used(produced, consumed)?;
        // `used` is at most the size.
        Ok(self.size.wrapping_sub(used))
    }

    /// Returns where the `len` bytes from counter value `index` on lie, as (offset, length) pairs.
    ///
    /// The second pair is empty unless the bytes wrap around the end. A `len` above the size counts
    /// as the size, so both pairs always lie inside the ring.
    pub(crate) fn spans(&self, index: u32, len: u32) -> [(u32, u32); 2] {
        let len = len.min(self.size);
        // The size is a power of two, so that `size - 1` is the mask of the offsets.
        let offset = index.wrapping_add(SKEW) & self.size.wrapping_sub(1);
        let first = len.min(self.size.wrapping_sub(offset));
        [(offset, first), (0, len.wrapping_sub(first))]
    }

    /// Returns the counter value after `len` more bytes.
    pub(crate) const fn advance(index: u32, len: u32) -> u32 {
        index.wrapping_add(len)
    }
}

/// Returns whether a counter that moves from `before` to `after` reaches or passes `wanted` in this
/// move.
///
/// Exactly one move does so, and it wakes a waiter for `wanted`. If the counter is at `wanted` or
/// has passed it, no move reaches it any more until the counter has wrapped.
pub(crate) const fn reaches(wanted: u32, before: u32, after: u32) -> bool {
    after.wrapping_sub(wanted) < after.wrapping_sub(before)
}

/// Returns whether a counter that is at `counter` has reached `wanted` within its last 2^31 steps.
pub(crate) const fn has_reached(wanted: u32, counter: u32) -> bool {
    counter.wrapping_sub(wanted) <= u32::MAX / 2
}

/// A bit that is set in a word that was written, to tell it from a zeroed one.
const MOVED: u64 = 1 << 32;

/// Returns the word that says that all bytes from `produced` on lie in the second area.
pub(crate) const fn move_at(produced: u32) -> u64 {
    // A widening cast.
    MOVED | produced as u64
}

/// Returns the count from which on the bytes lie in the second area, or `None` if the ring has not
/// moved.
pub(crate) fn moved_at(word: u64) -> Option<u32> {
    // The lower half.
    (word & MOVED != 0).then_some(word as u32)
}

/// Returns how many of `count` bytes from counter value `consumed` on lie in the first area, of
/// this size. The others lie in the second area. `moved` is the move, if the producer has moved.
pub(crate) fn in_first_area(
    area: &Geometry,
    consumed: u32,
    count: u32,
    moved: Option<u32>,
) -> Result<u32, Corrupt> {
    let end = moved.unwrap_or(consumed.wrapping_add(count));
    // This check also refuses a move to a place before `consumed`.
    Ok(area.used(end, consumed)?.min(count))
}

/// Set once all waiters were woken for the request in the bits below.
const TOLD: u64 = 1 << 32;

/// Returns whether the peer may never ring for some waiter. `value` is the new wake-up request.
/// `before` is the request that it replaced, or `None` if the waiters for that were woken.
/// `counter` was read after the replacement.
pub(crate) fn is_missed(value: u32, before: Option<u32>, counter: u32) -> bool {
    has_reached(value, counter) || before.is_some_and(|before| has_reached(before, counter))
}

/// The count at which the peer is to ring, and whether the waiters have been woken.
///
/// All waiters for a counter share one wake-up request. A waiter that is about to sleep, or a
/// poller, replaces it. At that moment the peer may have moved its counter to the old value without
/// having read the request yet. It then reads the new request, and does not ring for the old one. A
/// waiter for the old value would sleep forever. Three rules prevent this:
///
/// - If the waiters were not woken for the replaced request, the caller reads the counter *after*
///   the new request has arrived. If the counter has reached the old value, the caller wakes all
///   waiters itself. If not, the peer moves the counter later, and sees the new request then.
/// - If the counter has passed the new value already, the caller wakes all waiters, too, because
///   the peer does not ring for it any more. This happens to a caller that was delayed after it
///   read the counter, while others went on. The request of those was replaced, so they wake up and
///   request anew ([`is_missed`]).
/// - When the peer rings, the doorbell's handler records that, and wakes all waiters, even if other
///   callers have taken the data by then.
pub(crate) struct WakeRequestState {
    state: AtomicU64,
}

impl WakeRequestState {
    /// Creates a request for 0 that has been answered, so that no waiter depends on it.
    pub(crate) fn new() -> Self {
        Self {
            state: AtomicU64::new(TOLD),
        }
    }

    /// Returns whether the peer was told this value last, and the waiters were not woken since. If
    /// so, the peer will ring. An answered request has to be made anew even for the same number, as
    /// counters wrap.
    pub(crate) fn is_open_at(&self, value: u32) -> bool {
        self.state.load() == u64::from(value)
    }

    /// Returns whether the peer was told this value last.
    pub(crate) fn stands_at(&self, value: u32) -> bool {
        self.state.load() as u32 == value
    }

    /// Records that the peer knows of another request now. Returns the request before, unless the
    /// waiters were woken for it. [`WakeRequestState`] tells how the caller has to continue.
    #[must_use = "the peer may have missed it"]
    pub(crate) fn replace(&self, value: u32) -> Option<u32> {
        let before = update(&self.state, |_| Some(value.into()))?;
        (before & TOLD == 0).then_some(before as u32)
    }

    /// Records that the caller waits no more, as it polls. Returns whether the peer may still ring.
    /// Only for a request with one waiter.
    pub(crate) fn withdraw(&self) -> bool {
        update(&self.state, |state| {
            (state & TOLD == 0).then_some(state | TOLD)
        })
        .is_some()
    }

    /// Records that the doorbell rang, maybe for another reason, while the counter has this value.
    /// Returns whether the caller has to wake all waiters.
    #[must_use = "no other caller wakes them"]
    pub(crate) fn is_answered_at(&self, counter: u32) -> bool {
        let told = update(&self.state, |state| {
            let is_due = state & TOLD == 0 && has_reached(state as u32, counter);
            is_due.then_some(state | TOLD)
        });
        told.is_some()
    }
}
