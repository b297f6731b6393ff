// SPDX-License-Identifier: GPL-2.0

//! The layout of frame rings, and the checks of what the other side writes there.
//!
//! A frame ring carries frames in one direction. The *receiver* posts buffers, the *sender* fills
//! them in the order in which they were posted. Buffers all have the same size; a frame fills as
//! many as it needs. So a posted buffer is at once the memory, the descriptor and the credit: the
//! ring has no other.
//!
//! Two counters run freely through all of `u32` and wrap: `posted` counts the buffers that the
//! receiver has posted, `filled` those that the sender has filled. Buffer number `n` has the slot
//! `n % slots` in two arrays: one with the address of the buffer, in the sender's memory, and one
//! with the description of what the sender has put there, in the receiver's memory. Each side reads
//! its own memory only, and stores into the other's.
//!
//! At any time `filled <= posted <= taken + slots`, where `taken` is the receiver's own count of
//! the buffers that it has read. Whoever breaks this ends the session: [`free`] and [`arrived`]
//! check it.
//!
//! Each side has one block of memory for both directions of all queues. A queue has a header and
//! the two arrays:
//!
//! ```text
//!   0  posted       u32   buffers that the other side has posted for this one's frames
//!  64  filled       u32   buffers of this side that the other side has filled
//! 128  frame wish   u32   the other side sleeps until this one has filled so many
//! 132  room wish    u32   the other side sleeps until this one has posted so many
//! 192  addresses    u64   for each slot: address of the buffer that the other side has posted
//!      descriptors  32 B  for each slot: see [`Descriptor`]
//! ```
//!
//! All numbers are little-endian. This file accesses no memory and orders no accesses; the caller
//! does.

/// Offset of the count of posted buffers in the header of a queue.
pub(crate) const POSTED: usize = 0;
/// Offset of the count of filled buffers.
pub(crate) const FILLED: usize = 64;
/// Offset of the count of filled buffers at which the other side wants to be woken.
pub(crate) const FRAME_WISH: usize = 128;
/// Offset of the count of posted buffers at which the other side wants to be woken.
pub(crate) const ROOM_WISH: usize = 132;
/// Offset of the addresses.
const ADDRESSES: usize = 192;

/// Size of a descriptor in bytes.
pub(crate) const DESCRIPTOR: usize = 32;

/// Number of bytes of a descriptor that belong to the user of the rings.
pub(crate) const META: usize = 16;

/// Maximum number of queues with one peer.
pub(crate) const MOST_QUEUES: u32 = 64;

/// Smallest and largest number of slots.
pub(crate) const FEWEST_SLOTS: u32 = 32;
pub(crate) const MOST_SLOTS: u32 = 4096;

/// Smallest and largest size of a buffer. With the fewest slots, the largest frame fits into a ring
/// of the smallest buffers, with as much room left: a sender that waits for room gets it.
const BUFFER: core::ops::RangeInclusive<u32> = 4096..=65536;

/// The error for counters or descriptors that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt;

/// The numbers that describe a side's block.
///
/// # Invariants
///
/// All are in their ranges; `slots` is a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    queues: u32,
    slots: u32,
    buffer: u32,
}

impl Geometry {
    /// Creates the geometry of `queues` queues, whose rings have `slots` slots for buffers of
    /// `buffer` bytes. `None` if a number is out of range.
    pub(crate) fn new(queues: u32, slots: u32, buffer: u32) -> Option<Self> {
        let can_be = (1..=MOST_QUEUES).contains(&queues)
            && (FEWEST_SLOTS..=MOST_SLOTS).contains(&slots)
            && slots.is_power_of_two()
            && BUFFER.contains(&buffer);
        // INVARIANT: Just checked.
        can_be.then_some(Self {
            queues,
            slots,
            buffer,
        })
    }

    /// Returns the number of queues.
    pub(crate) fn queues(self) -> u32 {
        self.queues
    }

    /// Returns the number of slots of a ring.
    pub(crate) fn slots(self) -> u32 {
        self.slots
    }

    /// Returns the size of a buffer in bytes.
    pub(crate) fn buffer(self) -> u32 {
        self.buffer
    }

    /// Returns the number of buffers that a frame of `len` bytes fills.
    pub(crate) fn buffers_of(self, len: u32) -> u32 {
        len.div_ceil(self.buffer).max(1)
    }

    /// Returns the slot of a buffer.
    pub(crate) fn index(self, number: u32) -> usize {
        // The number of slots is a power of two.
        (number & self.slots.wrapping_sub(1)) as usize
    }

    /// Returns the size of the part of a queue in bytes.
    pub(crate) fn queue_size(self) -> usize {
        let slot = DESCRIPTOR.saturating_add(size_of::<u64>());
        ADDRESSES.saturating_add((self.slots as usize).saturating_mul(slot))
    }

    /// Returns the size of the block in bytes.
    pub(crate) fn size(self) -> usize {
        self.queue_size().saturating_mul(self.queues as usize)
    }

    /// Returns the offset of the header of a queue.
    pub(crate) fn queue(self, queue: u32) -> usize {
        self.queue_size().saturating_mul(queue as usize)
    }

    /// Returns the offset of the address of a buffer, in the part of the queue.
    pub(crate) fn address(self, number: u32) -> usize {
        let before = self.index(number).saturating_mul(size_of::<u64>());
        ADDRESSES.saturating_add(before)
    }

    /// Returns the offset of the descriptor of a buffer, in the part of the queue.
    pub(crate) fn descriptor(self, number: u32) -> usize {
        let addresses = (self.slots as usize).saturating_mul(size_of::<u64>());
        let before = self.index(number).saturating_mul(DESCRIPTOR);
        ADDRESSES.saturating_add(addresses).saturating_add(before)
    }
}

/// Returns how many buffers the sender can fill. `posted` comes from the receiver.
pub(crate) fn free(geometry: Geometry, posted: u32, filled: u32) -> Result<u32, Corrupt> {
    let free = posted.wrapping_sub(filled);
    if free > geometry.slots {
        return Err(Corrupt);
    }
    Ok(free)
}

/// Returns how many filled buffers the receiver has not taken. `filled` comes from the sender,
/// `posted` and `taken` are the receiver's own.
pub(crate) fn arrived(filled: u32, posted: u32, taken: u32) -> Result<u32, Corrupt> {
    let arrived = filled.wrapping_sub(taken);
    if arrived > posted.wrapping_sub(taken) {
        return Err(Corrupt);
    }
    Ok(arrived)
}

/// The contents of one filled buffer.
///
/// ```text
///  0  len    u32   bytes in this buffer, from its beginning on
///  4  flags  u32   1: the frame goes on in the next buffer
///  8  total  u32   bytes of the whole frame, in its first buffer
/// 12  0
/// 16  meta   16 B  for the user of the rings, in the frame's first buffer
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Number of bytes in the buffer.
    pub(crate) len: u32,
    /// Whether the frame goes on in the next buffer.
    pub(crate) has_more: bool,
    /// Number of bytes of the whole frame, if this is its first buffer.
    pub(crate) total: u32,
    /// The user's part, if this is the frame's first buffer.
    pub(crate) meta: [u8; META],
}

const MORE: u32 = 1;

impl Descriptor {
    /// Encodes the descriptor.
    pub(crate) fn encode(&self) -> [u8; DESCRIPTOR] {
        let flags = if self.has_more { MORE } else { 0 };
        let (flags, total) = (u128::from(flags) << 32, u128::from(self.total) << 64);
        let words = u128::from(self.len) | flags | total;
        let mut slot = [0; DESCRIPTOR];
        if let Some((head, tail)) = slot.split_first_chunk_mut() {
            *head = words.to_le_bytes();
            for (place, byte) in tail.iter_mut().zip(self.meta) {
                *place = byte;
            }
        }
        slot
    }

    /// Decodes a descriptor from a private copy.
    pub(crate) fn decode(slot: &[u8; DESCRIPTOR]) -> Self {
        let [l0, l1, l2, l3, f0, f1, f2, f3, t0, t1, t2, t3, _, _, _, _, meta @ ..] = *slot;
        Self {
            len: u32::from_le_bytes([l0, l1, l2, l3]),
            has_more: u32::from_le_bytes([f0, f1, f2, f3]) & MORE != 0,
            total: u32::from_le_bytes([t0, t1, t2, t3]),
            meta,
        }
    }
}

/// A frame that is being taken out of its buffers, one after the other.
///
/// The sender of an honest peer fills each buffer but the last one, so that the number of buffers
/// follows from the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    total: u32,
    left: u32,
    buffer: u32,
}

impl Frame {
    /// Begins a frame of at most `most` bytes with the descriptor of its first buffer.
    pub(crate) fn begin(
        geometry: Geometry,
        first: &Descriptor,
        most: u32,
    ) -> Result<Self, Corrupt> {
        if first.total == 0 || first.total > most {
            return Err(Corrupt);
        }
        Ok(Self {
            total: first.total,
            left: first.total,
            buffer: geometry.buffer,
        })
    }

    /// Returns the number of bytes of the whole frame.
    pub(crate) fn total(&self) -> u32 {
        self.total
    }

    /// Adds a buffer, the first one included. Returns whether the frame is complete.
    pub(crate) fn add(&mut self, descriptor: &Descriptor) -> Result<bool, Corrupt> {
        let len = self.left.min(self.buffer);
        self.left = self.left.wrapping_sub(len);
        let is_complete = self.left == 0;
        if descriptor.len != len || descriptor.has_more == is_complete {
            return Err(Corrupt);
        }
        Ok(is_complete)
    }
}
