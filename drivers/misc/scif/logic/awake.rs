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
//! each other would never learn how fast they could be; so now and then a wait is given all the time.
//!
//! Times are in nanoseconds.

/// The first step up from nothing: less is not worth looking at the clock.
const FIRST: u32 = 8_000;

/// How long a wait stays awake before anything was learnt, where `most` is allowed.
pub(crate) const fn at_first(most: u32) -> u32 {
    most
}

/// Every so many waits of those who sleep at once, one tries to stay awake.
const TRY_EVERY: u32 = 8;

/// How long a wait stays awake, with the lesson `now`, if it is the `count`th with that lesson.
pub(crate) const fn limit(now: u32, count: u32, most: u32) -> u32 {
    let is_try = now == 0 && count % TRY_EVERY == 0;
    // What is allowed may have become less since the lesson.
    if is_try || now > most {
        most
    } else {
        now
    }
}

/// How long the next wait stays awake, when the last one did so for at most `now`, was over after
/// `waited`, sleep and all, and `most` is allowed.
pub(crate) const fn after(now: u32, waited: u64, most: u32) -> u32 {
    let next = if waited <= most as u64 {
        let doubled = now.saturating_mul(2);
        if doubled < FIRST {
            FIRST
        } else {
            doubled
        }
    } else if now / 2 < FIRST {
        0
    } else {
        now / 2
    };
    if next > most {
        most
    } else {
        next
    }
}
