// SPDX-License-Identifier: GPL-2.0
//! A switch: the functions of both ends, and the state that they share.

use super::events::Events;
use super::function::Function;
use super::identity;
use super::map::Event;
use super::map::MESSAGES;
use super::map::PARTITIONS;
use crate::ntb::line::Line;
use crate::ntb::window::WINDOWS;
use crate::ntb::window::Window;

/// SWPORTxSTS: the link of the port is up.
const PORT_UP: u32 = 1 << 4;
/// SWPORTxSTS: the port has an NT function.
const PORT_MODE: u32 = 3 << 6;
/// SWPORTxSTS: the position of the partition.
const PORT_PARTITION: u32 = 10;
/// Number of entries of the mapping table.
const ENTRIES: usize = 64;
/// NTMTBLDATA: the entry is valid.
const ENTRY_VALID: u32 = 1 << 0;
/// NTMTBLDATA: position and mask of the partition.
const ENTRY_PARTITION: (u32, u32) = (17, 7);
/// SWPxMSGCTLx: position and mask of the partition.
const ROUTE_PARTITION: (u32, u32) = (4, 7);
/// SWPxMSGCTLx: mask of the register.
const ROUTE_REGISTER: u32 = 3;
/// TMPSTS: 42 degrees, as present, lowest and highest temperature.
const TEMPERATURE: u32 = 0x54_5454;

/// Returns a field of a register, by its position and mask.
fn field(value: u32, (at, mask): (u32, u32)) -> u64 {
    ((value >> at) & mask).into()
}

/// The registers of both functions, and of the switch.
pub(in crate::ntb) struct Switch {
    pub(super) functions: [Function; 2],
    /// The one doorbell register for both ends.
    pub(super) doorbells: u32,
    pub(super) events: Events,
    /// The targets of the messages of each end.
    pub(super) routes: [[u32; MESSAGES]; 2],
    pub(super) sensor: [u32; 4],
    /// The mapping table: the requesters whose requests pass.
    entries: [u32; ENTRIES],
    /// The ports that the events know to be up.
    pub(super) ports: [bool; 2],
}

impl Switch {
    /// SWPARTxSTS of a partition that works.
    pub(super) const ACTIVE: u32 = 1 << 5;
    /// SWPxMSGCTLx: the bits that are kept.
    pub(super) const ROUTE: u32 = (ROUTE_PARTITION.1 << ROUTE_PARTITION.0) | ROUTE_REGISTER;
    /// The sensor register with the temperature.
    pub(super) const TEMPERATURE: usize = 1;

    /// Creates a switch whose ends have those windows.
    pub(in crate::ntb) fn new(windows: &[[Window; WINDOWS]; 2]) -> Self {
        let mut sensor = [0; 4];
        sensor[Self::TEMPERATURE] = TEMPERATURE;
        Self {
            functions: [0, 1].map(|end| Function::new(identity::setup(&windows[end]))),
            doorbells: 0,
            events: Events::new(),
            routes: [[0; MESSAGES]; 2],
            sensor,
            entries: [0; ENTRIES],
            ports: [false; 2],
        }
    }

    /// Returns SWPORTxSTS of the port of an end, as another end sees it: its cable may be out.
    pub(super) fn port(&self, line: &Line<'_>, viewer: usize, end: usize) -> u32 {
        let up = viewer == end || line.is_present(end);
        let partition = (PARTITIONS[end] as u32) << PORT_PARTITION;
        PORT_MODE | partition | if up { PORT_UP } else { 0 }
    }

    /// Returns an entry of the mapping table.
    pub(super) fn entry(&self, index: u32) -> u32 {
        self.entries.get(index as usize).copied().unwrap_or(0)
    }

    /// Changes an entry of the mapping table on behalf of a driver.
    pub(super) fn set_entry(&mut self, index: u32, value: u32) {
        if let Some(entry) = self.entries.get_mut(index as usize) {
            *entry = value;
        }
    }

    /// Returns whether an entry of the mapping table lets requests of that end pass.
    pub(super) fn passes(&self, end: usize) -> bool {
        let of_end = |entry| field(entry, ENTRY_PARTITION) == PARTITIONS[end];
        self.entries
            .iter()
            .any(|&entry| entry & ENTRY_VALID != 0 && of_end(entry))
    }

    pub(super) fn happens(&mut self, event: Event, number: u64) {
        let told = self.events.happens(event, number);
        for (function, told) in self.functions.iter_mut().zip(told) {
            if told {
                function.tell();
            }
        }
    }

    /// Sends the signal of an end.
    pub(super) fn signal(&mut self, end: usize) {
        self.happens(Event::Signal, PARTITIONS[end]);
    }

    /// Rings doorbells on behalf of an end.
    pub(super) fn ring(&mut self, line: &mut Line<'_>, end: usize, bits: u32) {
        if bits == 0 {
            return;
        }
        if !line.is_joined() {
            line.effects.dropped += 1;
            return;
        }
        line.effects.doorbells += 1;
        for source in (0..u32::BITS as usize).filter(|source| bits & (1 << source) != 0) {
            if !line.takes_time(end, source) {
                self.doorbells |= 1 << source;
            }
        }
    }

    /// Sends a message of an end.
    pub(super) fn send(&mut self, line: &mut Line<'_>, end: usize, index: usize, word: u32) {
        self.functions[end].out[index] = word;
        let route = self.routes[end][index];
        let partition = field(route, ROUTE_PARTITION);
        let target = PARTITIONS.iter().position(|number| *number == partition);
        let delivered = target
            .filter(|target| *target == end || line.is_joined())
            .is_some_and(|target| {
                let register = (route & ROUTE_REGISTER) as usize;
                self.functions[target].deliver(register, word, PARTITIONS[end] as u32)
            });
        if !delivered {
            line.effects.dropped += 1;
            self.functions[end].not_delivered(index);
        }
    }

    /// Lets no further request of an end pass.
    pub(super) fn forget(&mut self, end: usize) {
        for entry in &mut self.entries {
            if field(*entry, ENTRY_PARTITION) == PARTITIONS[end] {
                *entry = 0;
            }
        }
    }
}
