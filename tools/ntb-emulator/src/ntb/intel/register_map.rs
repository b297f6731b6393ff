// SPDX-License-Identifier: GPL-2.0
//! Where in BAR 0 the registers are.
//!
//! A personality's layout is what all have at the same place, [`COMMON`], what all have
//! somewhere, and a list of its own. Nothing in them overlaps. What the registers do is
//! in [`super::registers`].

use super::registers::DOORBELLS;
use super::registers::Register;
use super::registers::SCRATCHPADS;
use super::registers::VECTORS;
use crate::mmio::Located;
use crate::ntb::window::WINDOWS;

/// Registers of one kind.
pub struct Bank {
    /// Where the first one is.
    start: u64,
    /// How many bytes each one has.
    width: usize,
    /// How many there are.
    count: usize,
    /// How far it is from one to the next.
    stride: u64,
    /// The register of an index.
    register: fn(usize) -> Register,
}

impl Bank {
    /// A single register.
    pub const fn one(start: u64, width: usize, register: fn(usize) -> Register) -> Self {
        Self::many(start, width, 1, register)
    }

    /// Registers without a gap between them.
    pub const fn many(
        start: u64,
        width: usize,
        count: usize,
        register: fn(usize) -> Register,
    ) -> Self {
        Self {
            start,
            width,
            count,
            stride: width as u64,
            register,
        }
    }

    /// One register for each window, with something else in between.
    pub const fn windows(start: u64, stride: u64, register: fn(usize) -> Register) -> Self {
        Self {
            start,
            width: 8,
            count: WINDOWS,
            stride,
            register,
        }
    }

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        let into = offset.checked_sub(self.start)?;
        let index = into / self.stride;
        if index >= self.count as u64 || into % self.stride >= self.width as u64 {
            return None;
        }
        Some(Located {
            register: (self.register)(index as usize),
            start: self.start + index * self.stride,
            width: self.width,
        })
    }
}

/// What is at the same place in all personalities.
const COMMON: &[Bank] = &[
    Bank::one(0x0000, 4, |_| Register::Control),
    Bank::windows(0x0010, 0x10, Register::TranslationBase),
    Bank::windows(0x0018, 0x10, Register::TranslationLimit),
    Bank::one(0x0040, 8, |_| Register::InterruptStatus),
    Bank::one(0x0048, 8, |_| Register::InterruptDisable),
    Bank::many(0x0080, 4, SCRATCHPADS, Register::Scratchpad),
    Bank::many(0x0100, 4, DOORBELLS, Register::Doorbell),
];

/// The layout of a personality.
pub struct RegisterMap {
    /// Where the vectors of the interrupt sources are.
    pub interrupt_vectors: u64,
    /// Where the scratchpads of the peer are.
    pub peer_scratchpads: u64,
    /// What the others have not.
    pub own: &'static [Bank],
}

impl RegisterMap {
    /// The register at an offset of BAR 0.
    pub fn locate(&self, offset: u64) -> Option<Located<Register>> {
        let moved = [
            Bank::many(
                self.interrupt_vectors,
                1,
                VECTORS,
                Register::InterruptVector,
            ),
            Bank::many(
                self.peer_scratchpads,
                4,
                SCRATCHPADS,
                Register::PeerScratchpad,
            ),
        ];
        COMMON
            .iter()
            .chain(&moved)
            .chain(self.own)
            .find_map(|bank| bank.locate(offset))
    }
}
