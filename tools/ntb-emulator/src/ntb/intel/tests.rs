// SPDX-License-Identifier: GPL-2.0
//! Tests of both ends of a pair, through their ports.

use std::sync::Arc;

use proptest::prelude::*;

use super::registers::LINK_SOURCE;
use super::registers::SCRATCHPADS;
use crate::config;
use crate::config::Personality;
use crate::config::Windows;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::model::bells::bells;
use crate::model::clock::Clock;
use crate::model::clock::fake::Fake;
use crate::model::figures::LinkFigures;
use crate::model::link::Crossing;
use crate::model::link::LinkModel;
use crate::model::picoseconds::Picoseconds;
use crate::ntb::function::NtbFunction;
use crate::ntb::line::Line;
use crate::ntb::line::Timing;
use crate::ntb::link::Link;
use crate::ntb::link::State;
use crate::ntb::port::Port;
use crate::ntb::window::Reach;
use crate::ram::Ram;
use crate::server::Function;

fn link(personality: Personality) -> Arc<Link> {
    link_with(personality, None)
}

fn link_with(personality: Personality, timing: Option<Timing>) -> Arc<Link> {
    let memory = || {
        let ram = Ram::anonymous(1 << 20).expect("memory for a test");
        Arc::new(GuestMemory::new(Arc::new(ram)))
    };
    let entry = config::Link {
        upstream: 0,
        downstream: 1,
        personality,
        windows: Windows::Aperture,
        model: None,
    };
    Link::new(&entry, [memory(), memory()], timing)
}

fn read(port: &Port, offset: u64, width: usize) -> u64 {
    let mut data = [0; 8];
    port.register_read(offset, &mut data[..width]);
    u64::from_le_bytes(data)
}

fn write(port: &Port, offset: u64, width: usize, value: u64) {
    port.register_write(offset, &value.to_le_bytes()[..width]);
}

fn wants_link(link: &Link, end: usize) -> bool {
    let mut state = link.state.lock();
    let State { ends, bridge } = &mut *state;
    bridge.wants_link(&Line::new(&link.wires, ends), end)
}

#[test]
fn link_is_up_only_with_both_ends_and_the_cable() {
    for personality in [Personality::Gen3, Personality::Gen5] {
        let link = link(personality);
        let ports = [Port::new(&link, 0), Port::new(&link, 1)];
        let want = |port: &Port, wanted: bool| match personality {
            Personality::Gen3 => write(port, 0, 4, if wanted { 0x154 } else { 0x157 }),
            _ => {
                write(port, 0xb050, 2, if wanted { 0 } else { 0x10 });
                write(port, 0xb0d4, 4, 8);
            }
        };
        for up in 0..32u32 {
            let bit = |index: u32| up & (1 << index) != 0;
            for (end, port) in ports.iter().enumerate() {
                if bit(end as u32) {
                    port.connect();
                    want(port, bit(2 + end as u32));
                } else {
                    port.disconnect();
                }
            }
            link.allow(bit(4));
            assert_eq!(link.state(), (bit(4), up == 31), "{up:#b}");
        }
        // Going down is an event at both ends; writing ones clears it.
        for port in &ports {
            assert_ne!(read(port, 0x40, 8) & (1 << LINK_SOURCE), 0);
            write(port, 0x40, 8, 1 << LINK_SOURCE);
        }
        ports[0].reset();
        assert!(!link.state().1);
        assert_eq!(read(&ports[0], 0x40, 8), 1 << LINK_SOURCE);
        assert_eq!(read(&ports[1], 0x40, 8), 1 << LINK_SOURCE);
    }
}

#[test]
fn each_side_has_its_own_scratchpads() {
    let link = link(Personality::Gen5);
    let ports = [Port::new(&link, 0), Port::new(&link, 1)];
    for port in &ports {
        port.connect();
        write(port, 0xb0d4, 4, 8);
    }
    for index in 0..SCRATCHPADS as u64 {
        write(&ports[0], 0x80 + 4 * index, 4, 0x100 + index);
        write(&ports[0], 0x8080 + 4 * index, 4, 0x200 + index);
    }
    for index in 0..SCRATCHPADS as u64 {
        assert_eq!(read(&ports[0], 0x80 + 4 * index, 4), 0x100 + index);
        assert_eq!(read(&ports[1], 0x80 + 4 * index, 4), 0x200 + index);
        assert_eq!(read(&ports[1], 0x8080 + 4 * index, 4), 0x100 + index);
    }
    // Two registers at once, and out of step.
    assert_eq!(read(&ports[1], 0x80, 8), 0x201_0000_0200);
    assert_eq!(read(&ports[1], 0x82, 4), 0x201_0000);
}

#[test]
fn doorbell_arrives_after_earlier_writes() {
    let clock: Arc<dyn Clock> = Arc::new(Fake::default());
    let figures = LinkFigures::GEN3_X8;
    let model = Arc::new(LinkModel::new(figures));
    let (rope, bells) = bells();
    let timing = Timing {
        clock: Arc::clone(&clock),
        crossings: [0, 1].map(|end| Crossing::new(&model, end)),
        ropes: [rope, self::bells().0],
    };
    let link = link_with(Personality::Gen5, Some(timing));
    let ports = [Port::new(&link, 0), Port::new(&link, 1)];
    for port in &ports {
        port.connect();
        write(port, 0xb0d4, 4, 8);
    }
    let rung = |port: &Port| read(port, 0x40, 8) & 0xffff_ffff;
    let crossing = ports[0].crossing().unwrap();
    let written = crossing.copy_out(clock.now(), 1 << 20);
    for source in [3, 4] {
        write(&ports[0], 0x100 + 4 * source, 4, 1);
    }
    assert_eq!(rung(&ports[1]), 0);
    assert_eq!(bells.next(&*clock), Some(3));
    assert!(clock.now() >= written + Picoseconds::nanoseconds(figures.posted_ns));
    link.arrive(1, 3);
    assert_eq!(rung(&ports[1]), 1 << 3);
    assert_eq!(rung(&ports[0]), 0);
    // The other doorbell is lost if the link goes down meanwhile.
    link.allow(false);
    assert_eq!(bells.next(&*clock), Some(4));
    link.arrive(1, 4);
    assert_eq!(rung(&ports[1]), 1 << 3);
}

#[test]
fn register_accesses_take_their_modelled_time() {
    let clock: Arc<dyn Clock> = Arc::new(Fake::default());
    let model = Arc::new(LinkModel::new(LinkFigures::GEN3_X8));
    let timing = Timing {
        clock: Arc::clone(&clock),
        crossings: [0, 1].map(|end| Crossing::new(&model, end)),
        ropes: [bells().0, bells().0],
    };
    let link = link_with(Personality::Gen5, Some(timing));
    let ports = [Port::new(&link, 0), Port::new(&link, 1)];
    for port in &ports {
        port.connect();
        write(port, 0xb0d4, 4, 8);
    }
    let function = NtbFunction::new("test".to_owned(), ports[0].clone());
    let mut data = [0; 4];
    let mut took = |access: &mut dyn FnMut(&NtbFunction, &mut [u8])| {
        let begin = clock.now();
        access(&function, &mut data);
        clock.now().since(begin)
    };
    let own = took(&mut |function, data| function.bar_read(0, 0x80, data));
    assert_eq!(own, Picoseconds::nanoseconds(550));
    let peers = took(&mut |function, data| function.bar_read(0, 0x8080, data));
    assert_eq!(peers, Picoseconds::nanoseconds(900));
    let window = took(&mut |function, data| function.bar_read(2, 0, data));
    assert_eq!(window, Picoseconds::nanoseconds(900));
    for (bar, offset) in [(0, 0x80), (0, 0x8080), (0, 0x100), (2, 0)] {
        let posted = took(&mut |function, data| function.bar_write(bar, offset, data));
        assert_eq!(posted, Picoseconds::ZERO);
    }
}

proptest! {
    /// Whatever both drivers write, every access is answered and no invariant breaks.
    #[test]
    fn any_accesses_keep_the_invariants(
        gen3: bool,
        accesses in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..0xc000, any::<u64>(), 1usize..9), 0..64),
    ) {
        let personality = if gen3 { Personality::Gen3 } else { Personality::Gen5 };
        let link = link(personality);
        let ports = [Port::new(&link, 0), Port::new(&link, 1)];
        ports.iter().for_each(Port::connect);
        for (end, config, offset, value, width) in accesses {
            let port = &ports[usize::from(end)];
            if config {
                port.config_write(offset & 0xfff, &value.to_le_bytes()[..width]);
                port.config_read(offset & 0xfff, &mut [0; 8][..width]);
            } else {
                write(port, offset, width, value);
                read(port, offset, width);
            }
            let wanted = [0, 1].map(|end| wants_link(&link, end));
            prop_assert_eq!(link.state().1, wanted == [true; 2]);
            // The aperture never leads to another place.
            prop_assert_eq!(read(port, 0x20, 8), 0);
            for access in [Access::Read, Access::Write] {
                if let Some(Reach::Memory { offset, length, ram, .. }) = port.decode(value, 64, access) {
                    prop_assert!(offset + length <= ram.size());
                }
            }
        }
    }
}
