// SPDX-License-Identifier: GPL-2.0

//! Receiving frames by a queue.
//!
//! A poller takes the frames that the peer has published, and posts buffers to the peer again. The
//! peer's counts and descriptors are read once and checked.

use super::{
    buffers::Buffers,
    queue::{
        Queue,
        Receiver, //
    },
};
use crate::{
    logic::frame_ring::{
        self,
        Corrupt,
        Descriptor,
        Frame,
        DESCRIPTOR,
        FILLED,
        META,
        POSTED,
        ROOM_WISH, //
    },
    sync::in_flight::InFlightGuard,
    sys::{
        reached::flush_writes,
        shared_memory::{
            CopyTarget,
            GivenPage, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SpinLockGuard, //
    },
};

/// Most bytes of a frame.
pub const MOST_BYTES: u32 = 65536 + 64;

/// Most pieces of a frame: this node's buffers have a page each, of at least 4 KiB.
pub(super) const MOST_PIECES: usize = (MOST_BYTES as usize).div_ceil(4096);

/// A part of a frame that has arrived.
#[derive(Clone, Copy)]
struct Piece {
    buffer: u16,
    len: u32,
    is_given: bool,
}

impl Piece {
    const NONE: Self = Self {
        buffer: 0,
        len: 0,
        is_given: false,
    };
}

/// A poller at work. The drop posts the buffers that have become free.
pub struct Receiving<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) state: SpinLockGuard<'a, Receiver>,
    // Dropped last: everything else happens inside the peer.
    pub(super) _inside: InFlightGuard<'a>,
}

/// A frame that has arrived. The drop returns its buffers, but for the pages that were given.
pub struct Received<'a> {
    buffers: &'a mut Buffers,
    pieces: [Piece; MOST_PIECES],
    count: usize,
    total: u32,
    meta: [u8; META],
}

impl Receiving<'_> {
    /// Returns the next frame, or `None` if none has arrived.
    ///
    /// # Errors
    ///
    /// The peer breaks the rules, which ends the session.
    pub fn take_next(&mut self) -> Result<Option<Received<'_>>> {
        let queue = self.queue;
        match self.take() {
            Ok(taken) => Ok(taken),
            Err(error) => Err(queue.fail(error)),
        }
    }

    fn take(&mut self) -> Result<Option<Received<'_>>> {
        let (layout, ours) = (self.queue.own, self.queue.ours());
        let filled = ours.load(FILLED)?;
        let state = &mut *self.state;
        let arrived = frame_ring::arrived(filled, state.told, state.taken);
        let arrived = arrived.map_err(|Corrupt| EIO)?;
        if arrived == 0 {
            return Ok(None);
        }
        let read = |number| -> Result<Descriptor> {
            let mut slot = [0; DESCRIPTOR];
            ours.block
                .read(ours.start + layout.descriptor(number), &mut slot)?;
            Ok(Descriptor::decode(&slot))
        };
        let first = read(state.taken)?;
        let frame = Frame::begin(layout, &first, MOST_BYTES);
        let mut frame = frame.map_err(|Corrupt| EIO)?;
        let mut received = Received {
            buffers: &mut state.buffers,
            pieces: [Piece::NONE; MOST_PIECES],
            count: 0,
            total: frame.total(),
            meta: first.meta,
        };
        for place in 0..arrived {
            let number = state.taken.wrapping_add(place);
            let descriptor = if place == 0 { first } else { read(number)? };
            let is_complete = frame.add(&descriptor).map_err(|Corrupt| EIO)?;
            let piece = received.pieces.get_mut(received.count).ok_or(EIO)?;
            piece.buffer = received.buffers.in_slot(layout.index(number))?;
            piece.len = descriptor.len;
            received.count += 1;
            if is_complete {
                state.taken = number.wrapping_add(1);
                return Ok(Some(received));
            }
        }
        // The peer publishes whole frames only.
        Err(EIO)
    }

    /// Posts free buffers to the peer, and rings if it waits for them.
    pub fn post(&mut self) -> Result {
        let queue = self.queue;
        let state = &mut *self.state;
        let left = state.posted.wrapping_sub(state.taken);
        let missing = queue.own.slots().saturating_sub(left);
        if missing == 0 {
            // As after most polls that find no frame.
            return Ok(());
        }
        state.buffers.recover(missing as usize);
        let theirs = queue.theirs()?;
        while state.posted.wrapping_sub(state.taken) < queue.own.slots() {
            let slot = queue.own.index(state.posted);
            let Some(address) = state.buffers.post(slot) else {
                break;
            };
            theirs.write_u64(queue.own.address(state.posted), address)?;
            state.posted = state.posted.wrapping_add(1);
        }
        let (before, after) = (state.told, state.posted);
        // Half a ring at a time is enough, unless the peer has few left.
        let left = before.wrapping_sub(state.taken);
        let new = after.wrapping_sub(before);
        if new == 0 {
            return Ok(());
        }
        // All addresses arrive before the count, and before a Withdraw of another CPU.
        flush_writes();
        if new < queue.own.slots() / 4 && left > queue.own.slots() / 2 {
            return Ok(());
        }
        theirs.write_u32(POSTED, after)?;
        flush_writes();
        state.told = after;
        queue.answer(ROOM_WISH, before, after)
    }

    /// Asks the peer to ring for the next frame. Returns whether one has arrived meanwhile, so that
    /// the caller has to poll again.
    pub fn sleep(&mut self) -> Result<bool> {
        let at = self.state.taken.wrapping_add(1);
        let theirs = self.queue.theirs()?;
        self.queue.frames.make(&theirs, &self.queue.ours(), at)
    }

    /// Asks the peer not to ring, as the caller polls again without a doorbell. The peer may have
    /// begun to ring.
    pub fn stay_awake(&mut self) -> Result {
        let theirs = self.queue.theirs()?;
        self.queue.frames.withdraw(&theirs, self.state.taken)
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        // Fails only if the peer's memory is out of reach, which ends the session.
        let _ = self.post();
        if self.state.buffers.is_short() {
            self.queue.resize_later();
        }
    }
}

impl Received<'_> {
    /// Returns the number of bytes of the frame.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the user's part of the descriptor, as the peer has written it.
    pub fn meta(&self) -> &[u8; META] {
        &self.meta
    }

    /// Returns the number of pieces of the frame.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of bytes in a piece.
    pub fn len(&self, piece: usize) -> usize {
        self.pieces.get(piece).map_or(0, |piece| piece.len as usize)
    }

    /// Copies the bytes of a piece from an offset on, as many as the target has. EINVAL: a buffer
    /// does not have so many bytes.
    pub fn copy(&self, piece: usize, at: usize, target: CopyTarget<'_>) -> Result {
        let piece = self.pieces.get(piece).ok_or(EINVAL)?;
        self.buffers.copy(piece.buffer, at, target)
    }

    /// Gives the page that a piece fills from its beginning on. `None` if the piece is to be
    /// copied.
    pub fn give(&mut self, piece: usize) -> Option<GivenPage> {
        let piece = self.pieces.get_mut(piece).filter(|piece| !piece.is_given)?;
        let page = self.buffers.give(piece.buffer)?;
        piece.is_given = true;
        Some(page)
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        for piece in self.pieces.iter().take(self.count) {
            self.buffers.taken(piece.buffer, piece.is_given);
        }
    }
}
