// SPDX-License-Identifier: GPL-2.0
//! One end of a link, as the function of a guest uses it.
//!
//! The lock of the [`Link`] protects state that concerns both ends.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
use crate::order::Initiator;
use crate::order::direction::Direction;
use crate::order::direction::Posted;
use crate::ram::Ram;

/// One end of a link.
#[derive(Clone)]
pub struct Port {
    link: Arc<Link>,
    /// 0 is upstream.
    end: usize,
}

impl Port {
    /// Creates an end of a link; 0 is upstream.
    pub fn new(link: &Arc<Link>, end: usize) -> Self {
        Self {
            link: Arc::clone(link),
            end: end & 1,
        }
    }

    /// Returns the windows of this end.
    pub fn windows(&self) -> &[Window; WINDOWS] {
        &self.link.wires.windows[self.end]
    }

    /// Returns the part of its guest's RAM that this end's function reaches.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.link.wires.sides[self.end].memory
    }

    /// Returns the RAM of the guest at the other end.
    pub fn peer_ram(&self) -> &Arc<Ram> {
        self.link.wires.sides[1 - self.end].memory.ram()
    }

    /// Returns the vectors of this end's function.
    pub fn interrupts(&self) -> &Interrupts {
        &self.link.wires.sides[self.end].interrupts
    }

    /// Returns the size of BAR 0.
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
        self.change(|bridge, line| bridge.config_write(line, self.end, offset, data));
    }

    /// Reads registers.
    pub fn register_read(&self, offset: u64, data: &mut [u8]) -> Effects {
        self.link
            .change(|bridge, line| bridge.read(line, self.end, offset, data))
    }

    /// Writes registers.
    pub fn register_write(&self, offset: u64, data: &[u8]) -> Effects {
        self.change(|bridge, line| bridge.write(line, self.end, offset, data))
    }

    /// Locks the link for a write of this end, and then sends the doorbells that the write has
    /// rung.
    fn change(&self, act: impl FnOnce(&mut dyn Bridge, &mut Line<'_>)) -> Effects {
        let effects = self.link.change(act);
        for (end, rung) in effects.rung.into_iter().enumerate() {
            if rung != 0 {
                Self::new(&self.link, end).ring(rung);
            }
        }
        effects
    }

    // ----- the order of what is written to the other end ---------------------------------------

    /// Returns the order of this end's writes, if it is weak.
    pub fn order(&self) -> Option<&Direction> {
        self.link.wires.order.as_ref()?.get(self.end)
    }

    /// Sends doorbells, as bits, when the order lets them.
    fn ring(&self, sources: u64) {
        let Some(order) = self.order() else {
            return;
        };
        let session = self.link.session.load(Relaxed);
        let bell = Posted::Bell { sources, session };
        order.post(Initiator::Bell, bell, |posted| self.arrive(posted));
    }

    /// Writes through a window, piece by piece, up to the end of memory: at once, or when the order
    /// lets the write arrive. Returns how many pieces are known to have reached no memory.
    pub fn write(&self, initiator: Initiator, window: usize, offset: u64, data: &[u8]) -> u64 {
        let Some(order) = self.order() else {
            return self.write_now(window, offset, data);
        };
        let posted = Posted::Write {
            window,
            offset,
            data: data.to_vec(),
            session: self.link.session.load(Relaxed),
        };
        order.post(initiator, posted, |posted| self.arrive(posted));
        0
    }

    /// Writes to an address on this guest's bus. Does nothing if there is no window any more.
    pub fn write_at(&self, initiator: Initiator, address: u64, data: &[u8]) {
        let place = {
            let state = self.link.state.lock();
            state.ends.ends[self.end].config.decode(address)
        };
        let window = |index| BARS.iter().position(|bar| *bar == index);
        if let Some((window, offset)) =
            place.and_then(|(bar, offset)| Some((window(bar.index)?, offset)))
        {
            self.write(initiator, window, offset, data);
        }
    }

    /// Lets the writes arrive that a read by an initiator of this end must stay behind.
    pub fn push(&self, reader: Initiator) {
        if let Some(order) = self.order() {
            order.push(reader, |posted| self.arrive(posted));
        }
    }

    /// Lets the writes arrive that must be here before the answer to a read.
    pub fn answer(&self, reader: Initiator) {
        let back = Self::new(&self.link, 1 - self.end);
        if let Some(order) = back.order() {
            order.push_by_answer(reader, |posted| back.arrive(posted));
        }
    }

    /// Lets this end's writes arrive, for ever. Returns if the order is not weak.
    pub fn carry(&self) {
        if let Some(order) = self.order() {
            order.run(|posted| self.arrive(posted))
        }
    }

    /// Delivers a write of this end, unless the link has been down since.
    fn arrive(&self, posted: Posted) {
        let now = self.link.session.load(Relaxed);
        match posted {
            Posted::Write {
                window,
                offset,
                data,
                session,
            } if session == now => {
                let dropped = self.write_now(window, offset, &data);
                if let Some(order) = self.order() {
                    order.counters().dropped.fetch_add(dropped, Relaxed);
                }
            }
            Posted::Bell { sources, session } if session == now => {
                self.link.arrive_all(1 - self.end, sources);
            }
            _ => {}
        }
    }

    fn write_now(&self, window: usize, offset: u64, data: &[u8]) -> u64 {
        let mut at = 0;
        let mut dropped = 0;
        while at < data.len() {
            let rest = &data[at..];
            let offset = offset + at as u64;
            match self.reach(window, offset, rest.len() as u64, Access::Write) {
                Reach::Memory {
                    ram,
                    offset,
                    length,
                    pin: _pin,
                } => {
                    if ram.write(offset, &rest[..length as usize]).is_err() {
                        dropped += 1;
                    }
                    at += length as usize;
                }
                Reach::LinkDown { .. } | Reach::Nothing => return dropped + 1,
            }
        }
        dropped
    }

    // ----- where things are --------------------------------------------------------------------

    /// Returns this end of the model, if the link takes time.
    pub fn crossing(&self) -> Option<&Crossing> {
        let timing = self.link.wires.timing.as_ref()?;
        timing.crossings.get(self.end)
    }

    /// Waits until an access by the guest's CPU is over, if the link takes time. `over` returns
    /// when it is over; it is given the present time.
    pub fn wait(&self, over: impl FnOnce(&Crossing, Picoseconds) -> Picoseconds) {
        if let Some(timing) = &self.link.wires.timing {
            let end = over(&timing.crossings[self.end], timing.clock.now());
            timing.clock.sleep_until(end);
        }
    }

    /// Returns where an access at `offset` of a window leads to.
    pub fn reach(&self, window: usize, offset: u64, length: u64, access: Access) -> Reach {
        let state = self.link.state.lock();
        self.link
            .reach(&state, self.end, window, offset, length, access)
    }

    /// Returns where an address on this guest's bus leads to, if it is in one of the windows.
    pub fn decode(&self, address: u64, length: u64, access: Access) -> Option<Reach> {
        let state = self.link.state.lock();
        let (bar, offset) = state.ends.ends[self.end].config.decode(address)?;
        let window = BARS.iter().position(|index| *index == bar.index)?;
        Some(
            self.link
                .reach(&state, self.end, window, offset, length, access),
        )
    }

    /// Handles the connection of QEMU.
    pub fn connect(&self) {
        self.link
            .change(|_, line| line.state.ends[self.end].connected = true);
    }

    /// Handles a reset of the guest.
    pub fn reset(&self) {
        self.link
            .change(|bridge, line| self.reset_end(bridge, line));
    }

    /// Handles the end of QEMU.
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
