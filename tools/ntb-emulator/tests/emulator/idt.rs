// SPDX-License-Identifier: GPL-2.0
//! IDT's switch over sockets: MSI, messages and doorbells, and a window for CPU and engine.

use ntb_emulator::config::Personality;
use ntb_emulator::config::Windows;

use crate::guest::NtbClient;
use crate::guest::WINDOW_0;
use crate::lab::Lab;
use crate::lab::pattern;

const WINDOW: u64 = 0x1_0000;

fn lab() -> Lab {
    Lab::new(
        2,
        &[(0, 1)],
        Personality::Idt,
        Windows::Trapped { size: WINDOW },
    )
}

/// Returns a client whose interrupts for doorbells and messages are on, and which wants the link
/// up.
fn client(lab: &Lab, guest: usize) -> NtbClient {
    let mut client = NtbClient::connect_idt(&lab.topology, guest);
    client.write(0x408, 4, 0x88);
    client.write(0x400, 4, 2);
    client.write(0x4d0, 4, guest as u64);
    client.write(0x4d8, 4, ((guest as u64) << 17) | 1);
    client
}

#[test]
fn idt_doorbells_and_messages_share_one_vector() {
    let lab = lab();
    let (mut a, mut b) = (client(&lab, 0), client(&lab, 1));
    assert!(lab.control().state().unwrap().links[0].up);
    // BAR 0 is configuration space.
    assert_eq!(a.config(0x470, 4), 0x8000_04c4);
    assert_eq!(a.read(0x470, 4), 0x8000_04c4);
    a.write(0x42c, 4, 0xffff_ffff);
    a.write(0x420, 4, 1 << 7);
    b.expect(0);
    assert_eq!(b.read(0x428, 4), 1 << 7);
    // The message goes to the first register of the second partition.
    a.write(0xff8, 4, 0x3_ee00);
    a.write(0xffc, 4, 1 << 4);
    a.write(0x430, 4, 0x1234);
    b.expect(0);
    assert_eq!((b.read(0x404, 4), b.read(0x440, 4)), (3, 0x1234));
    a.expect_nothing(0);
    b.write(0x428, 4, 1 << 7);
    b.write(0x460, 4, 1 << 16);
    assert_eq!(b.read(0x404, 4), 0);
    lab.healthy();
}

#[test]
fn cpu_and_engine_follow_the_translation_of_the_window() {
    let lab = lab();
    let (mut a, b) = (client(&lab, 0), client(&lab, 1));
    let mut dma = lab.dma(0);
    let data = pattern(5, 0x2000);
    a.set_ram(0x10_0000, &data);
    // Before the window is set there is nothing behind it.
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 0x2000), 0x1000_0000);
    let limit = WINDOW_0 + 0x1000;
    for (register, value) in [
        (0x490, 1 << 13),
        (0x498, 0x20_0004),
        (0x49c, 0),
        (0x494, limit),
        (0x4a4, limit >> 32),
    ] {
        a.write(register, 4, value & 0xffff_ffff);
    }
    a.window_write(0, 3, b"stored by the CPU");
    assert_eq!(b.ram(0x20_0007, 17), b"stored by the CPU");
    // The low bits of the limit count as ones.
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 0x2000), 0x1000_1400);
    assert_eq!(b.ram(0x20_0004, 0x1400), data[..0x1400]);
    assert_eq!(dma.copy(WINDOW_0 + 0x800, 0x40_0000, 0x400), 0x4000_0400);
    assert_eq!(a.ram(0x40_0000, 0x400), data[0x800..0xc00]);
    // The driver closes the window like this. Without the link, written data vanish.
    a.write(0x494, 4, 0);
    a.write(0x4a4, 4, 0);
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 8), 0x1000_0000);
    a.write(0x494, 4, limit & 0xffff_ffff);
    lab.control().link(0, 1, false).unwrap();
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 8), 0x4000_0008);
    assert_eq!(dma.copy(WINDOW_0, 0x10_0000, 8), 0x2000_0000);
    lab.healthy();
}

#[test]
fn windows_that_the_idt_driver_cannot_use_are_refused() {
    let lab = lab();
    let mut topology = lab.topology.clone();
    for (windows, taken) in [
        (Windows::Aperture, true),
        (Windows::Trapped { size: 1 << 30 }, true),
        (Windows::Trapped { size: 1 << 31 }, false),
        (Windows::Mixed, false),
        (
            Windows::Fixed {
                base: 4096,
                size: 4096,
            },
            false,
        ),
    ] {
        topology.links[0].windows = windows;
        assert_eq!(topology.validate().is_ok(), taken, "{windows:?}");
    }
}
