// SPDX-License-Identifier: LGPL-2.1

//! The memory of a local segment: none at first, then pinned, and windows of it.
//!
//! Importers of the segment keep the memory, even when the program has removed the segment.
//!
//! Lock: `windows`, a leaf. A window is made under the lock, which does not wait for programs.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::Weak;

use crate::channel::Channel;
use crate::endpoint::Endpoint;
use crate::endpoint::PinnedMemory;
use crate::error::Error;
use crate::error::Result;
use crate::lock::lock;
use crate::memory::Memory;

/// The memory of a local segment, and its windows.
#[derive(Default)]
pub struct SegmentMemory {
    size: OnceLock<usize>,
    memory: OnceLock<Memory>,
    pinned: OnceLock<PinnedMemory>,
    windows: Mutex<Vec<Window>>,
}

/// A window of a connection to another segment, through which this memory is transferred.
struct Window {
    channel: Weak<Channel>,
    offset: i64,
}

impl SegmentMemory {
    /// Sets the memory. ILLEGAL_OPERATION: the segment has memory already.
    pub fn give(&self, size: usize, memory: Memory) -> Result<()> {
        self.memory
            .set(memory)
            .map_err(|_| Error::ILLEGAL_OPERATION)?;
        self.size.set(size).map_err(|_| Error::ILLEGAL_OPERATION)
    }

    /// Sets memory that is pinned from the beginning.
    pub fn give_pinned(&self, size: usize, memory: Memory) -> Result<()> {
        let pinned = memory.pin()?;
        self.give(size, memory)?;
        let _ = self.pinned.set(pinned);
        Ok(())
    }

    /// Pins the memory.
    pub fn pin(&self) -> Result<()> {
        let pinned = self.get()?.pin()?;
        let _ = self.pinned.set(pinned);
        Ok(())
    }

    /// Returns the size in bytes that a program is told; 0 if there is no memory.
    pub fn size(&self) -> usize {
        self.size.get().copied().unwrap_or(0)
    }

    /// Returns the memory; ILLEGAL_OPERATION if there is none.
    pub fn get(&self) -> Result<&Memory> {
        self.memory.get().ok_or(Error::ILLEGAL_OPERATION)
    }

    /// Returns SEGMENT_NOT_PREPARED before the memory is pinned.
    pub fn check_pinned(&self) -> Result<()> {
        self.pinned().map(drop)
    }

    fn pinned(&self) -> Result<&PinnedMemory> {
        self.pinned.get().ok_or(Error::SEGMENT_NOT_PREPARED)
    }

    /// Makes all of the memory a window of a connection, at this offset or at any. Returns the
    /// offset.
    pub fn register(&self, endpoint: &Endpoint, offset: Option<i64>) -> Result<i64> {
        let length = self.get()?.len() as u64;
        Ok(endpoint.register(self.pinned()?, 0..length, offset)?)
    }

    /// Returns the offset of the memory's window in a connection to another segment. Makes the
    /// window if there is none.
    pub fn window(&self, channel: &Arc<Channel>) -> Result<u64> {
        let mut windows = lock(&self.windows);
        let is_of = |window: &&Window| core::ptr::eq(window.channel.as_ptr(), &**channel);
        if let Some(window) = windows.iter().find(is_of) {
            return Ok(window.offset as u64);
        }
        let offset = self.register(&channel.endpoint, None)?;
        windows.retain(|other| other.channel.strong_count() > 0);
        windows.push(Window {
            channel: Arc::downgrade(channel),
            offset,
        });
        Ok(offset as u64)
    }

    /// Unregisters the windows in connections to other segments. A connection that has ended has no
    /// windows any more.
    pub fn end_windows(&self) {
        let Ok(memory) = self.get() else { return };
        let length = memory.len() as u64;
        let windows = core::mem::take(&mut *lock(&self.windows));
        for window in windows {
            if let Some(channel) = window.channel.upgrade() {
                let _ = channel.endpoint.unregister(window.offset, length);
            }
        }
    }
}
