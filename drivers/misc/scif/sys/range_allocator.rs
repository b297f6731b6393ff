// SPDX-License-Identifier: GPL-2.0

//! An allocator of ranges of numbers. A maple tree holds the taken ranges, and finds a gap in O(log
//! n).
//!
//! The owner decides what a number stands for: an offset of a connection, or a unit of an aperture.
//!
//! Lock: the lock of the tree, a leaf.

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

/// The ranges of numbers that are taken; all other numbers are free.
#[pin_data]
pub(crate) struct RangeAllocator {
    #[pin]
    tree: MapleTreeAlloc<()>,
}

// SAFETY: No part of it belongs to a thread. The type of the tree does not say so, but the tree
// holds no values that could.
unsafe impl Send for RangeAllocator {}
// SAFETY: As above; the functions of the tree take its lock.
unsafe impl Sync for RangeAllocator {}

impl RangeAllocator {
    /// Creates an allocator in which all numbers are free.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- MapleTreeAlloc::new(),
        })
    }

    /// Takes the first `count` contiguous free numbers `within` a range, and returns the first of
    /// them; `ENOSPC` if there is no such gap.
    /// Context: may sleep.
    pub(crate) fn take(&self, count: usize, within: Range<usize>, flags: Flags) -> Result<usize> {
        let taken = self.tree.alloc_range(count, (), within, flags);
        taken.map_err(|error| match error.cause {
            AllocErrorKind::AllocError(AllocError) => ENOMEM,
            // There is no gap, or `count` is larger than the whole range.
            _ => ENOSPC,
        })
    }

    /// Takes these numbers; `EADDRINUSE` if one of them is taken.
    /// Context: may sleep.
    pub(crate) fn take_these(&self, numbers: Range<usize>, flags: Flags) -> Result {
        let taken = self.tree.insert_range(numbers, (), flags);
        taken.map_err(|error| match error.cause {
            InsertErrorKind::Occupied => EADDRINUSE,
            cause => cause.into(),
        })
    }

    /// Gives back the range that begins with this number.
    /// Context: may sleep.
    pub(crate) fn give_back(&self, first: usize) {
        self.tree.erase(first);
    }
}

#[kunit_tests(scif_sys_range_allocator)]
mod tests {
    use super::*;

    #[test]
    fn allocated_ranges_never_overlap() -> Result {
        let ranges = KBox::pin_init(RangeAllocator::new(), GFP_KERNEL)?;
        ranges.take_these(4..6, GFP_KERNEL)?;
        assert_eq!(ranges.take_these(5..7, GFP_KERNEL), Err(EADDRINUSE));
        assert_eq!(ranges.take_these(0..5, GFP_KERNEL), Err(EADDRINUSE));
        ranges.take_these(6..7, GFP_KERNEL)?;
        // The first gap is taken, wherever the search begins.
        assert_eq!(ranges.take(3, 5..100, GFP_KERNEL)?, 7);
        assert_eq!(ranges.take(2, 3..100, GFP_KERNEL)?, 10);
        assert_eq!(ranges.take(4, 0..100, GFP_KERNEL)?, 0);
        ranges.give_back(4);
        assert_eq!(ranges.take(3, 0..12, GFP_KERNEL), Err(ENOSPC));
        assert_eq!(ranges.take(13, 0..12, GFP_KERNEL), Err(ENOSPC));
        Ok(())
    }
}
