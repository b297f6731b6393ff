// SPDX-License-Identifier: GPL-2.0

//! Which bits of a device's doorbell register are whose.
//!
//! On most devices each side has a register, in which the other one rings: doorbell `n` is bit `n` of
//! it. Where both share one register, who rings hears himself, and who clears clears for both: so each
//! has half of the bits to be rung by, the side with the lower port the lower half.

/// See the head of this file.
///
/// # Invariants
///
/// `numbers` shifted by either shift does not lose bits.
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
            numbers: 1_u64
                .checked_shl(half)
                .and_then(|bit| bit.checked_sub(1))
                .unwrap_or(0),
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
        (numbers & self.numbers)
            .checked_shl(self.own_shift)
            .unwrap_or(0)
    }

    /// The doorbells of this side among bits of the register.
    pub(crate) fn numbers_of(&self, bits: u64) -> u64 {
        bits.checked_shr(self.own_shift).unwrap_or(0) & self.numbers
    }

    /// The bits by which these doorbells of the peer are rung.
    pub(crate) fn to_peer_bits(self, numbers: u64) -> u64 {
        (numbers & self.numbers)
            .checked_shl(self.peer_shift)
            .unwrap_or(0)
    }
}
