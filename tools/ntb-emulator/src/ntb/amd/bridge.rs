// SPDX-License-Identifier: GPL-2.0
//! A chip as the rest of the emulator sees it.

use super::block::Block;
use super::chip::Chip;
use super::identity;
use super::identity::EVENT_VECTOR;
use super::identity::VECTORS;
use super::map::SPACE;
use super::side::Side;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::ntb::bridge::Bridge;
use crate::ntb::line::Ends;
use crate::ntb::line::Line;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::pci::ConfigSpace;

impl Bridge for Chip {
    fn size(&self) -> u64 {
        SPACE
    }

    fn interrupts(&self) -> Interrupts {
        Interrupts::msix(VECTORS)
    }

    fn config_space(&self, _end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
        identity::config_space(windows)
    }

    fn config_read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]) {
        line.config(end).read(offset, data);
    }

    fn config_write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]) {
        line.state.ends[end].config.write(offset, data);
    }

    fn read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]) {
        mmio::read(&mut Block::new(self, line, end), offset, data);
    }

    fn write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]) {
        mmio::write(&mut Block::new(self, line, end), offset, data);
    }

    /// Returns whether the driver has said that it is ready.
    fn wants_link(&self, _line: &Line<'_>, end: usize) -> bool {
        self.sides[end].is_ready()
    }

    /// Posts events. They are about the cable, not about the drivers, which poll each other.
    fn settle(&mut self, line: &mut Line<'_>, _switched: bool) {
        self.join(line.is_joined());
        for (end, side) in self.sides.iter_mut().enumerate() {
            if side.events.post() {
                line.raise(end, EVENT_VECTOR);
            }
        }
    }

    fn arrive(&mut self, line: &mut Line<'_>, end: usize, source: usize) {
        if line.is_joined() {
            self.rung(line, end, source);
        }
    }

    /// Resets an end. The link goes down for a moment, and up again if both QEMUs are still there.
    fn reset(&mut self, end: usize) {
        self.join(false);
        self.sides[end] = Side::new(end);
    }

    /// Returns the translation and the limit from the registers of the end that has the window.
    fn translation(&self, _state: &Ends, end: usize, window: usize, size: u64) -> (u64, u64) {
        let side = &self.sides[end];
        (side.translation(window), side.limit(window).min(size))
    }
}
