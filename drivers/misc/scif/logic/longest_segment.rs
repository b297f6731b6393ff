// SPDX-License-Identifier: GPL-2.0

//! How many bytes an engine takes in one descriptor.
//!
//! Each descriptor costs the engine and its driver something, so the fewer the better. What a driver
//! declares is believed. Most declare nothing, and then the PCI core's word for "unknown" stands there;
//! some of them take any length, some refuse what is too long when it is offered to them. So such an engine
//! is offered much, and less once it has refused that while it had nothing else to do: then its ring
//! was not full.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// What the PCI core declares for drivers that say nothing. Every engine takes as much.
pub(crate) const UNSAID: u64 = 64 << 10;

/// No more than this, whatever the engine could do: others want their turn.
pub(crate) const MOST: u64 = 1 << 20;

/// See the head of this file.
pub(crate) struct LongestSegment {
    bytes: AtomicU64,
}

impl LongestSegment {
    /// Of an engine whose device declares this.
    pub(crate) fn declared(bytes: u64) -> Self {
        let bytes = match bytes {
            UNSAID => MOST,
            said => said.clamp(1, MOST),
        };
        Self {
            bytes: AtomicU64::new(bytes),
        }
    }

    /// How many bytes it is to be given at once.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load()
    }

    /// It had nothing to do, and has refused so many. Says whether it is to be offered less.
    pub(crate) fn refused(&self, len: u64) -> bool {
        if len <= UNSAID {
            return false;
        }
        // The next power of two below, so that pieces stay aligned.
        let less = 1 << len.saturating_sub(1).ilog2();
        update(&self.bytes, |now| (now > less).then_some(less));
        true
    }
}
