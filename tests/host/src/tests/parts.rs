// SPDX-License-Identifier: GPL-2.0

//! Parts of a hello between two sides.
//!
//! Some registers behave like scratchpads: a write arrives late, and replaces the former value.
//! Others behave like messages: a full register refuses a write.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::config;
use crate::logic::hello::{Hello, NoHello, WORDS};
use crate::logic::parts::{MOST_REGISTERS, PATIENCE_TICKS, Parts, Registers};

type Words = [u32; WORDS];

/// One direction: the registers that one side writes and the other side reads.
#[derive(Clone, Debug)]
struct Lane {
    are_messages: bool,
    /// Values that the reader finds in the registers.
    there: Vec<u32>,
    /// Messages that the reader has not taken out.
    full: Vec<Option<u32>>,
    /// Writes in flight, in order.
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

    /// Lets the next `count` writes arrive.
    fn arrive(&mut self, count: usize) {
        for (index, value) in self.way.drain(..count.min(self.way.len())) {
            self.there[index] = value;
        }
    }

    /// Takes the messages out, as the reader does.
    fn collect(&mut self) {
        for (there, full) in self.there.iter_mut().zip(&mut self.full) {
            if let Some(value) = full.take() {
                *there = value;
            }
        }
    }
}

/// One side's view of both lanes. Before each read some writes arrive.
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
    now: u32,
    in_session: bool,
    /// Whether each side has to check again at the next tick.
    unsettled: [bool; 2],
}

impl Pair {
    fn new(registers: usize, are_messages: bool) -> Self {
        Self {
            registers,
            sides: [Parts::new(registers, 7), Parts::new(registers, 1022)],
            lanes: [0, 1].map(|_| Lane::new(registers, are_messages)),
            said: [None; 2],
            now: 0,
            in_session: false,
            unsettled: [false; 2],
        }
    }

    fn say(&mut self, side: usize, seed: u32) {
        let mut words = [0; WORDS];
        for (word, place) in words.iter_mut().zip(1u32..) {
            *word = seed.wrapping_mul(0x9e37_79b9).wrapping_add(place) | 1;
        }
        self.said[side] = Some(words);
        self.sides[side].say(&words, self.now);
    }

    /// Restarts a side, which then knows nothing of the past.
    fn restart(&mut self, side: usize, random: u32) {
        self.sides[side] = Parts::new(self.registers, random);
        let back = &mut self.lanes[1 - side];
        if back.are_messages {
            // Messages that the old side has taken out are lost with its memory.
            back.there.fill(0);
        }
        self.said[side] = None;
    }

    /// Lets a side exchange words. Returns whether it has to notify the other side.
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
        let told = self.sides[side].exchange(&mut view, self.now, self.in_session);
        // A side without a session checks at each tick.
        self.unsettled[side] = !self.in_session || self.sides[side].is_unsettled();
        told
    }

    fn agree(&self) -> bool {
        (0..2).all(|side| Some(*self.sides[side].heard()) == self.said[1 - side])
    }

    /// Lets both sides exchange once, and then each side again when the other one has notified it.
    /// Returns the number of exchanges.
    fn settle(&mut self) -> usize {
        let mut to_look = VecDeque::from([0, 1]);
        for count in 0..2000 {
            let Some(side) = to_look.pop_front() else {
                return count;
            };
            if self.exchange(side, || usize::MAX) {
                to_look.push_back(1 - side);
            }
        }
        panic!("they never stop");
    }

    /// Settles the pair, and again at each tick as long as a side asks for that. Returns the number
    /// of ticks.
    fn settle_with_ticks(&mut self) -> u32 {
        for ticks in 0..20 * PATIENCE_TICKS {
            self.settle();
            if self.agree() {
                return ticks;
            }
            assert!(self.unsettled.contains(&true), "nobody will look again");
            self.now += 1;
        }
        panic!("they do not agree");
    }
}

#[test]
fn hello_in_parts_arrives_by_doorbells_alone() {
    for registers in 2..=MOST_REGISTERS {
        for are_messages in [false, true] {
            let mut pair = Pair::new(registers, are_messages);
            pair.say(0, 1);
            pair.say(1, 2);
            let looks = pair.settle();
            assert!(
                pair.agree(),
                "{registers} registers, messages: {are_messages}"
            );
            let parts = WORDS.div_ceil(registers - 1);
            assert!(looks <= 4 * parts + 10, "{looks} looks for {parts} parts");
        }
    }
}

#[test]
fn hello_is_repeated_until_a_session_exists() {
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
    assert_eq!(pair.settle(), 2, "each has looked, and told nothing");
    assert!(pair.agree());
}

#[test]
fn new_hello_replaces_the_former_one() {
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
fn cleared_header_clears_the_received_hello() {
    let mut pair = Pair::new(8, false);
    pair.say(0, 1);
    pair.say(1, 2);
    pair.settle();
    pair.lanes[0].there[0] = 0;
    pair.exchange(1, || usize::MAX);
    assert_eq!(*pair.sides[1].heard(), [0; WORDS]);
}

#[test]
fn header_with_wrong_register_count_is_ignored() {
    let mut pair = Pair::new(8, false);
    pair.say(0, 1);
    pair.exchange(0, || usize::MAX);
    pair.lanes[0].arrive(usize::MAX);
    pair.lanes[0].there[0] ^= 1 << 24;
    pair.exchange(1, || usize::MAX);
    assert_eq!(*pair.sides[1].heard(), [0; WORDS]);
}

/// Up to version 13, devices with enough registers had the first word of a hello in the first
/// register.
#[test]
fn hello_of_an_older_version_is_recognised() {
    let mut pair = Pair::new(16, false);
    pair.lanes[0].there[0] = 0x5c1f_000d;
    pair.exchange(1, || usize::MAX);
    assert_eq!(
        Hello::decode(pair.sides[1].heard()),
        Err(NoHello::Version(13))
    );
}

#[test]
fn restarted_side_exchanges_its_hello_again() {
    for are_messages in [false, true] {
        for random in [99 << 6, 7, 8] {
            let mut pair = Pair::new(4, are_messages);
            pair.say(0, 1);
            pair.say(1, 2);
            pair.settle();
            pair.restart(0, random);
            pair.say(0, 3);
            assert!(pair.settle_with_ticks() <= 2 * PATIENCE_TICKS);
        }
    }
}

#[test]
fn lost_part_is_sent_again() {
    let mut pair = Pair::new(4, true);
    pair.say(0, 1);
    pair.say(1, 2);
    for lost in 0..4 {
        pair.exchange(0, || usize::MAX);
        pair.lanes[0].full[lost] = None;
        pair.exchange(1, || usize::MAX);
    }
    for round in 0..3 {
        pair.settle();
        pair.now += PATIENCE_TICKS;
        assert!(round < 2 || pair.agree());
    }
}

/// An event that happens to a pair.
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

    /// After any events, each side hears in the end what the other side says.
    #[test]
    fn both_hellos_arrive_after_any_events(
        registers in 2..=MOST_REGISTERS,
        are_messages: bool,
        events in events(),
    ) {
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
        pair.settle_with_ticks();
    }

    /// A hostile side may write anything. The other side takes only words, and stops after a few
    /// exchanges.
    #[test]
    fn any_register_contents_take_few_steps(
        registers in 2..=MOST_REGISTERS,
        contents in vec(vec(prop_oneof![any::<u32>(), Just(u32::MAX), 0x5000_0000..0x6000_0000u32], MOST_REGISTERS), 1..8),
    ) {
        let mut side = Parts::new(registers, 7);
        side.say(&[1; WORDS], 0);
        let mut back = Lane::new(MOST_REGISTERS, false);
        for there in contents {
            back.there = there;
            let mut out = Lane::new(MOST_REGISTERS, false);
            let mut view = View { out: &mut out, back: &mut back, arrivals: &mut || 0 };
            side.exchange(&mut view, 0, false);
            prop_assert!(out.way.len() <= 2 + registers);
        }
    }
}
