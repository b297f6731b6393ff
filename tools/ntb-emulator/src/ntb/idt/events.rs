// SPDX-License-Identifier: GPL-2.0
//! The events of the ports and partitions of a switch, and the partitions that are told of them.

use super::map::EVENTS;
use super::map::Event;
use super::map::PARTITIONS;

/// The events of a switch.
#[derive(Debug)]
pub(super) struct Events {
    kinds: [Kind; EVENTS.len()],
    /// SEMSK.
    pub(super) mask: u32,
    /// SEPMSK.
    pub(super) partitions: u32,
}

/// A kind of event: a bit for each port or partition.
#[derive(Debug)]
struct Kind {
    event: Event,
    status: u32,
    mask: u32,
}

impl Event {
    /// Returns the bit of the event in SESTS and SEMSK.
    fn bit(self) -> u32 {
        match self {
            Event::LinkUp => 1 << 0,
            Event::LinkDown => 1 << 1,
            Event::Signal => 1 << 5,
        }
    }
}

impl Events {
    /// Creates the state after power-on, in which no partition is told.
    pub(super) fn new() -> Self {
        Self {
            kinds: EVENTS.map(|event| Kind {
                event,
                status: 0,
                mask: u32::MAX,
            }),
            mask: u32::MAX,
            partitions: u32::MAX,
        }
    }

    fn kind(&mut self, event: Event) -> &mut Kind {
        &mut self.kinds[event as usize]
    }

    /// Returns SESTS.
    pub(super) fn status(&self) -> u32 {
        let there = |kind: &&Kind| kind.status & !kind.mask != 0;
        self.kinds
            .iter()
            .filter(there)
            .fold(0, |all, kind| all | kind.event.bit())
    }

    /// Returns the ports or partitions that have had an event.
    pub(super) fn of(&mut self, event: Event) -> &mut u32 {
        &mut self.kind(event).status
    }

    /// Returns the ports or partitions whose events do not count.
    pub(super) fn mask_of(&mut self, event: Event) -> &mut u32 {
        &mut self.kind(event).mask
    }

    /// Records an event of a port or partition. Returns the ends that must be told.
    #[must_use]
    pub(super) fn happens(&mut self, event: Event, number: u64) -> [bool; 2] {
        let masked = self.mask & event.bit() != 0;
        let kind = self.kind(event);
        kind.status |= 1 << number;
        if masked || kind.mask & (1 << number) != 0 {
            return [false; 2];
        }
        PARTITIONS.map(|partition| self.partitions & (1 << partition) == 0)
    }
}
