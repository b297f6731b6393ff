// SPDX-License-Identifier: GPL-2.0

//! The two rings of each side together: neither side can block the other for good.
//!
//! The tests run two nodes as `peer/control.rs` and `peer/dispatch.rs` make them, one step at a
//! time, in any order.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::config;
use crate::logic::control_block::{ANSWERS_OF_ONE, SlotReader, SlotWriter};

const SLOTS: u32 = 4;

/// Number of requests of one connection that may wait for transfers to complete.
const MOST_DEFERRED: usize = 6;

/// A ring from one node to another: its entries and its two ends. An entry is the number of answers
/// that it asks for.
struct Ring {
    writer: SlotWriter,
    reader: SlotReader,
    entries: VecDeque<u32>,
}

impl Ring {
    fn new() -> Self {
        Self {
            writer: SlotWriter::new(SLOTS).expect("some slots"),
            reader: SlotReader::new(SLOTS).expect("some slots"),
            entries: VecDeque::new(),
        }
    }

    fn free(&mut self) -> u32 {
        let consumed = self.reader.consumed();
        self.writer.acknowledge(consumed).expect("no lies");
        self.writer.free()
    }

    fn write(&mut self, entry: u32) {
        self.free();
        self.writer
            .reserve()
            .expect("the writer has seen to the room");
        self.entries.push_back(entry);
    }

    fn take(&mut self) -> Option<u32> {
        let entry = self.entries.pop_front()?;
        self.reader.advance();
        Some(entry)
    }
}

/// One node: its rings, and the messages that it still has to send.
struct Node {
    requests: Ring,
    answers: Ring,
    /// For each unsent request, the number of answers that the peer sends at once.
    unsent: VecDeque<u32>,
    /// Number of deferred answers with reserved memory.
    late: u32,
}

impl Node {
    fn new(requests: Vec<u32>, late: u32) -> Self {
        Self {
            requests: Ring::new(),
            answers: Ring::new(),
            unsent: requests.into(),
            late,
        }
    }

    /// Lets a process post, or the control work flush. Returns whether a message was sent.
    fn send(&mut self) -> bool {
        if self.late > 0 && self.answers.free() > 0 {
            self.late -= 1;
            self.answers.write(0);
            return true;
        }
        if self.requests.free() == 0 {
            return false;
        }
        let next = self.unsent.pop_front();
        next.inspect(|wants| self.requests.write(*wants)).is_some()
    }

    /// Lets the control work handle one message of the peer. Returns whether there was one.
    fn handle(&mut self, peer: &mut Self) -> bool {
        if peer.answers.take().is_some() {
            return true;
        }
        if self.late > 0 || self.answers.free() < ANSWERS_OF_ONE {
            return false;
        }
        let Some(wants) = peer.requests.take() else {
            return false;
        };
        for _ in 0..wants {
            self.answers.write(0);
        }
        true
    }

    fn is_idle(&self) -> bool {
        let rings = [&self.requests, &self.answers];
        self.late == 0 && self.unsent.is_empty() && rings.iter().all(|ring| ring.entries.is_empty())
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn all_requests_and_answers_are_eventually_handled(
        requests in prop::array::uniform2(prop::collection::vec(0..=ANSWERS_OF_ONE, 0..40)),
        late in prop::array::uniform2(0_u32..20),
        steps in prop::collection::vec(0_u8..4, 0..400),
    ) {
        let [first, second] = requests;
        let mut near = Node::new(first, late[0]);
        let mut far = Node::new(second, late[1]);
        let mut step = |step: u8| match step {
            0 => near.send(),
            1 => far.send(),
            2 => near.handle(&mut far),
            _ => far.handle(&mut near),
        };
        for number in steps {
            step(number);
        }
        // From any state, some step succeeds until all work is done.
        while (0..4).fold(false, |goes_on, number| step(number) | goes_on) {}
        prop_assert!(near.is_idle() && far.is_idle());
    }
}

/// An event between processes that send requests and are interrupted, and a peer that answers.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A process sends a request if there is room. The rings do not care whether it waits for the
    /// answer. The peer answers at once, or when transfers have completed.
    Ask { at_once: bool },
    /// The peer's control work handles a message.
    Handle,
    /// All transfers of the peer complete.
    TransfersEnd,
    /// The requester's control work takes an answer.
    Take,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => any::<bool>().prop_map(|at_once| Event::Ask { at_once }),
        8 => Just(Event::Handle),
        1 => Just(Event::TransfersEnd),
        5 => Just(Event::Take),
    ]
}

/// The peer of processes that send requests.
struct Asked {
    requests: Ring,
    answers: Ring,
    deferred: usize,
    /// Answers that wait for room, each with its reserved memory.
    late: usize,
    asked: usize,
    answered: usize,
}

impl Asked {
    fn happen(&mut self, event: Event) {
        match event {
            Event::Ask { .. } if self.requests.free() == 0 => (),
            Event::Ask { at_once } => {
                self.requests.write(at_once.into());
                self.asked += 1;
            }
            Event::Handle => {
                while self.late > 0 && self.answers.free() > 0 {
                    self.answers.write(0);
                    self.late -= 1;
                }
                if self.late > 0 || self.answers.free() < ANSWERS_OF_ONE {
                    return;
                }
                match self.requests.take() {
                    Some(0) if self.deferred < MOST_DEFERRED => self.deferred += 1,
                    // The peer answers that too many requests wait.
                    Some(_) => self.answers.write(0),
                    None => (),
                }
            }
            Event::TransfersEnd => self.late += std::mem::take(&mut self.deferred),
            Event::Take => self.answered += usize::from(self.answers.take().is_some()),
        }
    }
}

proptest! {
    #![proptest_config(config())]

    /// Processes can't make a node hold more than the reservation of one connection, however often
    /// they send requests and give up.
    ///
    /// They can't exhaust the room for answers either, which would end the session.
    #[test]
    fn abandoned_questions_hold_bounded_memory(events in prop::collection::vec(event(), 0..600)) {
        let mut asked = Asked {
            requests: Ring::new(),
            answers: Ring::new(),
            deferred: 0,
            late: 0,
            asked: 0,
            answered: 0,
        };
        for event in events {
            asked.happen(event);
            prop_assert!(asked.deferred + asked.late <= MOST_DEFERRED);
            for ring in [&asked.requests, &asked.answers] {
                prop_assert!(ring.entries.len() <= SLOTS as usize);
            }
        }
        for _ in 0..asked.asked + MOST_DEFERRED {
            for event in [Event::TransfersEnd, Event::Handle, Event::Take] {
                asked.happen(event);
            }
        }
        prop_assert_eq!(asked.answered, asked.asked);
    }
}
