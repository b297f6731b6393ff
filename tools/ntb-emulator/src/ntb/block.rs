// SPDX-License-Identifier: GPL-2.0
//! The registers of one end while a guest accesses them.
//!
//! A register access can concern both ends (doorbells, the peer's scratchpads, the state of
//! the link), so it is made with the whole link locked. What a register of one end holds
//! is in [`super::registers`].

use parking_lot::MutexGuard;

use super::link::Link;
use super::link::State;
use super::registers::Register;
use super::window::BARS;
use crate::mmio;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;

/// The size of a scratchpad in bytes.
const SCRATCHPAD_SIZE: u64 = 4;

/// What a register access made necessary.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Doorbells rung.
    pub doorbells: u64,
    /// Accesses to the peer that reached nothing.
    pub dropped: u64,
    /// Bytes of the peer's registers read.
    pub read: u64,
    /// Bytes of the peer's registers written, without doorbells.
    pub written: u64,
}

/// The registers of one end, with everything locked that they have an effect on.
pub struct Block<'a> {
    link: &'a Link,
    state: MutexGuard<'a, State>,
    end: usize,
    /// What the accesses have made necessary so far.
    pub effects: Effects,
}

impl<'a> Block<'a> {
    /// Locks the link for accesses to the registers of an end.
    pub fn new(link: &'a Link, end: usize) -> Self {
        Self {
            link,
            state: link.state.lock(),
            end,
            effects: Effects::default(),
        }
    }

    /// Whether the peer can be reached; counts it if not.
    fn peer(&mut self) -> Option<usize> {
        if self.state.up {
            return Some(1 - self.end);
        }
        self.effects.dropped += 1;
        None
    }
}

impl RegisterBlock for Block<'_> {
    type Register = Register;

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        self.link.identity.registers.locate(offset)
    }

    fn read(&mut self, register: Register) -> u64 {
        match register {
            Register::PeerScratchpad(index) => match self.peer() {
                Some(peer) => {
                    self.effects.read += SCRATCHPAD_SIZE;
                    self.state.ends[peer].registers.scratchpads[index].into()
                }
                None => u64::MAX,
            },
            Register::LinkStatus => self.state.link_status().into(),
            Register::Topology => self.link.identity.topology[self.end].into(),
            Register::ExternalBar(window) => {
                let config = &self.state.ends[self.end].config;
                config.bar_base(BARS[window]) | 0xc
            }
            _ => self.state.ends[self.end].registers.read(register),
        }
    }

    fn write(&mut self, register: Register, value: u64, mask: u64) {
        match register {
            Register::PeerScratchpad(index) => {
                if let Some(peer) = self.peer() {
                    self.effects.written += SCRATCHPAD_SIZE;
                    let scratchpad = &mut self.state.ends[peer].registers.scratchpads[index];
                    *scratchpad = mmio::merge((*scratchpad).into(), value, mask) as u32;
                }
            }
            Register::Doorbell(source) => {
                if value & 1 == 0 {
                    return;
                }
                if self.peer().is_some() {
                    self.effects.doorbells += 1;
                    self.link.ring(&mut self.state, self.end, source);
                }
            }
            _ => {
                let vectors = self.state.ends[self.end].registers.write(
                    register,
                    value,
                    mask,
                    // Of the other end: they lead here.
                    &self.link.windows[1 - self.end],
                );
                for vector in vectors {
                    self.link.sides[self.end].interrupts.raise(vector);
                }
                self.link.update(&mut self.state);
            }
        }
    }
}
