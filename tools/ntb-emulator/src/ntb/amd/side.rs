// SPDX-License-Identifier: GPL-2.0
//! The contents of the registers of one side.

use super::events::Events;
use super::map::SCRATCHPADS;
use crate::mmio::merge;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;

/// SIDE_INFO: this side is the secondary one.
const SECONDARY: u32 = 1 << 0;
/// SIDE_INFO: the driver is ready.
pub(super) const READY: u32 = 1 << 1;

/// Number of scratchpads of a side.
const OWN_SCRATCHPADS: usize = SCRATCHPADS / 2;

/// The registers of one side.
#[derive(Debug)]
pub(super) struct Side {
    secondary: bool,
    ready: bool,
    pub(super) control: u32,
    pub(super) scratchpads: [u32; OWN_SCRATCHPADS],
    /// Translations of this side's windows, which lead into the memory of the other one.
    translation: [u64; WINDOWS],
    limit: [u64; WINDOWS],
    doorbells: u16,
    doorbell_mask: u16,
    pub(super) events: Events,
}

impl Side {
    /// Returns the registers of an end after reset; 0 is the primary side.
    pub(super) fn new(end: usize) -> Self {
        Self {
            secondary: end != 0,
            ready: false,
            control: 0,
            scratchpads: [0; OWN_SCRATCHPADS],
            translation: [0; WINDOWS],
            limit: [0; WINDOWS],
            doorbells: 0,
            doorbell_mask: u16::MAX,
            events: Events::new(),
        }
    }

    /// Returns the end that has a scratchpad, and the index of the scratchpad there.
    pub(super) fn scratchpad(index: usize) -> (usize, usize) {
        (index / OWN_SCRATCHPADS % 2, index % OWN_SCRATCHPADS)
    }

    /// Returns whether the driver is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns SIDE_INFO.
    pub(super) fn info(&self) -> u32 {
        let side = if self.secondary { SECONDARY } else { 0 };
        side | if self.ready { READY } else { 0 }
    }

    /// Writes SIDE_INFO. The number of the side stays.
    pub(super) fn set_info(&mut self, info: u32) {
        self.ready = info & READY != 0;
    }

    /// Returns the translation of a window.
    pub(super) fn translation(&self, window: usize) -> u64 {
        self.translation[window]
    }

    /// Returns how many bytes of a window may be used.
    pub(super) fn limit(&self, window: usize) -> u64 {
        self.limit[window]
    }

    /// Sets the translation of a window. A translation that the window can't have is not latched:
    /// the driver reads it back.
    pub(super) fn set_translation(&mut self, window: usize, is: &Window, value: u64, mask: u64) {
        let wanted = merge(self.translation[window], value, mask);
        if is.accepts(wanted) {
            self.translation[window] = wanted;
        }
    }

    pub(super) fn set_limit(&mut self, window: usize, value: u64, mask: u64) {
        self.limit[window] = merge(self.limit[window], value, mask);
    }

    /// Returns DB_STAT.
    pub(super) fn doorbells(&self) -> u16 {
        self.doorbells
    }

    /// Returns DB_MASK.
    pub(super) fn doorbell_mask(&self) -> u16 {
        self.doorbell_mask
    }

    /// Rings a doorbell. Returns whether to interrupt.
    #[must_use]
    pub(super) fn ring(&mut self, source: usize) -> bool {
        let fresh = (1 << source) & !self.doorbells;
        self.doorbells |= fresh;
        fresh & !self.doorbell_mask != 0
    }

    pub(super) fn clear_doorbells(&mut self, bits: u16) {
        self.doorbells &= !bits;
    }

    /// Sets DB_MASK. Returns the doorbells that must interrupt.
    #[must_use]
    pub(super) fn set_doorbell_mask(&mut self, mask: u16) -> u16 {
        let lifted = self.doorbell_mask & !mask;
        self.doorbell_mask = mask;
        self.doorbells & lifted
    }
}
