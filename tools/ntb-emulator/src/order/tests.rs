// SPDX-License-Identifier: GPL-2.0
//! What the guests at both ends of a link see of its order. Nothing carries what is under way here but
//! operations, so what a seed does is the same each time, unless the machine stands still.

use std::sync::Arc;

use super::Engines;
use super::Initiator;
use super::WeakOrder;
use super::direction::Direction;
use crate::address::GuestBus;
use crate::bus::Bus;
use crate::config::Link as Entry;
use crate::config::Personality;
use crate::config::Windows;
use crate::guest_memory::GuestMemory;
use crate::ntb::function::NtbFunction;
use crate::ntb::link::Link;
use crate::ntb::port::Port;
use crate::ram::Ram;
use crate::server::Function;

const RAM: u64 = 1 << 20;
/// BAR 2, the first window, and where it is on the bus of its guest.
const BAR: usize = 2;
const WINDOW: u64 = 0x8000_0000;
/// Where it leads to.
const BEHIND: u64 = 0x4000;
const SIZE: u64 = 0x1_0000;
/// Bit 3 rings the peer's doorbell 3.
const DOORBELL: u64 = 0x100 + 4 * 3;
const STATUS: u64 = 0x40;
const SEEDS: std::ops::Range<u64> = 0..200;

/// Two guests with a link.
struct Pair {
    rams: [Arc<Ram>; 2],
    link: Arc<Link>,
    functions: [NtbFunction; 2],
    /// Of guest 0.
    engines: [GuestBus; 2],
}

fn pair(seed: u64, engines: Engines) -> Pair {
    let rams = [0, 1].map(|_| Arc::new(Ram::anonymous(RAM).unwrap()));
    let view = |guest: usize| {
        let memory = GuestMemory::new(Arc::clone(&rams[guest]));
        let file = rams[guest].file().unwrap();
        memory.map(0, RAM, 0, true, true, Some(file)).unwrap();
        Arc::new(memory)
    };
    let entry = Entry {
        upstream: 0,
        downstream: 1,
        personality: Personality::Gen5,
        windows: Windows::Trapped { size: SIZE },
        model: None,
    };
    let order = WeakOrder { seed, engines };
    let directions = [0, 1].map(|number| Direction::new(order, number, 2, true));
    let link = Link::with_order(&entry, [view(0), view(1)], None, Some(directions));
    for end in [0, 1] {
        let port = Port::new(&link, end);
        port.connect();
        port.config_write(0x18, &WINDOW.to_le_bytes());
        port.config_write(4, &[2, 0]);
        port.register_write(0xb0d4, &[8]);
        port.register_write(0x10, &BEHIND.to_le_bytes());
        port.register_write(0x18, &(WINDOW + SIZE).to_le_bytes());
        // The state of the link is an event.
        port.register_write(STATUS, &u64::MAX.to_le_bytes());
    }
    let port = Port::new(&link, 0);
    let engines = [0, 1].map(|number| GuestBus::of_engine(number, view(0), vec![port.clone()]));
    let functions = [0, 1].map(|end| NtbFunction::new(format!("{end}"), Port::new(&link, end)));
    Pair {
        rams,
        link,
        functions,
        engines,
    }
}

impl Pair {
    /// A processor of a guest stores into the other one's memory.
    fn store(&self, guest: usize, at: u64, value: u8) {
        self.functions[guest].bar_write(BAR, at, &[value]);
    }

    fn load(&self, guest: usize, at: u64) -> u8 {
        let mut data = [0];
        self.functions[guest].bar_read(BAR, at, &mut data);
        data[0]
    }

    /// What is in a guest's own memory.
    fn memory(&self, guest: usize, at: u64) -> u8 {
        let mut data = [0];
        self.rams[guest].read(BEHIND + at, &mut data).unwrap();
        data[0]
    }

    /// An engine of guest 0 copies a byte there. It has reported that when this returns.
    fn copy_out(&self, engine: usize, at: u64, value: u8) {
        self.rams[0].write(0, &[value]).unwrap();
        assert_eq!(self.engines[engine].copy(0, WINDOW + at, 1), Ok(1));
    }

    /// It reads from the other one's memory.
    fn copy_in(&self, engine: usize, at: u64) -> u8 {
        assert_eq!(self.engines[engine].copy(WINDOW + at, 1, 1), Ok(1));
        let mut data = [0];
        self.rams[0].read(1, &mut data).unwrap();
        data[0]
    }

    fn ring(&self, guest: usize) {
        self.functions[guest].bar_write(0, DOORBELL, &1u32.to_le_bytes());
    }

    fn has_rung_at(&self, guest: usize) -> bool {
        let mut data = [0; 8];
        Port::new(&self.link, guest).register_read(STATUS, &mut data);
        u64::from_le_bytes(data) & 8 != 0
    }
}

/// For how many seeds it is true.
fn count(engines: Engines, test: impl Fn(&Pair) -> bool) -> usize {
    SEEDS.filter(|seed| test(&pair(*seed, engines))).count()
}

/// For some seeds it is, for others not.
fn check_happens(engines: Engines, test: impl Fn(&Pair) -> bool) {
    let count = count(engines, test);
    assert!((5..SEEDS.count() - 5).contains(&count), "{count}");
}

fn check_never(engines: Engines, test: impl Fn(&Pair) -> bool) {
    assert_eq!(count(engines, test), 0);
}

const BOTH: [Engines; 2] = [Engines::Switch, Engines::Root];

#[test]
fn a_store_overtakes_what_an_engine_has_written() {
    for engines in BOTH {
        check_happens(engines, |pair| {
            pair.copy_out(0, 0, 1);
            pair.store(0, 8, 1);
            pair.memory(1, 8) == 1 && pair.memory(1, 0) == 0
        });
    }
}

#[test]
fn an_engine_keeps_its_order_and_another_one_has_its_own() {
    for (last, may) in [(0, false), (1, true)] {
        let overtaken = |pair: &Pair| {
            pair.copy_out(0, 0, 1);
            pair.copy_out(last, 8, 1);
            pair.memory(1, 8) == 1 && pair.memory(1, 0) == 0
        };
        match may {
            true => check_happens(Engines::Switch, overtaken),
            false => check_never(Engines::Switch, overtaken),
        }
    }
}

#[test]
fn stores_keep_their_order() {
    check_never(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.store(0, 8, 1);
        pair.memory(1, 8) == 1 && pair.memory(1, 0) == 0
    });
}

#[test]
fn what_an_engine_reads_back_is_there() {
    for engines in BOTH {
        check_never(engines, |pair| {
            pair.copy_out(0, 0, 1);
            // Whatever it reads.
            pair.copy_in(0, 16);
            pair.memory(1, 0) == 0
        });
    }
}

#[test]
fn what_a_processor_reads_pushes_what_shares_the_way() {
    for (engines, may) in [(Engines::Switch, true), (Engines::Root, false)] {
        let late = |pair: &Pair| {
            pair.copy_out(0, 0, 1);
            pair.store(0, 8, 2);
            assert_eq!(pair.load(0, 8), 2);
            pair.memory(1, 0) == 0
        };
        match may {
            true => check_happens(engines, late),
            false => check_never(engines, late),
        }
    }
}

#[test]
fn a_doorbell_pushes_nothing() {
    check_happens(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.ring(0);
        pair.has_rung_at(1) && pair.memory(1, 0) == 0
    });
    // After a read it is late at most.
    check_never(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.load(0, 0);
        pair.ring(0);
        pair.memory(1, 0) == 0
    });
    check_happens(Engines::Switch, |pair| {
        pair.ring(0);
        pair.has_rung_at(1)
    });
}

#[test]
fn an_answer_comes_behind_what_was_stored_before() {
    for engines in BOTH {
        check_happens(engines, |pair| {
            pair.store(1, 0, 1);
            pair.memory(0, 0) == 0
        });
        check_never(engines, |pair| {
            pair.store(1, 0, 1);
            pair.load(0, 16);
            pair.memory(0, 0) == 0
        });
    }
    // For an engine in the switch, the answer does not come where the store goes.
    for (engines, may) in [(Engines::Switch, true), (Engines::Root, false)] {
        let late = |pair: &Pair| {
            pair.store(1, 0, 1);
            pair.copy_in(0, 16);
            pair.memory(0, 0) == 0
        };
        match may {
            true => check_happens(engines, late),
            false => check_never(engines, late),
        }
    }
}

#[test]
fn what_is_under_way_when_the_link_goes_is_lost() {
    check_happens(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.link.allow(false);
        pair.link.allow(true);
        pair.load(0, 0);
        pair.memory(1, 0) == 0
    });
}

#[test]
fn who_carries_lets_all_arrive() {
    let pair = pair(3, Engines::Switch);
    for end in [0, 1] {
        let port = Port::new(&pair.link, end);
        std::thread::spawn(move || port.carry());
    }
    for at in 0..250 {
        pair.store(0, at, 1);
        pair.copy_out(at as usize % 2, 250 + at, 1);
    }
    pair.ring(0);
    while !pair.has_rung_at(1) || (0..500).any(|at| pair.memory(1, at) != 1) {
        std::thread::yield_now();
    }
    let overtaken = pair.functions[0].counters().snapshot().overtaken;
    assert!(overtaken > 0);
}

#[test]
fn who_sees_no_stores_holds_none() {
    let direction = Direction::new(
        WeakOrder {
            seed: 1,
            engines: Engines::Switch,
        },
        0,
        1,
        false,
    );
    let mut arrived = 0;
    for posted in 0..100 {
        let bell = super::direction::Posted::Bell {
            sources: 1,
            session: 0,
        };
        direction.post(Initiator::Processor, bell, |_| arrived += 1);
        assert_eq!(arrived, posted + 1);
    }
}
