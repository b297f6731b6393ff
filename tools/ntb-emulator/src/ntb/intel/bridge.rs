// SPDX-License-Identifier: GPL-2.0
//! A pair as the rest of the emulator sees it.

use super::block::Block;
use super::identity::Identity;
use super::identity::REGISTERS_SIZE;
use super::pair::Pair;
use super::registers::LINK_SOURCE;
use super::registers::VECTORS;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::ntb::bridge::Bridge;
use crate::ntb::line::Ends;
use crate::ntb::line::Line;
use crate::ntb::window::BARS;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::pci::ConfigSpace;

impl Bridge for Pair {
    fn size(&self) -> u64 {
        REGISTERS_SIZE
    }

    fn interrupts(&self) -> Interrupts {
        Interrupts::msix(VECTORS)
    }

    fn config_space(&self, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
        self.identity.config_space(end, windows)
    }

    fn config_read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]) {
        line.config(end).read(offset, data);
        if let Some(at) = self.identity.link_status_in_config {
            let status = Identity::link_status(line.state.up).to_le_bytes();
            for (index, byte) in data.iter_mut().enumerate() {
                if let Some(skip) = offset
                    .checked_add(index as u64)
                    .and_then(|o| o.checked_sub(at))
                {
                    if let Some(value) = status.get(skip as usize) {
                        *byte = *value;
                    }
                }
            }
        }
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

    fn wants_link(&self, _line: &Line<'_>, end: usize) -> bool {
        self.ends[end].wants_link()
    }

    fn settle(&mut self, line: &mut Line<'_>, switched: bool) {
        if switched {
            for end in 0..2 {
                self.raise(line, end, LINK_SOURCE);
            }
        }
    }

    fn arrive(&mut self, line: &mut Line<'_>, end: usize, source: usize) {
        if line.state.up {
            self.raise(line, end, source);
        }
    }

    fn reset(&mut self, end: usize) {
        self.ends[end].reset();
    }

    /// Returns the translation from the registers of the end whose memory is behind the window.
    fn translation(&self, state: &Ends, end: usize, window: usize, size: u64) -> (u64, u64) {
        let peer = 1 - end;
        let bar = state.ends[peer].config.bar_base(BARS[window]);
        self.ends[peer].translation(window, bar, size)
    }
}
