// SPDX-License-Identifier: GPL-2.0
//! Everything between two NTB functions of any family: the cable, the memory behind each end, its
//! vectors, its configuration space, and the time of the link if it has a model.
//!
//! [`Wires`] never change; [`Ends`] are behind the lock of a link; [`Line`] is both, for the holder
//! of the lock.

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

/// The model of a link that takes time. Arrays are by end; 0 is upstream.
pub struct Timing {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The times of transfers.
    pub crossings: [Crossing; 2],
    /// The sending sides of doorbells. The thread at the receiving side calls
    /// [`super::link::Link::arrive`] with the other end.
    pub ropes: [Rope; 2],
}

/// The part of a link that never changes.
pub(super) struct Wires {
    /// The model, unless the link is as fast as it can be.
    pub(super) timing: Option<Timing>,
    /// The order of writes by the end that sends, if the order is weak.
    pub(super) order: Option<[Direction; 2]>,
    /// The windows by end: those of the end's function, which lead to the other end's guest.
    pub(super) windows: [[Window; WINDOWS]; 2],
    pub(super) sides: [Side; 2],
}

/// The part of an end that never changes.
pub(super) struct Side {
    pub(super) memory: Arc<GuestMemory>,
    pub(super) interrupts: Interrupts,
}

/// The part of a link that changes, without the registers.
pub(super) struct Ends {
    /// Whether no client has pulled the link.
    pub(super) allowed: bool,
    pub(super) up: bool,
    pub(super) ends: [End; 2],
}

/// The part of an end that changes, without the registers.
pub(super) struct End {
    pub(super) connected: bool,
    pub(super) config: ConfigSpace,
}

/// The results of register accesses that the caller must handle.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Doorbells rung.
    pub doorbells: u64,
    /// Accesses to the peer that reached no memory or register.
    pub dropped: u64,
    /// Bytes of the peer's registers read.
    pub read: u64,
    /// Bytes of the peer's registers written, without doorbells.
    pub written: u64,
    /// Doorbells that the caller must still send with nothing locked: a bit for each, by the end
    /// that rings.
    pub rung: [u64; 2],
}

/// A link while it is locked, as its registers see it.
pub(super) struct Line<'a> {
    pub(super) wires: &'a Wires,
    pub(super) state: &'a mut Ends,
    /// The results of the accesses so far.
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

    /// Returns the configuration space of an end.
    pub(super) fn config(&self, end: usize) -> &ConfigSpace {
        &self.state.ends[end].config
    }

    /// Returns whether the function of an end is present for the other one: its QEMU and the cable.
    pub(super) fn is_present(&self, end: usize) -> bool {
        self.state.allowed && self.state.ends[end].connected
    }

    /// Returns whether both functions are present for each other.
    pub(super) fn is_joined(&self) -> bool {
        (0..2).all(|end| self.is_present(end))
    }

    /// Interrupts the guest of an end.
    pub(super) fn raise(&self, end: usize, vector: usize) {
        self.wires.sides[end].interrupts.raise(vector);
    }

    /// Sends a doorbell of an end, if that takes time or the order is weak. Returns false if the
    /// doorbell must arrive at the other end at once.
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
