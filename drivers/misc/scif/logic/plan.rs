// SPDX-License-Identifier: GPL-2.0

//! Planning an RMA: pairing two scattered memories into straight copies.
//!
//! Both sides of a copy are walks over runs of contiguous addresses (see [`Walk`]). A [`Plan`] goes
//! along both, and yields segments in which both sides are contiguous. No segment is longer than
//! the engine takes ([`longest_segment`]). Nothing is allocated, and no run is read twice.
//!
//! Addresses are only numbers here: bus addresses for an engine, offsets for a CPU copy. The
//! creator of the walks has checked that the segments may be accessed.

/// A memory as a sequence of contiguous runs.
pub(crate) trait Walk {
    /// Returns the next run as (address, length), at most `limit` bytes of it, and moves behind
    /// these bytes. Returns `None` if there are no more.
    fn next(&mut self, limit: u64) -> Option<(u64, u64)>;
}

/// A memory that is one contiguous run; empty by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linear {
    address: u64,
    len: u64,
}

impl Linear {
    /// Creates the run of `len` bytes from `address` on. Returns `None` if the end overflows.
    pub(crate) fn new(address: u64, len: u64) -> Option<Self> {
        address.checked_add(len)?;
        Some(Self { address, len })
    }
}

impl Walk for Linear {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        let len = self.len.min(limit);
        if len == 0 {
            return None;
        }
        let address = self.address;
        self.address = address.checked_add(len)?;
        self.len = self.len.checked_sub(len)?;
        Some((address, len))
    }
}

/// One copy with both sides contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Address of the destination.
    pub(crate) destination: u64,
    /// Address of the source.
    pub(crate) source: u64,
    /// Number of bytes, not zero and not above the largest segment.
    pub(crate) len: u64,
}

impl Segment {
    /// Returns the first `most` bytes (at least 1), and the rest.
    pub(crate) fn split(self, most: u64) -> (Self, Option<Self>) {
        let head = self.len.min(most.max(1));
        let rest = Self {
            destination: self.destination.wrapping_add(head),
            source: self.source.wrapping_add(head),
            len: self.len.wrapping_sub(head),
        };
        let head = Self { len: head, ..self };
        (head, (rest.len > 0).then_some(rest))
    }
}

/// The error for a walk that ended before the copy did, or gave an impossible run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short;

/// Takes a new run from the walk if the last one is used up.
fn refill(rest: &mut Linear, walk: &mut impl Walk, limit: u64) -> Option<()> {
    if rest.len == 0 {
        let (address, len) = walk.next(limit)?;
        *rest = Linear::new(address, len).filter(|_| (1..=limit).contains(&len))?;
    }
    Some(())
}

/// An iterator over the segments of a copy.
///
/// It takes exactly the bytes of the copy from each walk.
///
/// An `Err` is the last item. It means that no complete copy is possible; segments before it are
/// good.
#[derive(Debug)]
pub(crate) struct Plan<D, S> {
    destination: D,
    source: S,
    /// The rest of each walk's current run.
    destination_rest: Linear,
    source_rest: Linear,
    remaining: u64,
    max_segment: u64,
}

impl<D: Walk, S: Walk> Plan<D, S> {
    /// Plans a copy of `len` bytes in segments of at most `max_segment` (at least 1) bytes.
    pub(crate) fn new(destination: D, source: S, len: u64, max_segment: u64) -> Self {
        Self {
            destination,
            source,
            destination_rest: Linear::default(),
            source_rest: Linear::default(),
            remaining: len,
            max_segment: max_segment.max(1),
        }
    }

    fn segment(&mut self) -> Option<Segment> {
        let limit = self.remaining;
        refill(&mut self.destination_rest, &mut self.destination, limit)?;
        refill(&mut self.source_rest, &mut self.source, limit)?;
        let len = self
            .destination_rest
            .len
            .min(self.source_rest.len)
            .min(self.max_segment);
        let remaining = self.remaining.checked_sub(len)?;
        let segment = Segment {
            destination: self.destination_rest.next(len)?.0,
            source: self.source_rest.next(len)?.0,
            len,
        };
        self.remaining = remaining;
        Some(segment)
    }
}

impl<D: Walk, S: Walk> Iterator for Plan<D, S> {
    type Item = Result<Segment, Short>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.remaining == 0 {
            return None;
        }
        let segment = self.segment().ok_or(Short);
        if segment.is_err() {
            self.remaining = 0;
        }
        Some(segment)
    }
}

/// The unit in which the completion of an ordered copy becomes visible.
pub(crate) const CACHE_LINE: u64 = 64;

/// Splits an ordered copy into a body and a tail that has to become visible after it.
///
/// The tail is the part in the last, perhaps partial, cache line of the `len` bytes at `address`.
/// `SCIF_RMA_ORDERED` refers to the lines of the **source**, so the caller gives its address (an
/// offset will do, as windows are page aligned). Returns (body length, tail length); only an empty
/// copy has no tail.
pub(crate) fn split_tail(address: u64, len: u64) -> (u64, u64) {
    // Wrapping does not change the low bits of the last byte's address, and only these count.
    let last = address.wrapping_add(len.wrapping_sub(1));
    let tail = len.min((last % CACHE_LINE).wrapping_add(1));
    (len.wrapping_sub(tail), tail)
}

/// Maximum segment size that the PCI core sets for drivers that declare none. Every engine takes as
/// much.
pub(crate) const UNDECLARED: u64 = 64 << 10;

/// Maximum bytes of a descriptor, whatever the engine could take: other users want their turn.
pub(crate) const LONGEST: u64 = 1 << 20;

/// Returns how many bytes to offer to an engine in one descriptor, if the device declares this
/// number.
///
/// Each descriptor costs the engine and its driver time, so few are better. The number that a
/// driver declares is used. Most declare none, and the device then has the default of the PCI core,
/// [`UNDECLARED`]. Such an engine is offered [`LONGEST`] bytes, and [`UNDECLARED`] if it refuses.
pub(crate) fn longest_segment(declared: u64) -> u64 {
    match declared {
        UNDECLARED => LONGEST,
        said => said.clamp(1, LONGEST),
    }
}
