// SPDX-License-Identifier: GPL-2.0

//! The atomic integer of the logic, over the kernel's memory model.
//!
//! The logic also runs on the host, where loom explores all interleavings. There
//! `tests/host/src/atomic.rs` replaces this file. Both offer the same few operations. Loads
//! acquire, stores release, and operations that do both are fully ordered. A compare-exchange that
//! fails orders nothing.
//!
//! C header: [`include/linux/atomic.h`](srctree/include/linux/atomic.h)

use kernel::sync::atomic::{
    Acquire,
    Atomic,
    Full,
    Release, //
};

/// A 64-bit integer that may be shared between threads.
pub(crate) struct AtomicU64(Atomic<u64>);

impl AtomicU64 {
    /// Creates an integer with this value.
    pub(crate) const fn new(value: u64) -> Self {
        Self(Atomic::new(value))
    }

    /// Reads the value. Later accesses are not moved before this load.
    pub(crate) fn load(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Writes the value. Earlier accesses are not moved behind this store.
    pub(crate) fn store(&self, value: u64) {
        self.0.store(value, Release);
    }

    /// Writes the value, and returns the value before.
    pub(crate) fn swap(&self, value: u64) -> u64 {
        self.0.xchg(value, Full)
    }

    /// Adds, wrapping, and returns the value before.
    pub(crate) fn fetch_add(&self, value: u64) -> u64 {
        self.0.fetch_add(value, Full)
    }

    /// Subtracts, wrapping, and returns the value before.
    pub(crate) fn fetch_sub(&self, value: u64) -> u64 {
        self.0.fetch_sub(value, Full)
    }

    /// Writes `new` if the value is `old`. Returns the value before: `Ok` if that was `old`.
    pub(crate) fn compare_exchange(&self, old: u64, new: u64) -> Result<u64, u64> {
        self.0.cmpxchg(old, new, Full)
    }
}
