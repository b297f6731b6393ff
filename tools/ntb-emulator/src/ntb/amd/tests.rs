// SPDX-License-Identifier: GPL-2.0
//! Tests of both sides of a chip, through their ports, as ntb_hw_amd uses them.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_DATA_EVENTFD;

use super::identity::VECTORS;
use crate::config;
use crate::config::Personality;
use crate::config::Windows;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::ntb::link::Link;
use crate::ntb::port::Port;
use crate::ntb::window::Reach;
use crate::ram::Ram;

const RAM: u64 = 1 << 20;
const WINDOW: u64 = 0x1_0000;

const SCRATCHPAD: u64 = 0x210;
const SIDE_INFO: u64 = 0x408;
const LIMIT: u64 = 0x418;
const TRANSLATION: u64 = 0x438;
const RING: u64 = 0x454;
const DOORBELL_MASK: u64 = 0x45c;
const DOORBELLS: u64 = 0x460;
const EVENT_MASK: u64 = 0x470;
const EVENT: u64 = 0x474;
const ACKNOWLEDGE: u64 = 0x4a0;
const PEER: u64 = 0x400;

const UP: u64 = 0x20;
const DOWN: u64 = 0x40;

/// A side with a driver.
struct Driver {
    port: Port,
    vectors: Vec<File>,
}

impl Driver {
    fn new(link: &Arc<Link>, end: usize) -> Self {
        let vector = || File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let vectors: Vec<File> = (0..VECTORS).map(|_| vector()).collect();
        let port = Port::new(link, end);
        let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
        let events = vectors.iter().map(|vector| vector.try_clone().unwrap());
        port.interrupts()
            .set(flags, 0, VECTORS as u32, events.collect())
            .unwrap();
        port.connect();
        Self { port, vectors }
    }

    fn read(&self, offset: u64, width: usize) -> u64 {
        let mut data = [0; 8];
        self.port.register_read(offset, &mut data[..width]);
        u64::from_le_bytes(data)
    }

    fn write(&self, offset: u64, width: usize, value: u64) {
        self.port
            .register_write(offset, &value.to_le_bytes()[..width]);
    }

    /// Does what the driver's probe does.
    fn probe(&self) {
        self.write(EVENT_MASK, 4, 0x7f);
        self.write(DOORBELL_MASK, 2, 0x7fff);
        self.write(EVENT_MASK, 4, 0x1f);
        self.write(SIDE_INFO, 4, self.read(SIDE_INFO, 4) | 2);
    }

    /// Returns whether the peer is up, as the driver checks it.
    fn peer_is_up(&self) -> bool {
        self.read(PEER + SIDE_INFO, 4) & 2 != 0
    }

    /// Returns the vectors that have interrupted since the last call.
    fn interrupted(&self) -> Vec<usize> {
        let rang = |vector: &usize| (&self.vectors[*vector]).read_exact(&mut [0; 8]).is_ok();
        (0..VECTORS).filter(rang).collect()
    }

    /// Handles a told event as the driver's handler does.
    fn handle_event(&self, event: u64) {
        assert_eq!(self.interrupted(), [16]);
        assert_eq!(self.read(EVENT, 4), event);
        self.write(ACKNOWLEDGE, 4, self.read(ACKNOWLEDGE, 4) | event);
        self.write(EVENT, 4, event);
    }

    fn translate(&self, window: u64, address: u64, limit: u64) {
        self.write(PEER + TRANSLATION + 8 * window, 8, address);
        self.write(PEER + LIMIT + 8 * window, 8, limit);
    }
}

fn pair(windows: Windows) -> (Arc<Link>, [Driver; 2]) {
    let memory = || {
        let ram = Arc::new(Ram::anonymous(RAM).unwrap());
        let memory = GuestMemory::new(Arc::clone(&ram));
        memory.map(0, RAM, 0, true, true, ram.file().ok()).unwrap();
        Arc::new(memory)
    };
    let entry = config::Link {
        upstream: 0,
        downstream: 1,
        personality: Personality::Amd,
        windows,
        model: None,
    };
    let link = Link::new(&entry, [memory(), memory()], None);
    let drivers = [0, 1].map(|end| Driver::new(&link, end));
    (link, drivers)
}

fn up() -> (Arc<Link>, [Driver; 2]) {
    let (link, drivers) = pair(Windows::Trapped { size: WINDOW });
    drivers.iter().for_each(Driver::probe);
    assert!(link.state().1);
    (link, drivers)
}

#[test]
fn probe_reads_identity_side_and_peer_state() {
    let (link, [a, b]) = pair(Windows::Aperture);
    for (driver, side) in [(&a, 0), (&b, 1)] {
        let mut id = [0; 4];
        driver.port.config_read(0, &mut id);
        assert_eq!(u32::from_le_bytes(id), 0x17d7_1022);
        assert_eq!(driver.read(SIDE_INFO, 4), side);
        // The number of the side stays.
        driver.write(SIDE_INFO, 4, 1 - side);
        assert_eq!(driver.read(SIDE_INFO, 4), side);
        assert_eq!(driver.read(PEER + SIDE_INFO, 4), 1 - side);
    }
    a.probe();
    assert!(b.peer_is_up() && !a.peer_is_up() && !link.state().1);
    b.probe();
    assert!(a.peer_is_up() && link.state().1);
    // The drivers poll each other, and are not told.
    assert_eq!((a.interrupted(), b.interrupted()), (vec![], vec![]));
    // A driver that goes rings when it is no longer ready.
    b.write(SIDE_INFO, 4, 1);
    b.write(RING, 2, 0x8000);
    assert!(!a.peer_is_up() && !link.state().1);
    assert_eq!(a.interrupted(), [15]);
}

#[test]
fn peers_see_each_other_after_handling_their_link_events() {
    let (link, [a, b]) = up();
    link.allow(false);
    for driver in [&a, &b] {
        assert!(!driver.peer_is_up());
        driver.handle_event(DOWN);
    }
    link.allow(true);
    for driver in [&a, &b] {
        assert!(!driver.peer_is_up());
        // The driver would clear a ready bit that it takes for a stale one.
        driver.write(PEER + SIDE_INFO, 4, 0);
        driver.handle_event(UP);
        assert!(driver.peer_is_up());
    }
    // A moment without a cable gives two events.
    link.allow(false);
    link.allow(true);
    a.handle_event(DOWN);
    assert!(!a.peer_is_up());
    a.handle_event(UP);
    assert!(a.peer_is_up());
    // The reset of a guest gives the same events, and its driver has gone.
    b.port.reset();
    a.handle_event(DOWN);
    a.handle_event(UP);
    assert!(!a.peer_is_up() && !link.state().1);
    assert_eq!(b.read(EVENT_MASK, 4), 0x7f);
    b.interrupted();
    b.probe();
    assert!(a.peer_is_up() && b.peer_is_up());
    b.port.disconnect();
    a.handle_event(DOWN);
    assert_eq!(link.state(), (true, false));
    // The surviving driver takes the ready bit for a stale one.
    a.write(PEER + SIDE_INFO, 4, 0);
    b.port.connect();
    assert!(!a.peer_is_up());
    a.handle_event(UP);
    assert_eq!(b.read(SIDE_INFO, 4), 1);
}

#[test]
fn doorbells_have_their_own_vectors_and_a_mask() {
    let (link, [a, b]) = up();
    b.write(DOORBELL_MASK, 2, 0x7ff0);
    a.write(RING, 2, 0x803);
    assert_eq!(b.interrupted(), [0, 1]);
    assert_eq!((a.read(DOORBELLS, 2), b.read(DOORBELLS, 2)), (0, 0x803));
    // A doorbell that is rung again is pending already.
    a.write(RING, 2, 0x801);
    assert!(b.interrupted().is_empty());
    b.write(DOORBELLS, 2, 0x1);
    a.write(RING, 2, 0x1);
    assert_eq!((b.interrupted(), b.read(DOORBELLS, 2)), (vec![0], 0x803));
    // The masked doorbell interrupts when it is unmasked.
    b.write(DOORBELL_MASK, 2, 0);
    assert_eq!(b.interrupted(), [11]);
    b.write(DOORBELLS, 2, 0xffff);
    assert_eq!((b.read(DOORBELLS, 2), b.interrupted()), (0, vec![]));
    link.allow(false);
    assert_eq!(a.port.register_write(RING, &[1, 0]).dropped, 1);
    assert_eq!(b.read(DOORBELLS, 2), 0);
}

#[test]
fn scratchpads_are_one_bank_for_both_sides() {
    let (link, [a, b]) = up();
    for index in 0..8 {
        a.write(SCRATCHPAD + 4 * index, 4, 0x100 + index);
        b.write(SCRATCHPAD + 0x20 + 4 * index, 4, 0x200 + index);
    }
    for driver in [&a, &b] {
        assert_eq!(driver.read(SCRATCHPAD, 8), 0x101_0000_0100);
        assert_eq!(driver.read(SCRATCHPAD + 0x3c, 4), 0x207);
    }
    let taken = a.port.register_write(SCRATCHPAD + 0x20, &[1, 2, 3, 4]);
    assert_eq!((taken.written, taken.dropped), (4, 0));
    assert_eq!(b.read(SCRATCHPAD + 0x20, 4), 0x403_0201);
    // The scratchpads of the other side can't be read without a cable, and are cleared by its
    // reset.
    link.allow(false);
    assert_eq!(a.read(SCRATCHPAD + 0x20, 4), 0xffff_ffff);
    assert_eq!(a.read(SCRATCHPAD, 4), 0x100);
    link.allow(true);
    b.port.reset();
    assert_eq!(
        (a.read(SCRATCHPAD, 4), a.read(SCRATCHPAD + 0x3c, 4)),
        (0x100, 0)
    );
}

#[test]
fn window_leads_where_the_other_side_translates_it() {
    let (link, [a, b]) = up();
    let reach = |offset, length| match a.port.reach(0, offset, length, Access::Read) {
        Reach::Memory { offset, length, .. } => Some((offset, length)),
        _ => None,
    };
    assert_eq!(reach(0, 8), None);
    b.translate(0, 0x8000, 0x1801);
    assert_eq!(a.read(TRANSLATION, 8), 0x8000);
    assert_eq!(reach(0, WINDOW), Some((0x8000, 0x1801)));
    assert_eq!(reach(0x1801, 1), None);
    // A translation that is no page is not taken, and the driver reads back the old one.
    b.translate(0, 0x8800, 0x1000);
    assert_eq!(b.read(PEER + TRANSLATION, 8), 0x8000);
    // An access goes no further than the window, and than memory.
    b.translate(0, 0, u64::MAX);
    assert_eq!(reach(0, 2 * WINDOW), Some((0, WINDOW)));
    b.translate(0, RAM - 0x1000, WINDOW);
    assert_eq!(reach(0x1000, 8), None);
    b.translate(0, 0, 0);
    assert_eq!(reach(0, 8), None);
    // Reset closes the windows of the side that was reset, not the windows that lead to it.
    b.translate(0, 0x8000, 0x1000);
    a.translate(1, 0x4000, 0x1000);
    b.port.reset();
    b.probe();
    assert!(link.state().1);
    assert_eq!(reach(0, 8), Some((0x8000, 8)));
    let closed = b.port.reach(1, 0, 8, Access::Read);
    assert!(matches!(closed, Reach::Nothing));
    link.allow(false);
    let down = a.port.reach(0, 0, 8, Access::Read);
    assert!(matches!(down, Reach::LinkDown { length: 8 }));
}

#[test]
fn aperture_refuses_a_translation() {
    let (_, [a, _]) = pair(Windows::Aperture);
    a.translate(1, 0x1000, RAM);
    assert_eq!(a.read(PEER + TRANSLATION + 8, 8), 0);
    a.translate(0, 0x1000, RAM);
    assert_eq!(a.read(PEER + TRANSLATION, 8), 0x1000);
}

proptest! {
    /// Whatever both drivers write, every access is answered and no invariant breaks.
    #[test]
    fn any_accesses_keep_the_invariants(
        accesses in prop::collection::vec(
            (any::<bool>(), 0u8..8, 0u64..0xa08, any::<u64>(), 1usize..9),
            0..64,
        ),
    ) {
        let (link, drivers) = up();
        for (end, kind, offset, value, width) in accesses {
            let driver = &drivers[usize::from(end)];
            match kind {
                0 => link.allow(value & 1 != 0),
                1 => driver.port.config_write(offset, &value.to_le_bytes()[..width]),
                _ => driver.write(offset, width, value),
            }
            driver.read(offset, width);
            let sides = [0, 1].map(|end: usize| drivers[end].read(SIDE_INFO, 4));
            prop_assert_eq!(sides.map(|info| info & 1), [0, 1]);
            let (allowed, up) = link.state();
            prop_assert_eq!(up, allowed && sides == [2, 3]);
            // A driver never sees a peer that is not present.
            prop_assert!(up || !drivers.iter().all(Driver::peer_is_up));
            for access in [Access::Read, Access::Write] {
                if let Some(Reach::Memory { offset, length, ram, .. }) = driver.port.decode(value, 64, access) {
                    prop_assert!(offset + length <= ram.size());
                }
            }
        }
    }
}
