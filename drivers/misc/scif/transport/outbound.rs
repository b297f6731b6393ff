// SPDX-License-Identifier: GPL-2.0

//! The outbound side of a path: an address of the peer turned into something that can be done.
//!
//! Those above name the peer's memory by *bus addresses* that the peer has told them. A transport
//! turns such an address into something [`Reached`], which the CPU can load and store and a process
//! can map, and its engines turn it into addresses of their own; or it says no. That check is what
//! keeps an address that a hostile peer made up from touching anything but the peer's own aperture.
//!
//! Unless it says otherwise, a function here may be called in any context.

use super::engine::{
    EngineRoute,
    Routes, //
};
use crate::{
    logic::{
        extents::Entry,
        window_set::Seams, //
    },
    sys::{
        buffer::Buffer,
        direct_map,
        iomap::{
            self,
            IoMapping, //
        },
        pages::Pages, //
    },
};
use kernel::{
    prelude::*,
    sync::barrier, //
};

/// See the head of this file.
pub(crate) trait Outbound {
    /// The `len` bytes at the peer's `address`: EFAULT if they can't be reached. It can be used as
    /// long as the session is kept from ending.
    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>>;

    /// Whether all of these can be reached.
    fn reaches(&self, memory: &[Entry]) -> bool {
        memory.iter().all(|entry| {
            self.reach(entry.extent.address(), entry.extent.len())
                .is_ok()
        })
    }

    /// Where what is contiguous for the peer is not so here: nothing that crosses one of these can be
    /// reached in one piece.
    fn seams(&self) -> Seams {
        Seams::NONE
    }

    /// How many bytes of the peer's memory can be reached at most.
    fn reachable(&self) -> u64;

    /// The first address of the peer that can be.
    fn first_reachable(&self) -> u64;

    /// The engines that reach the peer's memory; often none, and others may come. Any time: they stay what they are
    /// as long as there is the path, and one that has stopped says so.
    fn engines(&self) -> &Routes;

    /// One of them, by its place, as long as it works.
    fn engine(&self, place: Option<usize>) -> Option<&EngineRoute> {
        self.engines()
            .get(place?)
            .filter(|route| !route.engine.has_stopped())
    }
}

/// Memory of a peer that this node can touch.
///
/// Offsets count from its first byte; what does not lie in it is EINVAL.
pub(crate) struct Reached<'path> {
    place: Place<'path>,
    len: usize,
}

enum Place<'path> {
    /// In the memory of a device that is mapped write-combining, from this offset on.
    Device(&'path IoMapping, usize),
    /// In the RAM of this node, from this physical address on.
    Ram(u64),
}

impl<'path> Reached<'path> {
    /// Bytes of a mapped device: EFAULT where they are not all inside.
    pub(crate) fn in_device(mapping: &'path IoMapping, offset: u64, len: u64) -> Result<Self> {
        let (start, count) = (usize::try_from(offset)?, usize::try_from(len)?);
        match start.checked_add(count) {
            Some(end) if end <= mapping.size() => Ok(Self {
                place: Place::Device(mapping, start),
                len: count,
            }),
            _ => Err(EFAULT),
        }
    }

    /// Bytes of this node's RAM: EFAULT where there is none.
    pub(crate) fn in_ram(address: u64, len: u64) -> Result<Self> {
        let count = usize::try_from(len)?;
        match direct_map::covers(address, count) {
            true => Ok(Self {
                place: Place::Ram(address),
                len: count,
            }),
            false => Err(EFAULT),
        }
    }

    fn check(&self, at: usize, count: usize) -> Result {
        match at.checked_add(count) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(EINVAL),
        }
    }

    /// Stores bytes. Posted: see [`flush_writes`].
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) -> Result {
        self.check(at, bytes.len())?;
        match self.place {
            Place::Device(mapping, start) => mapping.write(start + at, bytes),
            Place::Ram(address) => direct_map::write(address + at as u64, bytes),
        }
    }

    /// Stores `len` bytes of a caller from `from_offset` on, if they are in memory and can be stored
    /// without a copy; says whether that was so. If not, or on an error, some may have been stored.
    /// Does not wait.
    pub(crate) fn write_from(
        &self,
        at: usize,
        from: &Buffer,
        from_offset: usize,
        len: usize,
    ) -> Result<bool> {
        self.check(at, len)?;
        match self.place {
            Place::Device(mapping, start) => mapping.write_from(start + at, from, from_offset, len),
            Place::Ram(address) => {
                direct_map::write_from(address + at as u64, from, from_offset, len)
            }
        }
    }

    /// Loads 32 bits, of which nobody hears: when this returns, what this processor has stored before has arrived,
    /// and what the peer's processors had stored before that is here. A round trip across a bridge.
    pub(crate) fn read_back(&self, at: usize) -> Result {
        self.check(at, size_of::<u32>())?;
        // The stores leave before the load, and what is loaded later is loaded after it.
        barrier::mb(barrier::Full);
        match self.place {
            Place::Device(mapping, start) => mapping.read_u32(start + at)?,
            Place::Ram(address) => direct_map::read_u32(address + at as u64)?,
        };
        barrier::mb(barrier::Full);
        Ok(())
    }

    /// Stores a 32-bit value in one access.
    pub(crate) fn write_u32(&self, at: usize, value: u32) -> Result {
        self.check(at, size_of::<u32>())?;
        match self.place {
            Place::Device(mapping, start) => mapping.write_u32(start + at, value),
            Place::Ram(address) => direct_map::write_u32(address + at as u64, value),
        }
    }

    /// Stores a 64-bit value in one access.
    pub(crate) fn write_u64(&self, at: usize, value: u64) -> Result {
        self.check(at, size_of::<u64>())?;
        match self.place {
            Place::Device(mapping, start) => mapping.write_u64(start + at, value),
            Place::Ram(address) => direct_map::write_u64(address + at as u64, value),
        }
    }

    /// Fills all of it with bytes of `pages` from `offset` on, by CPU.
    #[inline]
    pub(crate) fn copy_from(&self, pages: &Pages, offset: usize) -> Result {
        match self.place {
            Place::Device(mapping, start) => {
                mapping.copy_from_pages(start, pages, offset, self.len)
            }
            Place::Ram(address) => direct_map::copy_from_pages(address, pages, offset, self.len),
        }
    }

    /// Copies all of it to `pages` from `offset` on, by CPU; slow across a bridge.
    pub(crate) fn copy_to(&self, pages: &Pages, offset: usize) -> Result {
        match self.place {
            Place::Device(mapping, start) => mapping.copy_to_pages(start, pages, offset, self.len),
            Place::Ram(address) => direct_map::copy_to_pages(address, pages, offset, self.len),
        }
    }

    /// The frame of the page at which it begins, for mapping it into a process. It stays what it is
    /// until the session ends.
    pub(crate) fn page_frame(&self) -> Result<u64> {
        match self.place {
            Place::Device(mapping, start) => mapping.page_frame(start),
            Place::Ram(address) => direct_map::page_frame(address),
        }
    }

    /// Where the kernel has it mapped, as a number. It stays there until the session ends.
    pub(crate) fn kernel_address(&self) -> Result<usize> {
        match self.place {
            Place::Device(mapping, start) => mapping.address(start),
            Place::Ram(address) => direct_map::kernel_address(address),
        }
    }

    /// Whether processes map it write-combining.
    pub(crate) fn is_write_combined(&self) -> bool {
        matches!(self.place, Place::Device(..))
    }
}

/// Orders the stores before it with the stores and doorbells after it, on all paths.
pub(crate) fn flush_writes() {
    iomap::flush_writes();
}
