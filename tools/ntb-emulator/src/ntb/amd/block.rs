// SPDX-License-Identifier: GPL-2.0
//! The registers while a guest accesses them, with the whole link locked.

use super::chip::Chip;
use super::identity::DOORBELLS;
use super::identity::EVENT_VECTOR;
use super::map;
use super::map::Place;
use super::map::Register;
use super::side::Side;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;
use crate::mmio::merge;
use crate::ntb::line::Line;

/// The size of a scratchpad in bytes.
const SCRATCHPAD_SIZE: u64 = 4;

/// The registers as one end accesses them.
pub(super) struct Block<'a, 'b> {
    chip: &'a mut Chip,
    line: &'a mut Line<'b>,
    end: usize,
}

impl<'a, 'b> Block<'a, 'b> {
    /// For accesses by an end.
    pub(super) fn new(chip: &'a mut Chip, line: &'a mut Line<'b>, end: usize) -> Self {
        Self { chip, line, end }
    }

    /// Returns the end that the register belongs to.
    fn owner(&self, place: Place) -> usize {
        if place.peer { 1 - self.end } else { self.end }
    }

    /// Returns a scratchpad, unless it is the other side's and that side is not present.
    fn scratchpad(&mut self, index: usize) -> Option<&mut u32> {
        let (end, index) = Side::scratchpad(index);
        if end != self.end && !self.line.is_joined() {
            self.line.effects.dropped += 1;
            return None;
        }
        Some(&mut self.chip.sides[end].scratchpads[index])
    }

    /// Returns how many bytes of the peer's registers an access to a scratchpad moves.
    fn distance(&self, index: usize) -> u64 {
        match Side::scratchpad(index).0 == self.end {
            true => 0,
            false => SCRATCHPAD_SIZE,
        }
    }
}

impl RegisterBlock for Block<'_, '_> {
    type Register = Place;

    fn locate(&self, offset: u64) -> Option<Located<Place>> {
        map::locate(offset)
    }

    fn read(&mut self, place: Place) -> u64 {
        let side = &self.chip.sides[self.owner(place)];
        match place.register {
            Register::Control => side.control.into(),
            Register::Scratchpad(index) => match self.scratchpad(index).copied() {
                Some(value) => {
                    self.line.effects.read += self.distance(index);
                    value.into()
                }
                None => u64::MAX,
            },
            Register::SideInfo if place.peer => self.chip.peer_info(self.line, self.end).into(),
            Register::SideInfo => side.info().into(),
            Register::Limit(window) => side.limit(window),
            Register::Translation(window) => side.translation(window),
            Register::DoorbellMask => side.doorbell_mask().into(),
            Register::Doorbells => side.doorbells().into(),
            Register::EventMask => side.events.mask().into(),
            Register::Event => side.events.status().into(),
            // An acknowledgement takes effect at once.
            Register::Ring | Register::Acknowledge => 0,
        }
    }

    fn write(&mut self, place: Place, value: u64, mask: u64) {
        let owner = self.owner(place);
        let windows = &self.line.wires.windows[owner];
        let side = &mut self.chip.sides[owner];
        let merge32 = |old: u32| merge(old.into(), value, mask) as u32;
        match place.register {
            Register::Control => side.control = merge32(side.control),
            Register::Scratchpad(index) => {
                if let Some(scratchpad) = self.scratchpad(index) {
                    *scratchpad = merge32(*scratchpad);
                    self.line.effects.written += self.distance(index);
                }
            }
            Register::SideInfo if place.peer => {
                let info = merge32(self.chip.peer_info(self.line, self.end));
                self.chip.set_peer_info(self.line, self.end, info);
            }
            Register::SideInfo => side.set_info(merge32(side.info())),
            Register::Limit(window) => side.set_limit(window, value, mask),
            Register::Translation(window) => {
                side.set_translation(window, &windows[window], value, mask);
            }
            Register::Ring => self.chip.ring(self.line, self.end, value),
            Register::DoorbellMask => {
                let bells = side.set_doorbell_mask(merge32(side.doorbell_mask().into()) as u16);
                for source in (0..DOORBELLS).filter(|source| bells & (1 << source) != 0) {
                    self.line.raise(self.end, source);
                }
            }
            Register::Doorbells => side.clear_doorbells(value as u16),
            Register::EventMask => {
                if side.events.set_mask(merge32(side.events.mask())) {
                    self.line.raise(self.end, EVENT_VECTOR);
                }
            }
            Register::Event => side.events.clear(value as u32),
            Register::Acknowledge => side.events.acknowledge(value as u32),
        }
    }
}
