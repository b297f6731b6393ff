// SPDX-License-Identifier: GPL-2.0

//! Words that go with a control message and don't fit into it.
//!
//! Each slot of a control ring has an *annex*, [`SIZE`] bytes behind the ring, into which the writer puts
//! words of 64 bits, little-endian, before it makes the slot valid. How many there are follows from the
//! message. Like the slot, the annex is the writer's again when the message was taken out; and like a
//! slot, it is read from a private copy.

/// Words of an annex.
pub(crate) const WORDS: usize = 64;

/// Bytes of an annex.
pub(crate) const SIZE: usize = WORDS * size_of::<u64>();

/// The words of one message, in a private copy.
pub(crate) struct Annex {
    bytes: [u8; SIZE],
    /// How many of the bytes are used, a multiple of the size of a word.
    len: usize,
}

impl Annex {
    /// No words.
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; SIZE],
            len: 0,
        }
    }

    /// Drops all words.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Whether there is no room for another word.
    pub(crate) fn is_full(&self) -> bool {
        self.len >= SIZE
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
