// SPDX-License-Identifier: GPL-2.0
//! A switch as the rest of the emulator sees it.

use super::block::Block;
use super::function::COMPLETIONS;
use super::identity;
use super::map::Event;
use super::map::PARTITIONS;
use super::map::PORTS;
use super::map::Register;
use super::map::SPACE;
use super::switch::Switch;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::ntb::bridge::Bridge;
use crate::ntb::line::Ends;
use crate::ntb::line::Line;
use crate::ntb::window::BARS;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;
use crate::pci::ConfigSpace;

impl Bridge for Switch {
    fn size(&self) -> u64 {
        SPACE
    }

    fn interrupts(&self) -> Interrupts {
        Interrupts::msi()
    }

    fn config_space(&self, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
        identity::config_space(end, windows)
    }

    /// Reads configuration space, which is the same as BAR 0.
    fn config_read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]) {
        self.read(line, end, offset, data);
    }

    fn config_write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]) {
        match Register::at(offset) {
            Some(Register::Config(_)) => line.state.ends[end].config.write(offset, data),
            _ => self.write(line, end, offset, data),
        }
    }

    fn read(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &mut [u8]) {
        mmio::read(&mut Block::new(self, line, end), offset, data);
    }

    fn write(&mut self, line: &mut Line<'_>, end: usize, offset: u64, data: &[u8]) {
        mmio::write(&mut Block::new(self, line, end), offset, data);
    }

    /// Returns whether ntb_hw_idt would take the end for up.
    fn wants_link(&self, line: &Line<'_>, end: usize) -> bool {
        let completions = self.functions[end].control & COMPLETIONS != 0;
        line.config(end).is_master() && completions && self.passes(end)
    }

    fn settle(&mut self, line: &mut Line<'_>, _switched: bool) {
        for (end, port) in PORTS.into_iter().enumerate() {
            let up = line.is_present(end);
            if up != self.ports[end] {
                self.ports[end] = up;
                let event = if up { Event::LinkUp } else { Event::LinkDown };
                self.happens(event, port);
            }
        }
        for end in 0..2 {
            if self.functions[end].interrupts_now(self.doorbells) {
                line.raise(end, 0);
            }
        }
    }

    fn arrive(&mut self, line: &mut Line<'_>, _end: usize, source: usize) {
        if line.is_joined() {
            self.doorbells |= 1 << (source as u32 % u32::BITS);
        }
    }

    /// Resets an end. The link of its port goes down, and comes up again if its QEMU is still
    /// there. The state of the switch stays: the switch was not reset.
    fn reset(&mut self, end: usize) {
        self.functions[end].reset();
        self.forget(end);
        if self.ports[end] {
            self.ports[end] = false;
            self.happens(Event::LinkDown, PORTS[end]);
        }
    }

    /// Returns the translation from the end that has the window.
    fn translation(&self, state: &Ends, end: usize, window: usize, _size: u64) -> (u64, u64) {
        let bar = BARS[window];
        let address = state.ends[end].config.bar_base(bar);
        self.functions[end].translation(bar, address, PARTITIONS[1 - end])
    }
}
