// SPDX-License-Identifier: GPL-2.0
//! What happens to the ports and partitions of a switch, and which partitions are told.

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
    /// Its bit in SESTS and SEMSK.
    fn bit(self) -> u32 {
        match self {
            Event::LinkUp => 1 << 0,
            Event::LinkDown => 1 << 1,
            Event::Signal => 1 << 5,
        }
    }
}

impl Events {
    /// After power-on nobody is told of anything.
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

    /// SESTS.
    pub(super) fn status(&self) -> u32 {
        let there = |kind: &&Kind| kind.status & !kind.mask != 0;
        self.kinds
            .iter()
            .filter(there)
            .fold(0, |all, kind| all | kind.event.bit())
    }

    /// The ports or partitions that have had an event.
    pub(super) fn of(&mut self, event: Event) -> &mut u32 {
        &mut self.kind(event).status
    }

    /// Those that do not count.
    pub(super) fn mask_of(&mut self, event: Event) -> &mut u32 {
        &mut self.kind(event).mask
    }

    /// Something happens to a port or partition. Returns which ends are told.
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
