// SPDX-License-Identifier: GPL-2.0
//! A link and engines that take their time, in real time. The tests of the model check how much
//! time that is, with a clock of their own. Here no test depends on how fast the machine is.

use std::time::Duration;
use std::time::Instant;

use ntb_emulator::counters::Snapshot;
use ntb_emulator::model::figures::EngineFigures;
use ntb_emulator::model::figures::LinkFigures;

use crate::guest::WINDOW_0;
use crate::guest::WINDOW_1;
use crate::lab::Lab;
use crate::lab::pattern;
use crate::lab::wait;

/// The factor by which everything is slower than the figures.
const SLOWDOWN: u64 = 1000;
/// Bytes per second of a slowed engine.
const RATE: u64 = 10_000_000;

/// Starts a pair whose engines take time, and whose link does if it has figures.
fn slow(channels: usize, link: Option<LinkFigures>) -> Lab {
    Lab::with(2, &[(0, 1)], |topology| {
        for guest in &mut topology.guests {
            guest.dma_channels = channels;
            guest.engine = Some(EngineFigures {
                bandwidth: RATE * SLOWDOWN,
                descriptor_ns: 0,
            });
        }
        topology.links[0].model = link;
        topology.slowdown = SLOWDOWN;
    })
}

/// Checks that some work takes at least this time.
fn takes(least: Duration, what: impl FnOnce()) {
    let begin = Instant::now();
    what();
    let elapsed = begin.elapsed();
    assert!(elapsed >= least, "{elapsed:?} instead of {least:?}");
}

#[test]
fn modelled_operations_take_their_time() {
    let figures = LinkFigures {
        posted_ns: 5_000,
        read_ns: 20_000,
        register_read_ns: 10_000,
        ..LinkFigures::default()
    };
    let lab = slow(1, Some(figures));
    let (mut a, mut b) = lab.up();
    let mut dma = lab.dma(0);
    let data = pattern(5, 0x10_0000);
    a.set_ram(0x10_0000, &data);
    takes(Duration::from_micros(0x10_0000 / 10), || {
        let flags = dma.copy(0x10_0000, WINDOW_1 + 0x20_0000, 0x10_0000);
        assert_eq!(flags, 0x4010_0000);
    });
    assert_eq!(b.ram(0x20_0000, 0x10_0000), data);
    // A round trip.
    takes(Duration::from_millis(20), || {
        assert_eq!(dma.copy(WINDOW_1 + 0x20_0000, 0x30_0000, 8), 0x4000_0008);
    });
    assert_eq!(a.ram(0x30_0000, 8), data[..8]);
    takes(Duration::from_millis(20), || {
        a.read(0x8080, 4);
    });
    takes(Duration::from_millis(10), || {
        a.read(0x80, 4);
    });
    b.write(0x10, 8, 0x20_0000);
    b.write(0x18, 8, WINDOW_0 + 0x2000);
    takes(Duration::from_millis(20), || {
        assert_eq!(a.window_read(0, 0, 4), data[..4]);
    });
    takes(Duration::from_millis(5), || {
        a.write(0x100, 4, 1);
        b.expect(0);
    });
    assert_eq!(b.read(0x40, 8) & 1, 1);
    lab.healthy();
}

#[test]
fn engines_of_one_guest_copy_concurrently() {
    const CHANNELS: usize = 4;
    let lab = slow(CHANNELS, None);
    let (_a, _b) = lab.up();
    let mut engines: Vec<_> = (0..CHANNELS).map(|index| lab.channel(0, index)).collect();
    let mut control = lab.control();
    let mut counted = || -> Vec<Snapshot> {
        let guest = control.counters().unwrap().swap_remove(0);
        let engines = guest.functions.iter();
        engines
            .filter(|function| function.name.starts_with("dma"))
            .map(|function| function.counters)
            .collect()
    };
    for engine in &mut engines {
        engine.forever(&[(0, WINDOW_1, 0x1_0000)]);
    }
    wait("all are at work", || {
        counted().iter().all(|engine| engine.dma_bytes > 0)
    });
    let before = counted();
    let begin = Instant::now();
    wait("the first has copied for a second", || {
        counted()[0].dma_bytes > before[0].dma_bytes + RATE
    });
    let after = counted();
    let elapsed = begin.elapsed().as_secs_f64();
    for (before, after) in before.iter().zip(&after) {
        let busy = (after.dma_bytes - before.dma_bytes) as f64 / RATE as f64;
        let late = (after.dma_late_us - before.dma_late_us) as f64 / 1e6;
        // Each engine has copied all the time, except for the lost time that it has reported. A
        // descriptor takes 7 ms, and 20 ms can be made up for later.
        let told = format!("{busy} s of {elapsed} s, {late} s late");
        assert!((elapsed - busy - late).abs() < 0.1, "{told}");
        // If one copied after the other, they would be late three quarters of the time.
        assert!(late < elapsed / 2.0, "{told}");
    }
    lab.healthy();
}

#[test]
fn reset_does_not_wait_for_a_slow_copy() {
    let lab = Lab::with(1, &[], |topology| {
        topology.guests[0].engine = Some(EngineFigures {
            bandwidth: 1_000_000,
            descriptor_ns: 0,
        });
        topology.slowdown = 1000;
    });
    let mut dma = lab.dma(0);
    // A chunk of it takes a minute.
    dma.forever(&[(0, 0x10_0000, 0x10_0000)]);
    let begin = Instant::now();
    dma.reset();
    assert!(begin.elapsed() < Duration::from_secs(60));
    lab.healthy();
}
