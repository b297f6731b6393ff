// SPDX-License-Identifier: GPL-2.0

//! The control ring: messages to the peer, messages from the peer.
//!
//! Each side owns one *control block* in its own memory, into which the other side pushes:
//!
//! ```text
//!    0  heartbeat  u64  counts up while the peer is alive
//!   64  consumed   u64  how many of our messages the peer has taken out of its ring
//!  128  farewell   u32  our nonce, once the peer will write nothing more in this session
//!  256  slots      64 bytes each, see `logic/envelope.rs` and `logic/control_block.rs`
//!       annexes    512 bytes for each slot
//! ```
//!
//! How many slots there are follows from the aperture through which a block is reached
//! (`logic/control_block.rs`).
//!
//! Posting never waits for the peer: what does not fit the peer's ring goes into a backlog that is
//! flushed when the peer reports progress. A peer that makes the backlog overflow is dropped.
//! Callers with much to say (the extents of a window) wait for the backlog to empty in between.
//!
//! The reader always takes out everything; each time it has passed half a ring it rings the doorbell,
//! so a writer that found the ring full hears of the room: a full ring holds two halves. Likewise, a
//! writer whose messages the reader need not hear of at once rings each time it has filled half a ring.
//! What has been handled is reported after some messages, as the report crosses the bus.
//!
//! Locks: `writer` is taken with no other lock of this file held and nothing is called from under
//! it but the path. `reader` belongs to one who handles messages (`dispatch.rs`) alone.

use crate::{
    logic::{
        control_block::{
            Annex,
            ControlGeometry,
            SlotReader,
            SlotWriter,
            SLOTS_OFFSET, //
        },
        envelope::{
            Envelope,
            SEQUENCE_OFFSET,
            SLOT_SIZE, //
        },
    },
    sys::{
        reached::flush_writes,
        shared_memory::SharedMemory,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::path::Path, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        barrier,
        Arc,
        Mutex, //
    },
};

const HEARTBEAT: usize = 0;
const CONSUMED: usize = 64;
const FAREWELL: usize = 128;

static_assert!(CONSUMED >= HEARTBEAT + 8 && FAREWELL >= CONSUMED + 8);
static_assert!(SLOTS_OFFSET >= FAREWELL + 4 && SLOTS_OFFSET % SLOT_SIZE == 0);

/// Messages that may wait for room in the peer's ring: more than there are windows that can be
/// released at once when a connection is closed.
pub(crate) const BACKLOG_LIMIT: usize = 1 << 18;
/// Bulk senders wait while more messages than this are in the backlog.
const BACKLOG_BULK: usize = 64;

type Body = [u8; SEQUENCE_OFFSET];

/// A message in the backlog.
struct Waiting {
    body: Body,
    /// The words of its annex.
    annex: KVec<u8>,
}

/// The annex of a message that was taken out, until its handling ends.
pub(crate) struct AnnexOf<'a> {
    ring: &'a ControlRing,
    slot: u32,
}

impl AnnexOf<'_> {
    /// A private copy of so many words; none if it does not have as many.
    pub(crate) fn words(&self, count: usize) -> Option<Annex> {
        let mut annex = Annex::new();
        let place = self.ring.geometry.annex(self.slot);
        self.ring.block.read(place, annex.room_for(count)?).ok()?;
        Some(annex)
    }
}

struct Writer {
    slots: SlotWriter,
    backlog: KVVec<Waiting>,
    /// How many of the backlog have been written already.
    flushed: usize,
    /// How many were ever put there.
    ever_queued: u64,
}

/// Where a message has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// Into the peer's ring, where it is found by who looks.
    Visible,
    /// The same, and with it half of the ring is full, or there are others of which the peer should hear.
    Due,
    /// Into the backlog, as one of which this is the number: see [`ControlRing::has_flushed`].
    Queued(u64),
}

/// Both directions of the control channel with one peer.
#[pin_data]
pub(crate) struct ControlRing {
    block: Arc<SharedMemory>,
    geometry: ControlGeometry,
    /// Where the peer's block lies, as a bus address of the peer.
    peer_block: u64,
    peer_geometry: ControlGeometry,
    #[pin]
    reader: Mutex<SlotReader>,
    /// How many messages the peer knows to have been taken out; written by who takes them.
    reported: Atomic<u64>,
    #[pin]
    writer: Mutex<Writer>,
    /// How many messages wait in the backlog; written under `writer`.
    queued: Atomic<usize>,
    /// How many have ever left it; likewise.
    ever_flushed: Atomic<u64>,
    /// Woken when the backlog has become shorter, and when the peer is lost.
    #[pin]
    pub(crate) room: WaitQueue,
}

impl ControlRing {
    /// The channel between our zeroed `block` and the peer's at `peer_block`, each with the geometry of
    /// such a block: EFAULT if the peer's can't be reached.
    pub(super) fn new(
        (block, geometry): (Arc<SharedMemory>, ControlGeometry),
        (peer_block, peer_geometry): (u64, ControlGeometry),
        path: &dyn Path,
    ) -> Result<impl PinInit<Self>> {
        path.reach(peer_block, peer_geometry.size() as u64)?;
        if peer_block % 8 != 0 {
            return Err(EFAULT);
        }
        let reader = SlotReader::new(geometry.slots()).ok_or(EINVAL)?;
        let slots = SlotWriter::new(peer_geometry.slots()).ok_or(EINVAL)?;
        Ok(pin_init!(Self {
            block,
            geometry,
            peer_block,
            peer_geometry,
            reader <- new_mutex!(reader, "ControlRing::reader"),
            reported: Atomic::new(0),
            writer <- new_mutex!(
                Writer {
                    slots,
                    backlog: KVVec::new(),
                    flushed: 0,
                    ever_queued: 0,
                },
                "ControlRing::writer"
            ),
            queued: Atomic::new(0),
            ever_flushed: Atomic::new(0),
            room <- new_wait_queue!("scif::ControlRing::room"),
        }))
    }

    /// For how many messages of the peer there is room.
    pub(super) fn slots(&self) -> u32 {
        self.geometry.slots()
    }

    /// Sends a message or queues it behind others. May sleep; never waits for the peer. The
    /// caller rings the doorbell, at the latest when this says so.
    pub(crate) fn post(
        &self,
        path: &dyn Path,
        envelope: &Envelope,
        annex: &Annex,
    ) -> Result<Posted> {
        let body = envelope.encode();
        let mut writer = self.writer.lock();
        let before = writer.slots.written();
        self.flush_locked(path, &mut writer)?;
        let annex = annex.as_bytes();
        if writer.backlog.is_empty() && self.write(path, &mut writer.slots, &body, annex)? {
            let written = writer.slots.written();
            let halves = |messages| self.peer_geometry.halves(messages);
            return Ok(
                match halves(before) == halves(written) && written == before + 1 {
                    true => Posted::Visible,
                    false => Posted::Due,
                },
            );
        }
        if writer.backlog.len() - writer.flushed >= BACKLOG_LIMIT {
            return Err(ENOBUFS);
        }
        // Nobody pays: a message that can't be queued ends the relation, for all processes.
        let mut kept = KVec::new();
        kept.extend_from_slice(annex, GFP_KERNEL)?;
        let waiting = Waiting { body, annex: kept };
        writer.backlog.push(waiting, GFP_KERNEL)?;
        writer.ever_queued += 1;
        self.queued
            .store(writer.backlog.len() - writer.flushed, Relaxed);
        Ok(Posted::Queued(writer.ever_queued))
    }

    /// Whether the message with this number has left the backlog; [`Self::room`] is woken when one has.
    /// Any context.
    pub(crate) fn has_flushed(&self, number: u64) -> bool {
        self.ever_flushed.load(Acquire) >= number
    }

    /// Writes what waits as far as there is room. Returns whether the peer should be told by doorbell.
    pub(crate) fn flush(&self, path: &dyn Path) -> Result<bool> {
        let mut writer = self.writer.lock();
        if writer.backlog.is_empty() {
            return Ok(false);
        }
        let written = writer.slots.written();
        self.flush_locked(path, &mut writer)?;
        Ok(writer.slots.written() != written)
    }

    /// Whether a sender of many messages may go on; if not, [`Self::room`] is woken when it may.
    /// Any context.
    pub(crate) fn has_bulk_room(&self) -> bool {
        self.queued.load(Relaxed) <= BACKLOG_BULK
    }

    fn flush_locked(&self, path: &dyn Path, writer: &mut Writer) -> Result {
        // The peer writes this word: read once, then checked.
        let consumed = self.block.read_u64(CONSUMED)?;
        writer.slots.acknowledge(consumed).map_err(|_| EPROTO)?;
        while let Some(Waiting { body, annex }) = writer.backlog.get(writer.flushed) {
            if !self.write(path, &mut writer.slots, body, annex)? {
                break;
            }
            writer.flushed += 1;
        }
        if writer.flushed == writer.backlog.len() {
            writer.backlog.clear();
            writer.flushed = 0;
        }
        let queued = writer.backlog.len() - writer.flushed;
        self.ever_flushed
            .store(writer.ever_queued - queued as u64, Release);
        if self.queued.xchg(queued, Relaxed) > queued {
            self.room.wake_all();
        }
        Ok(())
    }

    /// Pushes one message into the peer's ring; says whether there was room.
    fn write(
        &self,
        path: &dyn Path,
        slots: &mut SlotWriter,
        body: &Body,
        annex: &[u8],
    ) -> Result<bool> {
        let Some((index, sequence)) = slots.reserve() else {
            return Ok(false);
        };
        if !annex.is_empty() {
            let place = self.peer_block + self.peer_geometry.annex(index) as u64;
            path.reach(place, annex.len() as u64)?.write(0, annex)?;
        }
        let slot = self.peer_block + self.peer_geometry.slot(index) as u64;
        let slot = path.reach(slot, SLOT_SIZE as u64)?;
        slot.write(0, body)?;
        // The sequence number makes the slot valid, so it must not overtake the rest.
        flush_writes();
        slot.write_u64(SEQUENCE_OFFSET, sequence)?;
        // Whoever is told of it in another way finds it: no doorbell need follow.
        flush_writes();
        Ok(true)
    }

    /// Takes the next message of the peer out, if there is one, as a private copy. Its annex stays until
    /// the next call of [`Self::report`].
    ///
    /// Called by one who handles messages only.
    pub(crate) fn take(&self) -> Result<Option<(Body, AnnexOf<'_>)>> {
        let mut reader = self.reader.lock();
        let (index, _) = reader.expected();
        let slot = self.geometry.slot(index);
        let sequence = self.block.load_acquire_u64(slot + SEQUENCE_OFFSET)?;
        if !reader.is_ready(sequence).map_err(|_| EPROTO)? {
            return Ok(None);
        }
        let mut body = [0; SEQUENCE_OFFSET];
        self.block.read(slot, &mut body)?;
        reader.advance();
        let annex = AnnexOf {
            ring: self,
            slot: index,
        };
        Ok(Some((body, annex)))
    }

    /// Reports to the peer what was taken out: after each message, which may be put off, and when there
    /// is none any more. Returns whether the peer should be told by doorbell.
    ///
    /// Called by one who handles messages only.
    pub(crate) fn report(&self, path: &dyn Path, may_wait: bool) -> Result<bool> {
        let consumed = self.reader.lock().consumed();
        if consumed == self.reported.load(Relaxed) || may_wait && !self.geometry.is_due(consumed) {
            return Ok(false);
        }
        self.reported.store(consumed, Relaxed);
        // The loads of the slot come before the store that gives it away.
        barrier::mb(barrier::Full);
        path.reach(self.peer_block + CONSUMED as u64, 8)?
            .write_u64(0, consumed)?;
        Ok(self.geometry.is_half(consumed))
    }

    /// Whether all was taken out that was posted, where a node is its own peer. May sleep.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn is_drained(&self) -> bool {
        let writer = self.writer.lock();
        writer.backlog.is_empty() && writer.slots.written() == self.reader.lock().consumed()
    }

    /// Shows the peer that this side is alive. Any context.
    pub(crate) fn beat(&self, path: &dyn Path, beat: u64) -> Result {
        path.reach(self.peer_block + HEARTBEAT as u64, 8)?
            .write_u64(0, beat)
    }

    /// The last sign of life of the peer. Any context.
    pub(crate) fn peer_beat(&self) -> u64 {
        self.block.read_u64(HEARTBEAT).unwrap_or(0)
    }

    /// Tells the peer that nothing more will be written in this session: it may free its memory.
    pub(crate) fn say_farewell(&self, path: &dyn Path, peer_nonce: u32) -> Result {
        flush_writes();
        path.reach(self.peer_block + FAREWELL as u64, 4)?
            .write_u32(0, peer_nonce)
    }

    /// Whether the peer has said farewell to the session with this nonce of ours. Any context.
    pub(crate) fn peer_said_farewell(&self, nonce: u32) -> bool {
        self.block.read_u32(FAREWELL) == Ok(nonce)
    }

    /// Takes the block away from the device; what is in it is not looked at any more.
    pub(crate) fn unmap(&self) {
        self.block.retire();
    }
}
