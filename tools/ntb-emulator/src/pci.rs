// SPDX-License-Identifier: GPL-2.0
//! The configuration space of one PCIe function.
//!
//! It holds identity, 64-bit memory BARs, an MSI or MSI-X capability and a PCIe capability. QEMU
//! keeps its own copy of BARs and of the state of interrupts for the guest, but forwards every
//! write. So this copy knows where the guest has put the BARs, and address resolution relies on it.
//!
//! QEMU handles the MSI-X table and the pending bits; accesses to them never arrive here.

/// The size of the extended configuration space.
pub const CONFIG_SIZE: usize = 4096;

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_MASTER: u8 = 1 << 2;
const STATUS_CAPABILITIES: u8 = 1 << 4;
const BARS: usize = 0x10;
const CAPABILITY_POINTER: usize = 0x34;

/// A 64-bit memory BAR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// The number; a BAR takes the next number as well.
    pub index: usize,
    /// The size, a power of two.
    pub size: u64,
    /// Whether reads have no side effects.
    pub prefetchable: bool,
}

/// The way in which a function interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalling {
    /// By MSI: one vector.
    Msi,
    /// By MSI-X.
    Msix {
        /// The number of vectors.
        vectors: u16,
        /// The offset of the table in BAR 0.
        table: u32,
        /// The offset of the pending bits in BAR 0.
        pending: u32,
    },
}

/// The offsets of the capabilities in configuration space, in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// MSI or MSI-X.
    pub interrupts: usize,
    /// PCI Express.
    pub express: usize,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            interrupts: 0x40,
            express: 0x90,
        }
    }
}

/// The identity of a function.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The vendor.
    pub vendor: u16,
    /// The device.
    pub device: u16,
    /// Base class, subclass and programming interface.
    pub class: u32,
    /// The revision.
    pub revision: u8,
    /// The BARs.
    pub bars: Vec<Bar>,
    /// The way in which the function interrupts.
    pub signalling: Signalling,
    /// The offsets of its capabilities.
    pub capabilities: Capabilities,
}

/// The configuration space.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; CONFIG_SIZE]>,
    initial: Box<[u8; CONFIG_SIZE]>,
    writable: Box<[u8; CONFIG_SIZE]>,
    bars: Vec<Bar>,
}

impl ConfigSpace {
    /// Returns the configuration space of a function after reset.
    pub fn new(identity: &Identity) -> Self {
        let mut space = Self {
            bytes: Box::new([0; CONFIG_SIZE]),
            initial: Box::new([0; CONFIG_SIZE]),
            writable: Box::new([0; CONFIG_SIZE]),
            bars: identity.bars.clone(),
        };
        space.header(identity);
        space.interrupt_capability(identity);
        space.express_capability(identity.capabilities.express);
        space.initial.copy_from_slice(&space.bytes[..]);
        space
    }

    fn header(&mut self, identity: &Identity) {
        self.set(0x00, &identity.vendor.to_le_bytes());
        self.set(0x02, &identity.device.to_le_bytes());
        // Memory, bus master, parity, SERR and the INTx disable bit.
        self.allow(COMMAND, &[0x46, 0x05]);
        self.set(0x06, &[STATUS_CAPABILITIES, 0]);
        let class = identity.class.to_le_bytes();
        self.set(0x08, &[identity.revision, class[0], class[1], class[2]]);
        // Cache line size, latency timer, interrupt line.
        self.allow(0x0c, &[0xff, 0xff]);
        self.allow(0x3c, &[0xff]);
        for bar in self.bars.clone() {
            let at = BARS + 4 * bar.index;
            self.set(at, &[if bar.prefetchable { 0x0c } else { 0x04 }]);
            self.allow(at, &(!(bar.size - 1) & !0xf).to_le_bytes());
        }
        self.set(0x2c, &identity.vendor.to_le_bytes());
        self.set(0x2e, &identity.device.to_le_bytes());
        self.set(
            CAPABILITY_POINTER,
            &[identity.capabilities.interrupts as u8],
        );
    }

    fn interrupt_capability(&mut self, identity: &Identity) {
        let at = identity.capabilities.interrupts;
        let next = identity.capabilities.express as u8;
        match identity.signalling {
            Signalling::Msi => {
                // 64-bit addresses, no mask.
                self.set(at, &[0x05, next, 0x80, 0]);
                // Enable and the number of vectors, address, data.
                self.allow(at + 2, &[0x71, 0, 0xfc]);
                self.allow(at + 5, &[0xff; 9]);
            }
            Signalling::Msix {
                vectors,
                table,
                pending,
            } => {
                self.set(at, &[0x11, next]);
                self.set(at + 2, &(vectors - 1).to_le_bytes());
                // Function mask and enable.
                self.allow(at + 2, &0xc000u16.to_le_bytes());
                // The table and the pending bits are in BAR 0.
                self.set(at + 4, &table.to_le_bytes());
                self.set(at + 8, &pending.to_le_bytes());
            }
        }
    }

    fn express_capability(&mut self, at: usize) {
        self.set(at, &[0x10, 0]);
        // Version 2, endpoint.
        self.set(at + 2, &0x0002u16.to_le_bytes());
        // Device capabilities: 256 bytes payload, extended tags, role-based errors.
        self.set(at + 4, &0x0000_8021u32.to_le_bytes());
        // Device control: everything except starting a function level reset.
        self.allow(at + 8, &0x7fffu16.to_le_bytes());
        // Link capabilities and status: x8 at 8 GT/s.
        self.set(at + 0xc, &0x0000_0083u32.to_le_bytes());
        self.allow(at + 0x10, &0x0fffu16.to_le_bytes());
        self.set(at + 0x12, &0x0083u16.to_le_bytes());
    }

    /// Sets bytes regardless of what the guest may write.
    pub fn set(&mut self, offset: usize, data: &[u8]) {
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
    }

    /// Sets bytes that a reset restores.
    pub fn set_initial(&mut self, offset: usize, data: &[u8]) {
        self.set(offset, data);
        self.initial[offset..offset + data.len()].copy_from_slice(data);
    }

    fn allow(&mut self, offset: usize, mask: &[u8]) {
        self.writable[offset..offset + mask.len()].copy_from_slice(mask);
    }

    /// Reads bytes as the guest sees them; all ones beyond the end.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = index(offset, at).map_or(0xff, |i| self.bytes[i]);
        }
    }

    /// Writes bytes on behalf of the guest.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, byte) in data.iter().enumerate() {
            if let Some(i) = index(offset, at) {
                let mask = self.writable[i];
                self.bytes[i] = (self.bytes[i] & !mask) | (byte & mask);
            }
        }
    }

    /// Returns to the state after power-on.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial[..]);
    }

    /// Returns whether the function may access memory.
    pub fn is_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_MASTER != 0
    }

    /// Returns the address in a BAR, whether or not the BAR is decoded.
    pub fn bar_base(&self, bar: usize) -> u64 {
        let at = BARS + 4 * bar;
        let mut raw = [0; 8];
        if let Some(bytes) = self.bytes.get(at..at + 8) {
            raw.copy_from_slice(bytes);
        }
        u64::from_le_bytes(raw) & !0xf
    }

    /// Returns the BAR that decodes an address, and the offset into it.
    pub fn decode(&self, address: u64) -> Option<(Bar, u64)> {
        if self.bytes[COMMAND] & COMMAND_MEMORY == 0 {
            return None;
        }
        self.bars.iter().find_map(|bar| {
            let base = self.bar_base(bar.index);
            let offset = address.checked_sub(base)?;
            // A BAR at zero has not been placed yet.
            (base != 0 && offset < bar.size).then_some((*bar, offset))
        })
    }
}

fn index(offset: u64, at: usize) -> Option<usize> {
    let i = usize::try_from(offset).ok()?.checked_add(at)?;
    (i < CONFIG_SIZE).then_some(i)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Identity {
            vendor: 0x8086,
            device: 0x0db4,
            class: 0x06_80_00,
            revision: 1,
            bars: vec![
                Bar {
                    index: 0,
                    size: 0x1_0000,
                    prefetchable: false,
                },
                Bar {
                    index: 2,
                    size: 0x10_0000,
                    prefetchable: true,
                },
            ],
            signalling: Signalling::Msix {
                vectors: 33,
                table: 0x4000,
                pending: 0x5000,
            },
            capabilities: Capabilities::default(),
        })
    }

    fn dword(space: &ConfigSpace, offset: u64) -> u32 {
        let mut data = [0; 4];
        space.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn configuration_space_lists_identity_and_capabilities() {
        let space = space();
        assert_eq!(dword(&space, 0), 0x0db4_8086);
        assert_eq!(dword(&space, 8), 0x0680_0001);
        let mut found = vec![];
        let mut at = u64::from(dword(&space, 0x34) & 0xff);
        while at != 0 {
            found.push(dword(&space, at) & 0xff);
            at = u64::from((dword(&space, at) >> 8) & 0xff);
        }
        assert_eq!(found, [0x11, 0x10]);
        assert_eq!((dword(&space, 0x40) >> 16) & 0x7ff, 32);
    }

    #[test]
    fn bars_are_sized_placed_and_decoded() {
        let mut space = space();
        space.write(0x18, &[0xff; 8]);
        assert_eq!(dword(&space, 0x18), 0xfff0_000c);
        assert_eq!(dword(&space, 0x1c), 0xffff_ffff);
        space.write(0x18, &0x38_0010_0000u64.to_le_bytes());
        assert_eq!(space.bar_base(2), 0x38_0010_0000);
        assert_eq!(space.decode(0x38_0010_0010), None);
        space.write(4, &6u16.to_le_bytes());
        let (bar, offset) = space.decode(0x38_0010_0010).unwrap();
        assert_eq!((bar.index, offset), (2, 0x10));
        assert_eq!(space.decode(0x38_0020_0000), None);
        assert_eq!(space.decode(0x38_000f_ffff), None);
        // BAR 0 has not been placed.
        assert_eq!(space.decode(0), None);
        space.reset();
        assert_eq!(space.decode(0x38_0010_0010), None);
        assert_eq!(dword(&space, 0x18), 0xc);
    }

    #[test]
    fn read_only_bytes_ignore_writes() {
        let mut space = space();
        space.write(0, &[0; 64]);
        assert_eq!(dword(&space, 0), 0x0db4_8086);
        assert_eq!(dword(&space, 0x34), 0x40);
        space.write(u64::MAX - 1, &[1; 4]);
        let mut data = [0; 4];
        space.read(4094, &mut data);
        assert_eq!(data, [0, 0, 0xff, 0xff]);
        space.read(u64::MAX, &mut data);
        assert_eq!(data, [0xff; 4]);
    }
}
