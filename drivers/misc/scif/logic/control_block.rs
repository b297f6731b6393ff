// SPDX-License-Identifier: GPL-2.0

//! The layout of a control block, into which the other side writes control messages, and the
//! numbers of its slots.
//!
//! The block lies in the memory of the reader. It begins with words that are not messages. Behind
//! them lie the ring of requests, an array of 64-byte slots (`envelope.rs`), and an annex for each
//! of its slots. Then come the ring of answers, which has as many slots, and the marks of news
//! (`news.rs`).
//!
//! # Slots
//!
//! The last 8 bytes of a slot hold the sequence number of its message, and are written after the
//! rest. So the number alone tells whether the slot holds the message that the reader expects, and
//! no producer index crosses the bus. The first message has number 1, so zeroed memory is an empty
//! ring. Message `n` lies in slot `(n - 1) % slots`.
//!
//! The reader reports how many messages it has taken out. The writer never has more than `slots`
//! messages in flight. Numbers are 64 bits wide and do not wrap in the lifetime of a machine. At
//! the end of the numbers the writer stops.
//!
//! Whenever the link comes up, the ring is zeroed, and both sides create new [`SlotReader`]s and
//! [`SlotWriter`]s.
//!
//! # Annexes
//!
//! Some messages have words that do not fit into their slot. The writer puts these words into the
//! annex of the slot before it makes the slot valid: little-endian words of 64 bits. The message
//! tells how many there are. Like the slot, the annex belongs to the writer again when the message
//! was taken out. Like the slot, it is read from a private copy.
//!
//! This file accesses no memory: the caller reads and writes slots, in the right order.

use super::{
    envelope::SLOT_SIZE,
    news::News, //
};
use core::num::{
    NonZeroU32,
    NonZeroU64, //
};

/// Offset of the slots, behind the words that are not messages.
pub(crate) const SLOTS_OFFSET: usize = 256;

/// Number of messages after which the reader reports its progress although more are there.
const REPORT_EVERY: u64 = 16;

/// One of the two rings of a control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Messages whose receiver may have to answer.
    Requests,
    /// Messages whose receiver never sends anything because of them.
    Answers,
}

/// Maximum number of answers that the handler of one request has to send at once.
pub(crate) const ANSWERS_OF_ONE: u32 = 2;

/// The geometry of a control block.
///
/// The size of a block depends on the aperture through which the other side writes to it: an
/// aperture of 64 KiB must have room for other things. Each side knows the length of both apertures
/// from the hellos, so both compute the same geometry.
///
/// # Invariants
///
/// `slots` is a power of two, and at least 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ControlGeometry {
    slots: u32,
}

/// The geometry of the largest control block.
pub(crate) const LARGEST: ControlGeometry = ControlGeometry { slots: 256 };

impl ControlGeometry {
    /// Returns the geometry of a block that the other side writes through an aperture of `len`
    /// bytes.
    pub(crate) const fn for_aperture(len: u64) -> Self {
        if len >= 4 << 20 {
            return LARGEST;
        }
        // INVARIANT: Both are powers of two.
        Self {
            slots: if len >= 1 << 20 { 64 } else { 8 },
        }
    }

    /// Returns for how many messages there is room.
    pub(crate) const fn slots(self) -> u32 {
        self.slots
    }

    /// Returns whether `messages` is a multiple of half the ring.
    pub(crate) const fn is_half(self, messages: u64) -> bool {
        messages & (self.slots as u64 / 2).saturating_sub(1) == 0
    }

    /// Returns whether the reader reports after so many messages although more are there. It does
    /// so whenever it has passed half a ring.
    pub(crate) const fn is_due(self, messages: u64) -> bool {
        self.is_half(messages) || messages & (REPORT_EVERY - 1) == 0
    }

    /// Returns the offset of a slot.
    pub(crate) const fn slot(self, lane: Lane, index: u32) -> usize {
        let first = match lane {
            Lane::Requests => SLOTS_OFFSET,
            Lane::Answers => self.annex(self.slots),
        };
        first.saturating_add((index as usize).saturating_mul(SLOT_SIZE))
    }

    /// Returns the offset of the annex of a request's slot.
    pub(crate) const fn annex(self, index: u32) -> usize {
        self.slot(Lane::Requests, self.slots)
            .saturating_add((index as usize).saturating_mul(ANNEX_SIZE))
    }

    /// Returns the layout of the marks of connections for which a doorbell rings.
    pub(crate) const fn news(self) -> News {
        News::behind(self.slot(Lane::Answers, self.slots), self.slots)
    }

    /// Returns the size of the block in bytes.
    pub(crate) const fn size(self) -> usize {
        let news = self.news();
        news.start().saturating_add(news.size())
    }
}

/// The error for numbers of the peer that contradict this side's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// Returns the slot of the message that follows the first `before` messages.
fn slot_behind(before: u64, slots: NonZeroU32) -> u32 {
    // The remainder is below `slots`, a `u32`.
    (before % NonZeroU64::from(slots)) as u32
}

/// The reading side of a ring: the number of the next message, and its slot.
#[derive(Debug)]
pub(crate) struct SlotReader {
    consumed: u64,
    slots: NonZeroU32,
}

impl SlotReader {
    /// Creates the reading side of a zeroed ring. Returns `None` if `slots` is 0.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        Some(Self {
            consumed: 0,
            slots: NonZeroU32::new(slots)?,
        })
    }

    /// Returns the slot to read next, and the sequence number that makes it valid.
    pub(crate) fn expected(&self) -> (u32, u64) {
        let next = self.consumed.saturating_add(1);
        (slot_behind(self.consumed, self.slots), next)
    }

    /// Returns whether the expected message is there, given the number found in its slot.
    ///
    /// Before the message comes, the number is zero or that of the message one round ago. Any other
    /// number is an error: the writer has overrun the reader.
    pub(crate) fn is_ready(&self, found: u64) -> Result<bool, Corrupt> {
        let (_, next) = self.expected();
        // In the first round this is zero, because `next` is at most `slots` then.
        let last_round = next.saturating_sub(u64::from(self.slots.get()));
        if found != next && found != last_round {
            return Err(Corrupt);
        }
        Ok(found == next)
    }

    /// Moves on to the next message, after the expected one was taken out.
    pub(crate) fn advance(&mut self) {
        self.consumed = self.consumed.saturating_add(1);
    }

    /// Returns how many messages were taken out, which is what the reader reports.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns how many messages have come since the beginning, taken out or not. `found` loads the
    /// number in a slot.
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

/// The writing side of a ring: where the next message goes, and whether there is room.
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
    /// Creates the writing side of a zeroed ring. Returns `None` if `slots` is 0.
    pub(crate) fn new(slots: u32) -> Option<Self> {
        // INVARIANT: Both are 0.
        Some(Self {
            written: 0,
            acknowledged: 0,
            slots: NonZeroU32::new(slots)?,
        })
    }

    /// Reserves the next slot. Returns its index and the sequence number, which has to be written
    /// last.
    ///
    /// Returns `None` if the ring is full. The caller has to write each reserved slot: the reader
    /// stops at the first message that does not come.
    pub(crate) fn reserve(&mut self) -> Option<(u32, u64)> {
        if self.free() == 0 {
            return None;
        }
        let slot = slot_behind(self.written, self.slots);
        // INVARIANT: There was room for one more.
        self.written = self.written.checked_add(1)?;
        Some((slot, self.written))
    }

    /// Records that the reader has taken out `consumed` messages since the beginning. Returns
    /// whether that is more than before.
    pub(crate) fn acknowledge(&mut self, consumed: u64) -> Result<bool, Corrupt> {
        // The peer reports fewer messages than before, or more than this side has ever written.
        if consumed < self.acknowledged || consumed > self.written() {
            return Err(Corrupt);
        }
        // INVARIANT: At most `written`, and the difference does not get larger.
        Ok(core::mem::replace(&mut self.acknowledged, consumed) != consumed)
    }

    /// Returns how many messages were reserved since the beginning.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns how many messages can be reserved now.
    pub(crate) fn free(&self) -> u32 {
        let under_way = self.written().saturating_sub(self.acknowledged);
        // At most `slots`, a `u32`.
        u64::from(self.slots.get()).saturating_sub(under_way) as u32
    }
}

/// Number of words of an annex.
pub(crate) const ANNEX_WORDS: usize = 64;

/// Size of an annex in bytes.
pub(crate) const ANNEX_SIZE: usize = ANNEX_WORDS * size_of::<u64>();

/// The annex of one message, in a private copy.
pub(crate) struct Annex {
    bytes: [u8; ANNEX_SIZE],
    /// Number of used bytes, a multiple of the size of a word.
    len: usize,
}

impl Annex {
    /// The annex of a message without words.
    pub(crate) const NONE: &Self = &Self::new();

    /// Creates an annex without words.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; ANNEX_SIZE],
            len: 0,
        }
    }

    /// Adds a word. Returns false if there is no room for it.
    pub(crate) fn push(&mut self, word: u64) -> bool {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let Some(place) = free.first_chunk_mut() else {
            return false;
        };
        *place = word.to_le_bytes();
        self.len = self.len.saturating_add(size_of::<u64>());
        true
    }

    /// Returns the number of words.
    pub(crate) fn count(&self) -> usize {
        let words = self.len.checked_div(size_of::<u64>());
        words.unwrap_or(0)
    }

    /// Returns the words as they cross the link.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns a buffer for so many received words, which replace the present ones. Returns `None`
    /// if the words do not fit.
    pub(crate) fn room_for(&mut self, words: usize) -> Option<&mut [u8]> {
        let len = words.checked_mul(size_of::<u64>())?;
        let room = self.bytes.get_mut(..len)?;
        self.len = len;
        Some(room)
    }

    /// Returns the words in order.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let words = self.as_bytes().chunks_exact(size_of::<u64>());
        words.map(|word| {
            word.first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word))
        })
    }
}
