// SPDX-License-Identifier: GPL-2.0

//! The atomic integer of `drivers/misc/scif/logic/atomic.rs`, over loom's atomics.
//!
//! The same operations with the same ordering: loads acquire, stores release, what does both is fully ordered,
//! and a compare-exchange that fails orders nothing.

use loom::sync::atomic;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// A 64-bit integer that may be shared between threads.
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    /// Wraps a value.
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    /// Reads the value; what follows is not moved before it.
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Writes the value; what was done before is not moved behind it.
    pub(crate) fn store(&self, value: u64) {
        // Loom does not give plain stores a place among exchanges by others, and has one succeed over a store that it
        // has not seen.
        self.0.swap(value, Release);
    }

    /// Writes the value, and returns the value before.
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.0.swap(value, SeqCst)
    }

    /// Adds, wrapping, and returns the value before.
    pub(crate) fn fetch_add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, SeqCst)
    }

    /// Subtracts, wrapping, and returns the value before.
    pub(crate) fn fetch_sub(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, SeqCst)
    }

    /// Writes `new` if the value is `old`. Returns the value before: `Ok` if that was `old`.
    pub(crate) fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, SeqCst, Relaxed)
    }
}
