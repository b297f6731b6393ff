// SPDX-License-Identifier: GPL-2.0

//! The time that a waiter polls before it sleeps.
//!
//! A waiter that polls until its event comes saves the doorbell, the interrupt and the wake-up. If
//! no event comes, it has wasted CPU time. So the time is learnt. If a wait was over within the
//! longest time allowed, polling would have been worth it, and the next wait polls longer. If not,
//! later waits poll for a shorter time, soon not at all. So a waiter for rare events sleeps at
//! once, and a waiter in a ping-pong hardly ever sleeps.
//!
//! A wait that sleeps also takes the time of the wake-ups on both sides. Two waiters that wake each
//! other would never learn how fast they could be. So now and then some waits in a row get all the
//! time. When that happens is random: both sides have to try at the same time, and in a ping-pong
//! both count the same waits.
//!
//! Times are in nanoseconds.

/// The first step up from zero. Less time is not worth the clock reads.
const FIRST: u32 = 8_000;

/// Number of waits in a row that try to poll, or do not, while the learnt time is zero.
const IN_A_ROW: u32 = 4;

/// One of so many rows tries, as a power of two.
const ROWS_BITS: u32 = 3;

/// Returns whether the `count`th wait belongs to a row that tries. A waiter with another `seed`
/// tries at other times.
const fn tries(count: u32, seed: u32) -> bool {
    let row = (count / IN_A_ROW) ^ seed;
    // Odd factors with many bits set make the upper bits depend on all bits of the row.
    let mixed = row.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    mixed >> (u32::BITS - ROWS_BITS) == 0
}

/// Returns the time that a wait polls. `now` is the learnt time, and this is the `count`th wait of
/// the waiter with this `seed`.
pub(crate) const fn limit(now: u32, (count, seed): (u32, u32), most: u32) -> u32 {
    let is_try = now == 0 && tries(count, seed);
    // The limit may have been lowered since `now` was learnt.
    if is_try || now > most {
        most
    } else {
        now
    }
}

/// Returns the time that the next wait polls. The last wait polled for at most `now`, was over
/// after `waited`, sleep included, and `most` is the limit.
pub(crate) fn after(now: u32, waited: u64, most: u32) -> u32 {
    let next = if waited <= u64::from(most) {
        // The next wait may well take longer than this one.
        now.max(waited as u32).saturating_mul(2).max(FIRST)
    } else if now / 2 < FIRST {
        0
    } else {
        now / 2
    };
    next.min(most)
}
