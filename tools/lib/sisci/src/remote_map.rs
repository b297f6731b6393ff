// SPDX-License-Identifier: LGPL-2.1

//! A mapped part of a remote segment. Its address stays the same as long as the map lives, whatever
//! connection is behind it.
//!
//! Locks: `area`, `starts`: leaves.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::endpoint;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::memory::map_error;

/// A mapped part of a remote segment.
pub struct RemoteMap {
    offset: u64,
    writable: bool,
    address: usize,
    area: Mutex<Option<Mapping>>,
    /// The epochs in which its sequences were started.
    starts: Mutex<Vec<&'static AtomicU64>>,
}

/// The epoch of a sequence whose segment is lost: no node has it.
pub const NEVER: u64 = 0;

impl RemoteMap {
    /// Maps the part.
    pub fn new(
        endpoint: &Endpoint,
        offset: u64,
        len: usize,
        writable: bool,
        place: Place,
    ) -> Result<Arc<Self>> {
        let area = endpoint
            .map(offset, len, writable, place)
            .map_err(map_error)?;
        Ok(Arc::new(Self {
            offset,
            writable,
            address: area.address() as usize,
            area: Mutex::new(Some(area)),
            starts: Mutex::new(Vec::new()),
        }))
    }

    /// Adds the start of a sequence, which must learn if the segment is lost.
    pub fn has_sequence(&self, start: &'static AtomicU64) {
        lock(&self.starts).push(start);
    }

    /// Forgets the start of a sequence that is removed.
    pub fn sequence_gone(&self, start: &'static AtomicU64) {
        lock(&self.starts).retain(|other| !core::ptr::eq(*other, start));
    }

    /// Marks all sequences as not started, because the segment is lost.
    pub fn lost(&self) {
        for start in lock(&self.starts).iter() {
            start.store(NEVER, Relaxed);
        }
    }

    /// Returns the address.
    pub fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Maps the same part through another connection.
    pub fn renew(&self, endpoint: &Endpoint) -> endpoint::Result<()> {
        let mut area = lock(&self.area);
        let Some(old) = &*area else { return Ok(()) };
        let (len, place) = (old.len(), Place::Over(old.address()));
        let new = endpoint.map(self.offset, len, self.writable, place)?;
        // The new area has replaced the old one.
        if let Some(old) = area.replace(new) {
            old.forget();
        }
        Ok(())
    }

    /// Unmaps the part.
    pub fn unmap(&self) {
        let area = lock(&self.area).take();
        drop(area);
    }
}
