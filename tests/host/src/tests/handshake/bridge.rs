// SPDX-License-Identifier: GPL-2.0

//! Two machines on two sides of a bridge on which everything can go wrong.
//!
//! The bridge holds one set of scratchpads for each side to read. What the other side writes there
//! arrives word by word and late, or is lost, or comes once more; forged words come in between.
//! Links go up and down as each side sees them, sessions fail, actions fail, devices are removed,
//! modules loaded anew. Each side's book (`book.rs`) says what must not be.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::super::config;
use super::book::Side;
use super::{Unfit, fit_hello};
use crate::logic::handshake::{Action, LONGEST_PAUSE, Reason, Seen};
use crate::logic::hello::{Hello, WORDS};

/// In how many looks of each side both must be up, once nothing stands in the way.
const LOOKS: usize = 16;

/// After how many looks without a partner a session fails, as by the heartbeat timeout.
const LOOKS_UNTIL_TIMEOUT: usize = 3;

/// Words that no peer has written.
#[derive(Clone, Debug)]
enum Forged {
    /// Any value in any word.
    Word { index: usize, value: u32 },
    /// A hello that claims to have seen this side.
    Echoing,
    /// The same, with the nonce of the last session that has ended.
    FromTheLastSession,
    /// A hello with something that can't be served.
    Unfit(Unfit),
    /// A hello of another version.
    Version(u16),
}

/// Something that happens to a side.
#[derive(Clone, Debug)]
enum Event {
    /// It looks at the world, and does what is to be done next, or fails.
    Look {
        success: bool,
    },
    /// It does so until nothing is to be done.
    LookAll,
    /// So many words reach it.
    Deliver(usize),
    /// So many words do not.
    Lose(usize),
    /// A hello of long ago reaches it, or so many words of it.
    Repeat {
        which: prop::sample::Index,
        words: usize,
    },
    Forge(Forged),
    Link(bool),
    /// The link goes down and comes up again before the side looks.
    Flap,
    /// The other node is there by another link, or no more.
    Taken(bool),
    End(Reason),
    /// The device goes.
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

/// Events of a world in which nobody forges anything.
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
    /// In ticks.
    now: u32,
    /// All nonces that were ever offered, by anybody.
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

    /// A number that was never given out.
    fn number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers.wrapping_mul(0x9e37_79b1)
    }

    /// One look, and one action. Returns that.
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
            // One that fails may have come to its end all the same.
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

    /// Looks until nothing is to be done.
    fn look_all(&mut self, which: usize) {
        for _ in 0..8 {
            if matches!(self.look(which, true), Action::Wait | Action::Refuse(_)) {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// What holds at any time.
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
            // Up with each other, as one of them sees it: then as the other sees it, too.
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

    /// From now on nothing goes wrong. A flap of the links, or the last words of each side, must
    /// have come through: nobody says the same twice.
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

    /// Both look, in turn, and all they say arrives.
    fn settle(&mut self) {
        for round in 0..LOOKS {
            if self.are_up() {
                return;
            }
            // Whoever could not make a session tries again.
            self.now += LONGEST_PAUSE;
            for which in 0..2 {
                // The heart of a partner that has another session, or none, does not beat.
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
fn two_nodes_come_up_and_stay_up() {
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

    /// The book agrees with all that is done, whatever happens.
    #[test]
    fn nothing_is_done_that_must_not_be(schedule in schedule(true)) {
        run(&schedule);
    }

    /// However things stand, they come to a session once nothing stands in their way.
    #[test]
    fn they_find_each_other_in_the_end(
        schedule in any::<bool>().prop_flat_map(schedule),
        flap: bool,
    ) {
        let mut world = run(&schedule);
        world.calm_down(flap);
        world.settle();
    }
}
