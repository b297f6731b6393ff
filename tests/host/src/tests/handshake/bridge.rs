// SPDX-License-Identifier: GPL-2.0

//! Two machines on two sides of a bridge on which everything can go wrong.
//!
//! The bridge holds one set of scratchpads for each side to read. Words that the other side writes
//! arrive one by one and late, or are lost, or arrive once more. Forged words come in between.
//! Links go up and down as each side sees them, sessions fail, actions fail, devices are removed,
//! and modules are loaded anew. Each side's book (`book.rs`) checks the rules.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::super::config;
use super::book::Side;
use super::{Unfit, fit_hello};
use crate::logic::handshake::{Action, LONGEST_PAUSE, Reason, Seen};
use crate::logic::hello::{Hello, WORDS};

/// Number of steps of each side within which both sides must be up, once nothing prevents a
/// session.
const LOOKS: usize = 16;

/// Number of steps without a partner after which a session fails, like the heartbeat timeout.
const LOOKS_UNTIL_TIMEOUT: usize = 3;

/// Words that no peer has written.
#[derive(Clone, Debug)]
enum Forged {
    /// Any value in any word.
    Word { index: usize, value: u32 },
    /// A hello that claims to have seen this side.
    Echoing,
    /// A hello that claims to have seen this side, with the nonce of the last session that has
    /// ended.
    FromTheLastSession,
    /// A hello with a value that this side can't serve.
    Unfit(Unfit),
    /// A hello of another version.
    Version(u16),
}

/// An event that happens to a side.
#[derive(Clone, Debug)]
enum Event {
    /// The side examines the world once and does the next action, which may fail.
    Look {
        success: bool,
    },
    /// The side does so until there is no action left.
    LookAll,
    /// A number of words reach the side.
    Deliver(usize),
    /// A number of words are lost.
    Lose(usize),
    /// An old hello reaches the side, or some words of it.
    Repeat {
        which: prop::sample::Index,
        words: usize,
    },
    Forge(Forged),
    Link(bool),
    /// The link goes down and comes up again before the side's next step.
    Flap,
    /// The other node has a session by another link, or no longer has one.
    Taken(bool),
    End(Reason),
    /// The device is removed.
    Remove,
    /// The device is bound, perhaps by a module that was loaded anew.
    Probe {
        anew: bool,
    },
}

fn unfit() -> impl Strategy<Value = Unfit> {
    Just(Unfit::PageSize)
}

fn forged() -> impl Strategy<Value = Forged> {
    prop_oneof![
        (0..WORDS, any::<u32>()).prop_map(|(index, value)| Forged::Word { index, value }),
        Just(Forged::Echoing),
        Just(Forged::FromTheLastSession),
        unfit().prop_map(Forged::Unfit),
        prop_oneof![Just(1_u16), 3..6_u16].prop_map(Forged::Version),
    ]
}

/// Returns events of a world without forged words.
fn event() -> impl Strategy<Value = Event> {
    let ended = prop_oneof![Just(Reason::Left), Just(Reason::Failed)];
    prop_oneof![
        24 => prop::bool::weighted(0.85).prop_map(|success| Event::Look { success }),
        10 => Just(Event::LookAll),
        12 => (1..3 * WORDS).prop_map(Event::Deliver),
        10 => Just(Event::Deliver(usize::MAX)),
        2 => (1..2 * WORDS).prop_map(Event::Lose),
        3 => (any::<prop::sample::Index>(), 1..=WORDS)
            .prop_map(|(which, words)| Event::Repeat { which, words }),
        6 => prop::bool::weighted(0.75).prop_map(Event::Link),
        2 => Just(Event::Flap),
        3 => prop::bool::weighted(0.3).prop_map(Event::Taken),
        3 => ended.prop_map(Event::End),
        1 => Just(Event::Remove),
        3 => any::<bool>().prop_map(|anew| Event::Probe { anew }),
    ]
}

fn schedule(with_forgeries: bool) -> BoxedStrategy<Vec<(usize, Event)>> {
    let event = match with_forgeries {
        true => prop_oneof![11 => event(), 1 => forged().prop_map(Event::Forge)].boxed(),
        false => event().boxed(),
    };
    prop::collection::vec((0..2_usize, event), 0..120).boxed()
}

struct World {
    sides: [Side; 2],
    numbers: u32,
    /// The time, in ticks.
    now: u32,
    /// All nonces that any side has ever offered.
    offered: BTreeSet<u32>,
}

impl World {
    fn new() -> Self {
        Self {
            sides: [Side::new(5, 100), Side::new(7, 200)],
            numbers: 0,
            now: 0,
            offered: BTreeSet::new(),
        }
    }

    /// Returns a number that was never returned before.
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers.wrapping_mul(0x9e37_79b1)
    }

    /// Does one step of a side, and returns its action.
    fn look(&mut self, which: usize, success: bool) -> Action {
        let fresh_nonce = self.number();
        self.now += 1;
        let [first, second] = &mut self.sides;
        let (side, other) = match which {
            0 => (first, second),
            _ => (second, first),
        };
        if !side.connected() {
            side.failed = None;
        }
        let seen = Seen {
            present: side.present,
            link_up: side.link_up && !side.flapped,
            hello: side.hello(),
            is_taken: side.is_taken,
            ended: side.ended,
            fresh_nonce,
            now: self.now,
        };
        let action = side.machine.next(&seen);
        assert_eq!(side.machine.next(&seen), action, "asked twice");
        side.judge(&action, &seen, &self.offered);
        let said = match action {
            Action::Offer { nonce } => Some((nonce, 0)),
            Action::Echo { nonce, echo } => Some((nonce, echo)),
            _ => None,
        };
        if let Some((nonce, echo)) = said {
            self.offered.insert(nonce);
            let hello = Hello {
                nonce,
                echo,
                node: side.node,
                generation: side.generation,
                ..fit_hello()
            };
            let words = hello.encode();
            // An action that fails may still have written all words.
            other.under_way.extend(words.into_iter().enumerate());
            other.history.push(words);
        }
        side.record(&action, success, self.now);
        side.machine.carried_out(&action, success, self.now);
        side.flapped = false;
        side.looks += 1;
        self.check();
        action
    }

    /// Does steps until there is no action left.
    fn look_all(&mut self, which: usize) {
        for _ in 0..8 {
            if matches!(self.look(which, true), Action::Wait | Action::Refuse(_)) {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Checks the rules that hold at any time.
    fn check(&self) {
        for side in &self.sides {
            assert_eq!(side.machine.is_up(), side.session.is_some());
            let own = match (side.offer, side.session) {
                (Some(offer), _) => Some((offer.nonce, offer.echo)),
                (None, session) => session.map(|(own, peer)| (own, Some(peer))),
            };
            assert_eq!(side.machine.own_nonce(), own.map(|(own, _)| own));
            assert_eq!(side.machine.peer_nonce(), own.and_then(|(_, peer)| peer));
        }
        let [first, second] = &self.sides;
        if let (Some((own, peer)), Some((theirs, of_us))) = (first.session, second.session) {
            // If one side sees both sides as up with each other, the other side has to see the
            // same.
            assert_eq!(
                peer == theirs,
                of_us == own,
                "a session with half a partner"
            );
        }
    }

    fn are_up(&self) -> bool {
        let [first, second] = &self.sides;
        first.session.is_some() && first.session == second.session.map(|(own, peer)| (peer, own))
    }

    fn forge(&mut self, which: usize, forged: &Forged) {
        let mut hello = Hello {
            nonce: self.number(),
            generation: self.number().into(),
            ..fit_hello()
        };
        let side = &mut self.sides[which];
        let own = side.offer.map(|offer| offer.nonce);
        match *forged {
            Forged::Word { index, value } => {
                side.scratchpads[index] = value;
                return;
            }
            Forged::Echoing => hello.echo = own.unwrap_or(0),
            Forged::FromTheLastSession => {
                let Some(nonce) = side.last_ended else { return };
                hello.nonce = nonce;
                hello.echo = own.unwrap_or(0);
            }
            Forged::Unfit(unfit) => {
                unfit.apply(&mut hello);
                hello.echo = own.unwrap_or(0);
            }
            Forged::Version(version) => {
                side.scratchpads[0] = 0x5c1f_0000 | u32::from(version);
                return;
            }
        }
        side.scratchpads = hello.encode();
    }

    fn happen(&mut self, which: usize, event: &Event) {
        let side = &mut self.sides[which];
        match event {
            Event::Look { success } => {
                self.look(which, *success);
            }
            Event::LookAll => self.look_all(which),
            Event::Deliver(words) => side.deliver(*words),
            Event::Lose(words) => {
                let words = (*words).min(side.under_way.len());
                side.under_way.drain(..words);
            }
            Event::Repeat { which, words } => {
                if !side.history.is_empty() {
                    let hello = *which.get(&side.history);
                    side.scratchpads[..*words].copy_from_slice(&hello[..*words]);
                }
            }
            Event::Forge(forged) => self.forge(which, forged),
            Event::Link(up) => side.link_up = *up,
            Event::Flap => side.flapped = true,
            Event::Taken(taken) => side.is_taken = *taken,
            Event::End(ended) => {
                if side.session.is_some() {
                    side.ended = Some(*ended);
                }
            }
            Event::Remove => self.remove(which),
            Event::Probe { anew } => self.probe(which, *anew),
        }
    }

    fn remove(&mut self, which: usize) {
        self.sides[which].present = false;
        self.look_all(which);
        let side = &self.sides[which];
        assert!(side.session.is_none() && side.offer.is_none());
    }

    fn probe(&mut self, which: usize, anew: bool) {
        if self.sides[which].present {
            return;
        }
        let generation = match anew {
            true => self.number().into(),
            false => self.sides[which].generation,
        };
        let old = &mut self.sides[which];
        let side = Side {
            scratchpads: old.scratchpads,
            under_way: core::mem::take(&mut old.under_way),
            history: core::mem::take(&mut old.history),
            begun: core::mem::take(&mut old.begun),
            link_up: old.link_up,
            ..Side::new(old.node, generation)
        };
        self.sides[which] = side;
    }

    /// Ends all faults. Either a flap of the links or the last words of each side have to come
    /// through, because no side repeats its words.
    fn calm_down(&mut self, flap: bool) {
        for which in 0..2 {
            self.probe(which, false);
        }
        for which in 0..2 {
            let side = &mut self.sides[which];
            side.is_taken = false;
            if flap {
                side.link_up = false;
                side.deliver(usize::MAX);
                self.look_all(which);
            } else if let Some(last) = side.history.last() {
                side.scratchpads = *last;
                side.under_way.clear();
            }
        }
        for side in &mut self.sides {
            side.link_up = true;
        }
    }

    /// Lets both sides do steps in turn, and all their words arrive.
    fn settle(&mut self) {
        for round in 0..LOOKS {
            if self.are_up() {
                return;
            }
            // A side that failed to begin a session tries again.
            self.now += LONGEST_PAUSE;
            for which in 0..2 {
                // A partner with another session, or without one, sends no heartbeat.
                let are_up = self.are_up();
                let side = &mut self.sides[which];
                if side.session.is_some() && side.looks > LOOKS_UNTIL_TIMEOUT && !are_up {
                    side.ended = Some(Reason::Failed);
                }
                side.deliver(usize::MAX);
                if round % 2 == 0 {
                    self.look(which, true);
                } else {
                    self.look_all(which);
                }
                self.sides[1 - which].deliver(usize::MAX);
            }
        }
        assert!(self.are_up(), "they do not find each other");
    }
}

fn run(schedule: &[(usize, Event)]) -> World {
    let mut world = World::new();
    for (which, event) in schedule {
        world.happen(*which, event);
    }
    world
}

#[test]
fn two_nodes_connect_and_stay_connected() {
    let mut world = World::new();
    world.calm_down(false);
    world.settle();
    for _ in 0..4 {
        for which in 0..2 {
            assert_eq!(world.look(which, true), Action::Wait);
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: config().cases * 16, ..config() })]

    /// For any events, the books accept all actions.
    #[test]
    fn any_schedule_keeps_the_handshake_invariants(schedule in schedule(true)) {
        run(&schedule);
    }

    /// From any state, the two sides come to a session once nothing prevents it.
    #[test]
    fn nodes_connect_once_disturbances_end(
        schedule in any::<bool>().prop_flat_map(schedule),
        flap: bool,
    ) {
        let mut world = run(&schedule);
        world.calm_down(flap);
        world.settle();
    }
}
