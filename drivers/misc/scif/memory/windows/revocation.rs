// SPDX-License-Identifier: GPL-2.0

//! Windows that one call unregisters: how many of them the peer has not answered for.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full, //
        },
        Arc, //
    },
};

/// See the head of this file.
pub(super) struct Revocation {
    left: Atomic<usize>,
}

impl Revocation {
    /// Of so many windows.
    pub(super) fn new(count: usize) -> Result<Arc<Self>> {
        let all = Self {
            left: Atomic::new(count),
        };
        Ok(Arc::new(all, GFP_KERNEL)?)
    }

    /// The peer has answered for one more. Says whether it was the last.
    pub(super) fn one_is_done(&self) -> bool {
        self.left.fetch_sub(1, Full) == 1
    }

    /// Whether it has answered for all.
    pub(super) fn is_done(&self) -> bool {
        self.left.load(Acquire) == 0
    }
}
