// SPDX-License-Identifier: GPL-2.0

//! The control rings: messages to the peer, messages from the peer.
//!
//! Each side owns one *control block* in its own memory. The other side writes into it:
//!
//! ```text
//!    0  heartbeat  u64  counts up while the peer is alive
//!   64  consumed   u64  number of this side's requests that the peer has taken out of its ring
//!  128  farewell   u32  this side's nonce, once the peer will write nothing more in this session
//!  192  consumed   u64  number of this side's answers that the peer has taken out of its ring
//!  256  requests   64 bytes each, see `logic/envelope.rs` and `logic/control_block.rs`
//!       annexes    512 bytes for each request
//!       answers    64 bytes each
//! ```
//!
//! The number of slots follows from the aperture through which the peer reaches a block
//! (`logic/control_block.rs`).
//!
//! # Why two rings
//!
//! A request may make its receiver send an answer. An answer never makes its receiver send
//! anything. So a reader can always take out answers, and takes out a request only while its own
//! ring of answers has room. Neither side can stop the other for good, and neither stores messages
//! that do not fit.
//!
//! # How messages are sent
//!
//! - A process posts a message, and waits for room ([`super::Peer::post`]).
//! - The handler of a request answers at once ([`super::Peer::answer`]).
//! - A sender that answers later, or that must not wait, uses memory reserved for the message
//!   ([`super::Peer::send`]). The control work writes the message when there is room.
//!
//! The control work is also the only reader.
//!
//! A writer rings the doorbell afterwards, unless another writer has rung since
//! ([`ControlRings::take_ring`]). The reader rings the doorbell each time it has passed half a
//! ring. So a writer that found the ring full learns of the room, as a full ring holds two halves.
//! The reader reports only after some messages that they were handled, as each report crosses the
//! bus. Only the control work writes answers, so the room for the answers to a request stays once
//! it was found.
//!
//! This file has more than 500 lines because both directions share the block, its geometry and one
//! doorbell.
//!
//! Locks: all are spinlocks, so that a holder is not preempted. The control work waits for them,
//! and every user of the peer waits for the control work. Under `writer`, which is held for one
//! message, `late` is taken and the path called.

use super::liveness::Countdown;
use crate::{
    logic::{
        control_block::{
            Annex,
            ControlGeometry,
            Lane,
            SlotReader,
            SlotWriter,
            ANSWERS_OF_ONE,
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
    list::{
        impl_list_arc_safe,
        impl_list_item,
        List,
        ListArc,
        ListLinks, //
    },
    new_spinlock, new_spinlock_irq,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        barrier,
        Arc,
        SpinLock,
        SpinLockIrq,
        UniqueArc, //
    },
};

const HEARTBEAT: usize = 0;
const FAREWELL: usize = 128;

/// Returns where the other side reports how many messages of a ring it has taken out.
const fn consumed_of(lane: Lane) -> usize {
    match lane {
        Lane::Requests => 64,
        Lane::Answers => 192,
    }
}

static_assert!(SLOTS_OFFSET >= consumed_of(Lane::Answers) + 8 && SLOTS_OFFSET % SLOT_SIZE == 0);

/// Milliseconds without room in a ring after which the peer counts as no longer handling messages.
pub(super) const ROOM_MILLISECONDS: u32 = 120_000;

pub(super) const NOT_TAKEN: &str = "it does not take its control messages";

/// Returns the reason, for the log, why unusable rings end the session.
pub(super) fn reason(error: Error) -> &'static str {
    if error == EPROTO {
        "it reports messages that were never sent"
    } else {
        NOT_TAKEN
    }
}

type Body = [u8; SEQUENCE_OFFSET];

/// A deferred message: it waits for room in the ring, or will.
#[pin_data]
struct Late {
    body: Body,
    #[pin]
    links: ListLinks,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Late { untracked; }
}

impl_list_item! {
    impl ListItem<0> for Late { using ListLinks { self.links }; }
}

/// The memory of one message, which can then be sent later without waiting and without failing.
pub(crate) struct Reservation(Pin<UniqueArc<Late>>);

impl Reservation {
    /// Reserves the memory. With `GFP_KERNEL_ACCOUNT` the caller's process pays for it.
    pub(crate) fn new(flags: kernel::alloc::Flags) -> Result<Self> {
        let late = pin_init!(Late {
            body: [0; SEQUENCE_OFFSET],
            links <- ListLinks::new(),
        });
        Ok(Self(UniqueArc::pin_init(late, flags)?))
    }
}

/// The annex of a message that was taken out, valid until the message was handled.
pub(crate) struct AnnexOf<'a> {
    /// Offset of the annex in the block. `None` for an answer.
    place: Option<usize>,
    block: &'a SharedMemory,
}

impl AnnexOf<'_> {
    /// Returns a private copy of the first `count` words. `None` if the annex is shorter.
    pub(crate) fn words(&self, count: usize) -> Option<Annex> {
        let mut annex = Annex::new();
        self.block.read(self.place?, annex.room_for(count)?).ok()?;
        Some(annex)
    }
}

/// The two rings of one lane: the receiving ring in this side's block, and the sending ring in the
/// peer's block.
#[pin_data]
struct Ring {
    lane: Lane,
    #[pin]
    reader: SpinLock<SlotReader>,
    /// Number of consumed messages that was reported to the peer. Written by the control work.
    reported: Atomic<u64>,
    #[pin]
    writer: SpinLock<SlotWriter>,
    /// Time limit for the peer to make room. Starts when a message finds no room; stopped by a
    /// report. Both happen under `writer`.
    room: Countdown,
    /// Deferred messages, in the order in which they are to be written.
    #[pin]
    late: SpinLockIrq<List<Late>>,
}

impl Ring {
    fn new(lane: Lane, own_slots: u32, peer_slots: u32) -> Result<impl PinInit<Self>> {
        let reader = SlotReader::new(own_slots).ok_or(EINVAL)?;
        let writer = SlotWriter::new(peer_slots).ok_or(EINVAL)?;
        Ok(pin_init!(Self {
            lane,
            reader <- new_spinlock!(reader, "Ring::reader"),
            reported: Atomic::new(0),
            writer <- new_spinlock!(writer, "Ring::writer"),
            room: Countdown::new(0),
            late <- new_spinlock_irq!(List::new(), "Ring::late"),
        }))
    }

    /// Starts the time limit after a message has found no room. The caller holds `writer`.
    fn set_short(&self) {
        if !self.room.runs() {
            self.room.set(Some(ROOM_MILLISECONDS));
        }
    }
}

/// Both directions of the control channel with one peer.
#[pin_data]
pub(crate) struct ControlRings {
    block: Arc<SharedMemory>,
    geometry: ControlGeometry,
    /// Bus address, on the peer's bus, of the peer's block.
    peer_block: u64,
    peer_geometry: ControlGeometry,
    #[pin]
    requests: Ring,
    #[pin]
    answers: Ring,
    /// Number of handled requests of the peer. Written by the control work.
    handled: Atomic<u64>,
    /// Number of reports by which the peer has made room.
    pub(super) progress: Atomic<u64>,
    /// Whether messages were written, or half a ring was reported, since the doorbell was last
    /// rung.
    is_to_ring: Atomic<bool>,
    /// Woken when the peer has made room, when a request was handled, and when the peer is lost.
    #[pin]
    pub(super) waiters: WaitQueue,
}

impl ControlRings {
    /// Creates the channel between this side's zeroed `block` and the peer's at `peer_block`. Each
    /// block has the given geometry. EFAULT if the peer's block is out of reach or misaligned.
    pub(super) fn new(
        block: Arc<SharedMemory>,
        geometry: ControlGeometry,
        peer_block: u64,
        peer_geometry: ControlGeometry,
        path: &dyn Path,
    ) -> Result<impl PinInit<Self>> {
        path.reach(peer_block, peer_geometry.size() as u64)?;
        if peer_block % 8 != 0 {
            return Err(EFAULT);
        }
        let (own, peers) = (geometry.slots(), peer_geometry.slots());
        let requests = Ring::new(Lane::Requests, own, peers)?;
        let answers = Ring::new(Lane::Answers, own, peers)?;
        Ok(pin_init!(Self {
            block,
            geometry,
            peer_block,
            peer_geometry,
            requests <- requests,
            answers <- answers,
            handled: Atomic::new(0),
            progress: Atomic::new(0),
            is_to_ring: Atomic::new(false),
            waiters <- new_wait_queue!("scif::ControlRings::waiters"),
        }))
    }

    /// Returns the number of slots in this side's ring of requests.
    pub(super) fn slots(&self) -> u32 {
        self.geometry.slots()
    }

    fn ring(&self, lane: Lane) -> &Ring {
        match lane {
            Lane::Requests => &self.requests,
            Lane::Answers => &self.answers,
        }
    }

    // ----- sending -----------------------------------------------------------------------------

    /// Writes a message into the peer's ring, behind all deferred messages. Returns false if the
    /// ring has no room. When the ring may have room again, [`Self::progress`] changes.
    /// Context: process.
    pub(super) fn post(&self, path: &dyn Path, envelope: &Envelope, annex: &Annex) -> Result<bool> {
        let ring = self.ring(envelope.lane());
        let posted = self.behind_late(path, ring, 1, |writer| {
            self.write(path, ring, writer, &envelope.encode(), annex)
        })?;
        Ok(posted.is_some())
    }

    /// Writes the answer to the request that is being handled. [`Self::may_handle`] has found the
    /// room.
    /// Context: control work.
    pub(super) fn answer(&self, path: &dyn Path, envelope: &Envelope) -> Result {
        let ring = &self.answers;
        let mut writer = ring.writer.lock();
        self.write(path, ring, &mut writer, &envelope.encode(), Annex::NONE)
    }

    /// Returns whether the doorbell must be rung for messages written since the last call. Each
    /// writer calls this afterwards, and rings the doorbell if told so.
    pub(super) fn take_ring(&self) -> bool {
        self.is_to_ring.xchg(false, Full)
    }

    /// Defers a message until [`Self::flush`].
    /// Context: any.
    pub(super) fn send(&self, mut reservation: Reservation, envelope: &Envelope) {
        *reservation.0.as_mut().project().body = envelope.encode();
        let mut late = self.ring(envelope.lane()).late.lock();
        late.push_back(ListArc::from(reservation.0));
    }

    /// Writes the deferred messages as far as there is room.
    /// Context: control work.
    pub(super) fn flush(&self, path: &dyn Path) -> Result {
        for ring in [&self.answers, &self.requests] {
            self.behind_late(path, ring, 0, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Returns whether the next request may be handled: the peer's ring has room for the answers to
    /// it, behind all deferred messages. If not, the peer rings when there is room. Only the
    /// control work may call this, as it alone writes answers.
    /// Context: control work.
    pub(super) fn may_handle(&self, path: &dyn Path) -> Result<bool> {
        let room = self.behind_late(path, &self.answers, ANSWERS_OF_ONE, |_| Ok(()))?;
        Ok(room.is_some())
    }

    /// Returns whether messages wait for room.
    /// Context: any.
    pub(super) fn is_short(&self) -> bool {
        self.requests.room.runs() || self.answers.room.runs()
    }

    /// Returns whether messages have waited too long for room. `milliseconds` have passed since the
    /// last call.
    /// Context: any, one call at a time.
    pub(super) fn is_short_for_long(&self, milliseconds: u32) -> bool {
        let late =
            [&self.requests, &self.answers].map(|ring| ring.room.is_over_after(milliseconds));
        late.contains(&true)
    }

    /// Reads how many messages the peer has taken out, and wakes the posters that wait for room.
    fn acknowledge(&self, ring: &Ring, writer: &mut SlotWriter) -> Result {
        // Reads the word once and then checks the copy, as the peer can change the word at any
        // time.
        let consumed = self.block.read_u64(consumed_of(ring.lane))?;
        let has_moved = writer.acknowledge(consumed).map_err(|_| EPROTO)?;
        if has_moved {
            ring.room.set(None);
            self.progress.fetch_add(1, Release);
            self.waiters.wake_all();
        }
        Ok(())
    }

    /// Writes the deferred messages of a ring as far as there is room. Then calls `f` with the
    /// writer if there is room for `room` more messages. Returns `None` if there is not; the peer
    /// rings when it has made room.
    fn behind_late<R>(
        &self,
        path: &dyn Path,
        ring: &Ring,
        room: u32,
        f: impl FnOnce(&mut SlotWriter) -> Result<R>,
    ) -> Result<Option<R>> {
        loop {
            // Takes the lock anew for each message, so that no other sender waits for many
            // messages.
            let mut writer = ring.writer.lock();
            self.acknowledge(ring, &mut writer)?;
            let mut queue = ring.late.lock();
            let late = match writer.free() {
                0 => None,
                _ => queue.pop_front(),
            };
            let is_behind = late.is_none() && !queue.is_empty();
            drop(queue);
            if let Some(late) = late {
                self.write(path, ring, &mut writer, &late.body, Annex::NONE)?;
            } else if is_behind || writer.free() < room {
                ring.set_short();
                return Ok(None);
            } else {
                return f(&mut writer).map(Some);
            }
        }
    }

    /// Pushes one message into the peer's ring: ENOSPC if it is full.
    fn write(
        &self,
        path: &dyn Path,
        ring: &Ring,
        writer: &mut SlotWriter,
        body: &Body,
        annex: &Annex,
    ) -> Result {
        let (index, sequence) = writer.reserve().ok_or(ENOSPC)?;
        let annex = annex.as_bytes();
        if !annex.is_empty() {
            let place = self.peer_block + self.peer_geometry.annex(index) as u64;
            path.reach(place, annex.len() as u64)?.write(0, annex)?;
        }
        let slot = self.peer_block + self.peer_geometry.slot(ring.lane, index) as u64;
        let slot = path.reach(slot, SLOT_SIZE as u64)?;
        slot.write(0, body)?;
        // The sequence number makes the slot valid, so it must not overtake the rest.
        flush_writes();
        slot.write_u64(SEQUENCE_OFFSET, sequence)?;
        // A receiver that learns of the message in another way must find it.
        flush_writes();
        self.is_to_ring.store(true, Release);
        Ok(())
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Returns whether the next message of a ring has arrived.
    /// Context: process.
    pub(super) fn has_next(&self, lane: Lane) -> Result<bool> {
        let next = self.next_slot(lane, &self.ring(lane).reader.lock())?;
        Ok(next.is_some())
    }

    /// Returns the slot of the next message of a ring, if that message has arrived.
    fn next_slot(&self, lane: Lane, reader: &SlotReader) -> Result<Option<u32>> {
        let (index, _) = reader.expected();
        let is_ready = reader.is_ready(self.sequence_in(lane, index)?);
        Ok(is_ready.map_err(|_| EPROTO)?.then_some(index))
    }

    /// Loads the sequence number of a slot, before any load of the slot's other bytes.
    fn sequence_in(&self, lane: Lane, index: u32) -> Result<u64> {
        let slot = self.geometry.slot(lane, index);
        self.block.load_acquire_u64(slot + SEQUENCE_OFFSET)
    }

    /// Takes out the next message of the peer, if there is one, as a private copy. Its annex stays
    /// valid until the next call of [`Self::report`].
    /// Context: control work.
    pub(super) fn take(&self, lane: Lane) -> Result<Option<(Body, AnnexOf<'_>)>> {
        let mut reader = self.ring(lane).reader.lock();
        let Some(index) = self.next_slot(lane, &reader)? else {
            return Ok(None);
        };
        let mut body = [0; SEQUENCE_OFFSET];
        self.block
            .read(self.geometry.slot(lane, index), &mut body)?;
        reader.advance();
        let annex = AnnexOf {
            place: (lane == Lane::Requests).then_some(self.geometry.annex(index)),
            block: &self.block,
        };
        Ok(Some((body, annex)))
    }

    /// Marks all messages that were taken out as handled, and reports them to the peer. If the
    /// report `may_wait`, it is only sent once enough messages were handled.
    /// Context: control work.
    pub(super) fn report(&self, path: &dyn Path, lane: Lane, may_wait: bool) -> Result {
        let ring = self.ring(lane);
        let consumed = ring.reader.lock().consumed();
        if lane == Lane::Requests && consumed != self.handled.load(Relaxed) {
            self.handled.store(consumed, Release);
            self.waiters.wake_all();
        }
        if consumed == ring.reported.load(Relaxed) || may_wait && !self.geometry.is_due(consumed) {
            return Ok(());
        }
        ring.reported.store(consumed, Relaxed);
        // The loads from the slot come before the store that returns the slot to the peer.
        barrier::mb(barrier::Full);
        path.reach(self.peer_block + consumed_of(lane) as u64, 8)?
            .write_u64(0, consumed)?;
        if self.geometry.is_half(consumed) {
            // Another CPU may ring for this report, so the report must arrive before.
            flush_writes();
            self.is_to_ring.store(true, Release);
        }
        Ok(())
    }

    /// Returns how many requests of the peer have arrived.
    /// Context: process.
    pub(super) fn arrived(&self) -> Result<u64> {
        let reader = self.requests.reader.lock();
        reader.arrived(|index| self.sequence_in(Lane::Requests, index))
    }

    /// Returns how many requests of the peer were handled.
    /// Context: any.
    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Acquire)
    }

    /// Returns whether every posted message was taken out, where a node is its own peer.
    /// Context: process.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn is_drained(&self) -> bool {
        [&self.requests, &self.answers].into_iter().all(|ring| {
            let writer = ring.writer.lock();
            ring.late.lock().is_empty() && writer.written() == ring.reader.lock().consumed()
        })
    }

    // ----- heartbeats --------------------------------------------------------------------------

    /// Shows the peer that this side is alive.
    /// Context: any.
    pub(crate) fn beat(&self, path: &dyn Path, beat: u64) -> Result {
        path.reach(self.peer_block + HEARTBEAT as u64, 8)?
            .write_u64(0, beat)
    }

    /// Returns the last heartbeat of the peer.
    /// Context: any.
    pub(crate) fn peer_beat(&self) -> u64 {
        self.block.read_u64(HEARTBEAT).unwrap_or(0)
    }

    /// Tells the peer that this side will write nothing more in this session, so the peer may free
    /// its memory.
    pub(crate) fn say_farewell(&self, path: &dyn Path, peer_nonce: u32) -> Result {
        flush_writes();
        path.reach(self.peer_block + FAREWELL as u64, 4)?
            .write_u32(0, peer_nonce)
    }

    /// Returns whether the peer has said farewell to the session with this side's nonce `nonce`.
    /// Context: any.
    pub(crate) fn peer_said_farewell(&self, nonce: u32) -> bool {
        self.block.read_u32(FAREWELL) == Ok(nonce)
    }

    /// Unmaps the block from the device. Its contents are not read any more.
    pub(crate) fn unmap(&self) {
        self.block.retire();
    }
}
