// SPDX-License-Identifier: GPL-2.0

//! Places in a range of which pieces are given out, kept in a maple tree, which finds a gap in O(log n).
//!
//! Places are counted in units, whatever those are for the owner of the range.
//!
//! Lock: `taking` is taken by who takes a place in several steps; nothing is taken under it but the lock of the tree.

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
    new_mutex,
    prelude::*,
    sync::Mutex, //
};

use crate::logic::window_set::Shape;

/// See the head of this file.
#[pin_data]
pub(crate) struct Places {
    #[pin]
    tree: MapleTreeAlloc<()>,
    #[pin]
    taking: Mutex<()>,
}

// SAFETY: Nothing of it belongs to a thread; the tree, whose type does not say so, holds no values that could.
unsafe impl Send for Places {}
// SAFETY: As above; the functions of the tree take its lock.
unsafe impl Sync for Places {}

impl Places {
    /// All are free.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tree <- MapleTreeAlloc::new(),
            taking <- new_mutex!((), "Places::taking"),
        })
    }

    /// Takes the first `units` that are contiguous, and says where they begin. `ENOSPC` if there is no such gap. May
    /// sleep.
    pub(crate) fn take(&self, units: usize, within: Range<usize>, flags: Flags) -> Result<usize> {
        let taken = self.tree.alloc_range(units, (), within, flags);
        taken.map_err(|error| match error.cause {
            AllocErrorKind::AllocError(AllocError) => ENOMEM,
            // There is no gap, or it would be longer than all.
            _ => ENOSPC,
        })
    }

    /// Takes these; `EADDRINUSE` if one of them is taken. May sleep.
    pub(crate) fn take_these(&self, units: Range<usize>, flags: Flags) -> Result {
        let taken = self.tree.insert_range(units, (), flags);
        taken.map_err(|error| match error.cause {
            InsertErrorKind::Occupied => EADDRINUSE,
            cause => cause.into(),
        })
    }

    /// Takes `units` of all of `shape`, whose bytes are counted in units of `unit`, that cross no seam. Else
    /// as [`Self::take`].
    pub(super) fn take_in_a_part(&self, units: usize, shape: Shape, unit: usize) -> Result<usize> {
        let _taking = self.taking.lock();
        for part in shape.seams.ranges(usize::try_from(shape.len)?) {
            match self.take(units, part.start / unit..part.end / unit, GFP_KERNEL) {
                Err(ENOSPC) => (),
                taken => return taken,
            }
        }
        Err(ENOSPC)
    }

    /// Takes `units` of the first `all`; if there is a `phase` and it can be, the first of them lies so far
    /// behind a multiple of `step`. Else as [`Self::take`].
    pub(super) fn take_at(
        &self,
        units: usize,
        all: usize,
        phase: Option<usize>,
        step: usize,
    ) -> Result<usize> {
        let _taking = self.taking.lock();
        if let Some(phase) = phase {
            // Wherever this begins, there is such a place in it.
            if let Ok(gap) = self.take(units.saturating_add(step - 1), 0..all, GFP_KERNEL) {
                self.tree.erase(gap);
                let first = gap + phase.wrapping_sub(gap) % step;
                self.take_these(first..first + units, GFP_KERNEL)?;
                return Ok(first);
            }
        }
        self.take(units, 0..all, GFP_KERNEL)
    }

    /// Gives back what was taken, of which this is the first.
    pub(crate) fn give_back(&self, first: usize) {
        self.tree.erase(first);
    }
}

#[kunit_tests(scif_sys_places)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_and_given_back() -> Result {
        let places = KBox::pin_init(Places::new(), GFP_KERNEL)?;
        let take = |units| places.take_in_a_part(units, Shape::in_one(8), 1);
        assert_eq!((take(3)?, take(5)?), (0, 3));
        assert_eq!(take(1), Err(ENOSPC));
        places.give_back(0);
        assert_eq!(take(4), Err(ENOSPC));
        assert_eq!((take(2)?, take(1)?), (0, 2));
        Ok(())
    }

    #[test]
    fn a_place_may_be_named() -> Result {
        let places = KBox::pin_init(Places::new(), GFP_KERNEL)?;
        places.take_these(4..6, GFP_KERNEL)?;
        assert_eq!(places.take_these(5..7, GFP_KERNEL), Err(EADDRINUSE));
        assert_eq!(places.take_these(0..5, GFP_KERNEL), Err(EADDRINUSE));
        places.take_these(6..7, GFP_KERNEL)?;
        // Wherever the search begins, the first gap is taken.
        assert_eq!(places.take(3, 5..100, GFP_KERNEL)?, 7);
        assert_eq!(places.take(2, 3..100, GFP_KERNEL)?, 10);
        assert_eq!(places.take(4, 0..100, GFP_KERNEL)?, 0);
        places.give_back(4);
        assert_eq!(places.take(3, 0..12, GFP_KERNEL), Err(ENOSPC));
        assert_eq!(places.take(13, 0..12, GFP_KERNEL), Err(ENOSPC));
        Ok(())
    }

    #[test]
    fn a_phase_is_kept_where_there_is_room() -> Result {
        let places = KBox::pin_init(Places::new(), GFP_KERNEL)?;
        assert_eq!(places.take_at(4, 24, Some(2), 8)?, 2);
        assert_eq!(places.take_at(4, 24, Some(2), 8)?, 10);
        // No gap is long enough to hold a phase for certain.
        assert_eq!(places.take_at(4, 24, Some(2), 8)?, 6);
        assert_eq!(places.take_at(8, 24, None, 8)?, 14);
        assert_eq!(places.take_at(4, 24, Some(2), 8), Err(ENOSPC));
        Ok(())
    }
}
