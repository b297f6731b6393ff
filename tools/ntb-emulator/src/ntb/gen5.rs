// SPDX-License-Identifier: GPL-2.0
//! Intel Granite Rapids (8086:0db4): where its registers are.
//!
//! The driver (ntb_hw_intel, its "gen4" path) finds everything in BAR 0, link state and
//! topology included.

use super::Identity;
use super::register_map::Bank;
use super::registers::LinkSwitch;
use super::registers::Register;
use super::registers::SCRATCHPADS;
use super::registers::VECTORS;

/// What it is.
pub const IDENTITY: Identity = Identity {
    device: 0x0db4,
    revision: 1,
    registers_size: 0x1_0000,
    msix_table: 0x4000,
    switch: LinkSwitch::Training,
    registers: REGISTERS,
    configuration: |_, _| Vec::new(),
    link_status_in_config: None,
    topology: [0x0200, 0x4200],
};

/// What it has beside the common registers.
const REGISTERS: &[Bank] = &[
    Bank::many(0x0050, 1, VECTORS, Register::InterruptVector),
    // Latency tolerance reporting.
    Bank::many(0x30ec, 4, 3, Register::Plain),
    Bank::many(0x8080, 4, SCRATCHPADS, Register::PeerScratchpad),
    Bank::one(0xb050, 2, |_| Register::LinkControl),
    Bank::one(0xb052, 2, |_| Register::LinkStatus),
    Bank::one(0xb05a, 2, |_| Register::SlotStatus),
    Bank::one(0xb0d4, 4, |_| Register::Training),
    Bank::one(0xb4c0, 4, |_| Register::Topology),
];
