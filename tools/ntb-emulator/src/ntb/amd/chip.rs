// SPDX-License-Identifier: GPL-2.0
//! Both sides of the chip, and the state between them.

use super::identity::DOORBELLS;
use super::side::READY;
use super::side::Side;
use crate::ntb::line::Line;

/// The registers of both sides; the primary one is end 0.
pub(in crate::ntb) struct Chip {
    pub(super) sides: [Side; 2],
    /// Whether the sides were told that they are joined.
    joined: bool,
}

impl Chip {
    /// Creates a chip after reset.
    pub(in crate::ntb) fn new() -> Self {
        Self {
            sides: [0, 1].map(Side::new),
            joined: false,
        }
    }

    /// Returns whether a side may see the other one.
    fn sees_peer(&self, line: &Line<'_>, end: usize) -> bool {
        line.is_joined() && !self.sides[end].events.hides()
    }

    /// Returns SIDE_INFO of the other side. A side that does not see the other gets no ready bit.
    pub(super) fn peer_info(&self, line: &Line<'_>, end: usize) -> u32 {
        let info = self.sides[1 - end].info();
        match self.sees_peer(line, end) {
            true => info,
            false => info & !READY,
        }
    }

    /// Writes SIDE_INFO of the other side.
    pub(super) fn set_peer_info(&mut self, line: &Line<'_>, end: usize, info: u32) {
        if self.sees_peer(line, end) {
            self.sides[1 - end].set_info(info);
        }
    }

    /// Rings doorbells of the other end.
    pub(super) fn ring(&mut self, line: &mut Line<'_>, end: usize, bits: u64) {
        let bits = bits & ((1 << DOORBELLS) - 1);
        if bits == 0 {
            return;
        }
        if !line.is_joined() {
            line.effects.dropped += 1;
            return;
        }
        line.effects.doorbells += 1;
        for source in (0..DOORBELLS).filter(|source| bits & (1 << source) != 0) {
            if !line.takes_time(end, source) {
                self.rung(line, 1 - end, source);
            }
        }
    }

    /// Handles a doorbell that has arrived at an end.
    pub(super) fn rung(&mut self, line: &Line<'_>, end: usize, source: usize) {
        if source < DOORBELLS && self.sides[end].ring(source) {
            line.raise(end, source);
        }
    }

    /// Has both sides told whether they are joined, if that is new.
    pub(super) fn join(&mut self, joined: bool) {
        if joined != self.joined {
            self.joined = joined;
            for side in &mut self.sides {
                side.events.change(joined);
            }
        }
    }
}
