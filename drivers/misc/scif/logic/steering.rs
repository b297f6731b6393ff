// SPDX-License-Identifier: GPL-2.0

//! Which doorbell wakes a sleeper where it sleeps.
//!
//! Each doorbell interrupts one processor, the one to which the system has given its vector. To wake who
//! sleeps on another one takes an interrupt from processor to processor, and often waiting until that one has
//! left its idle state: as much again as all the rest. Neither a device nor its driver tells which processor
//! it is, so that is learnt when a doorbell rings. Who is about to sleep wants one that rings
//! where he is; if none is known, one of which nothing is known, and that is known then. Nobody looks
//! for long: each doorbell is tried once. If the system moves a vector it is noticed when it
//! rings the next time.
//!
//! The same is known in networks as steering a flow to the processor of its reader.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// Doorbells are bits of 64.
const COUNT: u32 = u64::BITS;

/// See the head of this file.
pub(crate) struct Steering {
    /// The processor on which each has rung last, plus one; 0 if it has not.
    last: [AtomicU64; COUNT as usize],
}

impl Steering {
    /// None has rung.
    pub(crate) fn new() -> Self {
        Self {
            last: [const { AtomicU64::new(0) }; COUNT as usize],
        }
    }

    /// It rings on this processor. Any context.
    pub(crate) fn rings_on(&self, doorbell: u32, processor: u32) {
        let Some(last) = self.last.get(doorbell as usize) else {
            return;
        };
        let now = u64::from(processor).saturating_add(1);
        // Hardly ever another one: who reads this need not lose the cache line for it.
        if last.load() != now {
            let _ = update(last, |_| Some(now));
        }
    }

    /// Where it has rung last.
    fn processor_of(&self, doorbell: u32) -> Option<u32> {
        let last = self.last.get(doorbell as usize)?.load();
        u32::try_from(last.checked_sub(1)?).ok()
    }

    /// Which one of `usable`, as bits, is to wake who is on this processor, if that is not to be `current` any
    /// more. Those with another `spread` get other ones, as far as there are.
    pub(crate) fn better(
        &self,
        usable: u64,
        current: u32,
        processor: u32,
        spread: u32,
    ) -> Option<u32> {
        // One that has not rung is on trial.
        if self.processor_of(current)? == processor {
            return None;
        }
        let one_of = |wanted: Option<u32>| {
            let those = |doorbell: &u32| {
                usable.checked_shr(*doorbell).unwrap_or(0) & 1 == 1
                    && self.processor_of(*doorbell) == wanted
            };
            let count = (0..COUNT).filter(those).count();
            let chosen = (spread as usize).checked_rem(count)?;
            (0..COUNT).filter(those).nth(chosen)
        };
        one_of(Some(processor)).or_else(|| one_of(None))
    }
}
