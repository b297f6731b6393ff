// SPDX-License-Identifier: GPL-2.0
//! The registers of one end while a guest accesses them, with the whole link locked.
//! [`super::registers`] has the contents of the registers.

use super::identity::Identity;
use super::pair::Pair;
use super::registers::Register;
use crate::mmio;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;
use crate::ntb::line::Line;
use crate::ntb::window::BARS;

/// The size of a scratchpad in bytes.
const SCRATCHPAD_SIZE: u64 = 4;

/// The registers of one end, with everything locked that accesses have an effect on.
pub(super) struct Block<'a, 'b> {
    pair: &'a mut Pair,
    line: &'a mut Line<'b>,
    end: usize,
}

impl<'a, 'b> Block<'a, 'b> {
    /// Makes the block for accesses to the registers of an end.
    pub(super) fn new(pair: &'a mut Pair, line: &'a mut Line<'b>, end: usize) -> Self {
        Self { pair, line, end }
    }

    /// Returns the peer if it can be reached, and counts a dropped access if not.
    fn peer(&mut self) -> Option<usize> {
        if self.line.state.up {
            return Some(1 - self.end);
        }
        self.line.effects.dropped += 1;
        None
    }
}

impl RegisterBlock for Block<'_, '_> {
    type Register = Register;

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        self.pair.identity.registers.locate(offset)
    }

    fn read(&mut self, register: Register) -> u64 {
        match register {
            Register::PeerScratchpad(index) => match self.peer() {
                Some(peer) => {
                    self.line.effects.read += SCRATCHPAD_SIZE;
                    self.pair.ends[peer].scratchpads[index].into()
                }
                None => u64::MAX,
            },
            Register::LinkStatus => Identity::link_status(self.line.state.up).into(),
            Register::Topology => self.pair.identity.topology[self.end].into(),
            Register::ExternalBar(window) => {
                self.line.config(self.end).bar_base(BARS[window]) | 0xc
            }
            _ => self.pair.ends[self.end].read(register),
        }
    }

    fn write(&mut self, register: Register, value: u64, mask: u64) {
        match register {
            Register::PeerScratchpad(index) => {
                if let Some(peer) = self.peer() {
                    self.line.effects.written += SCRATCHPAD_SIZE;
                    let scratchpad = &mut self.pair.ends[peer].scratchpads[index];
                    *scratchpad = mmio::merge((*scratchpad).into(), value, mask) as u32;
                }
            }
            Register::Doorbell(source) => {
                if value & 1 == 0 {
                    return;
                }
                if self.peer().is_some() {
                    self.line.effects.doorbells += 1;
                    self.pair.ring(self.line, self.end, source);
                }
            }
            _ => {
                let vectors = self.pair.ends[self.end].write(
                    register,
                    value,
                    mask,
                    // These are the windows of the other end, which lead here.
                    &self.line.wires.windows[1 - self.end],
                );
                for vector in vectors {
                    self.line.raise(self.end, vector);
                }
            }
        }
    }
}
