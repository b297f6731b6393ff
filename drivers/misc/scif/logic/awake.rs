// SPDX-License-Identifier: GPL-2.0

//! How long to stay awake before a sleep.
//!
//! Whoever stays awake until what it waits for comes saves the doorbell, the interrupt and the wake-up;
//! if nothing comes, it has burnt the processor's time. So that is learnt: a wait that was over within
//! the longest time allowed would have been worth staying awake for, and the next one stays awake
//! longer; one that was not makes those after it shorter, soon down to nothing. Who waits for something
//! rare thus sleeps at once, and who talks to and fro hardly ever does.
//!
//! A wait that sleeps also takes as long as the wake-up does, here and at the other end. Two who wake
//! each other would never learn how fast they could be; so now and then some waits in a row are given all the time.
//! When that is, is left to chance: it must fall together with what the other one tries, and those who talk to and fro
//! count the same waits.
//!
//! Times are in nanoseconds.

/// The first step up from nothing: less is not worth looking at the clock.
const FIRST: u32 = 8_000;

/// Of those who sleep at once, so many waits in a row try to stay awake, or do not.
const IN_A_ROW: u32 = 4;

/// One row of so many tries, as a power of two.
const ROWS_BITS: u32 = 3;

/// Whether the `count`th wait belongs to a row that tries. Who has another `seed` tries at other times.
const fn tries(count: u32, seed: u32) -> bool {
    let row = (count / IN_A_ROW) ^ seed;
    // Odd factors with many bits set: the upper bits depend on all of the row's.
    let mixed = row.wrapping_mul(0x9e37_79b9);
    let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca6b);
    mixed >> (u32::BITS - ROWS_BITS) == 0
}

/// How long a wait stays awake, with the lesson `now`, if it is the `count`th of who has this `seed`.
pub(crate) const fn limit(now: u32, (count, seed): (u32, u32), most: u32) -> u32 {
    let is_try = now == 0 && tries(count, seed);
    // What is allowed may have become less since the lesson.
    if is_try || now > most {
        most
    } else {
        now
    }
}

/// How long the next wait stays awake, when the last one did so for at most `now`, was over after
/// `waited`, sleep and all, and `most` is allowed.
pub(crate) fn after(now: u32, waited: u64, most: u32) -> u32 {
    let next = if waited <= u64::from(most) {
        // The next one may well take longer than this one did.
        now.max(waited as u32).saturating_mul(2).max(FIRST)
    } else if now / 2 < FIRST {
        0
    } else {
        now / 2
    };
    next.min(most)
}
