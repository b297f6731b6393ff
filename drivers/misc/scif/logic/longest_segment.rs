// SPDX-License-Identifier: GPL-2.0

//! How many bytes an engine takes in one descriptor.
//!
//! Each descriptor costs the engine and its driver something, so the fewer the better. What a driver
//! declares is believed. Most declare nothing, and then the PCI core's word for "unknown" stands there;
//! some of them take any length, some refuse what is too long when it is offered to them. So such an engine
//! is offered much, and less once it has refused that while it had nothing else to do: then its ring
//! was not full. One that never has nothing to do is offered less when it has taken nothing of that length for
//! very many times that it was asked.

use super::{
    atomic::AtomicU64,
    update::update, //
};

/// What the PCI core declares for drivers that say nothing. Every engine takes as much.
pub(crate) const UNSAID: u64 = 64 << 10;

/// No more than this, whatever the engine could do: others want their turn.
pub(crate) const MOST: u64 = 1 << 20;

/// So many refusals in a row are not because of a full ring.
pub(crate) const MANY: u64 = 1000;

/// See the head of this file.
pub(crate) struct LongestSegment {
    bytes: AtomicU64,
    /// How often it has refused much since it has taken as much.
    refusals: AtomicU64,
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
            refusals: AtomicU64::new(0),
        }
    }

    /// How many bytes it is to be given at once.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load()
    }

    /// It has taken so many.
    pub(crate) fn was_taken(&self, len: u64) {
        if len > UNSAID && self.refusals.load() != 0 {
            let _ = update(&self.refusals, |_| Some(0));
        }
    }

    /// It has refused so many, and had nothing to do before if it `was_idle`. Says whether it is to be offered
    /// less.
    pub(crate) fn refused(&self, len: u64, was_idle: bool) -> bool {
        if len <= UNSAID || !was_idle && self.refusals.fetch_add(1) < MANY {
            return false;
        }
        let _ = update(&self.refusals, |_| Some(0));
        // The next power of two below, so that pieces stay aligned.
        let less = 1 << len.saturating_sub(1).ilog2();
        update(&self.bytes, |now| (now > less).then_some(less));
        true
    }
}
