// SPDX-License-Identifier: GPL-2.0
//! The places of the registers in BAR 0.
//!
//! The layout of a personality has three parts: registers at the same place in all personalities,
//! [`COMMON`]; registers that all have at some place; and a list of its own. No two registers
//! overlap. [`super::registers`] implements the registers.

use super::registers::DOORBELLS;
use super::registers::Register;
use super::registers::SCRATCHPADS;
use super::registers::VECTORS;
use crate::mmio::Located;
use crate::ntb::window::WINDOWS;

/// Registers of one kind.
pub struct Bank {
    /// Offset of the first register.
    start: u64,
    /// Size of each register.
    width: usize,
    /// Number of registers.
    count: usize,
    /// Distance from one register to the next.
    stride: u64,
    /// Returns the register of an index.
    register: fn(usize) -> Register,
}

impl Bank {
    /// Makes a bank of a single register.
    pub const fn one(start: u64, width: usize, register: fn(usize) -> Register) -> Self {
        Self::many(start, width, 1, register)
    }

    /// Makes a bank of registers without a gap between them.
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

    /// Makes a bank of one register for each window, with other registers in between.
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

/// Registers at the same place in all personalities.
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
    /// Offset of the vectors of the interrupt sources.
    pub interrupt_vectors: u64,
    /// Offset of the scratchpads of the peer.
    pub peer_scratchpads: u64,
    /// Registers that the other personalities do not have.
    pub own: &'static [Bank],
}

impl RegisterMap {
    /// Returns the register at an offset of BAR 0.
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
