// SPDX-License-Identifier: GPL-2.0
//! One end of a link, as the function of a guest uses it.
//!
//! What concerns both ends is behind the lock of the [`Link`].

use std::sync::Arc;

use super::bridge::Bridge;
use super::line::Effects;
use super::line::Line;
use super::link::Link;
use super::window::BARS;
use super::window::Reach;
use super::window::WINDOWS;
use super::window::Window;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::model::link::Crossing;
use crate::model::picoseconds::Picoseconds;
use crate::ram::Ram;

/// One end of a link.
#[derive(Clone)]
pub struct Port {
    link: Arc<Link>,
    /// 0 is upstream.
    end: usize,
}

impl Port {
    /// An end of a link; 0 is upstream.
    pub fn new(link: &Arc<Link>, end: usize) -> Self {
        Self {
            link: Arc::clone(link),
            end: end & 1,
        }
    }

    /// The windows of this end.
    pub fn windows(&self) -> &[Window; WINDOWS] {
        &self.link.wires.windows[self.end]
    }

    /// What this end's function reaches of its guest's RAM.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.link.wires.sides[self.end].memory
    }

    /// The RAM of the guest at the other end.
    pub fn peer_ram(&self) -> &Arc<Ram> {
        self.link.wires.sides[1 - self.end].memory.ram()
    }

    /// The vectors of this end's function.
    pub fn interrupts(&self) -> &Interrupts {
        &self.link.wires.sides[self.end].interrupts
    }

    /// The size of BAR 0.
    pub fn registers(&self) -> u64 {
        self.link.registers
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u64, data: &mut [u8]) {
        self.link
            .change(|bridge, line| bridge.config_read(line, self.end, offset, data));
    }

    /// Writes configuration space.
    pub fn config_write(&self, offset: u64, data: &[u8]) {
        self.link
            .change(|bridge, line| bridge.config_write(line, self.end, offset, data));
    }

    /// Reads registers.
    pub fn register_read(&self, offset: u64, data: &mut [u8]) -> Effects {
        self.link
            .change(|bridge, line| bridge.read(line, self.end, offset, data))
    }

    /// Writes registers.
    pub fn register_write(&self, offset: u64, data: &[u8]) -> Effects {
        self.link
            .change(|bridge, line| bridge.write(line, self.end, offset, data))
    }

    /// This end of what takes time, if the link does.
    pub fn crossing(&self) -> Option<&Crossing> {
        let timing = self.link.wires.timing.as_ref()?;
        timing.crossings.get(self.end)
    }

    /// Waits until an access by the guest's processor is over, which takes time only if the
    /// link does: `over` says when that is, by what time it is now.
    pub fn wait(&self, over: impl FnOnce(&Crossing, Picoseconds) -> Picoseconds) {
        if let Some(timing) = &self.link.wires.timing {
            let end = over(&timing.crossings[self.end], timing.clock.now());
            timing.clock.sleep_until(end);
        }
    }

    /// Where an access at `offset` of a window leads to.
    pub fn reach(&self, window: usize, offset: u64, length: u64, access: Access) -> Reach {
        let state = self.link.state.lock();
        self.link
            .reach(&state, self.end, window, offset, length, access)
    }

    /// Where an address on this guest's bus leads to, if it is in one of the windows.
    pub fn decode(&self, address: u64, length: u64, access: Access) -> Option<Reach> {
        let state = self.link.state.lock();
        let (bar, offset) = state.ends.ends[self.end].config.decode(address)?;
        let window = BARS.iter().position(|index| *index == bar.index)?;
        Some(
            self.link
                .reach(&state, self.end, window, offset, length, access),
        )
    }

    /// QEMU is there.
    pub fn connect(&self) {
        self.link
            .change(|_, line| line.state.ends[self.end].connected = true);
    }

    /// The guest was reset.
    pub fn reset(&self) {
        self.link
            .change(|bridge, line| self.reset_end(bridge, line));
    }

    /// QEMU is gone.
    pub fn disconnect(&self) {
        self.link.change(|bridge, line| {
            line.state.ends[self.end].connected = false;
            self.reset_end(bridge, line);
        });
    }

    fn reset_end(&self, bridge: &mut dyn Bridge, line: &mut Line<'_>) {
        bridge.reset(self.end);
        line.state.ends[self.end].config.reset();
        self.interrupts().reset();
    }
}
