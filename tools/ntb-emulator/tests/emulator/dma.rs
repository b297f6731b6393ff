// SPDX-License-Identifier: GPL-2.0
//! Copies of a DMA function, between its guest and a peer.

use ntb_emulator::control::Client as Control;

use crate::guest::WINDOW_0;
use crate::guest::WINDOW_1;
use crate::lab::LINK;
use crate::lab::Lab;
use crate::lab::RAM;
use crate::lab::pattern;
use crate::lab::wait;

#[test]
fn dma_copies_through_the_aperture_both_ways() {
    let lab = Lab::pair();
    let (a, b) = lab.up();
    let mut dma = lab.dma(0);
    for (seed, (source, destination, length)) in [
        (0x10_0000, 0x20_0000, 0x10_0000),
        (0x10_0001, 0x30_0007, 12345),
        (0x12_3456, RAM - 3, 3),
        (0x10_0008, 0x40_0000, 8),
        (0x10_0000, 0x40_0010, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let data = pattern(seed as u8, length as usize);
        a.set_ram(source, &data);
        assert_eq!(
            dma.copy(source, WINDOW_1 + destination, length),
            0x4000_0000 | length as u32
        );
        assert_eq!(b.ram(destination, length as usize), data);
        let data = pattern(!seed as u8, length as usize);
        b.set_ram(destination, &data);
        assert_eq!(
            dma.copy(WINDOW_1 + destination, source, length),
            0x4000_0000 | length as u32
        );
        assert_eq!(a.ram(source, length as usize), data);
    }
    // From the peer to the peer, and beyond its RAM, and to nothing.
    assert_eq!(dma.copy(WINDOW_1, WINDOW_1 + 0x1000, 16), 0x4000_0010);
    assert_eq!(dma.copy(0, WINDOW_1 + RAM - 4, 8), 0x1000_0004);
    assert_eq!(dma.copy(WINDOW_1 + RAM, 0, 8), 0x2000_0000);
    assert_eq!(dma.copy(0, RAM, 8), 0x1000_0000);
    assert_eq!(dma.copy(0xffff_ffff_fff8, 0, 16), 0x2000_0000);
    let total = lab.control().counters().unwrap()[0].total;
    assert_eq!(total.dma_errors, 4);
    assert_eq!(total.dma_descriptors, 15);
    lab.healthy();
}

#[test]
fn dma_through_a_trapped_window_stops_at_its_limit() {
    let lab = Lab::pair();
    let (a, mut b) = lab.up();
    let mut dma = lab.dma(0);
    let data = pattern(3, 0x3000);
    a.set_ram(0x10_0000, &data);
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 0x3000), 0x1000_0000);
    b.write(0x10, 8, 0x20_0000);
    b.write(0x18, 8, WINDOW_0 + 0x2000);
    assert_eq!(dma.copy(0x10_0000, WINDOW_0, 0x3000), 0x1000_2000);
    assert_eq!(b.ram(0x20_0000, 0x2000), data[..0x2000]);
    assert_eq!(dma.copy(WINDOW_0 + 0x800, 0x40_0000, 0x800), 0x4000_0800);
    assert_eq!(a.ram(0x40_0000, 0x800), data[0x800..0x1000]);
    lab.healthy();
}

#[test]
fn guest_killed_during_copies_leaves_the_emulator_running() {
    let lab = Lab::pair();
    let (mut a, b) = lab.up();
    let mut dma = lab.dma(0);
    // Large copies, to and fro, without end, while both go away in turn.
    dma.forever(&[
        (0x10_0000, WINDOW_1, 0x40_0000),
        (WINDOW_1, 0x10_0000, 0x40_0000),
    ]);
    let mut control = lab.control();
    let bytes = |control: &mut Control| control.counters().unwrap()[0].total.dma_bytes;
    wait("copies are under way", || bytes(&mut control) > 0x100_0000);
    drop(b);
    a.expect(LINK);
    let before = bytes(&mut control);
    wait("copies still end", || bytes(&mut control) > before);
    drop(dma);
    drop(a);
    wait("both are known to be gone", || {
        let state = control.state().unwrap();
        state
            .guests
            .iter()
            .all(|guest| guest.functions.iter().all(|f| !f.connected))
    });
    let after = bytes(&mut control);
    let (a, b) = lab.up();
    let mut dma = lab.dma(0);
    assert_eq!(bytes(&mut control), after);
    a.set_ram(0, b"again");
    assert_eq!(dma.copy(0, WINDOW_1, 5), 0x4000_0005);
    assert_eq!(b.ram(0, 5), b"again");
    lab.healthy();
}
