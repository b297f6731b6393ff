// SPDX-License-Identifier: GPL-2.0
//! Translation of the addresses that a DMA function puts on its guest's bus.
//!
//! An address leads to the guest's own RAM, as far as the function may reach it. Or it leads
//! through a window of one of the guest's NTB functions, at the present place of its BAR, into the
//! RAM of a peer. Or it leads to nothing.
//!
//! While a link is down, writes through its windows vanish as posted writes do on
//! hardware, and reads fail.

use std::sync::Arc;

use crate::bus::Bus;
use crate::bus::Fault;
use crate::bus::Route;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::guest_memory::Pin;
use crate::ntb::port::Port;
use crate::ntb::window::Reach;
use crate::order::Initiator;
use crate::ram::Ram;

/// The largest piece of a write across a link whose order is weak.
const PIECE: u64 = 4 << 10;

/// The bus as one DMA function sees it.
pub struct GuestBus {
    memory: Arc<GuestMemory>,
    ports: Vec<Port>,
    initiator: Initiator,
}

/// The memory from an address on.
struct Place {
    /// The memory, or nothing if writes vanish.
    memory: Option<(Arc<Ram>, u64)>,
    /// Number of bytes.
    length: u64,
    /// The index of the NTB function that the address leads through, if any.
    port: Option<usize>,
    _pin: Option<Pin>,
}

impl GuestBus {
    /// Makes the bus of a function. `memory` is the part of its guest's RAM that the function
    /// reaches, `ports` are the NTB functions of the guest.
    pub fn new(memory: Arc<GuestMemory>, ports: Vec<Port>) -> Self {
        Self::of_engine(0, memory, ports)
    }

    /// Makes the bus of the engine with this number.
    pub fn of_engine(number: usize, memory: Arc<GuestMemory>, ports: Vec<Port>) -> Self {
        Self {
            memory,
            ports,
            initiator: Initiator::Engine(number),
        }
    }

    /// Returns the NTB function of a place behind a link whose order is weak.
    fn weakly(&self, place: &Place) -> Option<&Port> {
        let port = self.ports.get(place.port?)?;
        port.order().map(|_| port)
    }

    /// Reads all of `data`, which exists, in the way of a read on the bus.
    fn read_from(&self, place: &Place, data: &mut [u8]) -> Result<(), Fault> {
        let port = self.weakly(place);
        if let Some(port) = port {
            port.push(self.initiator);
        }
        let (ram, offset) = place.memory.as_ref().ok_or(Fault::Read)?;
        ram.read(*offset, data).map_err(|_| Fault::Read)?;
        if let Some(port) = port {
            port.answer(self.initiator);
        }
        Ok(())
    }

    /// Copies where the order to one of the sides is weak.
    fn copy_weakly(&self, from: &Place, to: &Place, destination: u64) -> Result<u64, Fault> {
        let length = to.length.min(PIECE);
        let mut data = vec![0; length as usize];
        self.read_from(from, &mut data)?;
        match (self.weakly(to), &to.memory) {
            (Some(port), _) => port.write_at(self.initiator, destination, &data),
            (None, Some((ram, offset))) => {
                ram.write(*offset, &data).map_err(|_| Fault::Write)?;
            }
            (None, None) => {}
        }
        Ok(length)
    }

    fn resolve(&self, address: u64, length: u64, access: Access) -> Option<Place> {
        if let Some(found) = self.memory.find(address, length, access) {
            return Some(Place {
                memory: Some((Arc::clone(self.memory.ram()), found.offset)),
                length: found.length,
                port: None,
                _pin: Some(found.pin),
            });
        }
        let (port, reach) = self.ports.iter().enumerate().find_map(|(index, port)| {
            let reach = port.decode(address, length, access)?;
            Some((Some(index), reach))
        })?;
        match reach {
            Reach::Memory {
                ram,
                offset,
                length,
                pin,
            } => Some(Place {
                memory: Some((ram, offset)),
                length,
                port,
                _pin: pin,
            }),
            Reach::LinkDown { length } if access == Access::Write => Some(Place {
                memory: None,
                length,
                port,
                _pin: None,
            }),
            Reach::LinkDown { .. } | Reach::Nothing => None,
        }
    }

    /// Returns both places of a copy. The second is not longer than the first.
    fn places(&self, source: u64, destination: u64, length: u64) -> Result<(Place, Place), Fault> {
        let from = self
            .resolve(source, length, Access::Read)
            .ok_or(Fault::Read)?;
        let to = self
            .resolve(destination, from.length, Access::Write)
            .ok_or(Fault::Write)?;
        Ok((from, to))
    }
}

impl Bus for GuestBus {
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault> {
        let length = data.len() as u64;
        let place = self
            .resolve(address, length, Access::Read)
            .filter(|place| place.length == length)
            .ok_or(Fault::Read)?;
        self.read_from(&place, data)
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault> {
        let length = data.len() as u64;
        let place = self
            .resolve(address, length, Access::Write)
            .filter(|place| place.length == length)
            .ok_or(Fault::Write)?;
        if let Some(port) = self.weakly(&place) {
            port.write_at(self.initiator, address, data);
            return Ok(());
        }
        match &place.memory {
            Some((ram, offset)) => ram.write(*offset, data).map_err(|_| Fault::Write),
            None => Ok(()),
        }
    }

    fn route(&self, source: u64, destination: u64, length: u64) -> Result<Route, Fault> {
        let (from, to) = self.places(source, destination, length)?;
        Ok(Route {
            length: to.length,
            from: from.port,
            to: to.port,
        })
    }

    fn copy(&self, source: u64, destination: u64, length: u64) -> Result<u64, Fault> {
        let (from, to) = self.places(source, destination, length)?;
        if self.weakly(&from).is_some() || self.weakly(&to).is_some() {
            return self.copy_weakly(&from, &to, destination);
        }
        let (ram, offset) = from.memory.as_ref().ok_or(Fault::Read)?;
        if let Some((peer, target)) = &to.memory {
            Ram::copy(ram, *offset, peer, *target, to.length).map_err(|_| Fault::Write)?;
        }
        Ok(to.length)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::config::Link as Entry;
    use crate::config::Personality;
    use crate::config::Windows;
    use crate::ntb::link::Link;

    const RAM: u64 = 0x2_0000;
    /// Addresses of guest 0's two windows: one trapped, one mapped over the peer's RAM.
    const TRAPPED: u64 = 0x8000_0000;
    const APERTURE: u64 = 0x9000_0000;
    /// Address of guest 1's trapped window, which limits count from.
    const PEER_BAR: u64 = 0xa000_0000;
    /// Address that the trapped window leads to, as guest 1's NTB function sees it: an IOVA, as
    /// behind a virtual IOMMU.
    const IOVA: u64 = 0x7_0000_0000;
    /// The same place in guest 1's RAM.
    const BEHIND: u64 = 0x8000;
    const PERMITTED: u64 = 0x4000;

    struct Pair {
        rams: [Arc<Ram>; 2],
        link: Arc<Link>,
        bus: GuestBus,
    }

    fn map(memory: &GuestMemory, address: u64, size: u64, offset: u64, writable: bool) {
        let file = memory.ram().file().unwrap();
        memory
            .map(address, size, offset, true, writable, Some(file))
            .unwrap();
    }

    fn pair() -> Pair {
        let rams = [RAM, RAM].map(|size| Arc::new(Ram::anonymous(size).unwrap()));
        let view = |guest: usize| Arc::new(GuestMemory::new(Arc::clone(&rams[guest])));
        let entry = Entry {
            upstream: 0,
            downstream: 1,
            personality: Personality::Gen5,
            windows: Windows::Aperture,
            model: None,
        };
        let link = Link::new(&entry, [view(0), view(1)], None);
        map(
            Port::new(&link, 1).memory(),
            IOVA,
            PERMITTED / 2,
            BEHIND,
            true,
        );
        // The second half is behind the first one in IOVAs, but not in RAM. It is read-only.
        map(
            Port::new(&link, 1).memory(),
            IOVA + PERMITTED / 2,
            PERMITTED,
            0,
            false,
        );
        let memory = view(0);
        map(&memory, 0, RAM / 2, 0, true);
        map(&memory, RAM / 2, RAM / 2, RAM / 2, false);
        for (end, trapped, aperture) in [(0, TRAPPED, APERTURE), (1, PEER_BAR, 0xb000_0000)] {
            let port = Port::new(&link, end);
            port.connect();
            port.config_write(0x18, &trapped.to_le_bytes());
            port.config_write(0x20, &aperture.to_le_bytes());
            port.config_write(4, &[2, 0]);
            port.register_write(0xb0d4, &[8]);
        }
        Port::new(&link, 1).register_write(0x10, &IOVA.to_le_bytes());
        let limit = PEER_BAR + PERMITTED;
        Port::new(&link, 1).register_write(0x18, &limit.to_le_bytes());
        let bus = GuestBus::new(memory, vec![Port::new(&link, 0)]);
        Pair { rams, link, bus }
    }

    /// Finds a byte by the rules and without the code: which RAM, and where in it.
    fn model(address: u64, access: Access) -> Option<(usize, u64)> {
        let read = access == Access::Read;
        match address {
            0..RAM if read || address < RAM / 2 => Some((0, address)),
            APERTURE.. if address - APERTURE < RAM => Some((1, address - APERTURE)),
            TRAPPED.. if address - TRAPPED < PERMITTED / 2 => Some((1, BEHIND + address - TRAPPED)),
            TRAPPED.. if read && address - TRAPPED < PERMITTED => {
                Some((1, address - TRAPPED - PERMITTED / 2))
            }
            _ => None,
        }
    }

    fn all(bus: &GuestBus, source: u64, destination: u64, length: u64) -> (u64, Option<Fault>) {
        let mut done = 0;
        while done < length {
            match bus.copy(source + done, destination + done, length - done) {
                Ok(copied) => done += copied,
                Err(fault) => return (done, Some(fault)),
            }
        }
        (done, None)
    }

    fn addresses() -> impl Strategy<Value = u64> {
        let near = |place: u64| (place.saturating_sub(300)..place + 300).boxed();
        prop_oneof![
            0..RAM,
            near(RAM / 2),
            near(RAM),
            TRAPPED..TRAPPED + PERMITTED,
            near(TRAPPED),
            near(TRAPPED + PERMITTED / 2),
            near(TRAPPED + PERMITTED),
            APERTURE..APERTURE + RAM,
            near(APERTURE),
            near(APERTURE + RAM),
            0..u64::MAX - 0x1000,
        ]
    }

    proptest! {
        /// Copies between any two places against the model, byte by byte.
        #[test]
        fn copy_between_any_addresses_agrees_with_the_model(
            source in addresses(),
            destination in addresses(),
            length in 1u64..600,
        ) {
            let Pair { rams, bus, .. } = pair();
            for (guest, ram) in rams.iter().enumerate() {
                let contents: Vec<u8> = (0..RAM).map(|at| (at * 13 + at / 251 + 100 * guest as u64) as u8).collect();
                ram.write(0, &contents).unwrap();
            }
            let byte = |(guest, offset): (usize, u64)| {
                let mut data = [0];
                rams[guest].read(offset, &mut data).unwrap();
                data[0]
            };
            let places: Vec<_> = (0..length)
                .map(|at| (model(source + at, Access::Read), model(destination + at, Access::Write)))
                .collect();
            let expected = places.iter().take_while(|(from, to)| from.is_some() && to.is_some()).count();
            let sources: HashSet<_> = places[..expected].iter().map(|(from, _)| *from).collect();
            let overlap = places[..expected].iter().any(|(_, to)| sources.contains(to));
            prop_assume!(!overlap);
            let before: Vec<_> = places[..expected].iter().map(|(from, _)| byte(from.unwrap())).collect();
            let (done, fault) = all(&bus, source, destination, length);
            prop_assert_eq!(done, expected as u64);
            let after: Vec<_> = places[..expected].iter().map(|(_, to)| byte(to.unwrap())).collect();
            prop_assert_eq!(after, before);
            let reason = places.get(expected).map(|(from, _)| if from.is_none() { Fault::Read } else { Fault::Write });
            prop_assert_eq!(fault, reason);
        }
    }

    #[test]
    fn route_tells_which_side_is_a_peer() {
        let Pair { link, bus, .. } = pair();
        let route = |source, destination| bus.route(source, destination, 8).map(|r| (r.from, r.to));
        assert_eq!(route(0, 64), Ok((None, None)));
        assert_eq!(route(0, APERTURE), Ok((None, Some(0))));
        assert_eq!(route(TRAPPED, 0), Ok((Some(0), None)));
        assert_eq!(route(APERTURE, TRAPPED), Ok((Some(0), Some(0))));
        assert_eq!(route(RAM, 0), Err(Fault::Read));
        assert_eq!(route(0, RAM), Err(Fault::Write));
        let end = bus.route(APERTURE + RAM - 4, 0, 8);
        assert_eq!(end.map(|route| route.length), Ok(4));
        link.allow(false);
        assert_eq!(route(0, APERTURE), Ok((None, Some(0))));
    }

    #[test]
    fn moved_window_is_found_at_its_new_address() {
        let Pair { rams, link, bus } = pair();
        rams[0].write(0, b"data").unwrap();
        let moved = 0x12_0000_0000u64;
        Port::new(&link, 0).config_write(0x20, &moved.to_le_bytes());
        assert_eq!(all(&bus, 0, APERTURE + 8, 4).1, Some(Fault::Write));
        assert_eq!(all(&bus, 0, moved + 8, 4), (4, None));
        let mut data = [0; 4];
        rams[1].read(8, &mut data).unwrap();
        assert_eq!(&data, b"data");
        // With decoding switched off, there is nothing.
        Port::new(&link, 0).config_write(4, &[0, 0]);
        assert_eq!(all(&bus, 0, moved + 8, 4).1, Some(Fault::Write));
    }

    #[test]
    fn link_that_is_down_drops_writes_and_fails_reads() {
        let Pair { rams, link, bus } = pair();
        rams[0].write(0, b"data").unwrap();
        link.allow(false);
        for window in [TRAPPED, APERTURE] {
            assert_eq!(all(&bus, 0, window, 4), (4, None));
            assert_eq!(all(&bus, window, 0, 4), (0, Some(Fault::Read)));
            assert_eq!(bus.write(window, b"word"), Ok(()));
            assert_eq!(bus.read(window, &mut [0; 4]), Err(Fault::Read));
        }
        let mut data = [0xff; 4];
        rams[1].read(0, &mut data).unwrap();
        assert_eq!(data, [0; 4]);
    }
}
