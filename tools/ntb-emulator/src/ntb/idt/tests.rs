// SPDX-License-Identifier: GPL-2.0
//! Tests of both ends of a switch, through their ports, as ntb_hw_idt uses them.

mod order;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::event::EventfdFlags;
use rustix::event::eventfd;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_ACTION_TRIGGER;
use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_DATA_EVENTFD;

use crate::config;
use crate::config::Personality;
use crate::config::Windows;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::ntb::link::Link;
use crate::ntb::port::Port;
use crate::ntb::window::Reach;
use crate::order::WeakOrder;
use crate::order::direction::Direction;
use crate::ram::Ram;

const RAM: u64 = 1 << 20;
const WINDOW: u64 = 0x1_0000;
/// The address of the first window of each end.
const BAR: u64 = 0x38_0000_0000;
/// The address that this window leads to, as the other end's function sees it.
const IOVA: u64 = 0x7_0000_0000;

const INTERRUPTS: u64 = 0x404;
const RING: u64 = 0x420;
const DOORBELLS: u64 = 0x428;
const DOORBELL_MASK: u64 = 0x42c;
const MESSAGES: u64 = 0x460;
const MESSAGE_MASK: u64 = 0x464;

/// The end of a switch with a driver.
struct Driver {
    port: Port,
    end: u32,
    interrupts: File,
}

impl Driver {
    fn new(link: &Arc<Link>, end: usize) -> Self {
        let fd: OwnedFd = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let interrupts = File::from(fd);
        let driver = Self {
            port: Port::new(link, end),
            end: end as u32,
            interrupts,
        };
        driver.port.connect();
        driver
    }

    fn read(&self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.port.register_read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    fn write(&self, offset: u64, value: u32) {
        self.port.register_write(offset, &value.to_le_bytes());
    }

    fn global_read(&self, address: u32) -> u32 {
        self.write(0xff8, address);
        self.read(0xffc)
    }

    fn global_write(&self, address: u32, value: u32) {
        self.write(0xff8, address);
        self.write(0xffc, value);
    }

    fn config_read(&self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.port.config_read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    /// Does what the driver's probe does.
    fn probe(&self) {
        self.port.config_write(0x18, &BAR.to_le_bytes());
        self.port.config_write(4, &[6, 0]);
        let event = self.interrupts.try_clone().unwrap();
        let flags = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
        self.port
            .interrupts()
            .set(flags, 0, 1, vec![event])
            .unwrap();
        for status in [0x3_ec0c, 0x3_ec14, 0x3_ec30] {
            self.global_write(status, u32::MAX);
        }
        self.global_write(0x3_ec08, !3);
        self.global_write(0x3_ec10, !5);
        self.global_write(0x3_ec18, !5);
        self.global_write(0x3_ec34, !3);
        self.global_write(0x3_ec04, !0x23);
        self.write(0x408, self.read(0x408) & !0xb);
    }

    fn enable_link(&self, enable: bool) {
        self.write(0x400, if enable { 2 } else { 0 });
        self.write(0x4d0, self.end);
        let entry = (self.read(0x4dc) << 1) | (self.end << 17) | 1;
        self.write(0x4d8, if enable { entry } else { 0 });
        self.write(0x410, 1);
        self.global_write(0x3_ec30, 1 << self.end);
    }

    /// Returns whether the peer is up, as the driver checks it.
    fn peer_is_up(&self) -> bool {
        let peer = 1 - self.end;
        let space = 0x1000 + 0x4000 * peer;
        let port = self.global_read(0x3_e204 + 0x40 * peer);
        let command = self.global_read(space + 4);
        let control = self.global_read(space + 0x400);
        self.write(0x4d0, peer);
        port & 0x10 != 0 && command & 4 != 0 && control & 2 != 0 && self.read(0x4d8) & 1 != 0
    }

    /// Returns how many interrupts came. Does not clear their reasons.
    fn interrupted(&self) -> u64 {
        let mut data = [0; 8];
        match (&self.interrupts).read_exact(&mut data) {
            Ok(()) => u64::from_ne_bytes(data),
            Err(_) => 0,
        }
    }

    /// Handles events of the switch as the driver's interrupt handler does.
    fn handle_events(&self) {
        self.global_read(0x3_ec00);
        for status in [0x3_ec0c, 0x3_ec14, 0x3_ec30] {
            self.global_write(status, u32::MAX);
        }
        self.write(INTERRUPTS, 8);
    }

    fn send(&self, register: u32, word: u32) {
        let route = 0x3_ee00 + 0x20 * register + 4 * self.end;
        self.global_write(route, register | ((1 - self.end) << 4));
        self.write(0x430 + 4 * u64::from(register), word);
    }

    /// Maps that part of the guest's memory for the function.
    fn reachable(&self, offset: u64) -> &GuestMemory {
        let memory = self.port.memory();
        let file = memory.ram().file().unwrap();
        memory
            .map(IOVA, WINDOW, offset, true, true, Some(file))
            .unwrap();
        memory
    }

    fn translate(&self, partition: u32, address: u64, limit: u64) {
        let setup = self.read(0x490) & !(7 << 13);
        self.write(0x490, setup | (partition << 13));
        self.write(0x498, address as u32);
        self.write(0x49c, (address >> 32) as u32);
        self.write(0x494, limit as u32);
        self.write(0x4a4, (limit >> 32) as u32);
    }
}

fn pair(order: Option<WeakOrder>) -> (Arc<Link>, [Driver; 2]) {
    let memory = || {
        let ram = Ram::anonymous(RAM).unwrap();
        Arc::new(GuestMemory::new(Arc::new(ram)))
    };
    let entry = config::Link {
        upstream: 0,
        downstream: 1,
        personality: Personality::Idt,
        windows: Windows::Trapped { size: WINDOW },
        model: None,
    };
    let directions = order.map(|order| [0, 1].map(|end| Direction::new(order, end, 0, true)));
    let link = Link::with_order(&entry, [memory(), memory()], None, directions);
    let drivers = [Driver::new(&link, 0), Driver::new(&link, 1)];
    for driver in &drivers {
        driver.probe();
    }
    (link, drivers)
}

fn up() -> (Arc<Link>, [Driver; 2]) {
    up_in(None)
}

fn up_in(order: Option<WeakOrder>) -> (Arc<Link>, [Driver; 2]) {
    let (link, drivers) = pair(order);
    for driver in &drivers {
        driver.enable_link(true);
    }
    for driver in &drivers {
        driver.handle_events();
        driver.interrupted();
    }
    assert!(link.state().1);
    (link, drivers)
}

#[test]
fn probe_reads_identity_ports_and_windows() {
    let (_, [a, b]) = pair(None);
    for (driver, port) in [(&a, 0), (&b, 2)] {
        assert_eq!(driver.config_read(0), 0x808f_111d);
        assert_eq!(driver.config_read(8) >> 8, 0x06_80_00);
        // BAR 0 is a view of configuration space, of 4 KiB.
        assert_eq!(driver.config_read(0x470), 0x8000_04c4);
        assert_eq!(driver.read(0x470), 0x8000_04c4);
        assert_eq!(driver.read(0x4c) >> 24, port);
        assert_eq!(driver.read(0x50) >> 16, 0x82);
        for mine in [0x1000, 0x5000] {
            // Windows of 64 bits and 64 KiB in BAR 2 and 4, and nothing else.
            let setup = [0x470, 0x480, 0x490, 0x4a0, 0x4b0, 0x4c0];
            let found = setup.map(|at| driver.global_read(mine + at));
            assert_eq!(found, [0x8000_04c4, 0, 0x8000_010c, 0, 0x8000_010c, 0]);
        }
        let ports = [0, 2, 4, 6, 8, 12, 16, 20].map(|p| driver.global_read(0x3_e204 + 0x20 * p));
        assert_eq!(ports, [0xd0, 0x4d0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(driver.global_read(0x3_e104) & 0x60, 0x20);
        assert_eq!(driver.global_read(0x3_e124) & 0x60, 0x20);
        // Only the partition that a window leads to can be changed.
        driver.write(0x490, u32::MAX);
        assert_eq!(driver.read(0x490), 0x8000_e10c);
        driver.write(0x490, 0);
        assert_eq!(driver.read(0x490), 0x8000_010c);
        driver.global_write(0x3_e204, 0);
        assert_eq!(driver.global_read(0x3_e204), 0xd0);
        driver.write(0, 0);
        assert_eq!(driver.read(0), 0x808f_111d);
    }
}

#[test]
fn link_comes_up_if_both_enable_it_and_interrupts_both() {
    let (link, [a, b]) = pair(None);
    assert!(!a.peer_is_up() && !b.peer_is_up());
    assert_eq!((a.interrupted(), b.interrupted()), (0, 0));
    a.enable_link(true);
    assert!(b.peer_is_up() && !link.state().1);
    assert_eq!((a.interrupted(), b.interrupted()), (1, 1));
    // An event that was told and not handled gives no other interrupt, though the state has
    // changed.
    b.enable_link(true);
    assert!(a.peer_is_up() && link.state().1);
    assert_eq!((a.interrupted(), b.interrupted()), (0, 0));
    for driver in [&a, &b] {
        assert_eq!(driver.read(INTERRUPTS), 8);
        driver.handle_events();
        assert_eq!(driver.read(INTERRUPTS), 0);
    }
    b.enable_link(false);
    assert!(!a.peer_is_up() && !link.state().1);
    assert_eq!((a.interrupted(), b.interrupted()), (1, 1));
}

#[test]
fn cable_and_reset_changes_interrupt_the_peer() {
    let (link, [a, b]) = up();
    link.allow(false);
    assert!(!a.peer_is_up() && !b.peer_is_up());
    assert_eq!((a.interrupted(), b.interrupted()), (1, 1));
    assert_eq!(a.global_read(0x3_ec00), 2);
    assert_eq!(a.global_read(0x3_ec14), 5);
    a.handle_events();
    b.handle_events();
    link.allow(true);
    assert!(a.peer_is_up() && b.peer_is_up() && link.state().1);
    assert_eq!(a.global_read(0x3_ec00), 1);
    a.handle_events();
    assert_eq!(a.interrupted(), 1);
    // When a guest is reset, its link is down for a moment, and its driver has gone.
    b.port.reset();
    assert_eq!(a.interrupted(), 1);
    assert_eq!((a.global_read(0x3_ec14), a.global_read(0x3_ec0c)), (4, 4));
    assert!(!a.peer_is_up() && !link.state().1);
    a.handle_events();
    b.probe();
    b.enable_link(true);
    assert!(link.state().1);
    b.port.config_write(4, &[2, 0]);
    assert!(!a.peer_is_up() && !link.state().1);
    b.port.config_write(4, &[6, 0]);
    assert!(link.state().1);
    b.port.disconnect();
    assert!(!link.state().1 && !a.peer_is_up());
}

#[test]
fn doorbell_register_is_shared_by_both_sides() {
    let (_, [a, b]) = up();
    a.write(DOORBELL_MASK, u32::MAX);
    a.write(RING, 0x9);
    assert_eq!((a.interrupted(), b.interrupted()), (0, 1));
    for driver in [&a, &b] {
        assert_eq!(driver.read(DOORBELLS), 0x9);
        assert_eq!(driver.global_read(0x3_ec3c), 0x9);
    }
    // The register has not left 0: no end is told of more doorbells, nor when some are cleared.
    a.write(RING, 0x10);
    b.write(DOORBELLS, 0x9);
    assert_eq!((b.interrupted(), b.read(INTERRUPTS)), (0, 2));
    a.write(RING, 0x9);
    assert_eq!(b.interrupted(), 0);
    // Clearing the bit in the interrupt's status does nothing.
    b.write(INTERRUPTS, 2);
    assert_eq!(b.read(INTERRUPTS), 2);
    a.write(DOORBELLS, 0x19);
    assert_eq!(b.read(INTERRUPTS), 0);
    a.write(RING, 0x1);
    assert_eq!(b.interrupted(), 1);
}

#[test]
fn masked_doorbell_interrupts_when_unmasked() {
    let (link, [a, b]) = up();
    b.write(DOORBELL_MASK, 0x6);
    a.write(RING, 0x2);
    assert_eq!((b.interrupted(), b.read(INTERRUPTS)), (0, 0));
    b.write(DOORBELL_MASK, 0x4);
    assert_eq!((b.interrupted(), b.read(INTERRUPTS)), (1, 2));
    // A doorbell that is masked and unmasked while it is rung interrupts again.
    b.write(DOORBELL_MASK, 0x6);
    b.write(DOORBELL_MASK, 0x4);
    assert_eq!(b.interrupted(), 1);
    // Unmasking another doorbell while one is pending does not interrupt.
    a.write(RING, 0x4);
    b.write(DOORBELL_MASK, 0);
    assert_eq!(b.interrupted(), 0);
    // The mask of all doorbells.
    b.write(0x408, 0x8b);
    b.write(DOORBELLS, 0x6);
    a.write(RING, 0x2);
    assert_eq!(b.interrupted(), 0);
    b.write(0x408, 0x80);
    assert_eq!(b.interrupted(), 1);
    // Without a cable nothing is rung.
    b.write(DOORBELLS, 0x6);
    link.allow(false);
    assert_eq!(a.port.register_write(RING, &[1, 0, 0, 0]).dropped, 1);
    assert_eq!(b.read(DOORBELLS), 0);
}

#[test]
fn message_stays_until_its_status_is_cleared() {
    let (link, [a, b]) = up();
    a.send(2, 0xdead_beef);
    assert_eq!((a.interrupted(), b.interrupted()), (0, 1));
    assert_eq!(b.read(MESSAGES), 1 << 18);
    assert_eq!((b.read(0x448), b.read(0x458)), (0xdead_beef, 0));
    assert_eq!((a.read(MESSAGES), b.read(INTERRUPTS)), (0, 1));
    // The register is full: the first message stays, and the sender is told.
    a.send(2, 0x1234_5678);
    assert_eq!(b.read(0x448), 0xdead_beef);
    assert_eq!((a.read(MESSAGES), a.interrupted()), (1 << 2, 1));
    // Reading does not free the register.
    a.send(2, 0x1234_5678);
    assert_eq!(b.read(0x448), 0xdead_beef);
    a.write(MESSAGES, 1 << 2);
    b.write(MESSAGES, 1 << 18);
    assert_eq!((a.read(MESSAGES), b.read(MESSAGES)), (0, 0));
    a.send(2, 0x1234_5678);
    assert_eq!((b.read(0x448), b.interrupted()), (0x1234_5678, 1));
    assert_eq!(a.read(MESSAGES), 0);
    // Other registers have room, but there is no other interrupt.
    a.send(0, 5);
    assert_eq!(
        (b.read(MESSAGES), b.interrupted()),
        ((1 << 16) | (1 << 18), 0)
    );
    // In the other direction, masked.
    a.write(MESSAGE_MASK, 0xf_000f);
    b.send(3, 7);
    assert_eq!((a.read(0x44c), a.read(0x45c)), (7, 1));
    assert_eq!((a.read(INTERRUPTS), a.interrupted()), (0, 0));
    a.write(MESSAGE_MASK, 0xf);
    assert_eq!((a.read(INTERRUPTS), a.interrupted()), (1, 1));
    // Without a cable, and to a partition that does not exist.
    link.allow(false);
    a.send(1, 9);
    assert_eq!((b.read(0x444), a.read(MESSAGES) & 0xf), (0, 1 << 1));
    link.allow(true);
    a.global_write(0x3_ee60, 5 << 4);
    a.write(0x43c, 9);
    assert_eq!(a.read(MESSAGES) & 0xf, (1 << 1) | (1 << 3));
}

#[test]
fn window_leads_where_its_user_translates_it() {
    let (link, [a, b]) = up();
    b.reachable(0x8000);
    let reach = |offset, length| match a.port.reach(0, offset, length, Access::Read) {
        Reach::Memory { offset, length, .. } => Some((offset, length)),
        _ => None,
    };
    // The window leads nowhere at first, and only to the partition of the other end.
    assert_eq!(reach(0, 8), None);
    a.translate(0, IOVA, BAR + WINDOW);
    assert_eq!(reach(0, 8), None);
    a.translate(1, IOVA, BAR + WINDOW);
    assert_eq!(reach(0, WINDOW + 8), Some((0x8000, WINDOW)));
    // The window takes any address, up to a word, and any size, up to 1 KiB: the low bits of the
    // limit are ones.
    a.translate(1, IOVA + 0x1237, BAR + 0x1001);
    assert_eq!((a.read(0x498), a.read(0x494)), (0x1234, 0x1000));
    assert_eq!(reach(4, WINDOW), Some((0x9238, 0x13fc)));
    assert_eq!(reach(0x1400, 8), None);
    // A limit before the window closes it; the driver does that.
    a.translate(1, IOVA, 0);
    assert_eq!(reach(0, 8), None);
    // Memory that the other end's function can't reach is not reached.
    a.translate(1, IOVA + WINDOW - 8, BAR + WINDOW);
    assert_eq!(reach(0, 16), Some((0x8000 + WINDOW - 8, 8)));
    assert_eq!(reach(8, 8), None);
    a.translate(1, u64::MAX, BAR + WINDOW);
    assert_eq!(reach(8, 8), None);
    // An engine finds the window as long as the link is up.
    a.translate(1, IOVA, BAR + WINDOW);
    let decode = || a.port.decode(BAR + 0x20, 8, Access::Write);
    assert!(matches!(
        decode(),
        Some(Reach::Memory {
            offset: 0x8020,
            length: 8,
            ..
        })
    ));
    link.allow(false);
    assert!(matches!(decode(), Some(Reach::LinkDown { length: 8 })));
    link.allow(true);
    b.enable_link(false);
    assert!(matches!(decode(), Some(Reach::LinkDown { length: 8 })));
}

proptest! {
    /// Whatever both drivers write, every access is answered and no invariant breaks.
    #[test]
    fn any_accesses_keep_the_invariants(
        accesses in prop::collection::vec(
            (any::<bool>(), 0u8..3, 0u64..0x1008, 0u32..0x4_0000, any::<u64>(), 1usize..9),
            0..64,
        ),
    ) {
        let (_, drivers) = up();
        for (end, kind, offset, address, value, width) in accesses {
            let driver = &drivers[usize::from(end)];
            let data = &value.to_le_bytes()[..width];
            match kind {
                0 => driver.port.config_write(offset, data),
                1 => driver.global_write(address, value as u32),
                _ => drop(driver.port.register_write(offset, data)),
            }
            driver.port.config_read(offset, &mut [0; 8][..width]);
            driver.port.register_read(offset, &mut [0; 8][..width]);
            driver.global_read(address);
            // The setup never changes, and doorbells are the same for both ends.
            prop_assert_eq!(driver.read(0x470) & !0xe000, 0x8000_04c4);
            prop_assert_eq!(drivers[0].read(DOORBELLS), drivers[1].read(DOORBELLS));
            for access in [Access::Read, Access::Write] {
                if let Some(Reach::Memory { offset, length, ram, .. }) = driver.port.decode(value, 64, access) {
                    prop_assert!(offset + length <= ram.size());
                }
            }
        }
    }
}
