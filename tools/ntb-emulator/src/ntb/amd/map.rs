// SPDX-License-Identifier: GPL-2.0
//! The places of the registers in BAR 0: those of a side, and behind them those of the other side.
//!
//! Registers that the driver writes and reads without any effect are left out.

use crate::mmio::Located;
use crate::ntb::window::WINDOWS;

/// The size of BAR 0.
pub(super) const SPACE: u64 = 0x4000;
/// The offset of the MSI-X table in BAR 0. The table has a page of its own, as have the pending
/// bits.
pub(super) const MSIX_TABLE: u32 = 0x2000;
/// The distance from a register to that of the other side.
pub(super) const PEER: u64 = 0x400;
/// The offset of the first register. The registers of the other side begin [`PEER`] behind it.
const FIRST: u64 = 0x200;

/// The scratchpads of both sides: the first half is the primary's.
pub(super) const SCRATCHPADS: usize = 16;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Register {
    /// NTB_CTL, which is only kept.
    Control,
    /// A scratchpad of either side.
    Scratchpad(usize),
    /// SIDE_INFO: the number of the side, and whether its driver is ready.
    SideInfo,
    /// The size of a window that may be used.
    Limit(usize),
    /// The translation of a window.
    Translation(usize),
    /// DB_REQ: rings doorbells of the other side.
    Ring,
    /// DB_MASK: the doorbells that do not interrupt.
    DoorbellMask,
    /// DB_STAT: the doorbells that were rung; write 1 to clear.
    Doorbells,
    /// INT_MASK: the events that are not told.
    EventMask,
    /// INT_STAT: the event that is told; write 1 to clear.
    Event,
    /// SMU_ACK: the driver acknowledges an event.
    Acknowledge,
}

impl Register {
    /// Returns the register at an offset of a side, its begin, and its size.
    fn at(offset: u64) -> Option<(Self, u64, usize)> {
        let (register, width) = match offset {
            0x200..0x204 => (Self::Control, 4),
            0x210..0x250 => (Self::Scratchpad(((offset - 0x210) / 4) as usize), 4),
            0x408..0x40c => (Self::SideInfo, 4),
            0x418..0x428 => (Self::Limit(window(offset, 0x418)), 8),
            0x438..0x448 => (Self::Translation(window(offset, 0x438)), 8),
            0x454..0x458 => (Self::Ring, 4),
            0x45c..0x460 => (Self::DoorbellMask, 4),
            0x460..0x464 => (Self::Doorbells, 4),
            0x470..0x474 => (Self::EventMask, 4),
            0x474..0x478 => (Self::Event, 4),
            0x4a0..0x4a4 => (Self::Acknowledge, 4),
            _ => return None,
        };
        // All registers of eight bytes begin at a multiple of eight.
        Some((register, offset - offset % width, width as usize))
    }

    /// Returns whether the driver of the other side uses the register, too.
    fn is_shared(self) -> bool {
        matches!(self, Self::SideInfo | Self::Limit(_) | Self::Translation(_))
    }
}

/// Returns the window of a register of eight bytes in a range that begins at `start`.
fn window(offset: u64, start: u64) -> usize {
    (offset - start) as usize / 8 % WINDOWS
}

/// A register, and the side that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Whether the register belongs to the other side.
    pub(super) peer: bool,
    pub(super) register: Register,
}

/// Returns the register at an offset of BAR 0.
pub(super) fn locate(offset: u64) -> Option<Located<Place>> {
    let peer = offset >= FIRST + PEER;
    let base = if peer { PEER } else { 0 };
    let (register, start, width) = Register::at(offset - base)?;
    (!peer || register.is_shared()).then_some(Located {
        register: Place { peer, register },
        start: base + start,
        width,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap() {
        let mut found = 0;
        let mut offset = 0;
        while offset < SPACE {
            let Some(here) = locate(offset) else {
                offset += 1;
                continue;
            };
            assert_eq!(here.start, offset, "{here:?}");
            assert_eq!(offset % here.width as u64, 0, "{here:?}");
            for at in 0..here.width as u64 {
                assert_eq!(locate(offset + at), Some(here));
            }
            // QEMU handles the MSI-X table and the pending bits.
            assert!(offset < MSIX_TABLE.into());
            found += 1;
            offset += here.width as u64;
        }
        // Three kinds of registers of the other side are reached.
        assert_eq!(found, SCRATCHPADS + 8 + 2 * 2 * WINDOWS + 1);
    }
}
