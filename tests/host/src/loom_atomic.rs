// SPDX-License-Identifier: GPL-2.0

//! The atomic integer of `drivers/misc/scif/logic/atomic.rs`, over loom's atomics.
//!
//! The operations have the same ordering as the kernel's. Loads acquire, and stores release. An
//! operation that does both is fully ordered. A failed compare-exchange orders nothing.

use loom::sync::atomic;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// A 64-bit integer that may be shared between threads.
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    /// Wraps a value.
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    /// Reads the value. Later accesses are not moved before the read.
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Writes the value. Earlier accesses are not moved behind the write.
    pub(crate) fn store(&self, value: u64) {
        // Uses an exchange. Loom does not order plain stores among the exchanges of other threads,
        // and lets an exchange succeed over a store that it has not seen.
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

    /// Writes `new` if the value is `old`. Returns the value before, as `Ok` if it was `old`.
    pub(crate) fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.compare_exchange(old, new, SeqCst, Relaxed)
    }
}
