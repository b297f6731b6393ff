// SPDX-License-Identifier: GPL-2.0
//! The whole emulator against clients that behave like QEMU with a driver in it.
//!
//! Only the guests do not run; all else is as in a lab: sockets, RAM files, mapped windows,
//! interrupts as event descriptors, link states, kills and restarts.

mod amd;
mod dma;
mod guest;
mod idt;
mod lab;
mod model;
mod order;

use std::cell::RefCell;
use std::sync::mpsc::channel;

use guest::NtbClient;
use guest::WINDOW_0;
use guest::WINDOW_1;
use lab::LINK;
use lab::Lab;
use lab::RAM;
use lab::pattern;
use lab::wait;
use ntb_emulator::config::Guest;
use ntb_emulator::config::Link;
use ntb_emulator::config::Personality;
use ntb_emulator::config::Topology;
use ntb_emulator::config::Windows;
use ntb_emulator::emulator::Emulator;
use ntb_emulator::emulator::Event;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

#[test]
fn link_comes_up_when_both_sides_enable_it() {
    let lab = Lab::pair();
    let mut control = lab.control();
    let mut a = lab.ntb(0, 0);
    a.enable_link();
    assert!(!a.link_is_up());
    assert!(!control.state().unwrap().links[0].up);
    let mut b = lab.ntb(1, 0);
    assert!(!a.link_is_up());
    b.enable_link();
    a.expect(LINK);
    b.expect(LINK);
    assert!(a.link_is_up() && b.link_is_up());
    assert_ne!(a.read(0x40, 8) & (1 << 32), 0);
    a.write(0x40, 8, 1 << 32);
    assert_eq!(a.read(0x40, 8), 0);
    // The registers say which end is which.
    assert_eq!(a.read(0xb4c0, 4), 0x0200);
    assert_eq!(b.read(0xb4c0, 4), 0x4200);
    b.disable_link();
    a.expect(LINK);
    assert!(!a.link_is_up() && !b.link_is_up());
    lab.healthy();
}

#[test]
fn scratchpads_and_doorbells_reach_the_peer() {
    let lab = Lab::pair();
    let (mut a, mut b) = lab.up();
    a.write(0x8080 + 4 * 3, 4, 0xdead_beef);
    assert_eq!(b.read(0x80 + 4 * 3, 4), 0xdead_beef);
    assert_eq!(a.read(0x8080 + 4 * 3, 4), 0xdead_beef);
    assert_eq!(a.read(0x80 + 4 * 3, 4), 0);
    for doorbell in [0, 7, 31] {
        a.write(0x100 + 4 * doorbell, 4, 1);
        b.expect(doorbell as usize);
        assert_eq!(b.read(0x40, 8) & 0xffff_ffff, 1 << doorbell);
        b.write(0x40, 8, 1 << doorbell);
    }
    // A masked doorbell is kept, and fires when it is unmasked.
    b.write(0x48, 8, 0xffff_ffff);
    a.write(0x100 + 4 * 5, 4, 1);
    wait("the doorbell is pending", || {
        b.read(0x40, 8) & (1 << 5) != 0
    });
    b.expect_nothing(5);
    b.write(0x48, 8, 0xffff_ffff & !(1 << 5));
    b.expect(5);
    b.write(0x40, 8, 1 << 5);
    b.write(0x48, 8, 0);
    b.expect_nothing(5);
    let counters = lab.control().counters().unwrap();
    assert_eq!(counters[0].total.doorbells, 4);
    assert_eq!(counters[1].total.doorbells, 0);
    lab.healthy();
}

#[test]
fn doorbell_rung_without_a_vector_is_not_lost() {
    let lab = Lab::pair();
    let (mut a, mut b) = lab.up();
    b.take_vectors();
    a.write(0x100, 4, 1);
    b.expect_nothing(0);
    b.give_vectors();
    b.expect(0);
    lab.healthy();
}

#[test]
fn trapped_window_follows_translation_and_limit() {
    let lab = Lab::pair();
    let (mut a, mut b) = lab.up();
    // No memory is reachable before the peer allows it.
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    b.write(0x10, 8, 0x12_3000);
    b.write(0x18, 8, WINDOW_0 + 0x2000);
    assert_eq!(b.read(0x10, 8), 0x12_3000);
    assert_eq!(b.read(0x18, 8), WINDOW_0 + 0x2000);
    let data = pattern(1, 4096);
    a.window_write(0, 0x123, &data);
    assert_eq!(b.ram(0x12_3123, 4096), data);
    b.set_ram(0x12_4ff0, b"last bytes here!");
    assert_eq!(a.window_read(0, 0x1ff0, 16), b"last bytes here!");
    // Half of this is beyond the limit.
    let mut expected = b"here!".to_vec();
    expected.extend([0xff; 5]);
    assert_eq!(a.window_read(0, 0x1ffb, 10), expected);
    b.set_ram(0x12_5000, &[7; 16]);
    a.window_write(0, 0x2000, &[9; 16]);
    assert_eq!(b.ram(0x12_5000, 16), [7; 16]);
    // A translation that is not aligned is not latched, and one into no memory leads nowhere.
    b.write(0x10, 8, 0x12_3800);
    assert_eq!(b.read(0x10, 8), 0x12_3000);
    b.write(0x10, 8, 0xffff_ffff_ffff_f000);
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    a.window_write(0, 0, &[1; 8]);
    // The driver closes the window like this.
    b.write(0x10, 8, 0x12_3000);
    b.write(0x18, 8, WINDOW_0);
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    b.write(0x18, 8, 0x2000_0000_0000_0000);
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    lab.healthy();
}

#[test]
fn aperture_is_the_ram_of_the_peer() {
    let lab = Lab::pair();
    let (a, mut b) = lab.up();
    a.mapped_window(1).write(0x34_5678, b"stored by the CPU");
    assert_eq!(b.ram(0x34_5678, 17), b"stored by the CPU");
    b.mapped_window(1).write(0, b"and back");
    assert_eq!(a.ram(0, 8), b"and back");
    // Translation 0 is taken, other translations are refused.
    b.write(0x20, 8, 0x10_0000);
    assert_eq!(b.read(0x20, 8), 0);
    lab.healthy();
}

#[test]
fn fixed_windows_accept_their_own_translation_only() {
    let fixed = Windows::Fixed {
        base: 0x10_0000,
        size: 0x8_0000,
    };
    let lab = Lab::new(2, &[(0, 1)], Personality::Gen5, fixed);
    let (a, mut b) = lab.up();
    for (register, place, other) in [(0x10, 0x10_0000, 0x18_0000), (0x20, 0x18_0000, 0x10_0000)] {
        b.write(register, 8, other);
        assert_eq!(b.read(register, 8), 0);
        b.write(register, 8, place);
        assert_eq!(b.read(register, 8), place);
    }
    a.mapped_window(0).write(0x10, b"zero");
    a.mapped_window(1).write(0x10, b"one");
    assert_eq!(b.ram(0x10_0010, 4), b"zero");
    assert_eq!(b.ram(0x18_0010, 3), b"one");
    lab.healthy();
}

#[test]
fn unplugged_cable_makes_the_peer_unreachable() {
    let lab = Lab::pair();
    let (mut a, mut b) = lab.up();
    let mut dma = lab.dma(0);
    let mut control = lab.control();
    b.set_ram(0x1000, b"untouched");
    control.link(1, 0, false).unwrap();
    a.expect(LINK);
    b.expect(LINK);
    assert!(!a.link_is_up() && !b.link_is_up());
    let state = control.state().unwrap();
    assert!(!state.links[0].plugged && !state.links[0].up);
    // The peer reads as all ones, and takes no writes.
    assert_eq!(a.read(0x8080, 4), 0xffff_ffff);
    a.write(0x8080, 4, 1);
    a.write(0x100, 4, 1);
    assert_eq!(b.read(0x80, 4), 0);
    assert_eq!(b.read(0x40, 8) & 1, 0);
    assert_eq!(a.window_read(0, 0, 4), [0xff; 4]);
    assert_eq!(dma.copy(0, WINDOW_1 + 0x1000, 9), 0x4000_0009);
    assert_eq!(b.ram(0x1000, 9), b"untouched");
    assert_eq!(dma.copy(WINDOW_1 + 0x1000, 0, 9), 0x2000_0000);
    assert_eq!(control.counters().unwrap()[0].total.dropped, 4);
    control.link(0, 1, true).unwrap();
    a.expect(LINK);
    b.expect(LINK);
    assert!(a.link_is_up() && b.link_is_up());
    assert_eq!(dma.copy(0, WINDOW_1 + 0x1000, 9), 0x4000_0009);
    assert_eq!(b.ram(0x1000, 9), a.ram(0, 9));
    let error = control.link(0, 2, true).unwrap_err().to_string();
    assert!(error.contains("no link between"), "{error}");
    lab.healthy();
}

#[test]
fn killed_guest_can_connect_again() {
    let lab = Lab::pair();
    let (mut a, b) = lab.up();
    let mut control = lab.control();
    let window = a.mapped_window(1);
    drop(b);
    a.expect(LINK);
    assert!(!a.link_is_up());
    wait("the emulator knows", || {
        !control.state().unwrap().guests[1].connected
    });
    // The window stays valid memory.
    window.write(0x5000, b"nobody there");
    let mut b = lab.ntb(1, 0);
    assert_eq!(b.read(0xb0d4, 4), 0);
    assert_eq!(b.read(0x18, 8), 0);
    b.enable_link();
    a.expect(LINK);
    b.expect(LINK);
    assert!(a.link_is_up());
    assert_eq!(b.ram(0x5000, 12), b"nobody there");
    // A reset of the guest has the same effect.
    b.write(0x80, 4, 7);
    b.reset();
    a.expect(LINK);
    assert!(!a.link_is_up());
    assert_eq!(b.read(0x80, 4), 0);
    b.place();
    b.enable_link();
    a.expect(LINK);
    assert!(a.link_is_up() && b.link_is_up());
    lab.healthy();
}

#[test]
fn star_of_three_reaches_every_leaf() {
    let lab = Lab::new(3, &[(0, 1), (0, 2)], Personality::Gen5, Windows::Aperture);
    let mut centre = [lab.ntb(0, 0), lab.ntb(0, 1)];
    // The second function has other addresses on the same bus.
    let second = 0x100_0000_0000;
    centre[1].place_at(second);
    let mut leaves = [lab.ntb(1, 0), lab.ntb(2, 0)];
    let mut dma = lab.dma(0);
    for (one, other) in centre.iter_mut().zip(&mut leaves) {
        one.enable_link();
        other.enable_link();
        one.expect(LINK);
        other.expect(LINK);
    }
    centre[0].set_ram(0, b"to 1to 2");
    assert_eq!(dma.copy(0, WINDOW_1 + 0x1000, 4), 0x4000_0004);
    assert_eq!(dma.copy(4, second + WINDOW_1 + 0x1000, 4), 0x4000_0004);
    assert_eq!(leaves[0].ram(0x1000, 4), b"to 1");
    assert_eq!(leaves[1].ram(0x1000, 4), b"to 2");
    leaves[1].write(0x100 + 4 * 9, 4, 1);
    centre[1].expect(9);
    centre[0].expect_nothing(9);
    // Losing one link does not concern the other one.
    let [one, two] = leaves;
    drop(one);
    centre[0].expect(LINK);
    assert!(!centre[0].link_is_up() && centre[1].link_is_up());
    centre[1].expect_nothing(LINK);
    assert!(two.ram(0x1000, 4) == b"to 2");
    lab.healthy();
}

#[test]
fn gen3_registers_match_its_driver() {
    let lab = Lab::new(2, &[(0, 1)], Personality::Gen3, Windows::Aperture);
    let mut a = lab.ntb(0, 0);
    let mut b = lab.ntb(1, 0);
    assert_eq!(a.config(0, 4), 0x201c_8086);
    assert_eq!((a.config(0xd4, 1), b.config(0xd4, 1)), (0x01, 0x11));
    assert_eq!(a.config(0xd0, 4), 0x1714_1714);
    assert_eq!(a.config(0x1a2, 2), 0);
    // The driver's link_enable does this.
    for end in [&mut a, &mut b] {
        let control = end.read(0, 4);
        assert_eq!(control & 3, 3);
        // The link shares the last vector with a doorbell.
        end.write(0xd0 + 32, 1, 31);
        end.write(0, 4, control & !3 | 0x154);
    }
    a.expect(31);
    assert_eq!(a.config(0x1a2, 2), 0x2083);
    assert_eq!(a.config(0x1a0, 4), 0x2083_0000);
    // Scratchpads, doorbells and vectors have other places.
    a.write(0x180, 4, 5);
    assert_eq!(b.read(0x80, 4), 5);
    b.write(0xd0 + 4, 1, 4);
    a.write(0x100 + 4 * 4, 4, 1);
    b.expect(4);
    // Translations are aligned to the window; both limits are checked.
    b.write(0x10, 8, 0x1000);
    assert_eq!(b.read(0x10, 8), 0);
    b.write(0x10, 8, 0x10_0000);
    assert_eq!(b.read(0x10, 8), 0x10_0000);
    b.write(0x18, 8, WINDOW_0 + 0x10_0000);
    let external = b.read(0x4518, 8) & !0xf;
    b.write(0x4018, 8, external + 0x10_0000);
    assert_eq!(b.read(0x4018, 8), external + 0x10_0000);
    a.window_write(0, 0x10, b"gen3");
    assert_eq!(b.ram(0x10_0010, 4), b"gen3");
    lab.healthy();
}

#[test]
fn guests_with_unequal_ram_reach_each_other() {
    // The RAM of guest 1 is not a power of two and smaller: the rest of the window traps.
    let folder = tempfile::tempdir().unwrap();
    let guest = |number: u64| Guest {
        ram_file: folder.path().join(format!("ram-{number}")),
        ram_size: RAM - number * 0x30_0000,
        dma_channels: 1,
        engine: None,
    };
    let topology = Topology {
        directory: folder.path().to_owned(),
        guests: vec![guest(0), guest(1)],
        links: vec![Link {
            upstream: 0,
            downstream: 1,
            personality: Personality::Gen5,
            windows: Windows::Aperture,
            model: None,
        }],
        slowdown: 1,
        weak_order: None,
    };
    let (sender, _events) = channel();
    let _emulator = Emulator::start(topology.clone(), sender).unwrap();
    let mut a = NtbClient::connect(&topology, 0, 0);
    let mut b = NtbClient::connect(&topology, 1, 0);
    assert_eq!(a.mapped_length(1), RAM - 0x30_0000);
    assert_eq!(b.mapped_length(1), RAM);
    a.enable_link();
    b.enable_link();
    a.expect(LINK);
    assert_eq!(a.window_read(1, RAM - 8, 8), [0xff; 8]);
    assert_eq!(a.window_read(1, RAM - 0x30_0000, 8), [0xff; 8]);
    a.window_write(1, RAM - 8, &[0; 8]);
}

#[test]
fn any_guest_accesses_leave_the_emulator_running() {
    let lab = Lab::pair();
    let (a, b) = lab.up();
    let clients = RefCell::new((a, b, lab.dma(0)));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let offset = prop_oneof![
        0u64..0x300,
        0x30e0u64..0x3100,
        0x8080u64..0x80c0,
        0xb000u64..0xb600,
        0xfff0u64..0x1_0010,
        any::<u64>()
    ];
    let access = (0usize..4, offset, any::<u64>(), 1usize..9, 0u32..9);
    let result = runner.run(&prop::collection::vec(access, 1..20), |accesses| {
        let mut clients = clients.borrow_mut();
        for (client, offset, value, length, region) in accesses {
            let bytes = &value.to_le_bytes()[..length];
            match client {
                0 => clients.0.raw(region, offset, bytes),
                1 => clients.1.raw(region, offset, bytes),
                2 => clients.2.raw(region, offset, bytes),
                _ => clients.2.submit_raw(value, offset),
            }
        }
        Ok(())
    });
    result.unwrap();
    lab.healthy();
    assert!(lab.control().state().unwrap().guests[0].connected);
}

#[test]
fn sockets_exist_while_the_emulator_runs() {
    let mut lab = Lab::pair();
    let sockets = lab.topology.sockets();
    assert!(sockets.iter().all(|socket| socket.exists()));
    // A second emulator on the same directory is refused, and does no harm.
    let (sender, _events) = channel();
    let error = Emulator::start(lab.topology.clone(), sender).err().unwrap();
    assert!(error.to_string().contains("another emulator"), "{error}");
    assert!(sockets.iter().all(|socket| socket.exists()));
    lab.up();
    lab.control().shutdown().unwrap();
    assert!(matches!(lab.events.recv().unwrap(), Event::Shutdown));
    lab.emulator = None;
    assert!(!sockets.iter().any(|socket| socket.exists()));
    // The sockets that a killed emulator has left are taken over.
    let left = std::os::unix::net::UnixListener::bind(&sockets[1]).unwrap();
    drop(left);
    let (sender, _events) = channel();
    let mut topology = lab.topology.clone();
    topology.links.clear();
    drop(Emulator::start(topology, sender).unwrap());
}
