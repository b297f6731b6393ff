// SPDX-License-Identifier: GPL-2.0

//! Bounce buffers: slots for data that is meant for memory which the writer does not reach.
//!
//! The writer puts the data into slots in the reader's memory that it does reach. The reader, which
//! owns the destination, copies the data on from there.
//!
//! The slots lie in the memory of the reader. Their headers come first, each with 64 bytes:
//!
//! ```text
//!  0  sequence  u64  counts the slots that are filled, from 1 on
//!  8  window    u32  the reader's window that the data is for
//! 12  kind      u32  see [`Kind`]
//! 16  offset    u64  offset in that window
//! 24  value     u64  number of bytes of data, or the value to store
//! 32  flags     u64  1: the writer wants to be rung when the slot is emptied
//! 40  0
//! 56  check     u64  checksum of all words before
//! ```
//!
//! Behind the headers lie the slots' data, and at last
//!
//! ```text
//!  0  wakeup    u64  count of emptied slots at which to ring the writer, which sleeps
//!  8  0
//! ```
//!
//! Slots are filled and emptied in order: number `n` lies in slot `(n - 1) % slots`. The data is
//! written before the header. The words of the header may arrive in any order, as an engine may
//! write them. The checksum tells whether all have arrived.
//!
//! The reader counts the emptied slots in the memory of the writer, at the *credits*:
//!
//! ```text
//!  0  emptied   u64  how many slots were emptied
//!  8  sleeps    u64  how often the reader has gone to sleep; the writer rings once for each
//! 64  verdicts  u64  one per slot, not 0 if its data was not delivered; written before `emptied`
//! ```
//!
//! A slot counts as emptied once its data is at its destination.
//!
//! A side rings only when the other one sleeps. So a side that is about to sleep announces that in
//! the memory of the other side, and loads the word back. Then it checks its condition once more.
//! The answer to that load does not overtake earlier writes of the other side. So all that the
//! other side wrote before it could see the announcement has arrived by then.

/// Size of a header in bytes.
pub(crate) const HEADER: usize = 64;

/// Offset of the count of sleeps in the credits.
pub(crate) const SLEEPS: usize = 8;

/// Offset of the verdicts in the credits.
const VERDICTS: usize = 64;

/// Bytes behind the slots.
const TAIL: usize = 64;

/// Maximum number of slots.
pub(crate) const MOST_SLOTS: usize = 64;

/// Sizes in bytes of the smallest and the largest slot. Every size is a multiple of the smallest.
const SMALLEST: u32 = 1 << 10;
const LARGEST: u32 = 256 << 10;

/// Number of slots if their size is not at its limit. So many suffice to fill one slot while others
/// are in flight or are emptied.
const USUAL_SLOTS: usize = 4;

/// Data bytes of [`USUAL_SLOTS`] slots of the smallest size.
const SMALLEST_TOTAL: usize = USUAL_SLOTS * SMALLEST as usize;

/// The number of slots, and their size.
///
/// # Invariants
///
/// `slots` is a power of two, `size` a multiple of [`SMALLEST`]; both are as the limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    slots: u32,
    size: u32,
}

impl Geometry {
    /// Returns the geometry for about `len` bytes of data, or `None` if that is too few.
    pub(crate) fn for_len(len: usize) -> Option<Self> {
        let most = (LARGEST / SMALLEST) as usize;
        let size = ((len / SMALLEST_TOTAL).min(most) as u32).saturating_mul(SMALLEST);
        let slots = len.checked_div(size as usize)?.min(MOST_SLOTS);
        Self::new(1 << slots.checked_ilog2()?, size)
    }

    /// Returns the geometry that the other side requests, or `None` if it is invalid.
    pub(crate) fn new(slots: u32, size: u32) -> Option<Self> {
        let can_be = slots.is_power_of_two()
            && size % SMALLEST == 0
            && slots as usize <= MOST_SLOTS
            && (SMALLEST..=LARGEST).contains(&size);
        // INVARIANT: Just checked.
        can_be.then_some(Self { slots, size })
    }

    /// Returns the number of slots.
    pub(crate) fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the bytes of data of a slot.
    pub(crate) fn size(self) -> u32 {
        self.size
    }

    /// Returns the slot of a sequence number.
    pub(crate) fn index(self, sequence: u64) -> usize {
        // The number of slots is a power of two.
        (sequence.wrapping_sub(1) & u64::from(self.slots.wrapping_sub(1))) as usize
    }

    /// Returns the offset of a sequence number's header.
    pub(crate) fn header(self, sequence: u64) -> usize {
        self.index(sequence).saturating_mul(HEADER)
    }

    /// Returns the offset of a sequence number's data.
    pub(crate) fn data(self, sequence: u64) -> usize {
        let headers = (self.slots as usize).saturating_mul(HEADER);
        headers.saturating_add(self.index(sequence).saturating_mul(self.size as usize))
    }

    /// Returns the offset of the wake-up request.
    pub(crate) fn wake_request(self) -> usize {
        (self.slots as usize).saturating_mul(HEADER.saturating_add(self.size as usize))
    }

    /// Returns the bytes of all headers, slots and the tail.
    pub(crate) fn total(self) -> usize {
        self.wake_request().saturating_add(TAIL)
    }

    /// Returns the offset of a sequence number's verdict in the credits.
    pub(crate) fn verdict(self, sequence: u64) -> usize {
        VERDICTS.saturating_add(self.index(sequence).saturating_mul(size_of::<u64>()))
    }

    /// Returns the size of the credits in bytes.
    pub(crate) fn credits(self) -> usize {
        VERDICTS.saturating_add((self.slots as usize).saturating_mul(size_of::<u64>()))
    }
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing, because the writer could not fill the slot.
    Void,
    /// This number of bytes of data.
    Data(u32),
    /// A value to store into 8 bytes of one page, at a multiple of 4.
    Store(u64),
}

/// The header of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) window: u32,
    pub(crate) offset: u64,
    pub(crate) kind: Kind,
    /// Whether the writer wants to be rung when the slot is emptied.
    pub(crate) wants_doorbell: bool,
}

/// Computes FNV-1a over the words. It detects partial headers, not forged ones.
fn check(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    })
}

impl Header {
    /// Encodes the header as it lies in a slot.
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let (kind, value) = match self.kind {
            Kind::Void => (0, 0),
            Kind::Data(len) => (1, u64::from(len)),
            Kind::Store(value) => (2, value),
        };
        let mut words = [
            self.sequence,
            u64::from(self.window) | (kind << 32),
            self.offset,
            value,
            u64::from(self.wants_doorbell),
            0,
            0,
            0,
        ];
        let [body @ .., sum] = &mut words;
        *sum = check(body);
        let mut bytes = [0; HEADER];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes a header from a private copy. Returns `None` if it is invalid, or not complete yet.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let mut words = [0; HEADER / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(place.try_into().ok()?);
        }
        let (body, _) = words.split_at(HEADER / 8 - 1);
        let [sequence, ids, offset, value, flags, .., sum] = words;
        if sum != check(body) {
            return None;
        }
        let kind = match ids >> 32 {
            0 => Kind::Void,
            1 => Kind::Data(u32::try_from(value).ok()?),
            2 => Kind::Store(value),
            _ => return None,
        };
        Some(Self {
            sequence,
            window: ids as u32,
            offset,
            kind,
            wants_doorbell: flags & 1 != 0,
        })
    }
}

/// The slots that a piece of data fills, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    first: Header,
    len: u64,
    /// Data bytes of a slot, more than 0.
    size: u32,
    done: u64,
}

/// The contents of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) header: Header,
    /// Offset of the part in the piece.
    pub(crate) at: u64,
    /// Number of bytes.
    pub(crate) len: u64,
}

impl Parts {
    /// Splits `len` bytes into slots of `geometry`. The first slot gets the header `first`, except
    /// for the number of bytes. Only the last slot keeps `first.wants_doorbell`.
    pub(crate) fn new(first: Header, len: u64, geometry: Geometry) -> Self {
        Self {
            first,
            len,
            size: geometry.size(),
            done: 0,
        }
    }
}

impl Iterator for Parts {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        let rest = self.len.checked_sub(self.done).filter(|rest| *rest > 0)?;
        let len = rest.min(self.size.into());
        let at = self.done;
        let header = Header {
            sequence: self.first.sequence,
            offset: self.first.offset.wrapping_add(at),
            kind: Kind::Data(len as u32),
            wants_doorbell: self.first.wants_doorbell && len == rest,
            ..self.first
        };
        self.first.sequence = self.first.sequence.wrapping_add(1);
        self.done = at.saturating_add(len);
        Some(Part { header, at, len })
    }
}
