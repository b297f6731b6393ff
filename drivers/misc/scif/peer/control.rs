// SPDX-License-Identifier: GPL-2.0

//! The control ring: messages to the peer, messages from the peer.
//!
//! Each side owns one *control block* in its own memory, into which the other side pushes:
//!
//! ```text
//!    0  heartbeat  u64  counts up while the peer is alive
//!   64  consumed   u64  how many of our messages the peer has taken out of its ring
//!  128  farewell   u32  our nonce, once the peer will write nothing more in this session
//! 4096  slots      256 x 64 bytes, see `logic/envelope.rs` and `logic/slots.rs`
//! 20480 scratch    65536 bytes that mean nothing, for measuring
//! ```
//!
//! Posting never waits for the peer: what does not fit the peer's ring goes into a backlog that is
//! flushed when the peer reports progress. A peer that makes the backlog overflow is dropped.
//! Callers with much to say (the extents of a window) wait for the backlog to empty in between.
//!
//! The reader always takes out everything; each time it has passed half a ring it rings the doorbell,
//! so a writer that found the ring full hears of the room: a full ring holds two halves.
//!
//! Locks: `writer` is taken with no other lock of this file held and nothing is called from under
//! it but the path. `reader` belongs to the control work alone.

use crate::{
    logic::{
        envelope::{
            Envelope,
            SEQUENCE_OFFSET,
            SLOT_SIZE, //
        },
        slots::{
            SlotReader,
            SlotWriter, //
        },
    },
    sys::{
        shared_memory::SharedMemory,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::{
        outbound::flush_writes,
        path::Path, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        Arc,
        Mutex, //
    },
};

const HEARTBEAT: usize = 0;
const CONSUMED: usize = 64;
const FAREWELL: usize = 128;
const SLOTS_OFFSET: usize = 4096;
const SLOTS: u32 = 256;

static_assert!(CONSUMED >= HEARTBEAT + 8 && FAREWELL >= CONSUMED + 8);
static_assert!(SLOTS_OFFSET >= FAREWELL + 4 && SLOTS_OFFSET % SLOT_SIZE == 0);
// A full ring holds two halves, see above.
static_assert!(SLOTS.is_power_of_two() && SLOTS > 1);

/// Bytes behind the slots into which the peer may write, and from which it may read, what it likes: to
/// see how long that takes.
pub(crate) const SCRATCH_SIZE: usize = 64 << 10;
const SCRATCH_OFFSET: usize = SLOTS_OFFSET + SLOTS as usize * SLOT_SIZE;

/// Bytes of a control block.
pub(crate) const BLOCK_SIZE: usize = SCRATCH_OFFSET + SCRATCH_SIZE;

/// Messages that may wait for room in the peer's ring: more than there are windows that can be
/// released at once when a connection is closed.
pub(crate) const BACKLOG_LIMIT: usize = 1 << 18;
/// Bulk senders wait while more messages than this are in the backlog.
const BACKLOG_BULK: usize = 64;

type Body = [u8; SEQUENCE_OFFSET];

struct Writer {
    slots: SlotWriter,
    backlog: KVVec<Body>,
    /// How many of the backlog have been written already.
    flushed: usize,
}

/// Both directions of the control channel with one peer.
#[pin_data]
pub(crate) struct ControlRing {
    block: Arc<SharedMemory>,
    /// Where the peer's block lies, as a bus address of the peer.
    peer_block: u64,
    #[pin]
    reader: Mutex<SlotReader>,
    #[pin]
    writer: Mutex<Writer>,
    /// How many messages wait in the backlog; written under `writer`.
    queued: Atomic<usize>,
    /// Woken when the backlog has become shorter, and when the peer is lost.
    #[pin]
    pub(crate) room: WaitQueue,
}

impl ControlRing {
    /// The channel between our zeroed `block` and the peer's at `peer_block`: EFAULT if that can't
    /// be reached.
    pub(super) fn new(
        block: Arc<SharedMemory>,
        peer_block: u64,
        path: &dyn Path,
    ) -> Result<impl PinInit<Self>> {
        path.reach(peer_block, BLOCK_SIZE as u64)?;
        if peer_block % 8 != 0 {
            return Err(EFAULT);
        }
        let reader = SlotReader::new(SLOTS).ok_or(EINVAL)?;
        let slots = SlotWriter::new(SLOTS).ok_or(EINVAL)?;
        Ok(pin_init!(Self {
            block,
            peer_block,
            reader <- new_mutex!(reader, "ControlRing::reader"),
            writer <- new_mutex!(
                Writer {
                    slots,
                    backlog: KVVec::new(),
                    flushed: 0,
                },
                "ControlRing::writer"
            ),
            queued: Atomic::new(0),
            room <- new_wait_queue!("scif::ControlRing::room"),
        }))
    }

    /// The bus address of the peer's scratch memory.
    pub(super) fn peer_scratch(&self) -> u64 {
        // All of the block can be reached, as was checked.
        self.peer_block + SCRATCH_OFFSET as u64
    }

    /// Sends a message or queues it behind others. May sleep; never waits for the peer. The
    /// caller rings the doorbell.
    pub(crate) fn post(&self, path: &dyn Path, envelope: &Envelope) -> Result {
        let body = envelope.encode();
        let mut writer = self.writer.lock();
        self.flush_locked(path, &mut writer)?;
        if writer.backlog.is_empty() && self.write(path, &mut writer.slots, &body)? {
            return Ok(());
        }
        if writer.backlog.len() - writer.flushed >= BACKLOG_LIMIT {
            return Err(ENOBUFS);
        }
        // Nobody pays: a message that can't be queued ends the relation, for all processes.
        writer.backlog.push(body, GFP_KERNEL)?;
        self.queued
            .store(writer.backlog.len() - writer.flushed, Relaxed);
        Ok(())
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
        while let Some(body) = writer.backlog.get(writer.flushed) {
            if !self.write(path, &mut writer.slots, body)? {
                break;
            }
            writer.flushed += 1;
        }
        if writer.flushed == writer.backlog.len() {
            writer.backlog.clear();
            writer.flushed = 0;
        }
        let queued = writer.backlog.len() - writer.flushed;
        if self.queued.xchg(queued, Relaxed) > queued {
            self.room.wake_all();
        }
        Ok(())
    }

    /// Pushes one message into the peer's ring; says whether there was room.
    fn write(&self, path: &dyn Path, slots: &mut SlotWriter, body: &Body) -> Result<bool> {
        let Some((index, sequence)) = slots.reserve() else {
            return Ok(false);
        };
        let slot = self.peer_block + (SLOTS_OFFSET + index as usize * SLOT_SIZE) as u64;
        let slot = path.reach(slot, SLOT_SIZE as u64)?;
        slot.write(0, body)?;
        // The sequence number makes the slot valid, so it must not overtake the rest.
        flush_writes();
        slot.write_u64(SEQUENCE_OFFSET, sequence)?;
        Ok(true)
    }

    /// Takes the next message of the peer out, if there is one, as a private copy.
    ///
    /// Called by the control work only.
    pub(crate) fn take(&self) -> Result<Option<Body>> {
        let mut reader = self.reader.lock();
        let (index, _) = reader.expected();
        let slot = SLOTS_OFFSET + index as usize * SLOT_SIZE;
        let sequence = self.block.load_acquire_u64(slot + SEQUENCE_OFFSET)?;
        if !reader.is_ready(sequence).map_err(|_| EPROTO)? {
            return Ok(None);
        }
        let mut body = [0; SEQUENCE_OFFSET];
        self.block.read(slot, &mut body)?;
        reader.advance();
        Ok(Some(body))
    }

    /// Reports to the peer what was taken out. Returns whether the peer should be told by doorbell.
    ///
    /// Called by the control work only, after each message.
    pub(crate) fn acknowledge(&self, path: &dyn Path) -> Result<bool> {
        let consumed = self.reader.lock().consumed();
        // The loads of the slot come before the store that gives it away.
        barrier::mb(barrier::Full);
        path.reach(self.peer_block + CONSUMED as u64, 8)?
            .write_u64(0, consumed)?;
        Ok(consumed % u64::from(SLOTS / 2) == 0)
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

    /// Takes the block away from the device; the memory itself stays.
    pub(crate) fn unmap(&self) {
        self.block.unmap();
    }
}
