// SPDX-License-Identifier: GPL-2.0

//! Ranges of numbers that are given out of all numbers. They are kept in a maple tree, which finds a gap in O(log n).
//!
//! What a number stands for is up to the owner: an offset of a connection, a unit of an aperture.
//!
//! Lock: that of the tree, a leaf.

use core::ops::Range;

use kernel::{
    alloc::{
        AllocError,
        Flags, //
    },
    maple_tree::{
        AllocErrorKind,
        InsertErrorKind,
        MapleTreeAlloc, //
    },
    prelude::*, //
};

/// Ranges of numbers that are taken; all others are free.
#[pin_data]
pub(crate) struct RangeAllocator {
    #[pin]
    tree: MapleTreeAlloc<()>,
}

// SAFETY: Nothing of it belongs to a thread; the tree, whose type does not say so, holds no values that could.
unsafe impl Send for RangeAllocator {}
// SAFETY: As above; the functions of the tree take its lock.
unsafe impl Sync for RangeAllocator {}

impl RangeAllocator {
    /// Makes one of which all is free.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- MapleTreeAlloc::new(),
        })
    }

    /// Takes the first `count` contiguous numbers that are free `within` a range, and returns the first of them.
    /// `ENOSPC` if there is no such gap. May sleep.
    pub(crate) fn take(&self, count: usize, within: Range<usize>, flags: Flags) -> Result<usize> {
        let taken = self.tree.alloc_range(count, (), within, flags);
        taken.map_err(|error| match error.cause {
            AllocErrorKind::AllocError(AllocError) => ENOMEM,
            // There is no gap, or it would be longer than all.
            _ => ENOSPC,
        })
    }

    /// Takes these numbers; `EADDRINUSE` if one of them is taken. May sleep.
    pub(crate) fn take_these(&self, numbers: Range<usize>, flags: Flags) -> Result {
        let taken = self.tree.insert_range(numbers, (), flags);
        taken.map_err(|error| match error.cause {
            InsertErrorKind::Occupied => EADDRINUSE,
            cause => cause.into(),
        })
    }

    /// Gives back what was taken, of which this is the first number. May sleep.
    pub(crate) fn give_back(&self, first: usize) {
        self.tree.erase(first);
    }
}

#[kunit_tests(scif_sys_range_allocator)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_taken_by_name_and_given_back() -> Result {
        let ranges = KBox::pin_init(RangeAllocator::new(), GFP_KERNEL)?;
        ranges.take_these(4..6, GFP_KERNEL)?;
        assert_eq!(ranges.take_these(5..7, GFP_KERNEL), Err(EADDRINUSE));
        assert_eq!(ranges.take_these(0..5, GFP_KERNEL), Err(EADDRINUSE));
        ranges.take_these(6..7, GFP_KERNEL)?;
        // Wherever the search begins, the first gap is taken.
        assert_eq!(ranges.take(3, 5..100, GFP_KERNEL)?, 7);
        assert_eq!(ranges.take(2, 3..100, GFP_KERNEL)?, 10);
        assert_eq!(ranges.take(4, 0..100, GFP_KERNEL)?, 0);
        ranges.give_back(4);
        assert_eq!(ranges.take(3, 0..12, GFP_KERNEL), Err(ENOSPC));
        assert_eq!(ranges.take(13, 0..12, GFP_KERNEL), Err(ENOSPC));
        Ok(())
    }
}
