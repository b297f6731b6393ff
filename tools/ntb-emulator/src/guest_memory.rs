// SPDX-License-Identifier: GPL-2.0
//! The part of a guest's RAM that one of its devices can reach.
//!
//! QEMU announces each range by DMA_MAP, with a descriptor of the RAM file, an offset
//! into it and permissions; behind a virtual IOMMU the addresses are IOVAs and each
//! device has its own. So a device's view of memory is a map of ranges, and never just
//! "address equals offset".
//!
//! Ranges without a descriptor (ROMs, BARs of other devices) are not memory and are left out.
//! [`crate::address`] finds the windows by itself.
//!
//! After an unmap has returned, no thread accesses the range any more. A thread that copies holds a
//! [`Pin`], and the unmap waits for the older pins that overlap the range. It waits for no others,
//! so copies elsewhere do not hold it up. Neither do copies to memory that was mapped there since.
//! A pin is held for one chunk of a copy only.
//!
//! Behind a virtual IOMMU every page comes and goes by itself while engines copy. So the lock is
//! held for a step of O(log n) at a time, never for one that grows with the number of ranges. It is
//! never held while data are copied or a thread waits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Error;
use std::io::ErrorKind;
use std::io::Result;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Condvar;
use parking_lot::Mutex;
use parking_lot::MutexGuard;
use rangemap::RangeInclusiveMap;

use crate::ram::Ram;

/// Largest number of ranges that one change takes away before other threads get the lock.
const STEP: usize = 128;

/// The kind of access of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
}

/// A range of addresses, the last one included: a range may end with the address space.
type Span = RangeInclusive<u64>;

/// The memory behind a range. Neighbours with the same target are one range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    /// The difference from an address to the offset into the RAM, wrapping around.
    distance: u64,
    readable: bool,
    writable: bool,
}

#[derive(Default)]
struct State {
    ranges: RangeInclusiveMap<u64, Target>,
    /// The ranges that are being accessed, in the order in which the accesses began. At most two
    /// for each thread that accesses memory, so the map stays small.
    pins: BTreeMap<u64, Span>,
    /// The key of the next pin.
    next: u64,
}

#[derive(Default)]
struct View {
    state: Mutex<State>,
    /// Signalled when a pin is dropped.
    unpinned: Condvar,
}

/// A guard that keeps a range from being unmapped while a thread accesses it.
///
/// The holder may find more memory, but must not change the map of the pin: the change would wait
/// for the holder itself.
pub struct Pin {
    view: Arc<View>,
    key: u64,
}

/// The memory at an address.
pub struct Found {
    /// The offset into the RAM.
    pub offset: u64,
    /// Number of bytes that are in one piece, at least 1 and at most the number asked for.
    pub length: u64,
    /// The pin, which the caller must hold during the access.
    pub pin: Pin,
}

/// The view of one device.
pub struct GuestMemory {
    ram: Arc<Ram>,
    view: Arc<View>,
}

impl GuestMemory {
    /// Creates the view of a device that reaches nothing yet.
    pub fn new(ram: Arc<Ram>) -> Self {
        Self {
            ram,
            view: Arc::default(),
        }
    }

    /// Returns the RAM.
    pub fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// Adds a range, in place of the present one. Waits for accesses like an unmap. If it replaces
    /// very many ranges, some may be gone before the new one is there.
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
        let target = Target {
            distance: offset.wrapping_sub(address),
            readable,
            writable,
        };
        self.view
            .change(address..=address + (size - 1), Some(target));
        Ok(())
    }

    /// Removes all ranges within a range.
    pub fn unmap(&self, address: u64, size: u64) {
        if size > 0 {
            self.view
                .change(address..=address.saturating_add(size - 1), None);
        }
    }

    /// Removes all ranges.
    pub fn clear(&self) {
        self.view.change(0..=u64::MAX, None);
    }

    /// Finds the memory at an address, if the device has this access to it. Returns at most the
    /// part of `length` that is in one piece.
    pub fn find(&self, address: u64, length: u64, access: Access) -> Option<Found> {
        let wanted = address.saturating_add(length.checked_sub(1)?);
        let mut state = self.view.state.lock();
        let (range, target) = state.ranges.get_key_value(&address)?;
        let allowed = match access {
            Access::Read => target.readable,
            Access::Write => target.writable,
        };
        if !allowed {
            return None;
        }
        let last = wanted.min(*range.end());
        let offset = address.wrapping_add(target.distance);
        let key = state.next;
        state.next += 1;
        state.pins.insert(key, address..=last);
        Some(Found {
            offset,
            length: last - address + 1,
            pin: Pin {
                view: Arc::clone(&self.view),
                key,
            },
        })
    }
}

impl View {
    /// Replaces the target of a range, or removes it, and waits for older accesses to the range.
    fn change(&self, span: Span, target: Option<Target>) {
        let mut state = self.state.lock();
        while let Some(step) = state.first_step(&span) {
            state.ranges.remove(step);
            MutexGuard::bump(&mut state);
        }
        match target {
            Some(target) => state.ranges.insert(span.clone(), target),
            None => state.ranges.remove(span.clone()),
        }
        // No thread can take a new pin on the old memory. The old pins are dropped after a chunk.
        let now = state.next;
        self.unpinned.wait_while(&mut state, |state| {
            state
                .pins
                .range(..now)
                .any(|(_, pinned)| overlap(pinned, &span))
        });
    }
}

impl State {
    /// Returns the first part of a range, if the range has more in it than one step removes.
    fn first_step(&self, span: &Span) -> Option<Span> {
        let (rest, _) = self.ranges.overlapping(span).nth(STEP)?;
        Some(*span.start()..=rest.start() - 1)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.view.state.lock().pins.remove(&self.key);
        self.view.unpinned.notify_all();
    }
}

fn overlap(one: &Span, other: &Span) -> bool {
    one.start() <= other.end() && other.start() <= one.end()
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    const PAGE: u64 = 0x1000;

    fn memory() -> (GuestMemory, File) {
        let ram = Arc::new(Ram::anonymous(0x10_0000).unwrap());
        let file = ram.file().unwrap();
        (GuestMemory::new(ram), file)
    }

    fn offset(memory: &GuestMemory, address: u64, access: Access) -> Option<(u64, u64)> {
        let found = memory.find(address, u64::MAX, access)?;
        Some((found.offset, found.length))
    }

    #[test]
    fn access_without_permission_finds_no_memory() {
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
    fn mapping_of_a_foreign_file_or_bad_range_is_ignored() {
        let (memory, file) = memory();
        memory.map(0, 0x1000, 0, true, true, None).unwrap();
        let other = Ram::anonymous(0x1000).unwrap();
        let other = Some(other.file().unwrap());
        memory.map(0, 0x1000, 0, true, true, other).unwrap();
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

    /// Returns a map of pages that lie side by side, also in RAM, and so are one piece.
    fn pages(count: u64) -> (GuestMemory, File) {
        let (memory, file) = memory();
        for page in 0..count {
            map(&memory, &file, page);
        }
        (memory, file)
    }

    fn map(memory: &GuestMemory, file: &File, page: u64) {
        let file = Some(file.try_clone().unwrap());
        memory
            .map(page * PAGE, PAGE, page * PAGE, true, true, file)
            .unwrap();
    }

    #[test]
    fn adjacent_mappings_are_found_as_one_piece() {
        let (memory, _) = pages(3);
        let piece = |length| {
            let found = memory.find(PAGE - 1, length, Access::Write).unwrap();
            (found.offset, found.length)
        };
        assert_eq!(piece(1), (PAGE - 1, 1));
        assert_eq!(piece(PAGE + 2), (PAGE - 1, PAGE + 2));
        assert_eq!(piece(u64::MAX), (PAGE - 1, 2 * PAGE + 1));
        assert!(memory.find(0, 0, Access::Read).is_none());
    }

    #[test]
    fn last_page_of_the_address_space_can_be_mapped() {
        let (memory, file) = memory();
        let last = u64::MAX - (PAGE - 1);
        memory
            .map(last, PAGE, 0x3000, true, true, Some(file))
            .unwrap();
        assert_eq!(offset(&memory, u64::MAX, Access::Read), Some((0x3fff, 1)));
        memory.unmap(u64::MAX, 1);
        assert_eq!(
            offset(&memory, last, Access::Read),
            Some((0x3000, PAGE - 1))
        );
        memory.unmap(last, u64::MAX);
        assert_eq!(offset(&memory, last, Access::Read), None);
    }

    #[test]
    fn unmap_waits_for_accesses_to_its_range() {
        let (memory, _) = pages(1);
        let found = memory.find(0, 1, Access::Read).unwrap();
        std::thread::scope(|scope| {
            let unmap = scope.spawn(|| memory.unmap(0, PAGE));
            // The unmap takes effect at once, but does not return.
            while memory.find(0, 1, Access::Read).is_some() {
                std::thread::yield_now();
            }
            assert!(!unmap.is_finished());
            drop(found);
            unmap.join().unwrap();
        });
    }

    /// The test would hang if the unmap waited.
    #[test]
    fn unmap_does_not_wait_for_accesses_elsewhere() {
        let (memory, file) = pages(3);
        let found = memory.find(PAGE, PAGE, Access::Read).unwrap();
        memory.unmap(0, PAGE);
        memory.unmap(2 * PAGE, PAGE);
        map(&memory, &file, 0);
        assert_eq!(found.length, PAGE);
    }

    #[test]
    fn unmap_does_not_wait_for_accesses_to_a_later_mapping() {
        let (memory, file) = pages(1);
        let found = memory.find(0, 1, Access::Read).unwrap();
        std::thread::scope(|scope| {
            let unmap = scope.spawn(|| memory.unmap(0, PAGE));
            while memory.find(0, 1, Access::Read).is_some() {
                std::thread::yield_now();
            }
            // The new map waits for the access as well, but takes effect at once.
            let remap = scope.spawn(|| map(&memory, &file, 0));
            let again = loop {
                match memory.find(0, 1, Access::Read) {
                    Some(found) => break found,
                    None => std::thread::yield_now(),
                }
            };
            drop(found);
            unmap.join().unwrap();
            remap.join().unwrap();
            drop(again);
        });
    }

    /// This holds also for a range that another change has already taken out of the map.
    #[test]
    fn overlapping_unmaps_all_wait_for_accesses() {
        let (memory, _) = pages(4);
        let found = memory.find(PAGE, PAGE, Access::Read).unwrap();
        let released = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (address, size) in [(0, 4 * PAGE), (PAGE, PAGE), (2 * PAGE - 1, 1)] {
                let (memory, released) = (&memory, &released);
                scope.spawn(move || {
                    memory.unmap(address, size);
                    assert!(released.load(Relaxed));
                });
            }
            while memory.find(PAGE, 1, Access::Read).is_some() {
                std::thread::yield_now();
            }
            // Relaxed is enough: the lock of the map orders the two accesses.
            released.store(true, Relaxed);
            drop(found);
        });
    }

    #[test]
    fn large_unmap_removes_all_ranges_in_several_steps() {
        let (memory, file) = memory();
        let ranges = 2 * STEP as u64 + 1;
        let fill = || {
            for range in 0..ranges {
                let file = Some(file.try_clone().unwrap());
                memory
                    .map(2 * range, 1, 5 * range, true, true, file)
                    .unwrap();
            }
        };
        let count = || memory.view.state.lock().ranges.len() as u64;
        fill();
        assert_eq!(count(), ranges);
        memory.unmap(0, 2 * (ranges - 1));
        assert_eq!(count(), 1);
        fill();
        let again = Some(file.try_clone().unwrap());
        memory
            .map(1, 2 * ranges, 0x8000, true, true, again)
            .unwrap();
        assert_eq!(count(), 2);
        assert_eq!(offset(&memory, 1, Access::Read), Some((0x8000, 2 * ranges)));
        fill();
        memory.clear();
        assert_eq!(count(), 0);
    }
}
