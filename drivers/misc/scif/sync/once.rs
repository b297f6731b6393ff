// SPDX-License-Identifier: GPL-2.0

//! Something that anybody asks for, and that is done once, somewhere else.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

const NEW: u32 = 0;
const WANTED: u32 = 1;
const BEGUN: u32 = 2;

/// See the head of this file. All functions: any context.
pub(crate) struct Once(Atomic<u32>);

impl Once {
    /// Nobody has asked for it yet.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(NEW))
    }

    /// Asks for it; says whether nobody has before.
    pub(crate) fn want(&self) -> bool {
        self.0.load(Relaxed) == NEW && self.0.cmpxchg(NEW, WANTED, Full).is_ok()
    }

    /// Whether the caller is to do it now: it was asked for, and nobody has begun.
    pub(crate) fn begin(&self) -> bool {
        self.0.cmpxchg(WANTED, BEGUN, Full).is_ok()
    }
}

#[kunit_tests(scif_sync_once)]
mod tests {
    use super::*;

    #[test]
    fn it_is_done_once_and_not_unasked() {
        let once = Once::new();
        assert!(!once.begin());
        assert!(once.want() && !once.want());
        assert!(once.begin() && !once.begin());
        assert!(!once.want());
    }
}
