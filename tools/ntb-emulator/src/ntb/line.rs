// SPDX-License-Identifier: GPL-2.0
//! What is between two NTB functions, whatever they look like: the cable, the memory behind
//! each end, its vectors, its configuration space, and time if passing takes any.
//!
//! [`Wires`] never change; [`Ends`] are behind the lock of a link; [`Line`] is both, for who
//! holds the lock.

use std::sync::Arc;

use super::window::WINDOWS;
use super::window::Window;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::model::bells::Rope;
use crate::model::clock::Clock;
use crate::model::link::Crossing;
use crate::order::direction::Direction;
use crate::pci::ConfigSpace;

/// What a link needs to take time; by end, 0 is upstream.
pub struct Timing {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// What passes, and when.
    pub crossings: [Crossing; 2],
    /// Where each end rings; whoever listens calls [`super::link::Link::arrive`] with the
    /// other end.
    pub ropes: [Rope; 2],
}

/// The part of a link that never changes.
pub(super) struct Wires {
    /// Unless it is to be as fast as it can.
    pub(super) timing: Option<Timing>,
    /// By the end that sends, if the order of what it sends is weak.
    pub(super) order: Option<[Direction; 2]>,
    /// By end: those of its function, which lead to the other end's guest.
    pub(super) windows: [[Window; WINDOWS]; 2],
    pub(super) sides: [Side; 2],
}

/// The part of an end that never changes.
pub(super) struct Side {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) interrupts: Interrupts,
}

/// The part of a link that changes, but for the registers.
pub(super) struct Ends {
    /// Nobody has switched it off from outside.
    pub(super) allowed: bool,
    pub(super) up: bool,
    pub(super) ends: [End; 2],
}

/// The part of an end that changes, but for the registers.
pub(super) struct End {
    pub(super) connected: bool,
    pub(super) config: ConfigSpace,
}

/// What register accesses made necessary.
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
    /// Doorbells that are still to be sent, as bits, by the end that rings: with nothing locked.
    pub rung: [u64; 2],
}

/// A link while it is locked, as its registers see it.
pub(super) struct Line<'a> {
    pub(super) wires: &'a Wires,
    pub(super) state: &'a mut Ends,
    /// What the accesses have made necessary so far.
    pub(super) effects: Effects,
}

impl<'a> Line<'a> {
    pub(super) fn new(wires: &'a Wires, state: &'a mut Ends) -> Self {
        Self {
            wires,
            state,
            effects: Effects::default(),
        }
    }

    /// The configuration space of an end.
    pub(super) fn config(&self, end: usize) -> &ConfigSpace {
        &self.state.ends[end].config
    }

    /// Whether the function of an end is there for the other one: its QEMU and the cable.
    pub(super) fn is_present(&self, end: usize) -> bool {
        self.state.allowed && self.state.ends[end].connected
    }

    /// Whether both functions are there for each other.
    pub(super) fn is_joined(&self) -> bool {
        (0..2).all(|end| self.is_present(end))
    }

    /// Interrupts the guest of an end.
    pub(super) fn raise(&self, end: usize, vector: usize) {
        self.wires.sides[end].interrupts.raise(vector);
    }

    /// Sends a doorbell of an end on its way, if that takes time or its order is weak. Otherwise
    /// it is at the other end now.
    pub(super) fn takes_time(&mut self, end: usize, source: usize) -> bool {
        if self.wires.order.is_some() {
            self.effects.rung[end] |= 1 << source;
            return true;
        }
        let Some(timing) = &self.wires.timing else {
            return false;
        };
        let arrival = timing.crossings[end].ring(timing.clock.now());
        timing.ropes[end].ring(source, arrival);
        true
    }
}
