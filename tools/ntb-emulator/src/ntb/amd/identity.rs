// SPDX-License-Identifier: GPL-2.0
//! The identity of a function.

use super::map::MSIX_TABLE;
use super::map::SPACE;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::ntb::window::bars;
use crate::pci;
use crate::pci::Capabilities;
use crate::pci::ConfigSpace;
use crate::pci::Signalling;

const AMD: u16 = 0x1022;
/// The device whose secondary side is an endpoint of its own, not one behind a switch. The driver
/// finds the speed of the link in the function itself, on both sides.
const DEVICE: u16 = 0x17d7;
/// A bridge of class "other".
const CLASS: u32 = 0x06_80_00;
const REVISION: u8 = 0;

/// The number of doorbells.
pub(super) const DOORBELLS: usize = 16;
/// The number of vectors: one for each doorbell, and eight for events.
pub(super) const VECTORS: usize = DOORBELLS + 8;
/// The vector of events.
pub(super) const EVENT_VECTOR: usize = DOORBELLS;

/// Returns the configuration space of a side with those windows.
pub(super) fn config_space(windows: &[Window; WINDOWS]) -> ConfigSpace {
    ConfigSpace::new(&pci::Identity {
        vendor: AMD,
        device: DEVICE,
        class: CLASS,
        revision: REVISION,
        bars: bars(SPACE, windows),
        signalling: Signalling::Msix {
            vectors: VECTORS as u16,
            table: MSIX_TABLE,
            pending: MSIX_TABLE + 0x1000,
        },
        capabilities: Capabilities::default(),
    })
}
