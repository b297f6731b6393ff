// SPDX-License-Identifier: GPL-2.0
//! A link: two NTB functions back to back, one in each of two guests.
//!
//! The state of both ends is behind one lock, so that a doorbell, a scratchpad or a
//! change of the link is seen by both at once. The lock is held for a register access or
//! for finding out where an address leads to, never while data is copied.
//!
//! The link is up while both QEMUs are connected, both drivers want it, and nobody has
//! switched it off from outside. While it is down, what concerns the peer reads as all
//! ones and ignores writes; only a mapped window cannot know.
//!
//! Order: whatever a guest has written before it rings a doorbell is in the peer's memory
//! before the interrupt is raised. Mapped windows are that memory; writes through trapped
//! ones are served by the same thread as the doorbell, one after the other.

pub mod function;
mod gen3;
mod gen5;
mod register_map;
pub mod registers;
pub mod window;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::config;
use crate::config::Personality;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::guest_memory::Pin;
use crate::interrupt::Interrupts;
use crate::mmio;
use crate::mmio::Located;
use crate::mmio::RegisterBlock;
use crate::pci;
use crate::pci::Bar;
use crate::pci::ConfigSpace;
use crate::ram::Ram;

use self::register_map::Bank;
use self::registers::LINK_ACTIVE;
use self::registers::LINK_SOURCE;
use self::registers::LinkSwitch;
use self::registers::Register;
use self::registers::Registers;
use self::registers::VECTORS;
use self::registers::WINDOWS;
use self::window::BARS;
use self::window::Backing;
use self::window::Window;

/// Bytes to be found at offsets of configuration space.
type ConfigBytes = Vec<(usize, Vec<u8>)>;

/// What tells one personality from another.
pub struct Identity {
    device: u16,
    revision: u8,
    registers_size: u64,
    /// Where in BAR 0 the MSI-X table is; the pending bits are in the page behind it.
    msix_table: u32,
    switch: LinkSwitch,
    /// Its registers beside the common ones.
    registers: &'static [Bank],
    /// Bytes of configuration space for an end (0 is upstream).
    configuration: fn(usize, &[Window; WINDOWS]) -> ConfigBytes,
    link_status_in_config: Option<u64>,
    /// The topology register of the upstream and of the downstream end.
    topology: [u32; 2],
}

impl Identity {
    fn of(personality: Personality) -> &'static Self {
        match personality {
            Personality::Gen3 => &gen3::IDENTITY,
            Personality::Gen5 => &gen5::IDENTITY,
        }
    }

    /// The register at an offset of BAR 0.
    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        register_map::locate(self.registers, offset)
    }
}

/// A pair of NTB functions.
pub struct Link {
    name: String,
    identity: &'static Identity,
    windows: [Window; WINDOWS],
    sides: [Side; 2],
    state: Mutex<State>,
}

/// The part of an end that never changes.
struct Side {
    memory: Arc<GuestMemory>,
    interrupts: Interrupts,
}

struct State {
    /// Nobody has switched it off from outside.
    allowed: bool,
    up: bool,
    ends: [End; 2],
}

struct End {
    connected: bool,
    config: ConfigSpace,
    registers: Registers,
}

/// One end of a link.
#[derive(Clone)]
pub struct Port {
    link: Arc<Link>,
    /// 0 is upstream.
    end: usize,
}

/// Where an access through a window leads to.
pub enum Reach {
    /// To the peer's memory.
    Memory {
        /// Whose.
        ram: Arc<Ram>,
        /// The offset into it.
        offset: u64,
        /// How many bytes are in one piece, at least 1, at most what was asked for.
        length: u64,
        /// To be held during the access.
        pin: Option<Pin>,
    },
    /// The link is down.
    LinkDown {
        /// For how many bytes that is the answer.
        length: u64,
    },
    /// Beyond the limit, or to no memory of the peer.
    Nothing,
}

/// What a register access made necessary.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Doorbells rung.
    pub doorbells: u64,
    /// Accesses to the peer that reached nothing.
    pub dropped: u64,
}

impl Link {
    /// A link between two guests, seen through the memory of its two functions.
    pub fn new(entry: &config::Link, memory: [Arc<GuestMemory>; 2]) -> Arc<Self> {
        let identity = Identity::of(entry.personality);
        let ram_sizes = [memory[0].ram().size(), memory[1].ram().size()];
        let windows = Window::of(entry, ram_sizes);
        let end = |end| End {
            connected: false,
            config: config_space(identity, end, &windows),
            registers: Registers::new(identity.switch),
        };
        Arc::new(Self {
            name: format!("{}-{}", entry.upstream, entry.downstream),
            identity,
            windows,
            sides: memory.map(|memory| Side {
                memory,
                interrupts: Interrupts::new(VECTORS),
            }),
            state: Mutex::new(State {
                allowed: true,
                up: false,
                ends: [end(0), end(1)],
            }),
        })
    }

    /// One end; 0 is upstream.
    pub fn port(self: &Arc<Self>, end: usize) -> Port {
        Port {
            link: Arc::clone(self),
            end: end & 1,
        }
    }

    /// Plugs the cable in or pulls it.
    pub fn allow(&self, allowed: bool) {
        let mut state = self.state.lock();
        state.allowed = allowed;
        self.update(&mut state);
    }

    /// Whether the cable is in, and whether the link is up.
    pub fn state(&self) -> (bool, bool) {
        let state = self.state.lock();
        (state.allowed, state.up)
    }

    /// Finds out whether the link is up, and tells both ends if that has changed.
    fn update(&self, state: &mut State) {
        let up = state.allowed
            && state
                .ends
                .iter()
                .all(|end| end.connected && end.registers.wants_link());
        if up == state.up {
            return;
        }
        state.up = up;
        log::info!("link {} is {}", self.name, if up { "up" } else { "down" });
        for end in 0..2 {
            self.raise(state, end, LINK_SOURCE);
        }
    }

    fn raise(&self, state: &mut State, end: usize, source: usize) {
        if let Some(vector) = state.ends[end].registers.raise(source) {
            self.sides[end].interrupts.raise(vector);
        }
    }

    /// Where an access at `offset` of a window of `end` leads to.
    fn reach(
        &self,
        state: &State,
        end: usize,
        window: usize,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Reach {
        let Window { size, backing } = self.windows[window];
        let length = length.min(size.saturating_sub(offset));
        if length == 0 {
            return Reach::Nothing;
        }
        if !state.up {
            return Reach::LinkDown { length };
        }
        let peer = 1 - end;
        let memory = &self.sides[peer].memory;
        match backing {
            Backing::Mapped { base } => {
                let available = (memory.ram().size() - base).saturating_sub(offset);
                if available == 0 {
                    return Reach::Nothing;
                }
                Reach::Memory {
                    ram: Arc::clone(memory.ram()),
                    offset: base + offset,
                    length: length.min(available),
                    pin: None,
                }
            }
            Backing::Trapped { .. } => {
                let other = &state.ends[peer];
                let bar = other.config.bar_base(BARS[window]);
                let (base, permitted) = other.registers.translation(window, bar, size);
                let available = permitted.saturating_sub(offset);
                let found = base
                    .checked_add(offset)
                    .and_then(|address| memory.find(address, length.min(available), access));
                match found {
                    Some(found) => Reach::Memory {
                        ram: Arc::clone(memory.ram()),
                        offset: found.offset,
                        length: found.length,
                        pin: Some(found.pin),
                    },
                    None => Reach::Nothing,
                }
            }
        }
    }
}

fn config_space(identity: &Identity, end: usize, windows: &[Window; WINDOWS]) -> ConfigSpace {
    let mut bars = vec![Bar {
        index: 0,
        size: identity.registers_size,
        prefetchable: false,
    }];
    bars.extend(windows.iter().zip(BARS).map(|(window, index)| Bar {
        index,
        size: window.size,
        prefetchable: true,
    }));
    let mut config = ConfigSpace::new(&pci::Identity {
        vendor: 0x8086,
        device: identity.device,
        class: 0x06_80_00,
        revision: identity.revision,
        bars,
        vectors: VECTORS as u16,
        msix_table: identity.msix_table,
        msix_pending: identity.msix_table + 0x1000,
    });
    for (offset, bytes) in (identity.configuration)(end, windows) {
        config.set_initial(offset, &bytes);
    }
    config
}

impl Port {
    /// The windows of this end.
    pub fn windows(&self) -> &[Window; WINDOWS] {
        &self.link.windows
    }

    /// The size of the registers' BAR.
    pub fn registers_size(&self) -> u64 {
        self.link.identity.registers_size
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
        let mut block = self.block();
        mmio::read(&mut block, offset, data);
        block.effects
    }

    /// Writes registers.
    pub fn register_write(&self, offset: u64, data: &[u8]) -> Effects {
        let mut block = self.block();
        mmio::write(&mut block, offset, data);
        block.effects
    }

    fn block(&self) -> Block<'_> {
        Block {
            link: &self.link,
            state: self.link.state.lock(),
            end: self.end,
            effects: Effects::default(),
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

impl State {
    fn link_status(&self) -> u16 {
        if self.up { LINK_ACTIVE } else { 0 }
    }
}

/// The registers of one end, with everything locked that they have an effect on.
struct Block<'a> {
    link: &'a Link,
    state: parking_lot::MutexGuard<'a, State>,
    end: usize,
    effects: Effects,
}

impl Block<'_> {
    /// Whether the peer can be reached; counts it if not.
    fn peer(&mut self) -> Option<usize> {
        if self.state.up {
            return Some(1 - self.end);
        }
        self.effects.dropped += 1;
        None
    }
}

impl RegisterBlock for Block<'_> {
    type Register = Register;

    fn locate(&self, offset: u64) -> Option<Located<Register>> {
        self.link.identity.locate(offset)
    }

    fn read(&mut self, register: Register) -> u64 {
        match register {
            Register::PeerScratchpad(index) => match self.peer() {
                Some(peer) => self.state.ends[peer].registers.scratchpads[index].into(),
                None => u64::MAX,
            },
            Register::LinkStatus => self.state.link_status().into(),
            Register::Topology => self.link.identity.topology[self.end].into(),
            Register::ExternalBar(window) => {
                let config = &self.state.ends[self.end].config;
                config.bar_base(BARS[window]) | 0xc
            }
            _ => self.state.ends[self.end].registers.read(register),
        }
    }

    fn write(&mut self, register: Register, value: u64, mask: u64) {
        match register {
            Register::PeerScratchpad(index) => {
                if let Some(peer) = self.peer() {
                    let scratchpad = &mut self.state.ends[peer].registers.scratchpads[index];
                    *scratchpad = mmio::merge((*scratchpad).into(), value, mask) as u32;
                }
            }
            Register::Doorbell(source) => {
                if value & 1 == 0 {
                    return;
                }
                if let Some(peer) = self.peer() {
                    self.effects.doorbells += 1;
                    self.link.raise(&mut self.state, peer, source);
                }
            }
            _ => {
                let vectors = self.state.ends[self.end].registers.write(
                    register,
                    value,
                    mask,
                    &self.link.windows,
                );
                for vector in vectors {
                    self.link.sides[self.end].interrupts.raise(vector);
                }
                self.link.update(&mut self.state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::registers::SCRATCHPADS;
    use super::*;
    use crate::config::Windows;

    fn link(personality: Personality) -> Arc<Link> {
        let memory = || {
            let ram = Ram::anonymous(1 << 20).expect("memory for a test");
            Arc::new(GuestMemory::new(Arc::new(ram)))
        };
        let entry = config::Link {
            upstream: 0,
            downstream: 1,
            personality,
            windows: Windows::Aperture,
        };
        Link::new(&entry, [memory(), memory()])
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
    fn registers_lie_side_by_side() {
        for personality in [Personality::Gen3, Personality::Gen5] {
            let identity = Identity::of(personality);
            let locate = |offset| identity.locate(offset);
            let table = u64::from(identity.msix_table);
            let mut offset = 0;
            while offset < 0x1_0000 {
                let Some(found) = locate(offset) else {
                    offset += 1;
                    continue;
                };
                assert_eq!(found.start, offset, "{found:?}");
                assert_eq!(offset % found.width as u64, 0, "{found:?}");
                for at in 0..found.width as u64 {
                    assert_eq!(locate(offset + at), Some(found));
                }
                // MSI-X table and pending bits are QEMU's.
                assert!(!(table..table + 0x2000).contains(&offset));
                offset += found.width as u64;
            }
        }
    }

    #[test]
    fn the_link_needs_both_ends_and_the_cable() {
        for personality in [Personality::Gen3, Personality::Gen5] {
            let link = link(personality);
            let ports = [link.port(0), link.port(1)];
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
        let ports = [link.port(0), link.port(1)];
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

    proptest! {
        /// Whatever both drivers write, every access is answered and no invariant breaks.
        #[test]
        fn survives_any_accesses(
            gen3: bool,
            accesses in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..0xc000, any::<u64>(), 1usize..9), 0..64),
        ) {
            let personality = if gen3 { Personality::Gen3 } else { Personality::Gen5 };
            let link = link(personality);
            let ports = [link.port(0), link.port(1)];
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
