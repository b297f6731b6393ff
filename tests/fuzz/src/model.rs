// SPDX-License-Identifier: GPL-2.0

//! The model: predicts the result of each call of a run from the calls before it.
//!
//! The model knows the endpoints of one or two nodes that are connected to each other, calls that
//! do not wait, and one caller. For each call it returns the allowed errors. If it allows none, the
//! call has to succeed. If a call breaks several rules, the model allows the error of each, because
//! no document says which rule is checked first.

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

/// The errors that a call may return. If the set is empty, the call has to succeed.
pub type Errors = BTreeSet<Errno>;

/// One end of a connection: the number of the connection, and which of its two ends.
pub type End = (usize, usize);

/// The state of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The slot is empty.
    #[default]
    None,
    Unbound,
    Bound(u16),
    /// The endpoint listens at this port. The queue has the slots of the connectors.
    Listening(u16, VecDeque<usize>),
    /// The endpoint has requested a connection, and the request was not answered.
    Asking(u16),
    /// The listener has refused the request, and the endpoint has not collected the result.
    Refused(u16),
    /// The listener has accepted the request, and the endpoint has not collected the result.
    Accepted(u16, End),
    Connected(u16, End),
}

/// A page of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// The page of the arenas.
    pub page: u64,
    pub protection: i32,
    /// Number of the window that has the page.
    pub window: usize,
}

/// The data of one end of a connection.
#[derive(Debug, Default)]
pub struct Side {
    pub is_open: bool,
    /// Bytes that were sent to this end, and not received.
    pub unread: VecDeque<u8>,
    /// Pages of the windows of this end, by their offsets.
    pub windows: BTreeMap<i64, Page>,
}

/// A connection.
#[derive(Debug, Default)]
pub struct Connection {
    pub sides: [Side; 2],
}

/// The state that the calls so far have made.
#[derive(Debug, Default)]
pub struct Model {
    /// Number of nodes. Slots belong to them in turn, and each node has an arena.
    pub nodes: usize,
    pub states: [State; SLOTS],
    pub connections: Vec<Connection>,
    /// Content of the arenas, one behind the other.
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

    /// Returns the node of a slot, in the order of the arenas.
    pub fn node(&self, slot: usize) -> usize {
        slot % self.nodes
    }

    /// Returns the node that a slot connects to: the other node if there are two.
    pub fn target(&self, slot: usize) -> usize {
        self.node(slot + 1)
    }

    /// Returns the index in `memory` at which the arena of a slot's node begins.
    pub fn base(&self, slot: usize) -> usize {
        self.node(slot) * SIZE
    }

    /// Returns the end of the connection that a slot has.
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

    /// Returns whether an endpoint of a node has this port.
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

    /// Returns the events that an endpoint soon shows, because another endpoint has changed its
    /// state. The kernel delivers such news asynchronously.
    pub fn news(&self, slot: usize) -> PollFlags {
        match self.states[slot] {
            // The endpoint shows the close of its peer only after it has collected the result.
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

    /// Returns the errors of a call that requires an established connection.
    pub fn of_connected(&mut self, slot: usize) -> Errors {
        match self.end(slot) {
            None => errors(&[libc::ENOTCONN]),
            Some(end) if !self.other(end).is_open => errors(&[libc::ECONNRESET]),
            Some(_) => Errors::new(),
        }
    }

    /// Checks a copy's range on one side. Returns its errors and the ranges of the arena that it
    /// covers.
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

    /// Copies bytes in the model. Returns false if the ranges overlap, because the model can't
    /// predict the result.
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

    /// Returns whether a copy of `len` bytes can use the memory at this offset.
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
    fn cover_finds_pages_or_fails_at_a_gap() {
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
    fn late_connector_sees_hangup_after_peer_close() {
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
    fn model_copies_between_separate_ranges_only() {
        let mut model = Model::new(1);
        model.memory[..4].copy_from_slice(b"scif");
        assert!(model.copied(&[0..2, 2..4], &[10..13, 20..21]));
        assert_eq!(&model.memory[10..13], b"sci");
        assert_eq!(model.memory[20], b'f');
        assert!(!model.copied(&one(0..4), &one(3..7)));
        assert!(!model.copied(&one(0..4), &[8..10, 9..11]));
    }
}
