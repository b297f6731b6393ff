// SPDX-License-Identifier: GPL-2.0

//! The doorbells of a device: which bits of its register are whose, and which doorbell wakes a sleeper where it
//! sleeps.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// Which bits of a device's doorbell register are whose.
///
/// On most devices each side has a register, in which the other one rings: doorbell `n` is bit `n` of
/// it. Where both share one register, each side hears itself ring, and clears for both: so each
/// has half of the bits to be rung by, the side with the lower port the lower half.
///
/// # Invariants
///
/// `numbers` shifted by either shift, which are at most 32, does not lose bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoorbellRegister {
    numbers: u64,
    own_shift: u32,
    peer_shift: u32,
}

impl DoorbellRegister {
    /// Each side has its own, with these bits.
    pub(crate) const fn of_each(valid: u64) -> Self {
        Self {
            numbers: valid,
            own_shift: 0,
            peer_shift: 0,
        }
    }

    /// Both share one. All bits above the lowest one that is not there are left alone.
    pub(crate) fn shared(valid: u64, is_lower_port: bool) -> Self {
        let half = valid.trailing_ones() / 2;
        let (own_shift, peer_shift) = if is_lower_port { (0, half) } else { (half, 0) };
        // INVARIANT: Twice `half` is not more than 64.
        Self {
            numbers: !(u64::MAX << half),
            own_shift,
            peer_shift,
        }
    }

    /// The numbers of the doorbells that there are in each direction, as bits.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers
    }

    /// The bits of the register by which this side is rung.
    pub(crate) fn own_bits(&self) -> u64 {
        self.to_own_bits(self.numbers)
    }

    /// The bits of the register that stand for these doorbells of this side.
    pub(crate) fn to_own_bits(self, numbers: u64) -> u64 {
        (numbers & self.numbers) << self.own_shift
    }

    /// The doorbells of this side among bits of the register.
    pub(crate) fn numbers_of(&self, bits: u64) -> u64 {
        (bits >> self.own_shift) & self.numbers
    }

    /// The bits by which these doorbells of the peer are rung.
    pub(crate) fn to_peer_bits(self, numbers: u64) -> u64 {
        (numbers & self.numbers) << self.peer_shift
    }
}

/// Doorbells are bits of 64.
const COUNT: u32 = u64::BITS;

/// Which doorbell wakes a sleeper where it sleeps.
///
/// Each doorbell interrupts one processor, the one to which the system has given its vector. To wake who
/// sleeps on another one takes an interrupt from processor to processor, and often waiting until that one has
/// left its idle state: as much again as all the rest. Neither a device nor its driver tells which processor
/// it is, so that is learnt when a doorbell rings. Who is about to sleep wants one that rings
/// where he is; if none is known, one of which nothing is known, and that is known then. Nobody looks
/// for long: each doorbell is tried once. If the system moves a vector it is noticed when it
/// rings the next time.
///
/// The same is known in networks as steering a flow to the processor of its reader.
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
