// SPDX-License-Identifier: GPL-2.0
//! The identity of a function, its port and partition, and the setup of its BARs.

use super::map::BARS as ALL_BARS;
use super::map::PORTS;
use super::map::SPACE;
use crate::ntb::window::BARS;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::ntb::window::bars;
use crate::pci;
use crate::pci::Capabilities;
use crate::pci::ConfigSpace;
use crate::pci::Signalling;

const IDT: u16 = 0x111d;
/// 89HPES32NT8AG2, with functions at the ports 0, 2, 4, 6, 8, 12, 16 and 20.
const DEVICE: u16 = 0x808f;
/// A bridge of class "other".
const CLASS: u32 = 0x06_80_00;
const REVISION: u8 = 2;

/// The offsets of the capabilities.
const CAPABILITIES: Capabilities = Capabilities {
    interrupts: 0xd0,
    express: 0x40,
};
/// The number of the port, in the link capabilities.
const PORT_NUMBER: usize = 0x4f;
/// The link status: x8 at 5 GT/s.
const LINK_STATUS: (usize, u16) = (0x52, 0x0082);

/// BARSETUP: the BAR exists, a memory BAR of 64 bits.
const SETUP: u32 = (1 << 31) | (1 << 2);
/// BARSETUP: prefetchable.
const SETUP_PREFETCHABLE: u32 = 1 << 3;
/// BARSETUP: the BAR is a view of configuration space.
const SETUP_CONFIG: u32 = 1 << 10;
/// BARSETUP: the position of the size (log2).
const SETUP_SIZE: u32 = 4;

/// Returns the configuration space of an end with those windows.
pub(super) fn config_space(end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
    let mut config = ConfigSpace::new(&pci::Identity {
        vendor: IDT,
        device: DEVICE,
        class: CLASS,
        revision: REVISION,
        bars: bars(SPACE, windows),
        signalling: Signalling::Msi,
        capabilities: CAPABILITIES,
    });
    config.set_initial(PORT_NUMBER, &[PORTS[end] as u8]);
    let (at, status) = LINK_STATUS;
    config.set_initial(at, &status.to_le_bytes());
    config
}

/// Returns the setup of the BARs of an end with those windows.
pub(super) fn setup(windows: &[Window; WINDOWS]) -> [u32; ALL_BARS] {
    let size = |size: u64| size.ilog2() << SETUP_SIZE;
    let mut setup = [0; ALL_BARS];
    setup[0] = SETUP | SETUP_CONFIG | size(SPACE);
    for (window, bar) in windows.iter().zip(BARS) {
        setup[bar] = SETUP | SETUP_PREFETCHABLE | size(window.size);
    }
    setup
}
