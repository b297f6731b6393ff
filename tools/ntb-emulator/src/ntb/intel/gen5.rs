// SPDX-License-Identifier: GPL-2.0
//! Intel Granite Rapids (8086:0db4).
//!
//! The driver (ntb_hw_intel, its "gen4" path) finds everything in BAR 0, link state and
//! topology included.

use super::identity::Identity;
use super::register_map::Bank;
use super::register_map::RegisterMap;
use super::registers::LinkSwitch;
use super::registers::Register;

/// The identity of Granite Rapids.
pub const IDENTITY: Identity = Identity {
    device: 0x0db4,
    msix_table: 0x4000,
    switch: LinkSwitch::Training,
    registers: RegisterMap {
        interrupt_vectors: 0x0050,
        peer_scratchpads: 0x8080,
        own: &[
            // Latency tolerance reporting.
            Bank::many(0x30ec, 4, 3, Register::Plain),
            Bank::one(0xb050, 2, |_| Register::LinkControl),
            Bank::one(0xb052, 2, |_| Register::LinkStatus),
            Bank::one(0xb05a, 2, |_| Register::SlotStatus),
            Bank::one(0xb0d4, 4, |_| Register::Training),
            Bank::one(0xb4c0, 4, |_| Register::Topology),
        ],
    },
    configuration: |_, _| Vec::new(),
    link_status_in_config: None,
    topology: [0x0200, 0x4200],
};
