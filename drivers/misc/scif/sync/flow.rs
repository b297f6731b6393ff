// SPDX-License-Identifier: GPL-2.0

//! How much has gone one way, for people and tools.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// What has gone one way, ever: counted without a lock, by whoever moves something.
pub(crate) struct Flow {
    bytes: Atomic<u64>,
    times: Atomic<u64>,
}

/// A look at a [`Flow`]. The two numbers may be of different moments.
#[derive(Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    /// How often something was moved.
    pub(crate) times: u64,
}

impl Flow {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Atomic::new(0),
            times: Atomic::new(0),
        }
    }

    /// So many bytes more have gone, at once. Any context.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.add(bytes, Relaxed);
        self.times.add(1_u64, Relaxed);
    }

    /// Any context.
    pub(crate) fn moved(&self) -> Moved {
        Moved {
            bytes: self.bytes.load(Relaxed),
            times: self.times.load(Relaxed),
        }
    }
}
