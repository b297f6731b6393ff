// SPDX-License-Identifier: GPL-2.0

//! Staging: what is for memory that the writer does not reach is put into slots that it does reach, and
//! copied on from there by whose memory it is.
//!
//! The slots lie in the memory of the reader, headers first, each with 64 bytes:
//!
//! ```text
//!  0  sequence  u64  counts the slots that are filled, from 1 on
//!  8  window    u32  for which of the reader's windows it is
//! 12  kind      u32  see [`Kind`]
//! 16  offset    u64  where in that window
//! 24  value     u64  bytes of data, or the value that is to be stored
//! 32  flags     u64  1: its writer wants to be rung when it is emptied
//! 40  0
//! 56  check     u64  of all words before
//! ```
//!
//! then as many times the bytes of a slot, and at last
//!
//! ```text
//!  0  wish      u64  how many emptied slots its writer wants to be rung for; it sleeps
//!  8  0
//! ```
//!
//! Slots are filled and emptied in order, one after the other: `n` lies
//! in slot `(n - 1) % slots`. The data comes before the header. The header may come in any order, as its
//! writer may be an engine; the check says whether all of it is there.
//!
//! How many were emptied is counted in the memory of the writer, at what it calls the *credits*:
//!
//! ```text
//!  0  emptied   u64  how many slots have been emptied
//!  8  sleeps    u64  how often who empties them has gone to sleep; he is rung once for each
//! 64  verdicts  u64  for each slot; not 0 if what was in it could not be delivered; written before
//! ```
//!
//! A slot that was emptied is one whose bytes are where they were to go.
//!
//! Who sleeps is rung, who is awake is not. So who is about to sleep first says that, in the memory of the
//! other, loads it from there, and then looks for what it waits for once more: what the other has written
//! before it could see that is there by then, as nothing overtakes what is written on the way back.

/// Bytes of a header.
pub(crate) const HEADER: usize = 64;

/// Where the sleeps are counted, among the credits.
pub(crate) const SLEEPS: usize = 8;

/// Where the verdicts begin.
const VERDICTS: usize = 64;

/// Bytes of what comes after the slots.
const TAIL: usize = 64;

/// The most slots there can be.
pub(crate) const MOST_SLOTS: usize = 64;

/// Bytes of the smallest and the largest slot; all are multiples of the smallest.
const SMALLEST: u32 = 1 << 10;
const LARGEST: u32 = 256 << 10;

/// Slots that there are if they need not be as large as can be: enough for one to be filled while others
/// are on their way, or are emptied.
const FEW: usize = 4;

/// Bytes of so many of the smallest.
const FEW_SMALLEST: usize = FEW * SMALLEST as usize;

/// How many slots there are, and how large they are.
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
    /// For about so many bytes of data; none if that is too few.
    pub(crate) fn for_len(len: usize) -> Option<Self> {
        let most = (LARGEST / SMALLEST) as usize;
        let size = ((len / FEW_SMALLEST).min(most) as u32).saturating_mul(SMALLEST);
        let slots = len.checked_div(size as usize)?.min(MOST_SLOTS);
        Self::new(1 << slots.checked_ilog2()?, size)
    }

    /// As the other side says; none if that can't be.
    pub(crate) fn new(slots: u32, size: u32) -> Option<Self> {
        let can_be = slots.is_power_of_two()
            && size % SMALLEST == 0
            && slots as usize <= MOST_SLOTS
            && (SMALLEST..=LARGEST).contains(&size);
        // INVARIANT: As was just looked at.
        can_be.then_some(Self { slots, size })
    }

    /// How many slots.
    pub(crate) fn slots(self) -> u32 {
        self.slots
    }

    /// Bytes of data in each.
    pub(crate) fn size(self) -> u32 {
        self.size
    }

    /// In which slot it lies.
    pub(crate) fn index(self, sequence: u64) -> usize {
        // A power of two.
        (sequence.wrapping_sub(1) & u64::from(self.slots.wrapping_sub(1))) as usize
    }

    /// Where its header begins.
    pub(crate) fn header(self, sequence: u64) -> usize {
        self.index(sequence).saturating_mul(HEADER)
    }

    /// Where its data begins.
    pub(crate) fn data(self, sequence: u64) -> usize {
        let headers = (self.slots as usize).saturating_mul(HEADER);
        headers.saturating_add(self.index(sequence).saturating_mul(self.size as usize))
    }

    /// Where the wish lies.
    pub(crate) fn wish(self) -> usize {
        (self.slots as usize).saturating_mul(HEADER.saturating_add(self.size as usize))
    }

    /// Bytes of all slots, and what comes after.
    pub(crate) fn total(self) -> usize {
        self.wish().saturating_add(TAIL)
    }

    /// Where its verdict lies among the credits.
    pub(crate) fn verdict(self, sequence: u64) -> usize {
        VERDICTS.saturating_add(self.index(sequence).saturating_mul(size_of::<u64>()))
    }

    /// Bytes of the credits.
    pub(crate) fn credits(self) -> usize {
        VERDICTS.saturating_add((self.slots as usize).saturating_mul(size_of::<u64>()))
    }
}

/// What is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing: its writer could not fill it.
    Void,
    /// So many bytes of data.
    Data(u32),
    /// A value for 8 bytes, which lie in one page, and at a multiple of 4.
    Store(u64),
}

/// Says what is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) window: u32,
    pub(crate) offset: u64,
    pub(crate) kind: Kind,
    /// Its writer wants to be rung when it is emptied.
    pub(crate) tell: bool,
}

/// FNV-1a over the words: finds what is there in part, not forgeries.
fn check(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| {
        (sum ^ word)
            .wrapping_mul(0x0000_0100_0000_01b3)
            .rotate_left(29)
    })
}

impl Header {
    /// As it lies in a slot.
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
            u64::from(self.tell),
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

    /// From a private copy of what lies in a slot; none if it is not, or not yet, one.
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
            tell: flags & 1 != 0,
        })
    }
}

/// A piece of data that is put into slots one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    first: Header,
    len: u64,
    /// Bytes of each slot, more than 0.
    size: u32,
    done: u64,
}

/// What goes into one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) header: Header,
    /// Where in the piece it begins, and its bytes.
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Parts {
    /// `len` bytes for slots of `geometry`, of which the first gets `first`, but for the number of bytes; the last
    /// one is that of which its writer wants to hear.
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
            tell: self.first.tell && len == rest,
            ..self.first
        };
        self.first.sequence = self.first.sequence.wrapping_add(1);
        self.done = at.saturating_add(len);
        Some(Part { header, at, len })
    }
}
