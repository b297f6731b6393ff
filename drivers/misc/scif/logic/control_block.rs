// SPDX-License-Identifier: GPL-2.0

//! The control block, into which the other side writes control messages: what lies where in it, and the
//! numbers of its slots.
//!
//! The block lies in the memory of the reader. It begins with words that are not messages; behind them lie
//! the ring of requests, an array of 64-byte slots (`envelope.rs`), an annex for each of its slots, the
//! ring of answers, which has as many slots, and the marks of news (`news.rs`).
//!
//! # Slots
//!
//! The last 8 bytes of a slot hold the sequence number of its message and are written after the rest, so that
//! the number alone decides whether the slot holds the message the reader waits for: no producer index crosses
//! the bus. The first message has number 1, which makes zeroed memory an empty ring; message `n` lies in slot
//! `(n - 1) % slots`.
//!
//! The reader reports how many messages it has taken out; the writer never has more than `slots`
//! messages under way. Numbers are 64 bits wide and do not wrap in the lifetime of a machine; at
//! the end of the numbers the writer stops.
//!
//! The ring must be zeroed, and both ends made anew, whenever the link comes up.
//!
//! # Annexes
//!
//! Some messages come with words that don't fit into their slot. The writer puts them into the annex of the
//! slot, words of 64 bits, little-endian, before it makes the slot valid. How many there are follows from the
//! message. Like the slot, the annex is the writer's again when the message was taken out; and like a
//! slot, it is read from a private copy.
//!
//! Neither end touches memory here: reading and writing slots, in the right order, is the caller's part.

use super::{
    envelope::SLOT_SIZE,
    news::News, //
};
use core::num::{
    NonZeroU32,
    NonZeroU64, //
};

/// Where the slots begin: behind the words that are not messages.
pub(crate) const SLOTS_OFFSET: usize = 256;

/// Messages after which the reader reports its progress, if there are more.
const REPORT_EVERY: u64 = 16;

/// Which of the two rings of a control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Messages whose receiver may have to answer.
    Requests,
    /// Messages whose receiver never sends anything because of them.
    Answers,
}

/// Answers that the handler of one request may have to send at once.
pub(crate) const ANSWERS_OF_ONE: u32 = 2;

/// The geometry of a control block.
///
/// A block is as large as it should be for the aperture through which the other side writes to it: an
/// aperture of 64 KiB must have room for other things. Both sides come to the same geometry, as each knows
/// the length of both apertures from the hellos.
///
/// # Invariants
///
/// `slots` is a power of two, and at least 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlGeometry {
    slots: u32,
}

/// The largest there is.
pub(crate) const LARGEST: ControlGeometry = ControlGeometry { slots: 256 };

impl ControlGeometry {
    /// Of the block that the other side writes through an aperture of so many bytes.
    pub(crate) const fn for_aperture(len: u64) -> Self {
        if len >= 4 << 20 {
            return LARGEST;
        }
        // INVARIANT: Both are powers of two.
        Self {
            slots: if len >= 1 << 20 { 64 } else { 8 },
        }
    }

    /// Messages for which there is room.
    pub(crate) const fn slots(self) -> u32 {
        self.slots
    }

    /// Whether so many messages are some halves of the ring, and nothing else.
    pub(crate) const fn is_half(self, messages: u64) -> bool {
        messages & (self.slots as u64 / 2).saturating_sub(1) == 0
    }

    /// Whether the reader reports after so many messages, although there are more. It does when it has
    /// passed half a ring.
    pub(crate) const fn is_due(self, messages: u64) -> bool {
        self.is_half(messages) || messages & (REPORT_EVERY - 1) == 0
    }

    /// Where a slot begins.
    pub(crate) const fn slot(self, lane: Lane, index: u32) -> usize {
        let first = match lane {
            Lane::Requests => SLOTS_OFFSET,
            Lane::Answers => self.annex(self.slots),
        };
        first.saturating_add((index as usize).saturating_mul(SLOT_SIZE))
    }

    /// Where the annex of a request's slot begins.
    pub(crate) const fn annex(self, index: u32) -> usize {
        self.slot(Lane::Requests, self.slots)
            .saturating_add((index as usize).saturating_mul(ANNEX_SIZE))
    }

    /// Where connections are marked for which a doorbell rings.
    pub(crate) const fn news(self) -> News {
        News::behind(self.slot(Lane::Answers, self.slots), self.slots)
    }

    /// Bytes of the block.
    pub(crate) const fn size(self) -> usize {
        let news = self.news();
        news.start().saturating_add(news.size())
    }
}

/// The peer's end of the ring contradicts ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The slot of the message behind the first `before` ones.
fn slot_behind(before: u64, slots: NonZeroU32) -> u32 {
    // The remainder is below `slots`, a `u32`.
    (before % NonZeroU64::from(slots)) as u32
}

/// The reading end: which message comes next, and where.
#[derive(Debug)]
pub(crate) struct SlotReader {
    consumed: u64,
    slots: NonZeroU32,
}

impl SlotReader {
    /// The reading end of a zeroed ring of `slots` slots; there must be at least one.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        Some(Self {
            consumed: 0,
            slots: NonZeroU32::new(slots)?,
        })
    }

    /// The slot to look at, and the sequence number that makes it valid.
    pub(crate) fn expected(&self) -> (u32, u64) {
        let next = self.consumed.saturating_add(1);
        (slot_behind(self.consumed, self.slots), next)
    }

    /// Whether the number found in the expected slot says that the message is there.
    ///
    /// `Ok(false)` is the number that lies there before the message comes: zero, or that of the
    /// message one round ago. Any other number is an error: the writer has run over us.
    pub(crate) fn is_ready(&self, found: u64) -> Result<bool, Corrupt> {
        let (_, next) = self.expected();
        // In the first round this is zero, because `next` is at most `slots` then.
        let last_round = next.saturating_sub(u64::from(self.slots.get()));
        if found != next && found != last_round {
            return Err(Corrupt);
        }
        Ok(found == next)
    }

    /// Goes on to the next message, after the expected one was taken out.
    pub(crate) fn advance(&mut self) {
        self.consumed = self.consumed.saturating_add(1);
    }

    /// How many messages were taken out: what to report to the writer.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// How many messages have come since the beginning, taken out or not. `found` loads the number in a slot.
    pub(crate) fn arrived<E>(&self, found: impl Fn(u32) -> Result<u64, E>) -> Result<u64, E> {
        let mut arrived = self.consumed;
        for _ in 0..self.slots.get() {
            let sequence = arrived.saturating_add(1);
            if found(slot_behind(arrived, self.slots))? != sequence {
                break;
            }
            arrived = sequence;
        }
        Ok(arrived)
    }
}

/// The writing end: where the next message goes, and whether there is room.
///
/// # Invariants
///
/// `acknowledged` is at most `written`, and less by at most `slots`.
#[derive(Debug)]
pub(crate) struct SlotWriter {
    written: u64,
    acknowledged: u64,
    slots: NonZeroU32,
}

impl SlotWriter {
    /// The writing end of a zeroed ring of `slots` slots; there must be at least one.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        // INVARIANT: Both are 0.
        Some(Self {
            written: 0,
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
        let slot = slot_behind(self.written, self.slots);
        // INVARIANT: There was room for one more.
        self.written = self.written.checked_add(1)?;
        Some((slot, self.written))
    }

    /// Takes note that the reader has taken out `consumed` messages since the beginning. Returns whether that is
    /// more than before.
    pub(crate) fn acknowledge(&mut self, consumed: u64) -> Result<bool, Corrupt> {
        // Fewer than before, or more than were ever written.
        if consumed < self.acknowledged || consumed > self.written() {
            return Err(Corrupt);
        }
        // INVARIANT: At most `written`, and the difference does not get larger.
        Ok(core::mem::replace(&mut self.acknowledged, consumed) != consumed)
    }

    /// How many messages were reserved since the beginning.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// How many messages can be reserved now.
    pub(crate) fn free(&self) -> u32 {
        let under_way = self.written().saturating_sub(self.acknowledged);
        // At most `slots`, a `u32`.
        u64::from(self.slots.get()).saturating_sub(under_way) as u32
    }
}

/// Words of an annex.
pub(crate) const ANNEX_WORDS: usize = 64;

/// Bytes of an annex.
pub(crate) const ANNEX_SIZE: usize = ANNEX_WORDS * size_of::<u64>();

/// The words of one message, in a private copy.
pub(crate) struct Annex {
    bytes: [u8; ANNEX_SIZE],
    /// How many of the bytes are used, a multiple of the size of a word.
    len: usize,
}

impl Annex {
    /// That of a message which has none.
    pub(crate) const NONE: &Self = &Self::new();

    /// No words.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; ANNEX_SIZE],
            len: 0,
        }
    }

    /// Adds a word; says whether there was room for it.
    pub(crate) fn push(&mut self, word: u64) -> bool {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let Some(place) = free.first_chunk_mut() else {
            return false;
        };
        *place = word.to_le_bytes();
        self.len = self.len.saturating_add(size_of::<u64>());
        true
    }

    /// How many words there are.
    pub(crate) fn count(&self) -> usize {
        let words = self.len.checked_div(size_of::<u64>());
        words.unwrap_or(0)
    }

    /// The words as they cross the link.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Room for so many words that come, which replace those that there are; none if they are too many.
    pub(crate) fn room_for(&mut self, words: usize) -> Option<&mut [u8]> {
        let len = words.checked_mul(size_of::<u64>())?;
        let room = self.bytes.get_mut(..len)?;
        self.len = len;
        Some(room)
    }

    /// The words, in order.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.as_bytes().chunks_exact(size_of::<u64>());
        words.map(|word| {
            word.first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        })
    }
}
