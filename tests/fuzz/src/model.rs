// SPDX-License-Identifier: GPL-2.0

//! What each call of a run has to return, told from the calls before it.
//!
//! The model knows endpoints of one node, or of two, that are connected to each other, calls that do not wait, and one caller. It
//! says of a call which errors are allowed. If none is, the call has to succeed. Where several rules are broken at
//! once, any of their errors is right, because no document says which comes first.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::ops::Range;

use rustix::event::PollFlags;

use crate::calls::SLOTS;
use crate::kernel::Errno;
use crate::memory::PAGE;
use crate::memory::PAGES;
use crate::memory::SIZE;

/// The errors that a call may end with; if there are none it has to succeed.
pub type Errors = BTreeSet<Errno>;

/// One end of a connection: which connection, and which of its two ends.
pub type End = (usize, usize);

/// What an endpoint is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The slot is empty.
    #[default]
    None,
    Unbound,
    Bound(u16),
    /// Its port, and its requests, each the slot of a connector.
    Listening(u16, VecDeque<usize>),
    /// It has asked for a connection that was not answered yet.
    Asking(u16),
    /// Its request was refused, which it has not been told.
    Refused(u16),
    /// Its request was accepted, which it has not been told.
    Accepted(u16, End),
    Connected(u16, End),
}

/// A page of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The page of the arenas.
    pub page: u64,
    pub protection: i32,
    /// Which window it belongs to.
    pub window: usize,
}

/// What belongs to one end of a connection.
#[derive(Debug, Default)]
pub struct Side {
    pub is_open: bool,
    /// What was sent to it and not received.
    pub unread: VecDeque<u8>,
    /// Its windows, by the page of the offset.
    pub windows: BTreeMap<i64, Page>,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    pub sides: [Side; 2],
}

/// What the calls so far have made.
#[derive(Debug, Default)]
pub struct Model {
    /// How many nodes have the slots and an arena; slots take turns.
    pub nodes: usize,
    pub states: [State; SLOTS],
    pub connections: Vec<Connection>,
    /// What is in the arenas, one behind the other.
    pub memory: Vec<u8>,
    pub next_window: usize,
}

/// Reads may be made through a window.
pub const READ: i32 = 1;
/// Writes may be made through a window.
pub const WRITE: i32 = 2;

/// Makes a set of errors.
pub fn errors(numbers: &[i32]) -> Errors {
    numbers.iter().copied().map(Errno).collect()
}

impl Model {
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            memory: vec![0; nodes * SIZE],
            ..Self::default()
        }
    }

    /// The node of a slot, in the order of arenas.
    pub fn node(&self, slot: usize) -> usize {
        slot % self.nodes
    }

    /// The node that a slot connects to: the other one, if there are two.
    pub fn target(&self, slot: usize) -> usize {
        self.node(slot + 1)
    }

    /// Where the arena of a slot begins in the memory of all.
    pub fn base(&self, slot: usize) -> usize {
        self.node(slot) * SIZE
    }

    /// The connection of a slot, if it has one.
    pub fn end(&self, slot: usize) -> Option<End> {
        match self.states[slot] {
            State::Connected(_, end) => Some(end),
            _ => None,
        }
    }

    pub fn side(&mut self, (connection, side): End) -> &mut Side {
        &mut self.connections[connection].sides[side]
    }

    pub fn other(&mut self, (connection, side): End) -> &mut Side {
        self.side((connection, 1 - side))
    }

    /// Whether an endpoint of a node has a port.
    pub fn is_taken(&self, node: usize, port: u16) -> bool {
        let mut slots = (0..SLOTS).filter(|slot| self.node(*slot) == node);
        slots.any(|slot| self.port(&self.states[slot]) == Some(port))
    }

    fn port(&self, state: &State) -> Option<u16> {
        match state {
            State::None | State::Unbound => None,
            State::Bound(port)
            | State::Listening(port, ..)
            | State::Asking(port)
            | State::Refused(port)
            | State::Accepted(port, _)
            | State::Connected(port, _) => Some(*port),
        }
    }

    /// Returns the slot of the endpoint that listens at a port of a node.
    pub fn listener(&self, node: usize, port: u16) -> Option<usize> {
        let listens =
            |state: &State| matches!(state, State::Listening(number, ..) if *number == port);
        (0..SLOTS).find(|slot| self.node(*slot) == node && listens(&self.states[*slot]))
    }

    /// The events that an endpoint soon has, as others have done something to it: the kernel hears of that in its own time.
    pub fn news(&self, slot: usize) -> PollFlags {
        match self.states[slot] {
            // Whether the other end was closed meanwhile, it shows only when the result was collected.
            State::Refused(_) | State::Accepted(..) => PollFlags::OUT,
            State::Connected(_, (connection, side)) => {
                match self.connections[connection].sides[1 - side].is_open {
                    true => PollFlags::empty(),
                    false => PollFlags::HUP,
                }
            }
            _ => PollFlags::empty(),
        }
    }

    /// The errors of a call that only an established connection can make.
    pub fn of_connected(&mut self, slot: usize) -> Errors {
        match self.end(slot) {
            None => errors(&[libc::ENOTCONN]),
            Some(end) if !self.other(end).is_open => errors(&[libc::ECONNRESET]),
            Some(_) => Errors::new(),
        }
    }

    /// The errors of a copy's range on one side, and its stretches of the arena.
    pub fn cover(
        &mut self,
        end: End,
        offset: i64,
        len: u64,
        needs: i32,
    ) -> (Errors, Vec<Range<usize>>) {
        let mut found = Errors::new();
        let mut stretches: Vec<Range<usize>> = Vec::new();
        let Some(limit) = i64::try_from(len)
            .ok()
            .and_then(|len| offset.checked_add(len))
        else {
            return (errors(&[libc::ENXIO, libc::EINVAL]), stretches);
        };
        if offset < 0 {
            return (errors(&[libc::ENXIO, libc::EINVAL]), stretches);
        }
        let windows = &self.side(end).windows;
        let mut at = offset;
        while at < limit {
            let page = at / PAGE as i64;
            let until = ((page + 1) * PAGE as i64).min(limit);
            let Some(found_page) = windows.get(&page) else {
                found.insert(Errno(libc::ENXIO));
                break;
            };
            if found_page.protection & needs != needs {
                found.insert(Errno(libc::EACCES));
            }
            let start = (found_page.page * PAGE) as usize + (at % PAGE as i64) as usize;
            let stretch = start..start + (until - at) as usize;
            match stretches.last_mut() {
                Some(last) if last.end == stretch.start => last.end = stretch.end,
                _ => stretches.push(stretch),
            }
            at = until;
        }
        (found, stretches)
    }

    /// Notes that bytes were copied. False if the model can't say what is there now, because they overlap.
    pub fn copied(&mut self, from: &[Range<usize>], to: &[Range<usize>]) -> bool {
        let overlap = |a: &Range<usize>| to.iter().any(|b| a.start < b.end && b.start < a.end);
        let twice = to.iter().enumerate().any(|(index, a)| {
            let mut rest = to[index + 1..].iter();
            rest.any(|b| a.start < b.end && b.start < a.end)
        });
        if from.iter().any(overlap) || twice {
            return false;
        }
        let bytes: Vec<u8> = from
            .iter()
            .flat_map(|range| self.memory[range.clone()].iter().copied())
            .collect();
        let mut bytes = bytes.into_iter();
        for range in to {
            for (to, from) in self.memory[range.clone()].iter_mut().zip(&mut bytes) {
                *to = from;
            }
        }
        true
    }

    /// Whether a place is memory that a copy of so many bytes can use.
    pub fn is_memory(at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= PAGES * PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(range: Range<usize>) -> Vec<Range<usize>> {
        vec![range; 1]
    }

    fn with_window(protection: i32) -> (Model, End) {
        let mut model = Model::new(1);
        model.connections.push(Connection::default());
        let end = (0, 0);
        for (offset, page) in [(2, 7), (3, 8), (4, 3)] {
            let page = Page {
                page,
                protection,
                window: 0,
            };
            model.side(end).windows.insert(offset, page);
        }
        (model, end)
    }

    #[test]
    fn a_range_is_covered_by_pages() {
        let (mut model, end) = with_window(READ);
        let (found, stretches) = model.cover(end, 2 * 4096 + 10, 2 * 4096, READ);
        assert!(found.is_empty());
        let (first, second) = (7 * 4096, 3 * 4096);
        assert_eq!(stretches, [first + 10..first + 8192, second..second + 10]);
        let denied = model.cover(end, 2 * 4096, 1, WRITE).0;
        assert_eq!(denied, errors(&[libc::EACCES]));
        let gap = model.cover(end, 4 * 4096, 4097, READ).0;
        assert_eq!(gap, errors(&[libc::ENXIO]));
        assert!(!model.cover(end, -1, 1, READ).0.is_empty());
        assert!(!model.cover(end, i64::MAX, 2, READ).0.is_empty());
    }

    #[test]
    fn a_connector_that_collects_late_hears_of_the_close() {
        let mut model = Model::new(1);
        model.connections.push(Connection::default());
        model.side((0, 0)).is_open = true;
        model.side((0, 1)).is_open = true;
        model.states[3] = State::Accepted(7, (0, 0));
        assert_eq!(model.news(3), PollFlags::OUT);
        model.side((0, 1)).is_open = false;
        assert_eq!(model.news(3), PollFlags::OUT);
        model.states[3] = State::Connected(7, (0, 0));
        assert_eq!(model.news(3), PollFlags::HUP);
        model.side((0, 1)).is_open = true;
        assert!(model.news(3).is_empty());
    }

    #[test]
    fn copies_reach_the_memory_of_the_model() {
        let mut model = Model::new(1);
        model.memory[..4].copy_from_slice(b"scif");
        assert!(model.copied(&[0..2, 2..4], &[10..13, 20..21]));
        assert_eq!(&model.memory[10..13], b"sci");
        assert_eq!(model.memory[20], b'f');
        assert!(!model.copied(&one(0..4), &one(3..7)));
        assert!(!model.copied(&one(0..4), &[8..10, 9..11]));
    }
}
