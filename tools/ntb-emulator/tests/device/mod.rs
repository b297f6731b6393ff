// SPDX-License-Identifier: GPL-2.0
//! A device behind a virtual IOMMU, whose map has very many ranges. The tests and the benchmark of
//! the map share it, so that both are about the same map.

use std::sync::Arc;

use ntb_emulator::guest_memory::GuestMemory;
use ntb_emulator::ram::Ram;

/// The size of each range.
pub const PAGE: u64 = 4096;

/// A view of some RAM, as its function has it.
pub struct Device {
    /// The map.
    pub memory: GuestMemory,
}

impl Device {
    /// Creates a device with an empty map.
    pub fn new(ram_size: u64) -> Self {
        let ram = Ram::anonymous(ram_size).expect("memory for a test");
        let memory = GuestMemory::new(Arc::new(ram));
        Self { memory }
    }

    /// Creates a device with that many ranges of one page, see [`address_of`].
    pub fn with_ranges(count: u64) -> Self {
        let device = Self::new(count * PAGE);
        for range in 0..count {
            device.map_range(range);
        }
        device
    }

    /// Maps a range, with a descriptor as DMA_MAP has.
    pub fn map(&self, address: u64, size: u64, offset: u64) {
        let file = self.memory.ram().file().expect("a descriptor");
        self.memory
            .map(address, size, offset, true, true, Some(file))
            .expect("a range inside the RAM");
    }

    /// Brings one of the ranges back.
    pub fn map_range(&self, range: u64) {
        self.map(address_of(range), PAGE, range * PAGE);
    }

    /// Takes one of the ranges away.
    pub fn unmap_range(&self, range: u64) {
        self.memory.unmap(address_of(range), PAGE);
    }
}

/// Returns the address of a range: apart from the next, so that no range becomes one with its
/// neighbour.
pub fn address_of(range: u64) -> u64 {
    range * 2 * PAGE
}

/// Pseudo-random numbers, the same ones in each run (xorshift).
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
