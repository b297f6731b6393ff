// SPDX-License-Identifier: GPL-2.0

//! Index arithmetic of a byte ring that two nodes share.
//!
//! The producer counts the bytes it has put in, the consumer those it has taken out. Both counters
//! run freely through all of `u32` and wrap; the place in the ring is the counter modulo the size.
//! As the size is a power of two and at most 2^30, "full" and "empty" stay different and a
//! difference above the size can only be a lie or a broken bus.
//!
//! One of the two counters always comes from the peer: read it **once** from shared memory, give
//! that copy to [`Geometry::used`] or [`Geometry::free`], and treat [`Corrupt`] as the end of the
//! connection. What passes that check can be used without any further one: [`Geometry::spans`]
//! never leaves the ring, whatever it is given.
//!
//! # Where a ring begins
//!
//! Who sends and receives much has memory that begins at a large power of two, as large mappings do, and
//! so does the memory of a large ring. Then each byte and its copy lie at the same place modulo any smaller
//! power of two, all the way, and what finds its entries by such places (the caches of translations of
//! emulated processors, the sets of caches) finds both at one. So the first byte does not lie at offset
//! 0, but at [`SKEW`], an odd number of pages.
//!
//! This file moves no bytes and orders no memory accesses; that is the caller's part.

/// The place of the byte with index 0, modulo the size; see the head of this file. Both ends have to agree.
pub(crate) const SKEW: u32 = 13 << 12;

/// The counters of a ring contradict each other: more bytes lie in it than it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt {
    /// The number of bytes ever put in, modulo 2^32.
    pub(crate) produced: u32,
    /// The number of bytes ever taken out, modulo 2^32.
    pub(crate) consumed: u32,
    /// What the ring can hold.
    pub(crate) size: u32,
}

/// The size of a ring.
///
/// # Invariants
///
/// `size` is a power of two and at most [`Geometry::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    size: u32,
}

impl Geometry {
    /// The largest ring: the counters can then never be mistaken for each other.
    pub(crate) const MAX: u32 = 1 << 30;

    /// A ring of `size` bytes, if that is a power of two not above [`Self::MAX`].
    pub(crate) const fn new(size: u32) -> Option<Self> {
        if size.is_power_of_two() && size <= Self::MAX {
            // INVARIANT: Just checked.
            Some(Self { size })
        } else {
            None
        }
    }

    /// How many bytes the ring holds.
    pub(crate) const fn size(&self) -> u32 {
        self.size
    }

    /// How many bytes wait to be taken out.
    pub(crate) const fn used(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        let used = produced.wrapping_sub(consumed);
        if used > self.size {
            return Err(Corrupt {
                produced,
                consumed,
                size: self.size,
            });
        }
        Ok(used)
    }

    /// How many bytes can be put in.
    pub(crate) const fn free(&self, produced: u32, consumed: u32) -> Result<u32, Corrupt> {
        match self.used(produced, consumed) {
            // `used` is at most the size.
            Ok(used) => Ok(self.size.wrapping_sub(used)),
            Err(corrupt) => Err(corrupt),
        }
    }

    /// Where the `len` bytes from counter value `index` on lie, as (offset, length) pairs.
    ///
    /// The second pair is empty unless the bytes wrap around the end. A `len` above the size is
    /// taken as the size, so that both pairs always lie inside the ring.
    pub(crate) const fn spans(&self, index: u32, len: u32) -> [(u32, u32); 2] {
        let len = if len > self.size { self.size } else { len };
        // The size is a power of two, so that `size - 1` is the mask of the offsets.
        let offset = index.wrapping_add(SKEW) & self.size.wrapping_sub(1);
        let to_end = self.size.wrapping_sub(offset);
        if len <= to_end {
            [(offset, len), (0, 0)]
        } else {
            [(offset, to_end), (0, len.wrapping_sub(to_end))]
        }
    }

    /// The counter value after `len` more bytes.
    pub(crate) const fn advance(index: u32, len: u32) -> u32 {
        index.wrapping_add(len)
    }
}

/// Whether a counter that goes from `before` to `after` gets to `wanted`, or beyond, just now.
///
/// Of all moves of a counter, one does: it is there that somebody who waits for `wanted` is woken. A
/// `wanted` that the counter is at, or has passed, is not reached any more, until it has wrapped.
pub(crate) const fn reaches(wanted: u32, before: u32, after: u32) -> bool {
    after.wrapping_sub(wanted) < after.wrapping_sub(before)
}

/// Whether a counter that is at `counter` has got to `wanted` within its last 2^31 steps.
pub(crate) const fn has_reached(wanted: u32, counter: u32) -> bool {
    counter.wrapping_sub(wanted) <= u32::MAX / 2
}
