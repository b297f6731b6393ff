// SPDX-License-Identifier: GPL-2.0
//! The registers of one end of a link, common to all personalities.
//!
//! [`super::register_map`] has the offset of each register; this file has their contents and the
//! values that they take. [`super::block`] has registers that concern both ends: doorbells, the
//! peer's scratchpads, link state.

use crate::mmio::merge;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;

/// The number of doorbells.
pub const DOORBELLS: usize = 32;
/// The number of scratchpads.
pub const SCRATCHPADS: usize = 16;
/// The number of interrupt sources and vectors: the doorbells, and the link.
pub const VECTORS: usize = DOORBELLS + 1;
/// The interrupt source of the link.
pub const LINK_SOURCE: usize = DOORBELLS;

const ALL_SOURCES: u64 = (1 << VECTORS) - 1;

/// A data link layer state change, in the slot status.
const SLOT_LINK_CHANGED: u16 = 0x100;
/// Gen5: the link must not be up, in the link control.
const LINK_DISABLE: u16 = 1 << 4;
/// Gen5: the link is being trained, in PPD 0.
const LINK_TRAINING: u32 = 1 << 3;
/// Gen3: the link must not be up, in NTBCNTL.
const CONTROL_DISABLE: u32 = 1 << 1;
/// Gen3: configuration is locked, in NTBCNTL.
const CONTROL_LOCK: u32 = 1 << 0;

/// The link status of an active link: x8 at 8 GT/s.
pub const LINK_ACTIVE: u16 = 0x2083;

/// A register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// NTBCNTL.
    Control,
    /// The target of the peer's accesses through its window, in this guest's memory.
    TranslationBase(usize),
    /// The end of the peer's window: this end's BAR plus the permitted size.
    TranslationLimit(usize),
    /// The sources that have raised an interrupt; write 1 to clear.
    InterruptStatus,
    /// The sources that do not interrupt.
    InterruptDisable,
    /// The vector of a source.
    InterruptVector(usize),
    /// A scratchpad of this end.
    Scratchpad(usize),
    /// A scratchpad of the peer.
    PeerScratchpad(usize),
    /// Writing 1 raises the source at the peer.
    Doorbell(usize),
    /// Gen5: link control.
    LinkControl,
    /// Gen5: link status.
    LinkStatus,
    /// Gen5: slot status; write 1 to clear.
    SlotStatus,
    /// Gen5: PPD 0.
    Training,
    /// Gen5: PPD 1, the number of this end.
    Topology,
    /// Gen3: the BAR of a window as the external side sees it.
    ExternalBar(usize),
    /// Gen3: the limit on the external side; stored only.
    ExternalLimit(usize),
    /// Storage without effect.
    Plain(usize),
}

/// The way in which a personality's link is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSwitch {
    /// By link control and PPD 0.
    Training,
    /// By NTBCNTL.
    Control,
}

/// Number of registers without effect.
pub const PLAIN: usize = 4;

/// The contents of the registers of one end.
#[derive(Debug)]
pub struct Registers {
    switch: LinkSwitch,
    control: u32,
    base: [u64; WINDOWS],
    limit: [u64; WINDOWS],
    status: u64,
    disable: u64,
    vectors: [u8; VECTORS],
    /// The scratchpads, which the peer reaches as well.
    pub scratchpads: [u32; SCRATCHPADS],
    link_control: u16,
    slot_status: u16,
    training: u32,
    external_limit: [u64; WINDOWS],
    plain: [u32; PLAIN],
}

impl Registers {
    /// Creates the registers after reset.
    pub fn new(switch: LinkSwitch) -> Self {
        Self {
            switch,
            control: match switch {
                LinkSwitch::Training => 0,
                LinkSwitch::Control => CONTROL_DISABLE | CONTROL_LOCK,
            },
            base: [0; WINDOWS],
            limit: [0; WINDOWS],
            status: 0,
            disable: 0,
            // Sources 0 to 31 have vectors 1 to 32, the link has vector 0.
            vectors: std::array::from_fn(|source| ((source + 1) % VECTORS) as u8),
            scratchpads: [0; SCRATCHPADS],
            link_control: 0,
            slot_status: 0,
            training: 0,
            external_limit: [0; WINDOWS],
            plain: [0; PLAIN],
        }
    }

    /// Returns to the state after reset.
    pub fn reset(&mut self) {
        *self = Self::new(self.switch);
    }

    /// Returns whether the driver of this end wants the link up.
    pub fn wants_link(&self) -> bool {
        match self.switch {
            LinkSwitch::Training => {
                self.link_control & LINK_DISABLE == 0 && self.training & LINK_TRAINING != 0
            }
            LinkSwitch::Control => self.control & CONTROL_DISABLE == 0,
        }
    }

    /// Records an interrupt of a source. Returns the vector to raise.
    pub fn raise(&mut self, source: usize) -> Option<usize> {
        if source == LINK_SOURCE {
            self.slot_status |= SLOT_LINK_CHANGED;
        }
        let bit = 1 << source;
        self.status |= bit;
        (self.disable & bit == 0).then(|| self.vectors[source].into())
    }

    /// Returns the vectors of sources among `sources` that were raised and not cleared.
    fn pending(&self, sources: u64) -> Vec<usize> {
        (0..VECTORS)
            .filter(|source| self.status & !self.disable & sources & (1 << source) != 0)
            .map(|source| self.vectors[source].into())
            .collect()
    }

    /// Returns where the peer's window leads to, and how many bytes of it are permitted. `bar` is
    /// the address of this end's own BAR of that window.
    pub fn translation(&self, window: usize, bar: u64, size: u64) -> (u64, u64) {
        let permitted = match self.limit[window].checked_sub(bar) {
            Some(length) if length <= size => length,
            // The driver's value for "nothing" until it knows a limit.
            _ => 0,
        };
        (self.base[window], permitted)
    }

    /// Reads a register that concerns this end only.
    pub fn read(&self, register: Register) -> u64 {
        match register {
            Register::Control => self.control.into(),
            Register::TranslationBase(window) => self.base[window],
            Register::TranslationLimit(window) => self.limit[window],
            Register::InterruptStatus => self.status,
            Register::InterruptDisable => self.disable,
            Register::InterruptVector(source) => self.vectors[source].into(),
            Register::Scratchpad(index) => self.scratchpads[index].into(),
            Register::LinkControl => self.link_control.into(),
            Register::SlotStatus => self.slot_status.into(),
            Register::Training => self.training.into(),
            Register::ExternalLimit(window) => self.external_limit[window],
            Register::Plain(index) => self.plain[index].into(),
            Register::PeerScratchpad(_)
            | Register::Doorbell(_)
            | Register::LinkStatus
            | Register::Topology
            | Register::ExternalBar(_) => 0,
        }
    }

    /// Writes a register that concerns this end only. Returns the vectors to raise.
    pub fn write(
        &mut self,
        register: Register,
        value: u64,
        mask: u64,
        windows: &[Window; WINDOWS],
    ) -> Vec<usize> {
        let merge16 = |old: u16| merge(old.into(), value, mask) as u16;
        let merge32 = |old: u32| merge(old.into(), value, mask) as u32;
        match register {
            Register::Control => self.control = merge32(self.control),
            Register::TranslationBase(window) => {
                let wanted = merge(self.base[window], value, mask);
                // A translation that the window can't have is not latched: the driver reads it
                // back.
                if windows[window].accepts(wanted) {
                    self.base[window] = wanted;
                }
            }
            Register::TranslationLimit(window) => {
                self.limit[window] = merge(self.limit[window], value, mask);
            }
            Register::InterruptStatus => self.status &= !value,
            Register::InterruptDisable => {
                let before = self.disable;
                self.disable = merge(before, value, mask) & ALL_SOURCES;
                return self.pending(before & !self.disable);
            }
            Register::InterruptVector(source) => self.vectors[source] = value as u8,
            Register::Scratchpad(index) => {
                self.scratchpads[index] = merge32(self.scratchpads[index]);
            }
            Register::LinkControl => self.link_control = merge16(self.link_control),
            Register::SlotStatus => self.slot_status &= !(value as u16),
            Register::Training => self.training = merge32(self.training),
            Register::ExternalLimit(window) => {
                self.external_limit[window] = merge(self.external_limit[window], value, mask);
            }
            Register::Plain(index) => self.plain[index] = merge32(self.plain[index]),
            Register::PeerScratchpad(_)
            | Register::Doorbell(_)
            | Register::LinkStatus
            | Register::Topology
            | Register::ExternalBar(_) => {}
        }
        Vec::new()
    }
}
