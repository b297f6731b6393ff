// SPDX-License-Identifier: GPL-2.0
//! AMD's NTB over sockets: a vector for each doorbell and one for events, and a window for CPU and
//! engine.

use ntb_emulator::config::Personality;
use ntb_emulator::config::Windows;

use crate::guest::NtbClient;
use crate::guest::WINDOW_0;
use crate::lab::Lab;
use crate::lab::pattern;

fn lab() -> Lab {
    Lab::new(
        2,
        &[(0, 1)],
        Personality::Amd,
        Windows::Trapped { size: 0x1_0000 },
    )
}

/// Returns a client that is ready, and whose doorbells and events are not masked.
fn client(lab: &Lab, guest: usize) -> NtbClient {
    let mut client = NtbClient::connect_amd(&lab.topology, guest);
    client.write(0x45c, 2, 0);
    client.write(0x470, 4, 0);
    let side = client.read(0x408, 4);
    assert_eq!(side, guest as u64);
    client.write(0x408, 4, side | 2);
    client
}

#[test]
fn amd_doorbells_and_events_have_their_own_vectors() {
    let lab = lab();
    let (mut a, mut b) = (client(&lab, 0), client(&lab, 1));
    assert!(lab.control().state().unwrap().links[0].up);
    // The first guest was there before the second.
    a.expect(16);
    a.write(0x4a0, 4, 0x20);
    a.write(0x474, 4, 0x20);
    a.write(0x230, 4, 0x1234);
    a.write(0x454, 2, 0x8001);
    b.expect(0);
    b.expect(15);
    b.expect_nothing(16);
    assert_eq!((b.read(0x460, 2), b.read(0x230, 4)), (0x8001, 0x1234));
    b.write(0x460, 2, 0x8001);
    lab.control().link(0, 1, false).unwrap();
    a.expect(16);
    b.expect(16);
    assert_eq!((a.read(0x474, 4), a.read(0x808, 4)), (0x40, 1));
    lab.healthy();
}

#[test]
fn cpu_and_engine_follow_the_translation_of_the_other_side() {
    let lab = lab();
    let (mut a, mut b) = (client(&lab, 0), client(&lab, 1));
    let mut dma = lab.dma(0);
    let data = pattern(5, 0x2000);
    a.set_ram(0x10_0000, &data);
    assert_eq!(a.window_read(0, 0, 8), [0xff; 8]);
    b.write(0x838, 8, 0x20_0000);
    b.write(0x818, 8, 0x1400);
    a.window_write(0, 3, b"stored by the CPU");
    assert_eq!(b.ram(0x20_0003, 17), b"stored by the CPU");
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 0x2000), 0x1000_1400);
    assert_eq!(b.ram(0x20_0000, 0x1400), data[..0x1400]);
    b.write(0x838, 8, 0);
    b.write(0x818, 8, 0);
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 8), 0x1000_0000);
    lab.healthy();
}
