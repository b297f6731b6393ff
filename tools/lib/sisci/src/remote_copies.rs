// SPDX-License-Identifier: LGPL-2.1

//! A part of a remote segment that can't be mapped, as in bounce mode: the driver copies to it.
//!
//! The part has a descriptor of the connection for itself. Its number stays the same as long as the
//! object lives, whatever connection is behind it. So a copy takes no lock.

use std::sync::Arc;

use crate::endpoint;
use crate::endpoint::Copied;
use crate::endpoint::Direction;
use crate::endpoint::Endpoint;

/// A part of a remote segment, to which the driver copies this process's memory.
pub struct RemoteCopies {
    endpoint: Endpoint,
    offset: u64,
}

impl RemoteCopies {
    /// Prepares copies to the part at `offset`.
    pub fn new(endpoint: &Endpoint, offset: u64) -> endpoint::Result<Arc<Self>> {
        let endpoint = endpoint.duplicate()?;
        Ok(Arc::new(Self { endpoint, offset }))
    }

    /// Copies through another connection from now on.
    pub fn renew(&self, endpoint: &Endpoint) -> endpoint::Result<()> {
        self.endpoint.become_duplicate_of(endpoint)
    }

    /// Copies bytes at `from + at` to the same place of the part. Returns when they have arrived.
    /// If the node is away, the bytes are lost for it. Async-signal-safe.
    ///
    /// # Safety
    ///
    /// The memory has bytes up to `at + size`.
    pub unsafe fn copy(&self, from: *const u8, at: usize, size: usize) {
        let range = Copied {
            local: at as u64,
            remote: self.offset + at as u64,
            length: size as u64,
        };
        // SAFETY: The memory is only read, and exists by the contract of this function.
        let _ = unsafe {
            self.endpoint
                .copy_memory(Direction::Write, from.cast_mut().cast(), range, true)
        };
    }
}
