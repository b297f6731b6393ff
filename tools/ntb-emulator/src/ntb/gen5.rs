// SPDX-License-Identifier: GPL-2.0
//! Intel Granite Rapids (8086:0db4): where its registers are.
//!
//! The driver (ntb_hw_intel, its "gen4" path) finds everything in BAR 0, link state and
//! topology included.

use super::Identity;
use super::registers::LinkSwitch;
use super::registers::Register;
use super::registers::SCRATCHPADS;
use super::registers::VECTORS;
use super::registers::WINDOWS;
use crate::mmio::Located;
use crate::ntb::registers::DOORBELLS;

/// What it is.
pub const IDENTITY: Identity = Identity {
    device: 0x0db4,
    revision: 1,
    registers_size: 0x1_0000,
    msix_table: 0x4000,
    switch: LinkSwitch::Training,
    locate,
    configuration: |_, _| Vec::new(),
    link_status_in_config: None,
    topology: [0x0200, 0x4200],
};

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
        0x0050.. if offset - 0x0050 < VECTORS as u64 => one(
            Register::InterruptVector((offset - 0x50) as usize),
            offset,
            1,
        ),
        0x0080.. if offset - 0x0080 < 4 * SCRATCHPADS as u64 => {
            let index = ((offset - 0x80) / 4) as usize;
            one(Register::Scratchpad(index), offset & !3, 4)
        }
        0x0100.. if offset - 0x0100 < 4 * DOORBELLS as u64 => {
            let index = ((offset - 0x100) / 4) as usize;
            one(Register::Doorbell(index), offset & !3, 4)
        }
        // Latency tolerance reporting.
        0x30ec..=0x30f7 => {
            let index = ((offset - 0x30ec) / 4) as usize;
            one(Register::Plain(index), offset & !3, 4)
        }
        0x8080.. if offset - 0x8080 < 4 * SCRATCHPADS as u64 => {
            let index = ((offset - 0x8080) / 4) as usize;
            one(Register::PeerScratchpad(index), offset & !3, 4)
        }
        0xb050..=0xb051 => one(Register::LinkControl, 0xb050, 2),
        0xb052..=0xb053 => one(Register::LinkStatus, 0xb052, 2),
        0xb05a..=0xb05b => one(Register::SlotStatus, 0xb05a, 2),
        0xb0d4..=0xb0d7 => one(Register::Training, 0xb0d4, 4),
        0xb4c0..=0xb4c3 => one(Register::Topology, 0xb4c0, 4),
        _ => None,
    }
}
