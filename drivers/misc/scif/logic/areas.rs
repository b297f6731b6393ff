// SPDX-License-Identifier: GPL-2.0

//! A byte ring that moves to larger areas while it is in use.
//!
//! The counters of the ring (`ring.rs`) know nothing of it: byte *n* of the stream is byte *n*, in
//! whatever area. Of two areas that follow each other the second holds all bytes from the *move* on,
//! a value of the producer's counter, and the first all before. The producer alone moves, when it
//! writes: it says from which count on, in a word of its own for each area, before it moves its
//! counter. So a consumer that has seen the counter sees the move, and a move is never taken back.
//!
//! An area is larger than the one before, and the producer counts as free only what the new area has
//! beyond *all* bytes that wait: so what waits in the old one can't be overwritten, and what goes
//! into the new one always fits, whether anybody consumes or not.
//!
//! The word comes from the peer: read it once, give that copy to [`moved_at`], and treat
//! [`Corrupt`] as the end of the connection.
//!
//! This file says what lies where; it owns no memory.

use super::ring::{
    Corrupt,
    Geometry, //
};

/// Areas that a ring can move to, one after the other. From the first area of a ring to the largest are no more steps
/// of [`larger`]: from 2 KiB to 1 MiB, and from 64 bytes to 128 KiB in a pool. A ring whose steps were smaller, for want of
/// memory, stays smaller.
pub(crate) const MOST: usize = 4;

/// A growing ring gets this many times as large, unless more is wanted.
const STEP: u32 = 8;

/// A bit that only a word has that was written.
const MOVED: u64 = 1 << 32;

/// The word that says that all bytes from `produced` on lie in the next area.
pub(crate) const fn move_at(produced: u32) -> u64 {
    // A widening cast.
    MOVED | produced as u64
}

/// From which count on the bytes lie in the next area, if the word says that they do at all.
pub(crate) const fn moved_at(word: u64) -> Option<u32> {
    if word & MOVED == 0 {
        return None;
    }
    // The lower half.
    Some(word as u32)
}

/// How many of `count` bytes from counter value `consumed` on lie in an area of this size; the
/// others lie in the next one. `moved` is where that begins, if the producer has moved there.
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

/// How large a ring of `size` bytes becomes that `wanted` bytes are to fit, if it may become as large
/// as `limit`; none if it is. All but `wanted` are powers of two.
pub(crate) fn larger(size: u32, wanted: u32, limit: u32) -> Option<u32> {
    if size >= limit {
        return None;
    }
    let wanted = wanted.min(limit).checked_next_power_of_two()?;
    Some(size.saturating_mul(STEP).max(wanted).min(limit))
}
