// SPDX-License-Identifier: GPL-2.0
//! Where an address that a DMA function puts on its guest's bus leads to.
//!
//! To the guest's own RAM, as far as the function may reach it; through a window of one
//! of the guest's NTB functions, at the place where its BAR is right now, into the RAM
//! of a peer; or to nothing.
//!
//! While a link is down, writes through its windows vanish as posted writes do on
//! hardware, and reads fail.

use std::sync::Arc;

use crate::dma::Bus;
use crate::dma::Fault;
use crate::guest_memory::Access;
use crate::guest_memory::GuestMemory;
use crate::guest_memory::Pin;
use crate::ntb::Port;
use crate::ntb::Reach;
use crate::ram::Ram;

/// The bus as one DMA function sees it.
pub struct GuestBus {
    memory: Arc<GuestMemory>,
    ports: Vec<Port>,
}

/// What there is from an address on.
struct Place {
    /// The memory, or nothing if writes vanish.
    memory: Option<(Arc<Ram>, u64)>,
    /// For how many bytes.
    length: u64,
    _pin: Option<Pin>,
}

impl GuestBus {
    /// `memory` is what the function reaches of its guest's RAM, `ports` are the NTB
    /// functions of the guest.
    pub fn new(memory: Arc<GuestMemory>, ports: Vec<Port>) -> Self {
        Self { memory, ports }
    }

    fn resolve(&self, address: u64, length: u64, access: Access) -> Option<Place> {
        if let Some(found) = self.memory.find(address, access) {
            return Some(Place {
                memory: Some((Arc::clone(self.memory.ram()), found.offset)),
                length: found.length.min(length),
                _pin: Some(found.pin),
            });
        }
        let reach = self
            .ports
            .iter()
            .find_map(|port| port.decode(address, length, access))?;
        match reach {
            Reach::Memory {
                ram,
                offset,
                length,
                pin,
            } => Some(Place {
                memory: Some((ram, offset)),
                length,
                _pin: pin,
            }),
            Reach::LinkDown { length } if access == Access::Write => Some(Place {
                memory: None,
                length,
                _pin: None,
            }),
            Reach::LinkDown { .. } | Reach::Nothing => None,
        }
    }
}

impl Bus for GuestBus {
    fn read(&self, address: u64, data: &mut [u8]) -> Result<(), Fault> {
        let length = data.len() as u64;
        let place = self
            .resolve(address, length, Access::Read)
            .filter(|place| place.length == length)
            .ok_or(Fault::Read)?;
        let (ram, offset) = place.memory.as_ref().ok_or(Fault::Read)?;
        ram.read(*offset, data).map_err(|_| Fault::Read)
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), Fault> {
        let length = data.len() as u64;
        let place = self
            .resolve(address, length, Access::Write)
            .filter(|place| place.length == length)
            .ok_or(Fault::Write)?;
        match &place.memory {
            Some((ram, offset)) => ram.write(*offset, data).map_err(|_| Fault::Write),
            None => Ok(()),
        }
    }

    fn copy(&self, source: u64, destination: u64, length: u64) -> Result<u64, Fault> {
        let from = self
            .resolve(source, length, Access::Read)
            .ok_or(Fault::Read)?;
        let to = self
            .resolve(destination, from.length, Access::Write)
            .ok_or(Fault::Write)?;
        let (ram, offset) = from.memory.as_ref().ok_or(Fault::Read)?;
        if let Some((peer, target)) = &to.memory {
            Ram::copy(ram, *offset, peer, *target, to.length).map_err(|_| Fault::Write)?;
        }
        Ok(to.length)
    }
}
