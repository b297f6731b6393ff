// SPDX-License-Identifier: GPL-2.0

//! How much memory the large rings of this node have, all together.
//!
//! A ring that is full grows, and who has many connections can fill many. Each is charged to its
//! owner, but not every system limits what an owner may have. So only a part of the memory is for what
//! rings have beyond the [`COMMON`] size, which each may have; who comes too late stays at that.

use crate::sys::reached;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// Bytes of a ring that are not counted.
pub(super) const COMMON: u32 = 1 << 16;

/// Large rings have one part in so many of this node's memory.
const PARTS: u64 = 16;

/// Bytes of all shares.
static TAKEN: Atomic<u64> = Atomic::new(0);

/// So many bytes of the memory for large rings; given back when dropped.
pub(super) struct Share(u64);

impl Share {
    /// None if there is not so much left. Any context.
    pub(super) fn take(bytes: u32) -> Option<Self> {
        Self::take_of(reached::end_of_memory() / PARTS, bytes.into())
    }

    fn take_of(limit: u64, bytes: u64) -> Option<Self> {
        let before = TAKEN.fetch_add(bytes, Relaxed);
        // Gives them back if they are refused.
        let share = Self(bytes);
        (before.saturating_add(bytes) <= limit).then_some(share)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.0, Relaxed);
    }
}

#[kunit_tests(scif_endpoint_ring_budget)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let before = TAKEN.load(Relaxed);
        let (first, second) = (
            Share::take_of(before + 100, 60),
            Share::take_of(before + 100, 60),
        );
        assert!(first.is_some() && second.is_none());
        drop(first);
        let again = Share::take_of(before + 100, 100);
        assert!(again.is_some());
        drop(again);
        assert_eq!(TAKEN.load(Relaxed), before);
    }
}
