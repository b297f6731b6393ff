// SPDX-License-Identifier: GPL-2.0

//! Counters of the data moved in one direction, for people and tools.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// The data moved in one direction so far. Each mover counts without a lock.
pub(crate) struct Flow {
    bytes: Atomic<u64>,
    times: Atomic<u64>,
}

/// A snapshot of a [`Flow`]. The two numbers may be of different moments.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// Number of moves.
    pub(crate) times: u64,
}

impl Flow {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Atomic::new(0),
            times: Atomic::new(0),
        }
    }

    /// Counts one more move, of `bytes` bytes.
    /// Context: any.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.add(bytes, Relaxed);
        self.times.add(1_u64, Relaxed);
    }

    /// Returns a snapshot.
    /// Context: any.
    pub(crate) fn moved(&self) -> Moved {
        Moved {
            bytes: self.bytes.load(Relaxed),
            times: self.times.load(Relaxed),
        }
    }
}
