// SPDX-License-Identifier: LGPL-2.1

//! A part of a remote segment, mapped: the same address as long as it lives, whatever connection is
//! behind it.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::Mutex;

use crate::endpoint;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::lock::lock;
use crate::mapping::Mapping;
use crate::mapping::Place;
use crate::memory::map_error;

/// See the head of this file.
pub struct RemoteMap {
    offset: u64,
    writable: bool,
    address: usize,
    area: Mutex<Option<Mapping>>,
}

impl RemoteMap {
    /// Maps it.
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
        }))
    }

    /// Where it begins.
    pub fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    /// Shows the same through another connection.
    pub fn renew(&self, endpoint: &Endpoint) -> endpoint::Result<()> {
        let mut area = lock(&self.area);
        let Some(old) = &*area else { return Ok(()) };
        let (len, place) = (old.len(), Place::Over(old.address()));
        let new = endpoint.map(self.offset, len, self.writable, place)?;
        // What was there has gone.
        if let Some(old) = area.replace(new) {
            old.forget();
        }
        Ok(())
    }

    /// Unmaps it.
    pub fn unmap(&self) {
        let area = lock(&self.area).take();
        drop(area);
    }
}
