// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of the control ring.
//!
//! The ring is an array of 64-byte slots (`envelope.rs`) in the memory of the reader; the writer pushes
//! messages into it. The last 8 bytes of a slot hold the sequence number of its message and are written
//! after the rest, so that the number alone decides whether the slot holds the message the reader
//! waits for: no producer index crosses the bus. The first message has number 1, which makes zeroed
//! memory an empty ring; message `n` lies in slot `(n - 1) % slots`.
//!
//! The reader reports how many messages it has taken out; the writer never has more than `slots`
//! messages under way. Numbers are 64 bits wide and do not wrap in the lifetime of a machine; at
//! the end of the numbers the writer stops.
//!
//! The ring must be zeroed, and both ends made anew, whenever the link comes up.
//!
//! Neither end touches memory: reading and writing slots, in the right order, is the caller's part.

use core::num::{
    NonZeroU32,
    NonZeroU64, //
};

/// The peer's end of the ring contradicts ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// A slot holds a number that neither its last nor its next message has.
    Sequence {
        /// The number of the next message.
        expected: u64,
        /// The number in the slot.
        found: u64,
    },
    /// The reader reports fewer messages than it did before.
    Backwards {
        /// What it reported before.
        acknowledged: u64,
        /// What it reports now.
        consumed: u64,
    },
    /// The reader reports messages that were never written.
    Ahead {
        /// The number of messages written.
        written: u64,
        /// What the reader reports.
        consumed: u64,
    },
}

/// The slot of message `sequence`, which is at least 1.
fn slot_of(sequence: u64, slots: NonZeroU32) -> u32 {
    let slot = sequence.saturating_sub(1) % NonZeroU64::from(slots);
    // The remainder is below `slots`, a `u32`.
    slot as u32
}

/// The reading end: which message comes next, and where.
///
/// # Invariants
///
/// `next` is at least 1.
#[derive(Debug)]
pub(crate) struct SlotReader {
    next: u64,
    slots: NonZeroU32,
}

impl SlotReader {
    /// The reading end of a zeroed ring of `slots` slots; there must be at least one.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        // INVARIANT: `next` is 1.
        Some(Self {
            next: 1,
            slots: NonZeroU32::new(slots)?,
        })
    }

    /// The slot to look at, and the sequence number that makes it valid.
    pub(crate) fn expected(&self) -> (u32, u64) {
        (slot_of(self.next, self.slots), self.next)
    }

    /// Whether the number found in the expected slot says that the message is there.
    ///
    /// `Ok(false)` is the number that lies there before the message comes: zero, or that of the
    /// message one round ago. Any other number is an error: the writer has run over us.
    pub(crate) fn is_ready(&self, found: u64) -> Result<bool, Corrupt> {
        let last_round = self.next.saturating_sub(u64::from(self.slots.get()));
        if found == self.next {
            Ok(true)
        } else if found == last_round {
            // In the first round this is zero, because `next` is at most `slots` then.
            Ok(false)
        } else {
            Err(Corrupt::Sequence {
                expected: self.next,
                found,
            })
        }
    }

    /// Goes on to the next message, after the expected one was taken out.
    pub(crate) fn advance(&mut self) {
        // INVARIANT: `next` does not get smaller.
        self.next = self.next.saturating_add(1);
    }

    /// How many messages were taken out: what to report to the writer.
    pub(crate) fn consumed(&self) -> u64 {
        self.next.saturating_sub(1)
    }
}

/// The writing end: where the next message goes, and whether there is room.
///
/// # Invariants
///
/// `next` is at least 1; `acknowledged < next`; `next - 1 - acknowledged` is at most `slots`.
#[derive(Debug)]
pub(crate) struct SlotWriter {
    next: u64,
    acknowledged: u64,
    slots: NonZeroU32,
}

impl SlotWriter {
    /// The writing end of a zeroed ring of `slots` slots; there must be at least one.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        // INVARIANT: 1, 0 and a difference of 0.
        Some(Self {
            next: 1,
            acknowledged: 0,
            slots: NonZeroU32::new(slots)?,
        })
    }

    /// Takes the next slot: its index and the sequence number to write into it, last.
    ///
    /// `None` if the ring is full. What was reserved must be written: the reader stops at the
    /// first message that does not come.
    pub(crate) fn reserve(&mut self) -> Option<(u32, u64)> {
        if self.free() == 0 {
            return None;
        }
        let sequence = self.next;
        // INVARIANT: There was room for one more.
        self.next = sequence.checked_add(1)?;
        Some((slot_of(sequence, self.slots), sequence))
    }

    /// Takes note that the reader has taken out `consumed` messages since the beginning.
    pub(crate) fn acknowledge(&mut self, consumed: u64) -> Result<(), Corrupt> {
        if consumed < self.acknowledged {
            return Err(Corrupt::Backwards {
                acknowledged: self.acknowledged,
                consumed,
            });
        }
        if consumed > self.written() {
            return Err(Corrupt::Ahead {
                written: self.written(),
                consumed,
            });
        }
        // INVARIANT: `consumed` is at most `next - 1`, and the difference did not get larger.
        self.acknowledged = consumed;
        Ok(())
    }

    /// How many messages were reserved since the beginning.
    pub(crate) fn written(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// How many messages can be reserved now.
    pub(crate) fn free(&self) -> u32 {
        let under_way = self.written().saturating_sub(self.acknowledged);
        let free = u64::from(self.slots.get()).saturating_sub(under_way);
        // At most `slots`, a `u32`.
        free as u32
    }
}
