// SPDX-License-Identifier: GPL-2.0

//! Chooses the next call of a run: at random, from values at the edges of the allowed ranges and
//! beyond them.
//!
//! Most calls can succeed in the state that the model shows, because calls that fail at once test
//! little.

use crate::calls::Call;
use crate::calls::SLOTS;
use crate::memory::PAGE;
use crate::memory::PAGES;
use crate::model::Model;
use crate::model::State;

/// The ports that a run asks for.
#[derive(Clone, Copy)]
pub struct Ports {
    /// The first of a few ports. They are few so that endpoints meet.
    pub first: u16,
    /// Ports at the edges of the ranges that the driver distinguishes.
    pub edges: &'static [u16],
}

/// Number of ports from the first one on.
pub const PORTS: u16 = 4;

/// The ports of a run that is alone on its node. The kernel gives none of the few ports to binds of
/// any port.
pub const UNSHARED: Ports = Ports {
    first: 1030,
    edges: &[0, 1, 1023, 1087, 65535],
};

/// A source of calls that a seed determines.
pub struct Chooser {
    random: fastrand::Rng,
    ports: Ports,
}

impl Chooser {
    /// Makes the source of a seed.
    pub fn new(seed: u64, ports: Ports) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            ports,
        }
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.u32(..n) == 0
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.usize(..values.len())]
    }

    fn slot(&mut self) -> usize {
        self.random.usize(..SLOTS)
    }

    /// Returns a slot, mostly one in a wanted state.
    fn slot_with(&mut self, model: &Model, is_wanted: impl Fn(&State) -> bool) -> usize {
        let slots: Vec<usize> = (0..SLOTS)
            .filter(|slot| is_wanted(&model.states[*slot]))
            .collect();
        match slots.is_empty() || self.one_in(8) {
            true => self.slot(),
            false => self.of(&slots),
        }
    }

    /// Returns a slot with a connection, mostly one whose other end is open.
    fn connected(&mut self, model: &Model) -> usize {
        let is_open = |state: &State| match *state {
            State::Connected(_, (connection, side)) => {
                model.connections[connection].sides[1 - side].is_open
            }
            _ => false,
        };
        self.slot_with(model, is_open)
    }

    /// Returns an offset, mostly one in the windows of a slot's connection: its own windows, or
    /// those of the peer.
    fn in_windows(&mut self, model: &Model, slot: usize, own: bool) -> i64 {
        let other = usize::from(!own);
        let pages: Vec<i64> = match model.states[slot] {
            State::Connected(_, (connection, side)) => {
                let windows = &model.connections[connection].sides[side ^ other].windows;
                windows.keys().copied().collect()
            }
            _ => Vec::new(),
        };
        if pages.is_empty() || self.one_in(8) {
            return self.byte_offset();
        }
        let inside = match self.one_in(3) {
            true => 0,
            false => self.random.i64(0..PAGE as i64),
        };
        self.of(&pages) * PAGE as i64 + inside
    }

    fn port(&mut self) -> u16 {
        match self.one_in(20) {
            true => self.of(self.ports.edges),
            false => self.ports.first + self.random.u16(..PORTS),
        }
    }

    /// Returns a length, mostly a small number of whole pages.
    fn pages(&mut self) -> u64 {
        if self.one_in(12) {
            return self.of(&[0, 1, PAGE - 1, PAGE + 1, u64::MAX, 1 << 63, i64::MAX as u64]);
        }
        self.random.u64(1..4) * PAGE
    }

    /// Returns an address in the arena, mostly that of a page.
    fn at(&mut self) -> u64 {
        let page = self.random.u64(..PAGES) * PAGE;
        match self.random.u32(..16) {
            0 => page + self.random.u64(..PAGE),
            1 => PAGES * PAGE,
            _ => page,
        }
    }

    fn offset(&mut self) -> i64 {
        if self.one_in(16) {
            return self.of(&[-1, -4096, i64::MIN, i64::MAX, 1, i64::MAX - 4095, 1 << 62]);
        }
        self.random.i64(0..10) * PAGE as i64
    }

    /// Returns an offset for a copy, which need not begin at a page.
    fn byte_offset(&mut self) -> i64 {
        match self.one_in(3) {
            true => self.offset(),
            false => self.random.i64(0..10 * PAGE as i64),
        }
    }

    fn len(&mut self) -> u64 {
        match self.random.u32(..16) {
            0 => self.pages(),
            1..6 => self.random.u64(1..4 * PAGE),
            _ => self.random.u64(1..300),
        }
    }

    fn flags(&mut self, allowed: i32) -> i32 {
        match self.one_in(24) {
            true => self.of(&[-1, 1 << 30, 0x80, 0x20]),
            false => self.random.i32(..) & self.random.i32(..) & allowed,
        }
    }

    fn protection(&mut self) -> i32 {
        match self.one_in(12) {
            true => self.of(&[0, 4, -1]),
            false => self.of(&[1, 2, 3, 3, 3]),
        }
    }

    fn message(&mut self) -> i32 {
        match self.random.u32(..16) {
            0 => self.of(&[-1, 0, i32::MIN]),
            1 => self.random.i32(1..20_000),
            _ => self.random.i32(1..600),
        }
    }

    /// Returns the next call. Calls that make connections are more frequent than calls that end
    /// them.
    pub fn call(&mut self, model: &Model) -> Call {
        let is_none = |state: &State| *state == State::None;
        let is_unbound = |state: &State| *state == State::Unbound;
        let listens = |state: &State| matches!(state, State::Listening(..));
        match self.random.u32(..68) {
            0..4 => Call::Open {
                slot: self.slot_with(model, is_none),
            },
            4 => {
                // Reduces closes, so that connections live for some time.
                let slot = self.slot();
                match model.states[slot] {
                    State::Connected(..) if !self.one_in(8) => Call::Poll { slot },
                    _ => Call::Close { slot },
                }
            }
            5..8 => Call::Bind {
                slot: self.slot_with(model, is_unbound),
                port: self.port(),
            },
            8..10 => Call::Listen {
                slot: self.slot_with(model, |state| matches!(state, State::Bound(_))),
                backlog: self.of(&[1, 2, 16, 1, 2, 16, 0, -1]),
            },
            10..16 => Call::Connect {
                slot: self.slot_with(model, |state| {
                    matches!(
                        state,
                        State::Unbound | State::Bound(_) | State::Accepted(..) | State::Refused(_)
                    )
                }),
                port: self.port(),
            },
            16..20 => {
                let slot = self.slot_with(model, listens);
                let is_there = |into: usize| {
                    model.node(into) == model.node(slot) && is_unbound(&model.states[into])
                };
                let free: Vec<usize> = (0..SLOTS).filter(|into| is_there(*into)).collect();
                Call::Accept {
                    slot,
                    into: match free.is_empty() || self.one_in(8) {
                        true => self.slot(),
                        false => self.of(&free),
                    },
                    flags: self.flags(0),
                }
            }
            20..25 => Call::Send {
                slot: self.connected(model),
                len: self.message(),
                flags: self.flags(0),
            },
            25 => Call::SendAll {
                slot: self.connected(model),
                len: self.len(),
            },
            26..31 => Call::Receive {
                slot: self.slot_with(model, |state| matches!(state, State::Connected(..))),
                len: self.message(),
                flags: self.flags(0),
            },
            31..34 => Call::Poll { slot: self.slot() },
            34..41 => Call::Register {
                slot: self.connected(model),
                at: self.at(),
                len: self.pages(),
                offset: self.offset(),
                protection: self.protection(),
                flags: self.flags(0x10),
            },
            41..43 => {
                let slot = self.connected(model);
                let offset = self.in_windows(model, slot, true);
                Call::Unregister {
                    slot,
                    offset: offset - offset.rem_euclid(self.of(&[1, PAGE as i64])),
                    len: self.pages(),
                }
            }
            43..49 => {
                let slot = self.connected(model);
                Call::Copy {
                    slot,
                    write: self.random.bool(),
                    local: self.in_windows(model, slot, true),
                    remote: self.in_windows(model, slot, false),
                    len: self.len(),
                    flags: self.flags(0xf),
                }
            }
            49..55 => {
                let slot = self.connected(model);
                Call::CopyMemory {
                    slot,
                    write: self.random.bool(),
                    at: self.at(),
                    remote: self.in_windows(model, slot, false),
                    len: self.len(),
                    flags: self.flags(0xf),
                }
            }
            55..58 => {
                let slot = self.connected(model);
                let offset = self.in_windows(model, slot, false);
                Call::Map {
                    slot,
                    offset: offset - offset.rem_euclid(PAGE as i64),
                    pages: self.of(&[1, 1, 1, 2, 3, 0]),
                    write: self.random.bool(),
                }
            }
            58..60 => Call::Mark {
                slot: self.connected(model),
                flags: self.of(&[1, 2, 1, 2, 1, 2, 0, 3, -1]),
            },
            60 => Call::Wait {
                slot: self.connected(model),
                mark: self.random.i32(..) & self.of(&[-1, 0, 0x7f, 0xffff]),
            },
            61..67 => {
                let slot = self.connected(model);
                let low = self.of(&[1, 4, 8]);
                Call::Signal {
                    slot,
                    flags: self.of(&[1, 2]) | self.of(&[0x10, 0x20, 0x30, 0x30, 0]),
                    local: self.in_windows(model, slot, true) & -low,
                    remote: self.in_windows(model, slot, false) & -low,
                    value: self.random.u64(..),
                }
            }
            _ => Call::Unknown {
                slot: self.slot(),
                // Keeps the driver's ioctl type, and takes any direction and size.
                number: (self.random.u32(..) & !0xff80) | (u32::from(b's') << 8),
            },
        }
    }
}
