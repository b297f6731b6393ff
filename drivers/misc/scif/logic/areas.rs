// SPDX-License-Identifier: GPL-2.0

//! A byte ring that moves to a larger area, once, while it is in use.
//!
//! The counters of the ring (`ring.rs`) know nothing of it: byte *n* of the stream is byte *n*, in
//! either area. The second area holds all bytes from the *move* on, a value of the producer's counter, and
//! the first one all before. The producer alone moves, when it writes: it says from which count on, in a word
//! of its own, before it moves its counter. So a consumer that has seen the counter sees the move, and
//! the move is never taken back.
//!
//! The second area is larger than the first, and the producer counts as free only what it has
//! beyond *all* bytes that wait: so what waits in the first one can't be overwritten, and what goes
//! into the second one always fits, whether anybody consumes or not.
//!
//! The word comes from the peer: read it once, give that copy to [`moved_at`], and treat
//! [`Corrupt`] as the end of the connection.
//!
//! This file says what lies where; it owns no memory.

use super::ring::{
    Corrupt,
    Geometry, //
};

/// A bit that only a word has that was written.
const MOVED: u64 = 1 << 32;

/// The word that says that all bytes from `produced` on lie in the second area.
pub(crate) const fn move_at(produced: u32) -> u64 {
    // A widening cast.
    MOVED | produced as u64
}

/// From which count on the bytes lie in the second area, if the word says that they do at all.
pub(crate) const fn moved_at(word: u64) -> Option<u32> {
    if word & MOVED == 0 {
        return None;
    }
    // The lower half.
    Some(word as u32)
}

/// How many of `count` bytes from counter value `consumed` on lie in an area of this size; the
/// others lie in the second one. `moved` is where that begins, if the producer has moved there.
pub(crate) const fn here(
    area: &Geometry,
    consumed: u32,
    count: u32,
    moved: Option<u32>,
) -> Result<u32, Corrupt> {
    let end = match moved {
        Some(moved) => moved,
        None => consumed.wrapping_add(count),
    };
    // More than the area holds is also a move to before what was consumed.
    match area.used(end, consumed) {
        Ok(left) if left < count => Ok(left),
        Ok(_) => Ok(count),
        Err(corrupt) => Err(corrupt),
    }
}
