// SPDX-License-Identifier: GPL-2.0

//! The two rings of a stream: bytes, counters, and who is to be woken.
//!
//! Each end owns the ring in which it receives, in its own memory (`own_ring.rs`, and `peer_ring.rs`
//! for what the other end knows of it). The peer writes all of it:
//!
//! ```text
//!   0  produced     u32  bytes that the peer has written into this ring, ever
//!   8  move         u64  from where on the second area is used, see `logic/ring.rs`
//!  64  consumed     u32  bytes that the peer has taken out of *its* ring, ever
//! 128  room wanted  u32  the peer wants a doorbell when we have taken so many out of this ring
//! 132  data wanted  u32  the peer wants a doorbell when we have written so many into *its* ring
//! 136  room doorbell, 140 data doorbell
//!                   u32  which doorbell that is to be, see `rings/waking.rs`
//! 192  data              of the first area; the second one lies elsewhere
//! ```
//!
//! What is written with each message lies apart from what is read with each: a cache line that
//! both ends touch costs each of them a way to the other's.
//!
//! The sender pushes data into the receiver's ring, then the counter; the receiver reads its own memory
//! and pushes its counter back: stores only. All counters run freely; what the peer writes there is read
//! once and checked before use, and a peer whose counters contradict each other is dropped.
//!
//! Who is rung for what, is in `rings/waking.rs`.

mod waking;

pub(super) use waking::{
    Wish,
    Wisher, //
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
        channel::State,
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

/// Bytes that go through the kernel's own memory at a time, where they have to, but for messages that
/// are sent whole.
const CHUNK: usize = 4096;

impl Stream {
    /// What the peer has to know of our ring.
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

    /// Learns of the peer's ring; what the peer says of it is checked here. Ends the relation to it if
    /// that can't be.
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

    /// The peer's ring: ENOTCONN before it is known.
    pub(super) fn remote(&self) -> Result<&PeerRing> {
        self.remote.as_ref().ok_or(ENOTCONN)
    }

    /// How much can be sent before anything is received: none before the peer's ring is known.
    pub(super) fn remote_size(&self) -> Result<u32> {
        Ok(self.remote()?.size())
    }

    // ----- growing -----------------------------------------------------------------------------

    /// Asks the peer for a larger ring if that is to be: there are `rest` bytes to send, and too little
    /// room. For who is sending. Any context.
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

    /// The peer asks for a larger ring: it gets one, or is told that it does not. The control work; may
    /// sleep.
    pub(super) fn grow(&self) {
        let Ok(target) = self.channel.remote() else {
            return;
        };
        let grown = match self.channel.state() {
            State::Established => self.own.grow(self.channel.path(), &self.channel.group),
            // Nobody receives any more.
            _ => Err(ENOTCONN),
        };
        let (address, size) = grown.unwrap_or((0, 0));
        self.channel.answer(&Message::RingOffer {
            target,
            address,
            size,
        });
    }

    /// The peer has answered [`Self::ask_for_room`]: who waits for room may have it now. The control work.
    pub(super) fn offered(&self, address: u64, size: u32) -> Result<(), Violation> {
        let remote = self.remote().or(Err("it offers a ring of no connection"))?;
        remote.answered(self.channel.path(), address, size)?;
        self.channel.wake();
        Ok(())
    }

    // ----- how far they are --------------------------------------------------------------------

    /// Bytes that can be sent now. For who is sending: our counter must stand still between the two
    /// loads, or a contradiction would be seen where none is.
    pub(super) fn room(&self) -> Result<u32> {
        let consumed = self.header().read_u32(CONSUMED)?;
        let room = self.room_behind(consumed)?;
        self.seen_consumed.store(consumed, Relaxed);
        Ok(room)
    }

    /// As [`Self::room`], but it may be more than this where it is `enough`: the peer's counter is only
    /// looked at if it has to be.
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

    /// Bytes that can be received now. For who is receiving, as [`Self::room`].
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

    /// As [`Self::available`], but it may be more than this where it is `enough`: the peer's counter is
    /// only looked at if it has to be.
    pub(super) fn available_for(&self, enough: usize) -> Result<u32> {
        let seen = self.seen_produced.load(Relaxed);
        // Checked when it was seen, and no less has been taken out since.
        match seen.wrapping_sub(self.consumed.load(Relaxed)) {
            available if available as usize >= enough => Ok(available),
            _ => self.available(),
        }
    }

    fn too_much(&self) -> Error {
        self.channel.fail("it sends more data than the ring holds");
        ECONNRESET
    }

    /// Whether the peer's ring is not full, as far as anybody can say who is not sending. Any
    /// context.
    pub(super) fn seems_to_have_room(&self) -> bool {
        self.remote()
            .is_ok_and(|remote| self.unread_there() != remote.size())
    }

    /// Bytes in the peer's ring, as far as anybody can say who is not sending. Any context.
    pub(super) fn unread_there(&self) -> u32 {
        let consumed = self.header().load_acquire_u32(CONSUMED).unwrap_or(0);
        self.produced.load(Relaxed).wrapping_sub(consumed)
    }

    /// Bytes in our ring, as far as anybody can say who is not receiving. Any context.
    ///
    /// Our counter is read first, so that the peer's is never behind it.
    pub(super) fn unread_here(&self) -> u32 {
        let consumed = self.consumed.load(Acquire);
        let produced = self.header().load_acquire_u32(PRODUCED);
        produced.unwrap_or(consumed).wrapping_sub(consumed)
    }

    // ----- moving bytes ------------------------------------------------------------------------

    /// Moves `count` bytes from `at` on, for which there is room, into the peer's ring, and wakes the
    /// receiver that waits for them. Returns how many it has moved: all of them if `whole`, or none. The
    /// sender calls it outside of the peer: the caller's memory may take any time.
    pub(super) fn push(
        &self,
        from: &Buffer,
        at: usize,
        count: usize,
        whole: bool,
    ) -> Result<usize> {
        // What is in memory goes in one copy.
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

    /// Has `write` store `count` bytes; it gets the ring, where in it, how many bytes came before, and
    /// how many, and says whether it could. If not, nothing was moved.
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
        self.answer(&self.data_wish, before, after)?;
        Ok(true)
    }

    /// Moves `count` bytes, which are there, out of our ring to `at`, and wakes who waits for room. For
    /// who is receiving.
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
        // A peer that is gone, or has closed its end, does not want to know.
        let _ = self.report_consumed(before, after);
        Ok(())
    }

    fn report_consumed(&self, before: u32, after: u32) -> Result {
        let _use = self.channel.begin_use()?;
        // The loads of the data come before the store that gives their place away.
        barrier::mb(barrier::Full);
        let header = self.remote()?.reach_header(self.channel.path())?;
        header.write_u32(CONSUMED, after)?;
        self.answer(&self.room_wish, before, after)
    }
}
