// SPDX-License-Identifier: GPL-2.0
//! Intel Skylake (8086:201c).
//!
//! The driver (ntb_hw_intel, its "gen3" path) aligns a translation to the size of the
//! window, finds topology, window sizes and link status in configuration space, and
//! checks a second set of limits.

use super::identity::ConfigBytes;
use super::identity::Identity;
use super::register_map::Bank;
use super::register_map::RegisterMap;
use super::registers::LinkSwitch;
use super::registers::Register;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;

/// The sizes of the windows (log2), of this end and of the external side.
const WINDOW_SIZES: usize = 0xd0;
/// The register that tells which end this is.
const PPD: usize = 0xd4;
/// The link status.
const LINK_STATUS: u64 = 0x1a2;

/// The identity of Skylake.
pub const IDENTITY: Identity = Identity {
    device: 0x201c,
    msix_table: 0x2000,
    switch: LinkSwitch::Control,
    registers: RegisterMap {
        interrupt_vectors: 0x00d0,
        peer_scratchpads: 0x0180,
        own: &[
            Bank::windows(0x4018, 0x10, Register::ExternalLimit),
            // The command register of the external side.
            Bank::one(0x4504, 4, Register::Plain),
            Bank::windows(0x4518, 8, Register::ExternalBar),
        ],
    },
    configuration,
    link_status_in_config: Some(LINK_STATUS),
    topology: [0, 0],
};

fn configuration(end: usize, windows: &[Window; WINDOWS]) -> ConfigBytes {
    let sizes = windows.map(|window| window.size.ilog2() as u8);
    let ppd = [0x01, 0x11][end];
    vec![(WINDOW_SIZES, [sizes, sizes].concat()), (PPD, vec![ppd])]
}
