// SPDX-License-Identifier: GPL-2.0
//! The map of a device's memory, `src/guest_memory.rs`, against a model of one entry per
//! byte.

use std::ops::RangeInclusive;
use std::sync::Arc;

use ntb_emulator::guest_memory::Access;
use ntb_emulator::guest_memory::Found;
use ntb_emulator::guest_memory::GuestMemory;
use ntb_emulator::ram::Ram;
use proptest::prelude::*;

const RAM: u64 = 0x1000;
/// Bound of addresses and sizes.
const SMALL: u64 = 64;

/// An event of a map.
#[derive(Debug, Clone)]
enum Event {
    Map {
        address: u64,
        size: u64,
        offset: u64,
        readable: bool,
        writable: bool,
    },
    Unmap {
        address: u64,
        size: u64,
    },
    Clear,
    Find {
        address: u64,
        length: u64,
        access: Access,
    },
    Release(usize),
}

fn events() -> impl Strategy<Value = Event> {
    let access = prop_oneof![Just(Access::Read), Just(Access::Write)];
    // Offsets are often equal to addresses, so that ranges can be joined.
    let offset = |address| prop_oneof![Just(address), 0..SMALL];
    let map = (0..SMALL, 1..SMALL / 4, any::<bool>(), any::<bool>()).prop_flat_map(
        move |(address, size, readable, writable)| {
            offset(address).prop_map(move |offset| Event::Map {
                address,
                size,
                offset,
                readable,
                writable,
            })
        },
    );
    prop_oneof![
        8 => map,
        6 => (0..SMALL, 0..SMALL / 4).prop_map(|(address, size)| Event::Unmap { address, size }),
        1 => Just(Event::Clear),
        8 => (0..SMALL, 0..SMALL, access)
            .prop_map(|(address, length, access)| Event::Find { address, length, access }),
        4 => any::<usize>().prop_map(Event::Release),
    ]
}

/// The expected state of one byte of the map.
type Byte = Option<(u64, bool, bool)>;

/// Returns the expected result of a find, byte by byte.
fn expected(model: &[Byte], address: u64, length: u64, access: Access) -> Option<(u64, u64)> {
    let first = model[address as usize]?;
    let allowed = match access {
        Access::Read => first.1,
        Access::Write => first.2,
    };
    if !allowed {
        return None;
    }
    let piece = (0..length)
        .take_while(|at| {
            let byte = model.get((address + at) as usize).copied().flatten();
            byte == Some((first.0 + at, first.1, first.2))
        })
        .count();
    (piece > 0).then_some((first.0, piece as u64))
}

fn overlap(one: &RangeInclusive<u64>, other: &RangeInclusive<u64>) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Compares with a model that keeps one entry per byte. Accesses go on across changes
    /// elsewhere, and end before the changes that must wait for them. A change that waited for more
    /// would hang.
    #[test]
    fn guest_memory_agrees_with_a_byte_map(events in prop::collection::vec(events(), 1..64)) {
        let ram = Arc::new(Ram::anonymous(RAM).unwrap());
        let memory = GuestMemory::new(Arc::clone(&ram));
        let mut model = [None; 2 * SMALL as usize];
        let mut pins: Vec<(RangeInclusive<u64>, Found)> = Vec::new();
        for event in events {
            match event {
                Event::Map { address, size, offset, readable, writable } => {
                    pins.retain(|(span, _)| !overlap(span, &(address..=address + size - 1)));
                    for at in 0..size {
                        model[(address + at) as usize] = Some((offset + at, readable, writable));
                    }
                    let file = Some(ram.file().unwrap());
                    memory.map(address, size, offset, readable, writable, file).unwrap();
                }
                Event::Unmap { address, size } => {
                    pins.retain(|(span, _)| size == 0 || !overlap(span, &(address..=address + size - 1)));
                    model[address as usize..(address + size) as usize].fill(None);
                    memory.unmap(address, size);
                }
                Event::Clear => {
                    pins.clear();
                    model.fill(None);
                    memory.clear();
                }
                Event::Find { address, length, access } => {
                    let found = memory.find(address, length, access);
                    let place = found.as_ref().map(|found| (found.offset, found.length));
                    prop_assert_eq!(place, expected(&model, address, length, access));
                    pins.extend(found.map(|found| (address..=address + found.length - 1, found)));
                }
                Event::Release(index) => {
                    if !pins.is_empty() {
                        pins.swap_remove(index % pins.len());
                    }
                }
            }
        }
        for address in 0..model.len() as u64 {
            for access in [Access::Read, Access::Write] {
                let found = memory.find(address, u64::MAX, access);
                let place = found.as_ref().map(|found| (found.offset, found.length));
                prop_assert_eq!(place, expected(&model, address, u64::MAX, access));
            }
        }
        drop(pins);
        // The clear would hang if a pin were left.
        memory.clear();
    }
}
