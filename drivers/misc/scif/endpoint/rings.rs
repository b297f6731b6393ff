// SPDX-License-Identifier: GPL-2.0

//! The two rings of a stream: bytes, counters, and the requests to be woken.
//!
//! Each end owns the ring in which it receives, in its own memory (`own_ring.rs`). `peer_ring.rs`
//! is the sender's view of that ring. The peer writes all of the ring:
//!
//! ```text
//!   0  produced     u32  bytes that the peer has written into this ring, ever
//!   8  move         u64  count from which on the second area is used, see `logic/ring.rs`
//!  64  consumed     u32  bytes that the peer has taken out of *its* ring, ever
//! 128  room wanted  u32  bytes taken out of this ring at which the peer wants a doorbell
//! 132  data wanted  u32  bytes written into *its* ring at which the peer wants a doorbell
//! 136  room doorbell, 140 data doorbell
//!                   u32  number of the doorbell to ring for each, see `rings/waking.rs`
//! 192  data              of the first area; the second one lies elsewhere
//! ```
//!
//! Words that are written with each message lie apart from words that are read with each message. A
//! cache line that both ends touch costs each end an access to the other's cache.
//!
//! The sender pushes data into the receiver's ring, then the counter. The receiver reads its own
//! memory and pushes its counter back. So only stores cross the bus. All counters run freely. A
//! value that the peer writes is read once and checked before use, and a peer whose counters
//! contradict each other is dropped.
//!
//! `rings/waking.rs` tells when an end rings a doorbell of the other.

mod waking;

pub(super) use waking::{
    Requester,
    WakeRequest, //
};

use super::{
    peer_ring::PeerRing,
    stream::Stream, //
};
use crate::{
    logic::{
        messages::{
            Message,
            RingAddress, //
        },
        ring::Geometry, //
    },
    peer::{
        service::Violation, //
    },
    sys::{
        buffer::Buffer,
        reached::{
            flush_writes,
            Reached, //
        },
        shared_memory::SharedMemory, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        barrier, //
    },
};

pub(super) const PRODUCED: usize = 0;
pub(super) const CONSUMED: usize = 64;
pub(super) const ROOM_WANTED: usize = 128;
pub(super) const DATA_WANTED: usize = 132;
pub(super) const ROOM_DOORBELL: usize = 136;
pub(super) const DATA_DOORBELL: usize = 140;

/// Bytes that go through a bounce buffer at a time, if the caller's memory can't be copied
/// directly. Messages that are sent whole go through it in one piece.
const CHUNK: usize = 4096;

impl Stream {
    /// Returns the data that the peer needs to reach this end's ring.
    pub(super) fn ring_address(&self) -> RingAddress {
        RingAddress {
            address: self.header().bus_address(),
            size: self.own.first.size(),
            doorbell: self.doorbell,
            limit: self.own.limit.size(),
        }
    }

    fn header(&self) -> &SharedMemory {
        &self.own.head
    }

    /// Checks and notes the address of the peer's ring. Ends the relation to the peer if the ring
    /// can't be reached.
    pub(super) fn set_remote(&self, ring: &RingAddress) -> Result {
        let doorbell_exists = self.channel.doorbells.exists(ring.doorbell);
        let remote = PeerRing::new(self.channel.path(), ring);
        let (true, Some(remote)) = (doorbell_exists, remote) else {
            self.channel.fail("it offers a ring that can't be reached");
            return Err(ENODEV);
        };
        self.remote.populate(remote);
        Ok(())
    }

    /// Returns the peer's ring. ENOTCONN: the ring is not known yet.
    pub(super) fn remote(&self) -> Result<&PeerRing> {
        self.remote.as_ref().ok_or(ENOTCONN)
    }

    /// Returns how many bytes can be sent before the peer receives any. ENOTCONN: the peer's ring
    /// is not known yet.
    pub(super) fn remote_size(&self) -> Result<u32> {
        Ok(self.remote()?.size())
    }

    // ----- growing -----------------------------------------------------------------------------

    /// Asks the peer for a larger ring, if the ring may grow and was not asked for before. The
    /// caller is the sender, has `rest` bytes to send and finds too little room.
    /// Context: any.
    pub(super) fn ask_for_room(&self, rest: usize) -> Result {
        if !self.remote()?.may_grow() {
            return Ok(());
        }
        let rest = u32::try_from(rest).unwrap_or(u32::MAX);
        let bytes = self.unread_there().saturating_add(rest);
        let target = self.channel.remote()?;
        if self.remote()?.is_to_grow(bytes) {
            self.channel.send_once(&Message::RingWanted { target });
        }
        Ok(())
    }

    /// Answers a peer that asks for a larger ring. Offers one, or refuses for lack of memory.
    /// Context: control work, may sleep.
    pub(super) fn grow(&self) {
        let Ok(target) = self.channel.remote() else {
            return;
        };
        let grown = self.own.grow(self.channel.path(), &self.channel.group);
        if self.check_open().is_err() {
            // Sends no answer: the peer hears of the close next. From a refusal it would conclude
            // that the message is too long.
            return;
        }
        let (address, size) = grown.unwrap_or((0, 0));
        self.channel.answer(&Message::RingOffer {
            target,
            address,
            size,
        });
    }

    /// Handles the peer's answer to [`Self::ask_for_room`], and wakes the waiters, as there may be
    /// room now.
    /// Context: control work.
    pub(super) fn offered(&self, address: u64, size: u32) -> Result<(), Violation> {
        let remote = self.remote().or(Err("it offers a ring of no connection"))?;
        remote.answered(self.channel.path(), address, size)?;
        self.channel.wake();
        Ok(())
    }

    // ----- counters ----------------------------------------------------------------------------

    /// Returns how many bytes can be sent now. Only for the sender: if this end's counter moved
    /// between the two loads, this function would see a contradiction where none is.
    pub(super) fn room(&self) -> Result<u32> {
        let consumed = self.header().read_u32(CONSUMED)?;
        let room = self.room_behind(consumed)?;
        self.seen_consumed.store(consumed, Relaxed);
        Ok(room)
    }

    /// Returns how many bytes can be sent, as [`Self::room`], or a smaller number that is at least
    /// `enough`. Reads the peer's counter only if it has to.
    pub(super) fn room_for(&self, enough: usize) -> Result<u32> {
        match self.room_behind(self.seen_consumed.load(Relaxed))? {
            room if room as usize >= enough => Ok(room),
            _ => self.room(),
        }
    }

    fn room_behind(&self, consumed: u32) -> Result<u32> {
        let geometry = self.remote()?.latest().geometry;
        geometry
            .free(self.produced.load(Relaxed), consumed)
            .map_err(|_| {
                self.channel.fail("it takes more data than was sent");
                ECONNRESET
            })
    }

    /// Returns how many bytes can be received now. Only for the receiver, as this end's counter
    /// must stand still.
    pub(super) fn available(&self) -> Result<u32> {
        let produced = self.header().load_acquire_u32(PRODUCED)?;
        let available = self
            .own
            .largest()
            .used(produced, self.consumed.load(Relaxed))
            .map_err(|_| self.too_much())?;
        self.seen_produced.store(produced, Relaxed);
        Ok(available)
    }

    /// Returns how many bytes can be received, as [`Self::available`], or a smaller number that is
    /// at least `enough`. Reads the peer's counter only if it has to.
    pub(super) fn available_for(&self, enough: usize) -> Result<u32> {
        let seen = self.seen_produced.load(Relaxed);
        // The value was checked when it was read, and only the receiver has moved this end's
        // counter since.
        match seen.wrapping_sub(self.consumed.load(Relaxed)) {
            available if available as usize >= enough => Ok(available),
            _ => self.available(),
        }
    }

    fn too_much(&self) -> Error {
        self.channel.fail("it sends more data than the ring holds");
        ECONNRESET
    }

    /// Returns whether the peer's ring seems not to be full. This is an estimate: the sender may
    /// move on at the same time.
    /// Context: any.
    pub(super) fn seems_to_have_room(&self) -> bool {
        self.remote()
            .is_ok_and(|remote| self.unread_there() != remote.size())
    }

    /// Returns how many bytes seem to be in the peer's ring. This is an estimate unless the caller
    /// is the sender.
    /// Context: any.
    pub(super) fn unread_there(&self) -> u32 {
        let consumed = self.header().load_acquire_u32(CONSUMED).unwrap_or(0);
        self.produced.load(Relaxed).wrapping_sub(consumed)
    }

    /// Returns how many bytes seem to be in this end's ring. This is an estimate unless the caller
    /// is the receiver.
    ///
    /// Reads this end's counter first, so that the peer's is never behind it.
    /// Context: any.
    pub(super) fn unread_here(&self) -> u32 {
        let consumed = self.consumed.load(Acquire);
        let produced = self.header().load_acquire_u32(PRODUCED);
        produced.unwrap_or(consumed).wrapping_sub(consumed)
    }

    // ----- moving bytes ------------------------------------------------------------------------

    /// Moves `count` bytes of `from`, beginning at `at`, into the peer's ring, and wakes the
    /// receiver that waits for them. The ring has room for them. Returns how many it has moved: if
    /// `whole`, always all of them. The sender calls this function outside of the peer, because a
    /// fault on the caller's memory may take any time.
    pub(super) fn push(
        &self,
        from: &Buffer,
        at: usize,
        count: usize,
        whole: bool,
    ) -> Result<usize> {
        // Memory that is present is copied directly, in one go.
        if self.push_bytes(count, |ring, to, done, len| {
            ring.write_from(to, from, at + done, len)
        })? {
            return Ok(count);
        }
        let count = if whole { count } else { count.min(CHUNK) };
        let mut copy = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        from.append_to(at, count, &mut copy)?;
        self.push_bytes(count, |ring, to, done, len| {
            let bytes = copy.get(done..).and_then(|rest| rest.get(..len));
            ring.write(to, bytes.ok_or(EINVAL)?).map(|()| true)
        })?;
        Ok(count)
    }

    /// Has `write` store `count` bytes, span by span. `write` gets the ring, the offset in it, the
    /// number of bytes stored before and the length of the span. It returns whether it could store
    /// them. If it could not, nothing was moved.
    fn push_bytes(
        &self,
        count: usize,
        write: impl Fn(&Reached<'_>, usize, usize, usize) -> Result<bool>,
    ) -> Result<bool> {
        let remote = self.remote()?;
        let _use = self.channel.begin_use()?;
        let path = self.channel.path();
        let header = remote.reach_header(path)?;
        let before = self.produced.load(Relaxed);
        let area = remote.move_on(&header, before)?;
        let ring = remote.reach_area(path, area)?;
        let count = u32::try_from(count)?;
        let mut done = 0;
        for (offset, len) in area.geometry.spans(before, count) {
            if len > 0 && !write(&ring, offset as usize, done, len as usize)? {
                return Ok(false);
            }
            done += len as usize;
        }
        let after = Geometry::advance(before, count);
        self.produced.store(after, Relaxed);
        // The counter must not overtake the data, nor the word of a move.
        flush_writes();
        header.write_u32(PRODUCED, after)?;
        self.answer(&self.data_request, before, after)?;
        Ok(true)
    }

    /// Moves `count` bytes out of this end's ring to `at`, and wakes the sender that waits for
    /// room. Only the receiver may call this, and the ring must have the bytes.
    pub(super) fn pull(&self, to: &Buffer, at: usize, count: usize) -> Result {
        let before = self.consumed.load(Relaxed);
        let after = Geometry::advance(before, u32::try_from(count)?);
        let (mut at, mut next) = (at, before);
        while next != after {
            let left = after.wrapping_sub(next);
            let unread = self.own.unread(next, left).map_err(|_| self.too_much())?;
            for (offset, len) in unread.spans {
                to.write_shared(at, unread.memory, offset, len)?;
                at += len;
            }
            next = Geometry::advance(next, unread.count);
        }
        self.consumed.store(after, Release);
        // Fails if the peer is gone or has closed its end: such a peer does not need the counter.
        let _ = self.report_consumed(before, after);
        Ok(())
    }

    fn report_consumed(&self, before: u32, after: u32) -> Result {
        let _use = self.channel.begin_use()?;
        // The loads of the data come before the store that gives their place away.
        barrier::mb(barrier::Full);
        let header = self.remote()?.reach_header(self.channel.path())?;
        header.write_u32(CONSUMED, after)?;
        self.answer(&self.room_request, before, after)
    }
}
