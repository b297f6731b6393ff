// SPDX-License-Identifier: GPL-2.0

//! Whether there are fewer engines than are wanted, so that some are asked for now and then.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};

/// See the head of this file. All functions: any context.
pub(super) struct Shortage {
    is_short: Atomic<bool>,
    /// One has stopped although its driver is there: asked for again it would stop again, and who uses it would
    /// have to wait.
    has_hung: Atomic<bool>,
}

impl Shortage {
    /// Nobody has asked for any.
    pub(super) const fn new() -> Self {
        Self {
            is_short: Atomic::new(false),
            has_hung: Atomic::new(false),
        }
    }

    /// An engine has stopped; its driver may be gone.
    pub(super) fn lost(&self, is_driver_gone: bool) {
        match is_driver_gone {
            true => self.is_short.store(true, Relaxed),
            false => self.has_hung.store(true, Relaxed),
        }
    }

    /// All that there are have been asked for.
    pub(super) fn asked(&self, is_short: bool) {
        self.is_short.store(is_short, Relaxed);
    }

    /// One that has hung may be asked for once more.
    pub(super) fn forgive(&self) {
        self.has_hung.store(false, Relaxed);
    }

    /// Whether it is worth while to ask.
    pub(super) fn is_to_be_asked(&self) -> bool {
        self.is_short.load(Relaxed) && !self.has_hung.load(Relaxed)
    }
}
