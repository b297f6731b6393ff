// SPDX-License-Identifier: GPL-2.0

//! The atomic integer of `drivers/misc/scif/logic/atomic.rs`, over loom's atomics.
//!
//! The same operations with the same ordering: loads acquire, what writes is fully ordered, and a
//! compare-exchange that fails orders nothing.

use loom::sync::atomic;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

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
