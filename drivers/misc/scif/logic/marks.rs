// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of RMA operations, and the fence marks made of them.
//!
//! Every RMA of an endpoint gets the next number. Operations complete in any order; the *watermark*
//! is the number up to which all are complete, so that waiting for a fence is waiting for one
//! number. At most [`WINDOW`] operations can be outstanding; a bitmap of that size holds those that
//! completed above the watermark.
//!
//! A mark is what user space gets to see of a number: a positive 32-bit integer with its low 29
//! bits. It comes back from user space at any time, forged or years old, and is believed only if
//! it can have been handed out within the last 2^28 operations. A mark further behind is unknown,
//! or taken for a later one once the bits have come round: the wait is then too long, not too
//! short, and never endless, as only numbers that were issued are waited for.
//!
//! No locking: the caller has a lock around the tracker anyway.

/// How many operations can be outstanding.
pub(crate) const WINDOW: u64 = 1024;

const BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / BITS) as usize;

/// The number of an RMA operation; the first is 1, and 0 comes before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sequence(pub(crate) u64);

/// Which operations are complete.
///
/// # Invariants
///
/// - `watermark <= last` and `last - watermark <= WINDOW`.
/// - The bit of a number (modulo [`WINDOW`]) is set exactly if that number is in
///   `watermark + 2 ..= last` and complete.
#[derive(Debug)]
pub(crate) struct MarkTracker {
    last: u64,
    watermark: u64,
    done: [u64; WORDS],
}

/// The word of a number in the bitmap and its bit in that word.
const fn locate(sequence: u64) -> (usize, u64) {
    let index = sequence % WINDOW;
    (
        (index / BITS) as usize,
        1_u64.wrapping_shl((index % BITS) as u32),
    )
}

impl MarkTracker {
    /// A tracker that has seen no operation.
    pub(crate) const fn new() -> Self {
        // INVARIANT: The numbers are equal and no bit is set.
        Self {
            last: 0,
            watermark: 0,
            done: [0; WORDS],
        }
    }

    /// Starts an operation. `None` if [`WINDOW`] of them are outstanding: wait for the watermark
    /// to move.
    pub(crate) fn begin(&mut self) -> Option<Sequence> {
        if self.last.saturating_sub(self.watermark) >= WINDOW {
            return None;
        }
        // INVARIANT: The difference was below `WINDOW`. The bit of the new number is clear: the
        // number with the same bit before it is at or below the watermark.
        self.last = self.last.checked_add(1)?;
        Some(Sequence(self.last))
    }

    /// Ends an operation, in any order. Returns whether the watermark moved: then wake the waiters.
    ///
    /// A number that is not outstanding is ignored.
    pub(crate) fn complete(&mut self, sequence: Sequence) -> bool {
        if sequence.0 <= self.watermark || sequence.0 > self.last {
            return false;
        }
        if sequence.0.saturating_sub(1) != self.watermark {
            let (index, bit) = locate(sequence.0);
            if let Some(word) = self.done.get_mut(index) {
                // INVARIANT: Outstanding, not the next one, and complete now.
                *word |= bit;
            }
            return false;
        }
        // INVARIANT: Moves over numbers that are complete only; their bits are cleared.
        self.watermark = sequence.0;
        while self.watermark < self.last {
            let next = self.watermark.saturating_add(1);
            let (index, bit) = locate(next);
            match self.done.get_mut(index) {
                Some(word) if *word & bit != 0 => *word &= !bit,
                _ => break,
            }
            self.watermark = next;
        }
        true
    }

    /// All operations up to this one are complete.
    pub(crate) fn watermark(&self) -> Sequence {
        Sequence(self.watermark)
    }

    /// The operation that was started last.
    pub(crate) fn last_issued(&self) -> Sequence {
        Sequence(self.last)
    }

    /// Whether this operation and all before it are complete.
    pub(crate) fn is_complete(&self, sequence: Sequence) -> bool {
        sequence.0 <= self.watermark
    }
}

/// Whose operations a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Those that this endpoint started.
    Own,
    /// Those that the peer's endpoint started.
    Peer,
}

/// No mark that can have been handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

/// The low bits of the sequence number in a mark.
const SEQUENCE_MASK: u32 = (1 << 29) - 1;
/// Set in marks for the peer's operations.
const PEER_BIT: u32 = 1 << 29;
/// Set in all marks, so that none is zero and few numbers are marks by accident.
const MARK_BIT: u32 = 1 << 30;
/// How far behind the last operation a mark can be.
const MAX_DISTANCE: u64 = 1 << 28;

/// The mark for all operations up to `sequence`; greater than zero.
pub(crate) const fn encode(sequence: Sequence, origin: Origin) -> i32 {
    let origin = match origin {
        Origin::Own => 0,
        Origin::Peer => PEER_BIT,
    };
    // The top bit is clear, so that the number stays positive.
    (MARK_BIT | origin | (sequence.0 as u32 & SEQUENCE_MASK)) as i32
}

/// Whose operations `mark` stands for: which last number to give to [`decode`].
pub(crate) const fn origin(mark: i32) -> Result<Origin, Unknown> {
    let bits = mark as u32;
    if mark < 0 || bits & MARK_BIT == 0 {
        return Err(Unknown);
    }
    if bits & PEER_BIT == 0 {
        Ok(Origin::Own)
    } else {
        Ok(Origin::Peer)
    }
}

/// The operations that `mark` stands for, where `last_issued` is the last of that origin.
pub(crate) const fn decode(
    mark: i32,
    last_issued: Sequence,
) -> Result<(Origin, Sequence), Unknown> {
    let origin = match origin(mark) {
        Ok(origin) => origin,
        Err(unknown) => return Err(unknown),
    };
    let low = (mark as u32 & SEQUENCE_MASK) as u64;
    let distance = last_issued.0.wrapping_sub(low) & SEQUENCE_MASK as u64;
    if distance > MAX_DISTANCE {
        return Err(Unknown);
    }
    match last_issued.0.checked_sub(distance) {
        Some(sequence) => Ok((origin, Sequence(sequence))),
        None => Err(Unknown),
    }
}
