// SPDX-License-Identifier: GPL-2.0
//! What one device of a guest can reach of that guest's RAM.
//!
//! QEMU announces each range by DMA_MAP, with a descriptor of the RAM file, an offset
//! into it and permissions; behind a virtual IOMMU the addresses are IOVAs and each
//! device has its own. So a device's view of memory is a map of ranges, and never just
//! "address equals offset".
//!
//! Ranges without a descriptor (ROMs, BARs of other devices) are not memory and are left
//! out; [`crate::address`] finds the windows by itself.
//!
//! After an unmap has returned, nothing accesses the range any more: who copies holds a
//! [`Pin`], and the unmap waits for those. Pins are held for one chunk of a copy only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Result;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::ram::Ram;

/// What a device wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    size: u64,
    offset: u64,
    readable: bool,
    writable: bool,
}

type Ranges = BTreeMap<u64, Range>;

/// Keeps a range from being unmapped while it is accessed.
#[derive(Clone)]
pub struct Pin {
    _ranges: Arc<Ranges>,
}

/// Memory found at an address.
pub struct Found {
    /// The offset into the RAM.
    pub offset: u64,
    /// How many bytes from there are in one piece, at least 1.
    pub length: u64,
    /// To be held during the access.
    pub pin: Pin,
}

/// The view of one device.
pub struct GuestMemory {
    ram: Arc<Ram>,
    ranges: Mutex<Arc<Ranges>>,
}

impl GuestMemory {
    /// A device that reaches nothing yet.
    pub fn new(ram: Arc<Ram>) -> Self {
        Self {
            ram,
            ranges: Mutex::default(),
        }
    }

    /// The RAM behind it.
    pub fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// Adds a range.
    pub fn map(
        &self,
        address: u64,
        size: u64,
        offset: u64,
        readable: bool,
        writable: bool,
        file: Option<File>,
    ) -> Result<()> {
        if size == 0 || address.checked_add(size - 1).is_none() {
            return Err(invalid(format!("no range of {size:#x} at {address:#x}")));
        }
        let Some(file) = file else {
            return Ok(());
        };
        if !self.ram.is_same(&file)? {
            if writable {
                log::warn!(
                    "the guest's memory at {address:#x} is not its RAM file and cannot be reached: start QEMU with memory-backend-file,share=on and that file"
                );
            }
            return Ok(());
        }
        if offset
            .checked_add(size)
            .is_none_or(|end| end > self.ram.size())
        {
            return Err(invalid(format!(
                "the range of {size:#x} at {offset:#x} is not inside the RAM file"
            )));
        }
        self.change(|ranges| {
            cut(ranges, address, size);
            ranges.insert(
                address,
                Range {
                    size,
                    offset,
                    readable,
                    writable,
                },
            );
        });
        Ok(())
    }

    /// Removes what is in a range.
    pub fn unmap(&self, address: u64, size: u64) {
        self.change(|ranges| cut(ranges, address, size));
    }

    /// Removes everything.
    pub fn clear(&self) {
        self.change(Ranges::clear);
    }

    /// Applies a change and waits for the accesses that began before it.
    fn change(&self, edit: impl FnOnce(&mut Ranges)) {
        let mut current = self.ranges.lock();
        let mut ranges = Ranges::clone(&current);
        edit(&mut ranges);
        let old = std::mem::replace(&mut *current, Arc::new(ranges));
        drop(current);
        // Nobody takes new pins on the old one; those there are end with a chunk.
        while Arc::strong_count(&old) > 1 {
            std::thread::yield_now();
        }
    }

    /// Finds the memory at an address, if the device may access it that way.
    pub fn find(&self, address: u64, access: Access) -> Option<Found> {
        let ranges = Arc::clone(&self.ranges.lock());
        let (start, range) = ranges.range(..=address).next_back()?;
        let into = address - start;
        let allowed = match access {
            Access::Read => range.readable,
            Access::Write => range.writable,
        };
        if into >= range.size || !allowed {
            return None;
        }
        Some(Found {
            offset: range.offset + into,
            length: range.size - into,
            pin: Pin {
                _ranges: Arc::clone(&ranges),
            },
        })
    }
}

/// Removes a range from all that overlap it, keeping their other parts.
fn cut(ranges: &mut Ranges, address: u64, size: u64) {
    let end = u128::from(address) + u128::from(size);
    let overlapping: Vec<_> = ranges
        .range(..)
        .filter(|(start, range)| {
            u128::from(**start) < end
                && u128::from(**start) + u128::from(range.size) > u128::from(address)
        })
        .map(|(start, range)| (*start, *range))
        .collect();
    for (start, range) in overlapping {
        ranges.remove(&start);
        if start < address {
            let size = address - start;
            ranges.insert(start, Range { size, ..range });
        }
        let range_end = u128::from(start) + u128::from(range.size);
        if range_end > end {
            // Both fit: `end` is below the end of a range that did.
            let removed = (end - u128::from(start)) as u64;
            ranges.insert(
                start + removed,
                Range {
                    size: range.size - removed,
                    offset: range.offset + removed,
                    ..range
                },
            );
        }
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;

    fn memory() -> (GuestMemory, File) {
        let ram = Arc::new(Ram::anonymous(0x10_0000).unwrap());
        let file = File::from(ram.as_fd().try_clone_to_owned().unwrap());
        (GuestMemory::new(ram), file)
    }

    fn offset(memory: &GuestMemory, address: u64, access: Access) -> Option<(u64, u64)> {
        let found = memory.find(address, access)?;
        Some((found.offset, found.length))
    }

    #[test]
    fn maps_with_permissions() {
        let (memory, file) = memory();
        let again = || Some(file.try_clone().unwrap());
        memory
            .map(0x1000, 0x2000, 0x8000, true, true, again())
            .unwrap();
        memory
            .map(0x3000, 0x1000, 0x0, true, false, again())
            .unwrap();
        assert_eq!(offset(&memory, 0xfff, Access::Read), None);
        assert_eq!(
            offset(&memory, 0x1800, Access::Write),
            Some((0x8800, 0x1800))
        );
        assert_eq!(offset(&memory, 0x3001, Access::Read), Some((1, 0xfff)));
        assert_eq!(offset(&memory, 0x3001, Access::Write), None);
        assert_eq!(offset(&memory, 0x4000, Access::Read), None);
        memory.unmap(0x1800, 0x400);
        assert_eq!(offset(&memory, 0x1000, Access::Read), Some((0x8000, 0x800)));
        assert_eq!(offset(&memory, 0x1800, Access::Read), None);
        assert_eq!(
            offset(&memory, 0x1c00, Access::Read),
            Some((0x8c00, 0x1400))
        );
        memory.clear();
        assert_eq!(offset(&memory, 0x1000, Access::Read), None);
    }

    #[test]
    fn what_is_not_the_ram_is_left_out() {
        let (memory, file) = memory();
        memory.map(0, 0x1000, 0, true, true, None).unwrap();
        let other = Ram::anonymous(0x1000).unwrap();
        let other = File::from(other.as_fd().try_clone_to_owned().unwrap());
        memory.map(0, 0x1000, 0, true, true, Some(other)).unwrap();
        assert_eq!(offset(&memory, 0, Access::Read), None);
        let again = || Some(file.try_clone().unwrap());
        for (address, size, offset) in [
            (0, 0, 0),
            (0, 0x1000, 0x10_0000),
            (0, 0x1000, u64::MAX),
            (u64::MAX, 2, 0),
            (0, u64::MAX, 0),
        ] {
            assert!(
                memory
                    .map(address, size, offset, true, true, again())
                    .is_err()
            );
        }
        memory.unmap(0, u64::MAX);
        memory.unmap(u64::MAX, u64::MAX);
    }

    #[test]
    fn an_unmap_waits_for_accesses() {
        let (memory, file) = memory();
        memory.map(0, 0x1000, 0, true, true, Some(file)).unwrap();
        let found = memory.find(0, Access::Read).unwrap();
        std::thread::scope(|scope| {
            let unmap = scope.spawn(|| memory.unmap(0, 0x1000));
            // It takes effect at once, but does not return.
            while memory.find(0, Access::Read).is_some() {
                std::thread::yield_now();
            }
            assert!(!unmap.is_finished());
            drop(found);
            unmap.join().unwrap();
        });
    }

    proptest! {
        /// Against a model that keeps one entry per byte.
        #[test]
        fn behaves_like_a_byte_map(steps in prop::collection::vec((any::<bool>(), 0u64..64, 1u64..32, 0u64..64), 1..20)) {
            let (memory, file) = memory();
            let mut model = [None; 128];
            for (map, address, size, offset) in steps {
                for at in 0..size {
                    model[(address + at) as usize] = map.then_some(offset + at);
                }
                if map {
                    let file = Some(file.try_clone().unwrap());
                    memory.map(address, size, offset, true, true, file).unwrap();
                } else {
                    memory.unmap(address, size);
                }
            }
            for (address, expected) in model.iter().enumerate() {
                let found = offset(&memory, address as u64, Access::Read);
                prop_assert_eq!(found.map(|(offset, _)| offset), *expected);
                if let Some((offset, length)) = found {
                    let last = model[address + length as usize - 1];
                    prop_assert_eq!(last, Some(offset + length - 1));
                }
            }
        }
    }
}
