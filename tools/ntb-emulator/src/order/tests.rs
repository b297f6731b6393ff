// SPDX-License-Identifier: GPL-2.0
//! Tests of the order that the guests at both ends of a link see. Here only operations make writes
//! arrive. So a seed has the same effect each time, unless the machine stands still.

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
/// BAR 2, the first window, and its address on the bus of its guest.
const BAR: usize = 2;
const WINDOW: u64 = 0x8000_0000;
/// The address that it leads to.
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
    /// The engines of guest 0.
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
    /// Stores into the other guest's memory by a CPU of a guest.
    fn store(&self, guest: usize, at: u64, value: u8) {
        self.functions[guest].bar_write(BAR, at, &[value]);
    }

    fn load(&self, guest: usize, at: u64) -> u8 {
        let mut data = [0];
        self.functions[guest].bar_read(BAR, at, &mut data);
        data[0]
    }

    /// Returns a byte of a guest's own memory.
    fn memory(&self, guest: usize, at: u64) -> u8 {
        let mut data = [0];
        self.rams[guest].read(BEHIND + at, &mut data).unwrap();
        data[0]
    }

    /// Copies a byte to the other guest by an engine of guest 0. The engine has reported the copy
    /// when this returns.
    fn copy_out(&self, engine: usize, at: u64, value: u8) {
        self.rams[0].write(0, &[value]).unwrap();
        assert_eq!(self.engines[engine].copy(0, WINDOW + at, 1), Ok(1));
    }

    /// Reads a byte of the other guest's memory by an engine of guest 0.
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

/// Returns for how many seeds the test is true.
fn count(engines: Engines, test: impl Fn(&Pair) -> bool) -> usize {
    SEEDS.filter(|seed| test(&pair(*seed, engines))).count()
}

/// Checks that the test is true for some seeds and false for others.
fn check_happens(engines: Engines, test: impl Fn(&Pair) -> bool) {
    let count = count(engines, test);
    assert!((5..SEEDS.count() - 5).contains(&count), "{count}");
}

fn check_never(engines: Engines, test: impl Fn(&Pair) -> bool) {
    assert_eq!(count(engines, test), 0);
}

const BOTH: [Engines; 2] = [Engines::Switch, Engines::Root];

#[test]
fn store_may_overtake_engine_writes() {
    for engines in BOTH {
        check_happens(engines, |pair| {
            pair.copy_out(0, 0, 1);
            pair.store(0, 8, 1);
            pair.memory(1, 8) == 1 && pair.memory(1, 0) == 0
        });
    }
}

#[test]
fn writes_of_one_engine_keep_order_and_of_two_may_not() {
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
fn stores_of_the_cpu_keep_their_order() {
    check_never(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.store(0, 8, 1);
        pair.memory(1, 8) == 1 && pair.memory(1, 0) == 0
    });
}

#[test]
fn engine_read_back_flushes_its_writes() {
    for engines in BOTH {
        check_never(engines, |pair| {
            pair.copy_out(0, 0, 1);
            // The engine may read any place.
            pair.copy_in(0, 16);
            pair.memory(1, 0) == 0
        });
    }
}

#[test]
fn cpu_read_flushes_engine_writes_only_on_a_shared_path() {
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
fn doorbell_does_not_flush_stores() {
    check_happens(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.ring(0);
        pair.has_rung_at(1) && pair.memory(1, 0) == 0
    });
    // After a read the store can only be late.
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
fn read_completion_arrives_after_earlier_peer_stores() {
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
    // For an engine in the switch, the answer does not go the way of the store.
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
fn writes_in_flight_are_lost_when_the_link_goes_down() {
    check_happens(Engines::Switch, |pair| {
        pair.store(0, 0, 1);
        pair.link.allow(false);
        pair.link.allow(true);
        pair.load(0, 0);
        pair.memory(1, 0) == 0
    });
}

#[test]
fn carrier_threads_deliver_all_held_writes() {
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
fn direction_without_trapped_stores_delivers_at_once() {
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
