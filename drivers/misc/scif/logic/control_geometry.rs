// SPDX-License-Identifier: GPL-2.0

//! What a control block consists of, and where in it that lies.
//!
//! A block is as large as it should be for the aperture through which the other side writes to it: an
//! aperture of 64 KiB must have room for other things. Both sides come to the same geometry, as each knows
//! the length of both apertures from the hellos.

use super::{
    annex,
    envelope::SLOT_SIZE, //
};

/// Where the slots begin: behind the words that are not messages.
pub(crate) const SLOTS_OFFSET: usize = 256;

/// Messages after which the reader reports its progress, if there are more.
const REPORT_EVERY: u64 = 16;

/// See the head of this file.
///
/// # Invariants
///
/// `slots` is a power of two, and at least 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlGeometry {
    slots: u32,
}

/// The largest there is.
pub(crate) const LARGEST: ControlGeometry = ControlGeometry { slots: 256 };

impl ControlGeometry {
    /// Of the block that the other side writes through an aperture of so many bytes.
    pub(crate) const fn for_aperture(len: u64) -> Self {
        if len >= 4 << 20 {
            return LARGEST;
        }
        // INVARIANT: Both are powers of two.
        Self {
            slots: if len >= 1 << 20 { 64 } else { 8 },
        }
    }

    /// Messages for which there is room.
    pub(crate) const fn slots(self) -> u32 {
        self.slots
    }

    /// How many halves of the ring so many messages fill: a full ring holds two.
    pub(crate) const fn halves(self, messages: u64) -> u64 {
        messages >> self.slots.trailing_zeros().saturating_sub(1)
    }

    /// Whether so many messages are some halves of the ring, and nothing else.
    pub(crate) const fn is_half(self, messages: u64) -> bool {
        messages & (self.slots as u64 / 2).saturating_sub(1) == 0
    }

    /// Whether the reader reports after so many messages, although there are more. It does when it has
    /// passed half a ring.
    pub(crate) const fn is_due(self, messages: u64) -> bool {
        self.is_half(messages) || messages & (REPORT_EVERY - 1) == 0
    }

    /// Where a slot begins.
    pub(crate) const fn slot(self, index: u32) -> usize {
        SLOTS_OFFSET.saturating_add((index as usize).saturating_mul(SLOT_SIZE))
    }

    /// Where the annex of a slot begins.
    pub(crate) const fn annex(self, index: u32) -> usize {
        self.slot(self.slots)
            .saturating_add((index as usize).saturating_mul(annex::SIZE))
    }

    /// Bytes of the block.
    pub(crate) const fn size(self) -> usize {
        self.annex(self.slots)
    }
}
