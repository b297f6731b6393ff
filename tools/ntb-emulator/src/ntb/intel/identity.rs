// SPDX-License-Identifier: GPL-2.0
//! The differences between personalities, and the configuration space that follows from them.
//!
//! Each personality is one value, in [`super::gen3`] and [`super::gen5`]. The common parts are here
//! and in [`super::register_map`].

use super::register_map::RegisterMap;
use super::registers::LINK_ACTIVE;
use super::registers::LinkSwitch;
use super::registers::VECTORS;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::ntb::window::bars;
use crate::pci;
use crate::pci::Capabilities;
use crate::pci::ConfigSpace;
use crate::pci::Signalling;

const INTEL: u16 = 0x8086;
/// A bridge of class "other".
const CLASS: u32 = 0x06_80_00;
const REVISION: u8 = 1;

/// The size of BAR 0, in which the registers are.
pub const REGISTERS_SIZE: u64 = 0x1_0000;

/// Bytes at offsets of configuration space.
pub type ConfigBytes = Vec<(usize, Vec<u8>)>;

/// A personality.
pub struct Identity {
    /// The PCI device.
    pub device: u16,
    /// The offset of the MSI-X table in BAR 0; the pending bits are in the page behind it.
    pub msix_table: u32,
    /// The way in which its link is switched.
    pub switch: LinkSwitch,
    /// The places of its registers.
    pub registers: RegisterMap,
    /// Bytes of configuration space for an end (0 is upstream).
    pub configuration: fn(usize, &[Window; WINDOWS]) -> ConfigBytes,
    /// The offset of its link status in configuration space.
    pub link_status_in_config: Option<u64>,
    /// The topology register of the upstream and of the downstream end.
    pub topology: [u32; 2],
}

impl Identity {
    /// Returns the link status that drivers read.
    pub fn link_status(up: bool) -> u16 {
        if up { LINK_ACTIVE } else { 0 }
    }

    /// Returns the configuration space of an end with those windows.
    pub fn config_space(&self, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
        let mut config = ConfigSpace::new(&pci::Identity {
            vendor: INTEL,
            device: self.device,
            class: CLASS,
            revision: REVISION,
            bars: bars(REGISTERS_SIZE, windows),
            signalling: Signalling::Msix {
                vectors: VECTORS as u16,
                table: self.msix_table,
                pending: self.msix_table + 0x1000,
            },
            capabilities: Capabilities::default(),
        });
        for (offset, bytes) in (self.configuration)(end, windows) {
            config.set_initial(offset, &bytes);
        }
        config
    }
}
