// SPDX-License-Identifier: GPL-2.0
//! A link: two NTB functions, one in each of two guests.
//!
//! The state of both ends is behind one lock. So both ends see a doorbell, a scratchpad or a change
//! of the link at once. The lock is held for a register access, or for resolving an address, never
//! while data are copied.
//!
//! The link is up while both QEMUs are connected, both drivers want it up, and no client has pulled
//! it. While it is down, a read from the peer gives all ones and a write is ignored; only a mapped
//! window can't know that.
//!
//! A [`Bridge`] implements the registers of the functions. One end, as its function sees it, is a
//! [`super::port::Port`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::amd::Chip;
use super::bridge::Bridge;
use super::idt::Switch;
use super::intel::Pair;
use super::line::Effects;
use super::line::End;
use super::line::Ends;
use super::line::Line;
use super::line::Side;
use super::line::Timing;
use super::line::Wires;
use super::window::Backing;
use super::window::Reach;
use super::window::WINDOWS;
use super::window::Window;
use crate::config;
use crate::config::Personality;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::order::direction::Direction;

fn bridge(personality: Personality, windows: &[[Window; WINDOWS]; 2]) -> Box<dyn Bridge> {
    match personality {
        Personality::Gen3 => Box::new(Pair::gen3()),
        Personality::Gen5 => Box::new(Pair::gen5()),
        Personality::Idt => Box::new(Switch::new(windows)),
        Personality::Amd => Box::new(Chip::new()),
    }
}

/// A pair of NTB functions.
pub struct Link {
    name: String,
    /// The size of BAR 0 of both.
    pub(super) registers: u64,
    pub(super) wires: Wires,
    /// Number of times that the link has gone down. Writes in flight then do not arrive.
    pub(super) session: AtomicU64,
    pub(super) state: Mutex<State>,
}

/// The state behind the lock.
pub(super) struct State {
    pub(super) ends: Ends,
    pub(super) bridge: Box<dyn Bridge>,
}

impl Link {
    /// Creates a link between two guests, seen through the memory of its two functions.
    pub fn new(
        entry: &config::Link,
        memory: [Arc<GuestMemory>; 2],
        timing: Option<Timing>,
    ) -> Arc<Self> {
        Self::with_order(entry, memory, timing, None)
    }

    /// Creates a link with an order, by the end that sends. A thread must run
    /// [`super::port::Port::carry`] for each end.
    pub fn with_order(
        entry: &config::Link,
        memory: [Arc<GuestMemory>; 2],
        timing: Option<Timing>,
        order: Option<[Direction; 2]>,
    ) -> Arc<Self> {
        let ram_sizes = [memory[0].ram().size(), memory[1].ram().size()];
        let windows = Window::of(entry, ram_sizes);
        let bridge = bridge(entry.personality, &windows);
        let end = |end| End {
            connected: false,
            config: bridge.config_space(end, &windows[end]),
        };
        let ends = Ends {
            allowed: true,
            up: false,
            ends: [end(0), end(1)],
        };
        let sides = memory.map(|memory| Side {
            memory,
            interrupts: bridge.interrupts(),
        });
        Arc::new(Self {
            name: format!("{}-{}", entry.upstream, entry.downstream),
            registers: bridge.size(),
            wires: Wires {
                timing,
                order,
                windows,
                sides,
            },
            session: AtomicU64::new(0),
            state: Mutex::new(State { ends, bridge }),
        })
    }

    /// Plugs the cable in or pulls it.
    pub fn allow(&self, allowed: bool) {
        self.change(|_, line| line.state.allowed = allowed);
    }

    /// Returns whether the cable is in, and whether the link is up.
    pub fn state(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.ends.allowed, state.ends.up)
    }

    /// Locks the link for an action that may change it, and handles the consequences.
    pub(super) fn change(&self, act: impl FnOnce(&mut dyn Bridge, &mut Line<'_>)) -> Effects {
        let mut state = self.state.lock();
        let State { ends, bridge } = &mut *state;
        let mut line = Line::new(&self.wires, ends);
        act(&mut **bridge, &mut line);
        let up = line.is_joined() && (0..2).all(|end| bridge.wants_link(&line, end));
        let switched = up != line.state.up;
        if switched {
            line.state.up = up;
            if !up {
                self.session.fetch_add(1, Relaxed);
            }
            log::info!("link {} is {}", self.name, if up { "up" } else { "down" });
        }
        bridge.settle(&mut line, switched);
        line.effects
    }

    /// Delivers a doorbell to an end, unless the other one has gone meanwhile.
    pub fn arrive(&self, end: usize, source: usize) {
        self.arrive_all(end, 1 << source);
    }

    /// Delivers the doorbells of one write, as bits.
    pub(super) fn arrive_all(&self, end: usize, sources: u64) {
        let rung = |source: &usize| (sources >> source) & 1 != 0;
        self.change(|bridge, line| {
            for source in (0..u64::BITS as usize).filter(rung) {
                bridge.arrive(line, end, source);
            }
        });
    }

    /// Returns where an access at `offset` of a window of `end` leads to.
    pub(super) fn reach(
        &self,
        state: &State,
        end: usize,
        window: usize,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Reach {
        let Window { size, backing } = self.wires.windows[end][window];
        let length = length.min(size.saturating_sub(offset));
        if length == 0 {
            return Reach::Nothing;
        }
        if !state.ends.up {
            return Reach::LinkDown { length };
        }
        let memory = &self.wires.sides[1 - end].memory;
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
                let (base, permitted) = state.bridge.translation(&state.ends, end, window, size);
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
