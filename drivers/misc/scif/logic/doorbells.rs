// SPDX-License-Identifier: GPL-2.0

//! The doorbells of a device: which bits of its register belong to which side, and which doorbell
//! interrupts the CPU on which a waiter sleeps.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// The assignment of the bits of a device's doorbell register.
///
/// On most devices each side has a register of its own, in which the other side rings: doorbell `n`
/// is bit `n`. On others both sides share one register, so each side sees its own ringing, and
/// clears bits for both. There each side is rung by half of the bits, the side with the lower port
/// by the lower half.
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
    /// Creates the assignment for a device on which each side has its own register, with these
    /// valid bits.
    pub(crate) const fn of_each(valid: u64) -> Self {
        Self {
            numbers: valid,
            own_shift: 0,
            peer_shift: 0,
        }
    }

    /// Creates the assignment for a shared register. Bits above the lowest invalid bit are not
    /// used.
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

    /// Returns the numbers of the doorbells of each direction, as bits.
    pub(crate) fn numbers(&self) -> u64 {
        self.numbers
    }

    /// Returns the bits of the register by which this side is rung.
    pub(crate) fn own_bits(&self) -> u64 {
        self.to_own_bits(self.numbers)
    }

    /// Returns the bits of the register for these doorbells of this side.
    pub(crate) fn to_own_bits(self, numbers: u64) -> u64 {
        (numbers & self.numbers) << self.own_shift
    }

    /// Returns the doorbells of this side among bits of the register.
    pub(crate) fn numbers_of(&self, bits: u64) -> u64 {
        (bits >> self.own_shift) & self.numbers
    }

    /// Returns the bits of the register that ring these doorbells of the peer.
    pub(crate) fn to_peer_bits(self, numbers: u64) -> u64 {
        (numbers & self.numbers) << self.peer_shift
    }
}

/// Number of doorbells: one for each bit of the register.
const COUNT: u32 = u64::BITS;

/// The choice of the doorbell that wakes a waiter on its own CPU.
///
/// Each doorbell interrupts one CPU, the one to which the system has assigned its vector. To wake a
/// waiter on another CPU takes an interrupt between CPUs, and often the other one has to leave its
/// idle state first. That doubles the latency. Neither a device nor its driver tells the CPU of a
/// doorbell, so this type records it when a doorbell rings. A waiter asks for a doorbell that
/// interrupts its CPU. If none is known, it gets one whose CPU is unknown, which is known after the
/// first ring. The search is short, as each doorbell is tried once. If the system moves a vector,
/// the next ring shows that.
///
/// Networks know this as steering a flow to the CPU of its reader.
pub(crate) struct Steering {
    /// For each doorbell, the CPU on which it rang last, plus one, or 0 if it has not rung.
    last: [AtomicU64; COUNT as usize],
}

impl Steering {
    /// Creates the state in which no doorbell has rung.
    pub(crate) fn new() -> Self {
        Self {
            last: [const { AtomicU64::new(0) }; COUNT as usize],
        }
    }

    /// Records that a doorbell rang on this CPU.
    /// Context: any.
    pub(crate) fn rings_on(&self, doorbell: u32, processor: u32) {
        let Some(last) = self.last.get(doorbell as usize) else {
            return;
        };
        let now = u64::from(processor).saturating_add(1);
        // The CPU rarely changes. Without a store, readers keep the cache line.
        if last.load() != now {
            let _ = update(last, |_| Some(now));
        }
    }

    /// Returns the CPU on which a doorbell rang last.
    fn processor_of(&self, doorbell: u32) -> Option<u32> {
        let last = self.last.get(doorbell as usize)?.load();
        u32::try_from(last.checked_sub(1)?).ok()
    }

    /// Returns the doorbell among `usable`, given as bits, that should wake a waiter on this CPU
    /// instead of `current`. Returns `None` if `current` should stay. Waiters with another `spread`
    /// get other doorbells, as far as there are any.
    pub(crate) fn better(
        &self,
        usable: u64,
        current: u32,
        processor: u32,
        spread: u32,
    ) -> Option<u32> {
        // A doorbell that has not rung yet is on trial, and stays.
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
