// SPDX-License-Identifier: GPL-2.0
//! Intel Skylake (8086:201c): where its registers are.
//!
//! The driver (ntb_hw_intel, its "gen3" path) aligns a translation to the size of the
//! window, finds topology, window sizes and link status in configuration space, and
//! checks a second set of limits.

use super::ConfigBytes;
use super::Identity;
use super::Window;
use super::registers::DOORBELLS;
use super::registers::LinkSwitch;
use super::registers::Register;
use super::registers::SCRATCHPADS;
use super::registers::VECTORS;
use super::registers::WINDOWS;
use crate::mmio::Located;

/// The sizes of the windows (log2), of this end and of the external side.
const WINDOW_SIZES: usize = 0xd0;
/// Which end this is.
const PPD: usize = 0xd4;
/// The link status.
const LINK_STATUS: u64 = 0x1a2;

/// What it is.
pub const IDENTITY: Identity = Identity {
    device: 0x201c,
    revision: 1,
    registers_size: 0x1_0000,
    msix_table: 0x2000,
    switch: LinkSwitch::Control,
    locate,
    configuration,
    link_status_in_config: Some(LINK_STATUS),
    topology: [0, 0],
};

fn configuration(end: usize, windows: &[Window; WINDOWS]) -> ConfigBytes {
    let sizes = windows.map(|window| window.size.ilog2() as u8);
    let ppd = [0x01, 0x11][end];
    vec![(WINDOW_SIZES, [sizes, sizes].concat()), (PPD, vec![ppd])]
}

/// The register at an offset of BAR 0.
pub fn locate(offset: u64) -> Option<Located<Register>> {
    let one = |register, start, width| {
        Some(Located {
            register,
            start,
            width,
        })
    };
    match offset {
        0x0000..=0x0003 => one(Register::Control, 0x0000, 4),
        0x0010..=0x002f => {
            let window = ((offset - 0x10) / 0x10) as usize;
            debug_assert!(window < WINDOWS);
            let start = offset & !7;
            if offset & 8 == 0 {
                one(Register::TranslationBase(window), start, 8)
            } else {
                one(Register::TranslationLimit(window), start, 8)
            }
        }
        0x0040..=0x0047 => one(Register::InterruptStatus, 0x0040, 8),
        0x0048..=0x004f => one(Register::InterruptDisable, 0x0048, 8),
        0x0080.. if offset - 0x0080 < 4 * SCRATCHPADS as u64 => {
            let index = ((offset - 0x80) / 4) as usize;
            one(Register::Scratchpad(index), offset & !3, 4)
        }
        0x00d0.. if offset - 0x00d0 < VECTORS as u64 => one(
            Register::InterruptVector((offset - 0xd0) as usize),
            offset,
            1,
        ),
        0x0100.. if offset - 0x0100 < 4 * DOORBELLS as u64 => {
            let index = ((offset - 0x100) / 4) as usize;
            one(Register::Doorbell(index), offset & !3, 4)
        }
        0x0180.. if offset - 0x0180 < 4 * SCRATCHPADS as u64 => {
            let index = ((offset - 0x180) / 4) as usize;
            one(Register::PeerScratchpad(index), offset & !3, 4)
        }
        0x4018..=0x401f => one(Register::ExternalLimit(0), 0x4018, 8),
        0x4028..=0x402f => one(Register::ExternalLimit(1), 0x4028, 8),
        // The command register of the external side.
        0x4504..=0x4507 => one(Register::Plain(0), 0x4504, 4),
        0x4518..=0x451f => one(Register::ExternalBar(0), 0x4518, 8),
        0x4520..=0x4527 => one(Register::ExternalBar(1), 0x4520, 8),
        _ => None,
    }
}
