// SPDX-License-Identifier: GPL-2.0

//! Parts of a hello between two sides, over registers that behave like scratchpads (a write takes its time, and
//! replaces what was there) and over some that behave like messages (a full one takes nothing).

use std::collections::{BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;

use super::config;
use crate::logic::hello::WORDS;
use crate::logic::parts::{PATIENCE_TICKS, Parts, Registers};

type Words = [u32; WORDS];

/// One direction: what one side has written and the other reads.
#[derive(Clone, Debug)]
struct Lane {
    are_messages: bool,
    /// As the reader finds them.
    there: Vec<u32>,
    /// Messages that were not taken out yet.
    full: Vec<Option<u32>>,
    /// Writes on their way, in order.
    way: VecDeque<(usize, u32)>,
}

impl Lane {
    fn new(registers: usize, are_messages: bool) -> Self {
        Self {
            are_messages,
            there: vec![0; registers],
            full: vec![None; registers],
            way: VecDeque::new(),
        }
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        if !self.are_messages {
            self.way.push_back((index, value));
            return true;
        }
        let taken = self.full[index].is_none();
        if taken {
            self.full[index] = Some(value);
        }
        taken
    }

    /// So many writes arrive.
    fn arrive(&mut self, count: usize) {
        for (index, value) in self.way.drain(..count.min(self.way.len())) {
            self.there[index] = value;
        }
    }

    /// The reader takes messages out.
    fn collect(&mut self) {
        for (there, full) in self.there.iter_mut().zip(&mut self.full) {
            if let Some(value) = full.take() {
                *there = value;
            }
        }
    }
}

/// What one side sees of both lanes; before each read some writes arrive.
struct View<'a> {
    out: &'a mut Lane,
    back: &'a mut Lane,
    arrivals: &'a mut dyn FnMut() -> usize,
}

impl Registers for View<'_> {
    fn read(&mut self, index: usize) -> u32 {
        self.back.arrive((self.arrivals)());
        self.back.there[index]
    }

    fn write(&mut self, index: usize, value: u32) -> bool {
        self.out.write(index, value)
    }
}

/// Two sides.
struct Pair {
    registers: usize,
    sides: [Parts; 2],
    lanes: [Lane; 2],
    said: [Option<Words>; 2],
    /// Which began anew: those may read words under an old header.
    restarted: [bool; 2],
    /// All parts that each side has ever shown.
    shown: [BTreeSet<(usize, Vec<u32>)>; 2],
    now: u32,
    in_session: bool,
}

impl Pair {
    fn new(registers: usize, are_messages: bool) -> Self {
        Self {
            registers,
            sides: [Parts::new(registers, 7), Parts::new(registers, 1022)],
            lanes: [0, 1].map(|_| Lane::new(registers, are_messages)),
            said: [None; 2],
            restarted: [false; 2],
            shown: [BTreeSet::new(), BTreeSet::new()],
            now: 0,
            in_session: false,
        }
    }

    fn say(&mut self, side: usize, seed: u32) {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(1u32..) {
            *word = seed.wrapping_mul(0x9e37_79b9).wrapping_add(place) | 1;
        }
        self.said[side] = Some(words);
        for (part, words) in words.chunks(self.registers - 1).enumerate() {
            self.shown[side].insert((part, words.to_vec()));
        }
        self.sides[side].say(&words, self.now);
    }

    /// A side begins a new life, and knows nothing.
    fn restart(&mut self, side: usize, random: u32) {
        self.sides[side] = Parts::new(self.registers, random);
        self.said[side] = None;
        self.restarted[side] = true;
    }

    /// Returns whether the other side is to be told.
    fn exchange(&mut self, side: usize, mut arrivals: impl FnMut() -> usize) -> bool {
        let [first, second] = &mut self.lanes;
        let (out, back) = if side == 0 {
            (first, second)
        } else {
            (second, first)
        };
        if back.are_messages {
            back.collect();
        }
        let mut view = View {
            out,
            back,
            arrivals: &mut arrivals,
        };
        let exchanged = self.sides[side].exchange(&mut view, self.now, self.in_session);
        self.check(side);
        exchanged.told
    }

    /// Each part that a side has heard is one that was shown.
    fn check(&self, side: usize) {
        for (part, words) in self.sides[side]
            .heard()
            .chunks(self.registers - 1)
            .enumerate()
        {
            let known = self.shown[1 - side].contains(&(part, words.to_vec()));
            let is_none = words.iter().all(|word| *word == 0);
            assert!(
                known || is_none || self.restarted[side],
                "torn: {part} {words:x?}"
            );
        }
    }

    fn agree(&self) -> bool {
        (0..2).all(|side| Some(*self.sides[side].heard()) == self.said[1 - side])
    }

    /// Both look whenever they are told to. The rounds that it took.
    fn settle(&mut self) -> usize {
        for round in 0..500 {
            let told = [0, 1].map(|side| self.exchange(side, || usize::MAX));
            if told == [false; 2] {
                return round;
            }
        }
        panic!("they never stop");
    }
}

#[test]
fn arrives_by_bells_alone() {
    for registers in 2..WORDS {
        for are_messages in [false, true] {
            let mut pair = Pair::new(registers, are_messages);
            pair.say(0, 1);
            pair.say(1, 2);
            let rounds = pair.settle();
            assert!(
                pair.agree(),
                "{registers} registers, messages: {are_messages}"
            );
            let parts = WORDS.div_ceil(registers - 1);
            assert!(rounds <= 2 * parts + 4, "{rounds} rounds for {parts} parts");
        }
    }
}

#[test]
fn is_quiet_in_a_session_and_not_before() {
    let mut pair = Pair::new(4, true);
    pair.say(0, 1);
    pair.say(1, 2);
    pair.settle();
    pair.now += PATIENCE_TICKS;
    assert!(
        pair.exchange(0, || usize::MAX),
        "shown again, as there is no session"
    );
    pair.settle();
    pair.in_session = true;
    pair.now += PATIENCE_TICKS;
    assert_eq!(pair.settle(), 0);
    assert!(pair.agree());
}

#[test]
fn what_was_said_anew_replaces_what_was_said() {
    let mut pair = Pair::new(8, false);
    pair.say(0, 1);
    pair.say(1, 2);
    pair.exchange(0, || usize::MAX);
    pair.exchange(1, || usize::MAX);
    pair.say(0, 3);
    pair.settle();
    assert!(pair.agree());
}

#[test]
fn a_header_that_is_gone_takes_all_with_it() {
    let mut pair = Pair::new(8, false);
    pair.say(0, 1);
    pair.say(1, 2);
    pair.settle();
    pair.lanes[0].there[0] = 0;
    pair.exchange(1, || usize::MAX);
    assert_eq!(*pair.sides[1].heard(), [0; WORDS]);
}

#[test]
fn another_number_of_registers_is_no_header() {
    let mut pair = Pair::new(8, false);
    pair.say(0, 1);
    pair.exchange(0, || usize::MAX);
    pair.lanes[0].arrive(usize::MAX);
    pair.lanes[0].there[0] ^= 1 << 24;
    pair.exchange(1, || usize::MAX);
    assert_eq!(*pair.sides[1].heard(), [0; WORDS]);
}

/// What happens to a pair.
#[derive(Clone, Debug)]
enum Event {
    Look { side: usize, arrivals: Vec<usize> },
    Say { side: usize, seed: u32 },
    Restart { side: usize, random: u32 },
    Tick(u32),
    Unplug,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let side = 0..2usize;
    let event = prop_oneof![
        8 => (side.clone(), vec(0..4usize, 1..12))
            .prop_map(|(side, arrivals)| Event::Look { side, arrivals }),
        2 => (side.clone(), 0..5u32).prop_map(|(side, seed)| Event::Say { side, seed }),
        1 => (side, any::<u32>()).prop_map(|(side, random)| Event::Restart { side, random }),
        1 => (1..PATIENCE_TICKS * 2).prop_map(Event::Tick),
        1 => Just(Event::Unplug),
    ];
    vec(event, 0..60)
}

proptest! {
    #![proptest_config(config())]

    /// Whatever has happened: no part is torn by who lives on, and in the end each side has heard what the other says.
    #[test]
    fn comes_to_an_end(registers in 2..WORDS, are_messages: bool, events in events()) {
        let mut pair = Pair::new(registers, are_messages);
        for event in events {
            match event {
                Event::Look { side, arrivals } => {
                    let mut arrivals = arrivals.into_iter().cycle();
                    pair.exchange(side, || arrivals.next().unwrap_or(1));
                }
                Event::Say { side, seed } => pair.say(side, seed),
                Event::Restart { side, random } => pair.restart(side, random),
                Event::Tick(ticks) => pair.now += ticks,
                Event::Unplug => pair.sides.iter_mut().for_each(Parts::forget),
            }
        }
        for side in 0..2 {
            pair.say(side, 100 + side as u32);
        }
        // A number that an earlier life has used as well may cost a round or two.
        for _ in 0..4 {
            pair.settle();
            pair.now += PATIENCE_TICKS;
        }
        pair.settle();
        prop_assert!(pair.agree());
    }
}
