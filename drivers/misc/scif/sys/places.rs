// SPDX-License-Identifier: GPL-2.0

//! Places in a range of which pieces are given out, kept in a maple tree of the kernel: it finds a gap in O(log n).
//!
//! Who takes one holds a lock of his own, and nobody else takes one meanwhile.

use core::ops::Range;

use kernel::{
    maple_tree::{
        AllocErrorKind,
        MapleTreeAlloc, //
    },
    prelude::*, //
};

use crate::logic::window_set::Shape;

/// Takes `units` that are contiguous, and says which is the first. `ENOSPC` if there is no such gap. May sleep.
pub(super) fn take(
    places: &MapleTreeAlloc<()>,
    units: usize,
    within: Range<usize>,
) -> Result<usize> {
    let taken = places.alloc_range(units, (), within, GFP_KERNEL);
    taken.map_err(|error| match error.cause {
        AllocErrorKind::AllocError(_) => ENOMEM,
        // There is no gap, or it would be longer than all.
        _ => ENOSPC,
    })
}

/// As [`take`], from all of `shape`, whose bytes are counted in units of `unit`; they cross no seam.
pub(super) fn take_in_a_part(
    places: &MapleTreeAlloc<()>,
    units: usize,
    shape: Shape,
    unit: usize,
) -> Result<usize> {
    for part in shape.seams.ranges(usize::try_from(shape.len)?) {
        match take(places, units, part.start / unit..part.end / unit) {
            Err(ENOSPC) => (),
            taken => return taken,
        }
    }
    Err(ENOSPC)
}
