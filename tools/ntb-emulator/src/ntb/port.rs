// SPDX-License-Identifier: GPL-2.0
//! One end of a link, as the function of a guest uses it.
//!
//! What concerns both ends is behind the lock of the [`Link`].

use std::sync::Arc;

use super::block::Block;
use super::block::Effects;
use super::link::Link;
use super::link::State;
use super::window::BARS;
use super::window::Reach;
use super::window::WINDOWS;
use super::window::Window;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::model::link::Crossing;
use crate::model::picoseconds::Picoseconds;
use crate::ram::Ram;

/// One end of a link.
#[derive(Clone)]
pub struct Port {
    link: Arc<Link>,
    /// 0 is upstream.
    end: usize,
}

impl Port {
    /// An end of a link; 0 is upstream.
    pub fn new(link: &Arc<Link>, end: usize) -> Self {
        Self {
            link: Arc::clone(link),
            end: end & 1,
        }
    }

    /// The windows of this end.
    pub fn windows(&self) -> &[Window; WINDOWS] {
        &self.link.windows[self.end]
    }

    /// What this end's function reaches of its guest's RAM.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.link.sides[self.end].memory
    }

    /// The RAM of the guest at the other end.
    pub fn peer_ram(&self) -> &Arc<Ram> {
        self.link.sides[1 - self.end].memory.ram()
    }

    /// The vectors of this end's function.
    pub fn interrupts(&self) -> &Interrupts {
        &self.link.sides[self.end].interrupts
    }

    /// Reads configuration space.
    pub fn config_read(&self, offset: u64, data: &mut [u8]) {
        let state = self.link.state.lock();
        state.ends[self.end].config.read(offset, data);
        if let Some(at) = self.link.identity.link_status_in_config {
            let status = state.link_status().to_le_bytes();
            for (index, byte) in data.iter_mut().enumerate() {
                if let Some(skip) = offset
                    .checked_add(index as u64)
                    .and_then(|o| o.checked_sub(at))
                {
                    if let Some(value) = status.get(skip as usize) {
                        *byte = *value;
                    }
                }
            }
        }
    }

    /// Writes configuration space.
    pub fn config_write(&self, offset: u64, data: &[u8]) {
        let mut state = self.link.state.lock();
        state.ends[self.end].config.write(offset, data);
    }

    /// Reads registers.
    pub fn register_read(&self, offset: u64, data: &mut [u8]) -> Effects {
        let mut block = Block::new(&self.link, self.end);
        mmio::read(&mut block, offset, data);
        block.effects
    }

    /// Writes registers.
    pub fn register_write(&self, offset: u64, data: &[u8]) -> Effects {
        let mut block = Block::new(&self.link, self.end);
        mmio::write(&mut block, offset, data);
        block.effects
    }

    /// This end of what takes time, if the link does.
    pub fn crossing(&self) -> Option<&Crossing> {
        let timing = self.link.timing.as_ref()?;
        timing.crossings.get(self.end)
    }

    /// Waits until an access by the guest's processor is over, which takes time only if the
    /// link does: `over` says when that is, by what time it is now.
    pub fn wait(&self, over: impl FnOnce(&Crossing, Picoseconds) -> Picoseconds) {
        if let Some(timing) = &self.link.timing {
            let end = over(&timing.crossings[self.end], timing.clock.now());
            timing.clock.sleep_until(end);
        }
    }

    /// Where an access at `offset` of a window leads to.
    pub fn reach(&self, window: usize, offset: u64, length: u64, access: Access) -> Reach {
        let state = self.link.state.lock();
        self.link
            .reach(&state, self.end, window, offset, length, access)
    }

    /// Where an address on this guest's bus leads to, if it is in one of the windows.
    pub fn decode(&self, address: u64, length: u64, access: Access) -> Option<Reach> {
        let state = self.link.state.lock();
        let (bar, offset) = state.ends[self.end].config.decode(address)?;
        let window = BARS.iter().position(|index| *index == bar.index)?;
        Some(
            self.link
                .reach(&state, self.end, window, offset, length, access),
        )
    }

    /// QEMU is there.
    pub fn connect(&self) {
        let mut state = self.link.state.lock();
        state.ends[self.end].connected = true;
        self.link.update(&mut state);
    }

    /// The guest was reset.
    pub fn reset(&self) {
        let mut state = self.link.state.lock();
        self.reset_end(&mut state);
        self.link.update(&mut state);
    }

    /// QEMU is gone.
    pub fn disconnect(&self) {
        let mut state = self.link.state.lock();
        state.ends[self.end].connected = false;
        self.reset_end(&mut state);
        self.link.update(&mut state);
    }

    fn reset_end(&self, state: &mut State) {
        let end = &mut state.ends[self.end];
        end.registers.reset();
        end.config.reset();
        self.interrupts().reset();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::registers::LINK_SOURCE;
    use super::super::registers::SCRATCHPADS;
    use super::*;
    use crate::config;
    use crate::config::Personality;
    use crate::config::Windows;
    use crate::model::bells::bells;
    use crate::model::clock::Clock;
    use crate::model::clock::fake::Fake;
    use crate::model::figures::LinkFigures;
    use crate::model::link::LinkModel;
    use crate::ntb::function::NtbFunction;
    use crate::ntb::link::Timing;
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

    #[test]
    fn the_link_needs_both_ends_and_the_cable() {
        for personality in [Personality::Gen3, Personality::Gen5] {
            let link = link(personality);
            let ports = [Port::new(&link, 0), Port::new(&link, 1)];
            let want = |port: &Port, wanted: bool| match personality {
                Personality::Gen3 => write(port, 0, 4, if wanted { 0x154 } else { 0x157 }),
                Personality::Gen5 => {
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
            // Going down is an event at both ends, and clears on writing ones.
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
    fn scratchpads_of_both_are_told_apart() {
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
        // Two at once, and out of step.
        assert_eq!(read(&ports[1], 0x80, 8), 0x201_0000_0200);
        assert_eq!(read(&ports[1], 0x82, 4), 0x201_0000);
    }

    #[test]
    fn a_doorbell_arrives_behind_what_was_written_before_it() {
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
        // The other one is lost if the link goes down on the way.
        link.allow(false);
        assert_eq!(bells.next(&*clock), Some(4));
        link.arrive(1, 4);
        assert_eq!(rung(&ports[1]), 1 << 3);
    }

    #[test]
    fn accesses_take_their_time() {
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
        fn survives_any_accesses(
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
                let state = link.state.lock();
                let wanted = state.ends.iter().all(|end| end.registers.wants_link());
                prop_assert_eq!(state.up, wanted);
                drop(state);
                // The aperture never leads anywhere else.
                prop_assert_eq!(read(port, 0x20, 8), 0);
                for access in [Access::Read, Access::Write] {
                    if let Some(Reach::Memory { offset, length, ram, .. }) = port.decode(value, 64, access) {
                        prop_assert!(offset + length <= ram.size());
                    }
                }
            }
        }
    }
}
