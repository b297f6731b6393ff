// SPDX-License-Identifier: GPL-2.0
//! A link: two NTB functions back to back, one in each of two guests.
//!
//! The state of both ends is behind one lock, so that a doorbell, a scratchpad or a
//! change of the link is seen by both at once. The lock is held for a register access or
//! for finding out where an address leads to, never while data is copied.
//!
//! The link is up while both QEMUs are connected, both drivers want it, and nobody has
//! switched it off from outside. While it is down, what concerns the peer reads as all
//! ones and ignores writes; only a mapped window cannot know.
//!
//! One end of it, as its function sees it, is a [`super::port::Port`].

use std::sync::Arc;

use parking_lot::Mutex;

use super::gen3;
use super::gen5;
use super::identity::Identity;
use super::registers::LINK_ACTIVE;
use super::registers::LINK_SOURCE;
use super::registers::Registers;
use super::registers::VECTORS;
use super::window::BARS;
use super::window::Backing;
use super::window::Reach;
use super::window::WINDOWS;
use super::window::Window;
use crate::config;
use crate::config::Personality;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::model::bells::Rope;
use crate::model::clock::Clock;
use crate::model::link::Crossing;
use crate::pci::ConfigSpace;

fn identity_of(personality: Personality) -> &'static Identity {
    match personality {
        Personality::Gen3 => &gen3::IDENTITY,
        Personality::Gen5 => &gen5::IDENTITY,
    }
}

/// What a link needs to take time; by end, 0 is upstream.
pub struct Timing {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What passes, and when.
    pub crossings: [Crossing; 2],
    /// Where each end rings; whoever listens calls [`Link::arrive`] with the other end.
    pub ropes: [Rope; 2],
}

/// A pair of NTB functions.
pub struct Link {
    name: String,
    /// Unless it is to be as fast as it can.
    pub(super) timing: Option<Timing>,
    pub(super) identity: &'static Identity,
    /// By end: those of its function, which lead to the other end's guest.
    pub(super) windows: [[Window; WINDOWS]; 2],
    pub(super) sides: [Side; 2],
    pub(super) state: Mutex<State>,
}

/// The part of an end that never changes.
pub(super) struct Side {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) interrupts: Interrupts,
}

/// What the lock is for.
pub(super) struct State {
    /// Nobody has switched it off from outside.
    allowed: bool,
    pub(super) up: bool,
    pub(super) ends: [End; 2],
}

/// The part of an end that changes.
pub(super) struct End {
    pub(super) connected: bool,
    pub(super) config: ConfigSpace,
    pub(super) registers: Registers,
}

impl Link {
    /// A link between two guests, seen through the memory of its two functions.
    pub fn new(
        entry: &config::Link,
        memory: [Arc<GuestMemory>; 2],
        timing: Option<Timing>,
    ) -> Arc<Self> {
        let identity = identity_of(entry.personality);
        let ram_sizes = [memory[0].ram().size(), memory[1].ram().size()];
        let windows = Window::of(entry, ram_sizes);
        let end = |end| End {
            connected: false,
            config: identity.config_space(end, &windows[end]),
            registers: Registers::new(identity.switch),
        };
        Arc::new(Self {
            name: format!("{}-{}", entry.upstream, entry.downstream),
            timing,
            identity,
            windows,
            sides: memory.map(|memory| Side {
                memory,
                interrupts: Interrupts::new(VECTORS),
            }),
            state: Mutex::new(State {
                allowed: true,
                up: false,
                ends: [end(0), end(1)],
            }),
        })
    }

    /// Plugs the cable in or pulls it.
    pub fn allow(&self, allowed: bool) {
        let mut state = self.state.lock();
        state.allowed = allowed;
        self.update(&mut state);
    }

    /// Whether the cable is in, and whether the link is up.
    pub fn state(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.allowed, state.up)
    }

    /// Finds out whether the link is up, and tells both ends if that has changed.
    pub(super) fn update(&self, state: &mut State) {
        let up = state.allowed
            && state
                .ends
                .iter()
                .all(|end| end.connected && end.registers.wants_link());
        if up == state.up {
            return;
        }
        state.up = up;
        log::info!("link {} is {}", self.name, if up { "up" } else { "down" });
        for end in 0..2 {
            self.raise(state, end, LINK_SOURCE);
        }
    }

    /// Records an event at an end, and interrupts its guest.
    pub(super) fn raise(&self, state: &mut State, end: usize, source: usize) {
        if let Some(vector) = state.ends[end].registers.raise(source) {
            self.sides[end].interrupts.raise(vector);
        }
    }

    /// An end rings a doorbell at the other one.
    pub(super) fn ring(&self, state: &mut State, end: usize, source: usize) {
        match &self.timing {
            Some(timing) => {
                let arrival = timing.crossings[end].ring(timing.clock.now());
                timing.ropes[end].ring(source, arrival);
            }
            None => self.raise(state, 1 - end, source),
        }
    }

    /// A doorbell arrives at an end. If the link has gone down meanwhile, it does not.
    pub fn arrive(&self, end: usize, source: usize) {
        let mut state = self.state.lock();
        if state.up {
            self.raise(&mut state, end, source);
        }
    }

    /// Where an access at `offset` of a window of `end` leads to.
    pub(super) fn reach(
        &self,
        state: &State,
        end: usize,
        window: usize,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Reach {
        let Window { size, backing } = self.windows[end][window];
        let length = length.min(size.saturating_sub(offset));
        if length == 0 {
            return Reach::Nothing;
        }
        if !state.up {
            return Reach::LinkDown { length };
        }
        let peer = 1 - end;
        let memory = &self.sides[peer].memory;
        match backing {
            Backing::Mapped { base } => {
                let available = (memory.ram().size() - base).saturating_sub(offset);
                if available == 0 {
                    return Reach::Nothing;
                }
                Reach::Memory {
                    ram: Arc::clone(memory.ram()),
                    offset: base + offset,
                    length: length.min(available),
                    pin: None,
                }
            }
            Backing::Trapped { .. } => {
                let other = &state.ends[peer];
                let bar = other.config.bar_base(BARS[window]);
                let (base, permitted) = other.registers.translation(window, bar, size);
                let available = permitted.saturating_sub(offset);
                let found = base
                    .checked_add(offset)
                    .and_then(|address| memory.find(address, length.min(available), access));
                match found {
                    Some(found) => Reach::Memory {
                        ram: Arc::clone(memory.ram()),
                        offset: found.offset,
                        length: found.length,
                        pin: Some(found.pin),
                    },
                    None => Reach::Nothing,
                }
            }
        }
    }
}

impl State {
    /// What the drivers read of the link.
    pub(super) fn link_status(&self) -> u16 {
        if self.up { LINK_ACTIVE } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_lie_side_by_side() {
        for personality in [Personality::Gen3, Personality::Gen5] {
            let identity = identity_of(personality);
            let locate = |offset| identity.registers.locate(offset);
            let table = u64::from(identity.msix_table);
            let mut offset = 0;
            while offset < 0x1_0000 {
                let Some(found) = locate(offset) else {
                    offset += 1;
                    continue;
                };
                assert_eq!(found.start, offset, "{found:?}");
                assert_eq!(offset % found.width as u64, 0, "{found:?}");
                for at in 0..found.width as u64 {
                    assert_eq!(locate(offset + at), Some(found));
                }
                // MSI-X table and pending bits are QEMU's.
                assert!(!(table..table + 0x2000).contains(&offset));
                offset += found.width as u64;
            }
        }
    }
}
