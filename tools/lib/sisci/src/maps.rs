// SPDX-License-Identifier: LGPL-2.1

//! Maps of segments into the program's address space.
//!
//! A map holds its segment, and nothing holds a map. Its sequences become stale with it, see
//! [`crate::sequences::release_map`].

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;

use crate::broadcast_map::BroadcastMap;
use crate::error::Error;
use crate::error::Result;
use crate::flags;
use crate::handles::Handle;
use crate::handles::Table;
use crate::import::Import;
use crate::local_segment;
use crate::local_segment::LocalUse;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::memory::page;
use crate::nodes;
use crate::remote_map::RemoteMap;
use crate::remote_segment;
use crate::remote_segment::RemoteUse;

/// All maps.
pub static MAPS: Table<Map> = Table::new(4);

/// A map of a segment, as a program has it.
pub struct Map {
    address: usize,
    size: usize,
    offset: usize,
    writable: bool,
    kind: Kind,
    sequences: Mutex<Vec<Handle>>,
}

// SAFETY: Handles are numbers.
unsafe impl Send for Map {}
// SAFETY: As for `Send`.
unsafe impl Sync for Map {}

/// The kind of memory that is mapped.
pub enum Kind {
    /// Memory of a local segment; no mapping if it is the program's own memory.
    Local(
        #[allow(dead_code)] Option<Mapping>,
        #[allow(dead_code)] LocalUse,
    ),
    /// Memory of another process.
    Remote(Arc<RemoteMap>, Arc<Import>, #[allow(dead_code)] RemoteUse),
    /// Memory of the members of a group.
    Broadcast(Arc<BroadcastMap>, #[allow(dead_code)] RemoteUse),
}

/// The part of a segment to map, and how to map it.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Offset in the segment.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// The address, if it is fixed.
    pub address: *mut c_void,
    /// The flags of `SCIMapLocalSegment()`.
    pub flags: u32,
}

/// Programs may begin a map at multiples of this, although memory is mapped in pages.
pub const GRAIN: usize = 8;

impl Wanted {
    /// Returns the offset of the map in its first page.
    fn within_page(&self) -> usize {
        self.offset % page()
    }

    /// Returns the offset of the first page, and the number of bytes from there to the end of the
    /// map.
    fn in_pages(&self) -> (usize, usize) {
        let within = self.within_page();
        (self.offset - within, self.size + within)
    }

    fn check(&self, segment: u64) -> Result<()> {
        if self.size == 0 {
            return Err(Error::ILLEGAL_PARAMETER);
        }
        if self.offset % GRAIN != 0 {
            return Err(Error::OFFSET_ALIGNMENT);
        }
        match self.offset.checked_add(self.size) {
            Some(end) if end as u64 <= segment => Ok(()),
            _ => Err(Error::OUT_OF_RANGE),
        }
    }

    fn place(&self) -> Result<Place> {
        if self.flags & flags::FIXED_MAP_ADDR == 0 {
            return Ok(Place::Any);
        }
        match (self.address as usize).checked_sub(self.within_page()) {
            None | Some(0) => Err(Error::ILLEGAL_ADDRESS),
            Some(begin) if begin % page() != 0 => Err(Error::ILLEGAL_ADDRESS),
            Some(begin) => Ok(Place::Exactly(begin as *mut c_void)),
        }
    }

    fn writable(&self) -> bool {
        self.flags & flags::READONLY_MAP == 0
    }

    /// Makes the handle of a map. `pages` is the address of its first page.
    fn publish(&self, pages: *mut c_void, kind: Kind) -> Result<(Handle, *mut c_void)> {
        let address = pages.wrapping_byte_add(self.within_page());
        let map = Arc::new(Map {
            address: address as usize,
            size: self.size,
            offset: self.offset,
            writable: self.writable(),
            kind,
            sequences: Mutex::new(Vec::new()),
        });
        Ok((MAPS.insert(map)?, address))
    }
}

/// Implements `SCIMapLocalSegment()`.
pub fn map_local(segment: Handle, wanted: Wanted) -> Result<(Handle, *mut c_void)> {
    let segment = local_segment::get(segment)?;
    let memory = segment.memory.get()?;
    wanted.check(segment.memory.size() as u64)?;
    let held = segment.hold()?;
    let (offset, size) = wanted.in_pages();
    let (address, mapping) = memory.map(offset, size, wanted.writable(), wanted.place()?)?;
    wanted.publish(address, Kind::Local(mapping, held))
}

/// Implements `SCIMapRemoteSegment()`.
pub fn map_remote(segment: Handle, wanted: Wanted) -> Result<(Handle, *mut c_void)> {
    let segment = remote_segment::get(segment)?;
    let import = segment.import()?;
    wanted.check(segment.size())?;
    let held = segment.hold()?;
    let (offset, size) = wanted.in_pages();
    let offset = offset as u64;
    if segment.is_broadcast() {
        let map = BroadcastMap::new(&segment, offset, size, wanted.place()?)?;
        return wanted.publish(map.address(), Kind::Broadcast(map, held));
    }
    let map = import.map(offset, size, wanted.writable(), wanted.place()?)?;
    wanted.publish(map.address(), Kind::Remote(map, import, held))
}

impl Map {
    /// Returns the address.
    pub fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Returns the offset in the segment.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns whether programs can store to it.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns where `offset` lies in the mapped pages.
    pub fn within(&self, offset: usize) -> usize {
        self.offset % page() + offset
    }

    /// Returns the kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Returns the address of a range of the map. OUT_OF_RANGE: the range is not inside.
    pub fn range(&self, offset: usize, size: usize) -> Result<*mut c_void> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok((self.address + offset) as *mut c_void),
            _ => Err(Error::OUT_OF_RANGE),
        }
    }

    /// Returns the node whose memory is mapped; this node for a local or a broadcast segment.
    pub fn node(&self) -> Result<u16> {
        match &self.kind {
            Kind::Remote(_, import, _) => Ok(import.node()),
            Kind::Local(..) | Kind::Broadcast(..) => nodes::own(),
        }
    }

    /// Adds a sequence that was made for the map.
    pub fn has_sequence(&self, sequence: Handle) {
        lock(&self.sequences).push(sequence);
    }

    /// Forgets a sequence that was removed.
    pub fn sequence_gone(&self, sequence: Handle) {
        lock(&self.sequences).retain(|other| *other != sequence);
    }

    /// Takes its sequences out.
    pub fn take_sequences(&self) -> Vec<Handle> {
        core::mem::take(&mut *lock(&self.sequences))
    }

    /// Unmaps the memory. Its sequences must be stale before.
    pub fn release(&self) {
        match &self.kind {
            // Dropping the map unmaps it.
            Kind::Local(..) => (),
            Kind::Remote(map, ..) => map.unmap(),
            Kind::Broadcast(map, _) => map.stop(),
        }
    }
}
