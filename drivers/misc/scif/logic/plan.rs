// SPDX-License-Identifier: GPL-2.0

//! Planning an RMA: pairing two scattered memories into straight copies.
//!
//! Both sides of a copy are walks over runs of contiguous addresses (see [`Walk`]). A [`Plan`]
//! goes along both and yields segments in which either side is contiguous, none longer than the
//! engine takes ([`longest_segment`]). Nothing is allocated and nothing is looked at twice.
//!
//! Addresses are only numbers here: bus addresses for an engine, offsets for a CPU copy. Whether a
//! segment may be touched was decided before, when the walks were made.

/// A memory as a sequence of contiguous runs.
pub(crate) trait Walk {
    /// The next run as (address, length), at most `limit` bytes of it; the walk then stands behind
    /// those bytes. `None` if there are no more.
    fn next(&mut self, limit: u64) -> Option<(u64, u64)>;
}

/// A memory that is contiguous as a whole; none by default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linear {
    address: u64,
    len: u64,
}

impl Linear {
    /// The `len` bytes from `address` on; `None` if they go beyond the end of the addresses.
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
    /// Where the bytes go.
    pub(crate) destination: u64,
    /// Where the bytes come from.
    pub(crate) source: u64,
    /// How many; not zero, and not above the largest segment.
    pub(crate) len: u64,
}

impl Segment {
    /// Its first `most` bytes (at least 1), and what is left behind them.
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

/// A walk ended before the copy did, or gave a run that cannot be.
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
    /// What is left of the runs that they have given.
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

/// The unit in which the end of an ordered copy becomes visible.
pub(crate) const CACHE_LINE: u64 = 64;

/// Splits an ordered copy into a body and a tail that has to become visible after it.
///
/// The tail is what lies in the last, perhaps partial, cache line of the `len` bytes at `address`.
/// `SCIF_RMA_ORDERED` speaks of the lines of the **source**: give its address (offsets will do, as
/// windows are page aligned). Returns (body length, tail length); only an empty copy has no tail.
pub(crate) fn split_tail(address: u64, len: u64) -> (u64, u64) {
    // Only the low bits of the last byte's address count, which wrapping leaves alone.
    let last = address.wrapping_add(len.wrapping_sub(1));
    let tail = len.min((last % CACHE_LINE).wrapping_add(1));
    (len.wrapping_sub(tail), tail)
}

/// What the PCI core declares for drivers that say nothing. Every engine takes as much.
pub(crate) const UNDECLARED: u64 = 64 << 10;

/// No more than this, whatever the engine could do: others want their turn.
pub(crate) const LONGEST: u64 = 1 << 20;

/// How many bytes an engine is offered in one descriptor, of which the device declares this.
///
/// Each descriptor costs the engine and its driver something, so the fewer the better. What a driver
/// declares is believed. Most declare nothing, and then the PCI core's word for "unknown" stands there: such an
/// engine is offered much, and [`UNDECLARED`] where it does not take that.
pub(crate) fn longest_segment(declared: u64) -> u64 {
    match declared {
        UNDECLARED => LONGEST,
        said => said.clamp(1, LONGEST),
    }
}
