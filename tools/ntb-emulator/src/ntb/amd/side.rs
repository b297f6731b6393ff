// SPDX-License-Identifier: GPL-2.0
//! What the registers of one side hold.

use super::events::Events;
use super::map::SCRATCHPADS;
use crate::mmio::merge;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;

/// SIDE_INFO: it is the secondary one.
const SECONDARY: u32 = 1 << 0;
/// SIDE_INFO: its driver is there.
pub(super) const READY: u32 = 1 << 1;

/// How many scratchpads a side has.
const OWN_SCRATCHPADS: usize = SCRATCHPADS / 2;

/// The registers of one side.
#[derive(Debug)]
pub(super) struct Side {
    secondary: bool,
    ready: bool,
    pub(super) control: u32,
    pub(super) scratchpads: [u32; OWN_SCRATCHPADS],
    /// Of this side's windows, which lead into the memory of the other one.
    translation: [u64; WINDOWS],
    limit: [u64; WINDOWS],
    doorbells: u16,
    doorbell_mask: u16,
    pub(super) events: Events,
}

impl Side {
    /// The registers of an end after reset; 0 is the primary side.
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

    /// Which end has a scratchpad, and which of its own it is.
    pub(super) fn scratchpad(index: usize) -> (usize, usize) {
        (index / OWN_SCRATCHPADS % 2, index % OWN_SCRATCHPADS)
    }

    /// Whether its driver is there.
    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// SIDE_INFO.
    pub(super) fn info(&self) -> u32 {
        let side = if self.secondary { SECONDARY } else { 0 };
        side | if self.ready { READY } else { 0 }
    }

    /// Writes SIDE_INFO: which side it is stays.
    pub(super) fn set_info(&mut self, info: u32) {
        self.ready = info & READY != 0;
    }

    /// Where a window leads to.
    pub(super) fn translation(&self, window: usize) -> u64 {
        self.translation[window]
    }

    /// How much of it may be used.
    pub(super) fn limit(&self, window: usize) -> u64 {
        self.limit[window]
    }

    /// What it cannot do is not latched: the driver reads it back.
    pub(super) fn set_translation(&mut self, window: usize, is: &Window, value: u64, mask: u64) {
        let wanted = merge(self.translation[window], value, mask);
        if is.accepts(wanted) {
            self.translation[window] = wanted;
        }
    }

    pub(super) fn set_limit(&mut self, window: usize, value: u64, mask: u64) {
        self.limit[window] = merge(self.limit[window], value, mask);
    }

    /// DB_STAT.
    pub(super) fn doorbells(&self) -> u16 {
        self.doorbells
    }

    /// DB_MASK.
    pub(super) fn doorbell_mask(&self) -> u16 {
        self.doorbell_mask
    }

    /// A doorbell is rung. Returns whether to interrupt.
    #[must_use]
    pub(super) fn ring(&mut self, source: usize) -> bool {
        let fresh = (1 << source) & !self.doorbells;
        self.doorbells |= fresh;
        fresh & !self.doorbell_mask != 0
    }

    pub(super) fn clear_doorbells(&mut self, bits: u16) {
        self.doorbells &= !bits;
    }

    /// Sets DB_MASK. Returns which doorbells are to interrupt.
    #[must_use]
    pub(super) fn set_doorbell_mask(&mut self, mask: u16) -> u16 {
        let lifted = self.doorbell_mask & !mask;
        self.doorbell_mask = mask;
        self.doorbells & lifted
    }
}
