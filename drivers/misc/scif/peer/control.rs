// SPDX-License-Identifier: GPL-2.0

//! The control rings: messages to the peer, messages from the peer.
//!
//! Each side owns one *control block* in its own memory, into which the other side pushes:
//!
//! ```text
//!    0  heartbeat  u64  counts up while the peer is alive
//!   64  consumed   u64  how many of our requests the peer has taken out of its ring
//!  128  farewell   u32  our nonce, once the peer will write nothing more in this session
//!  192  consumed   u64  how many of our answers the peer has taken out of its ring
//!  256  requests   64 bytes each, see `logic/envelope.rs` and `logic/control_block.rs`
//!       annexes    512 bytes for each request
//!       answers    64 bytes each
//! ```
//!
//! How many slots there are follows from the aperture through which a block is reached
//! (`logic/control_block.rs`).
//!
//! # Why two rings
//!
//! A request may make its receiver send an answer; an answer never makes its receiver send anything. So a
//! reader can always take out answers, and takes out a request only while its own ring of answers has room.
//! Neither side can stop the other for good, and neither has to keep what does not fit.
//!
//! # Who sends how
//!
//! A process posts, and waits for room ([`super::Peer::post`]). The handler of a request answers at once
//! ([`super::Peer::answer`]). What is said later, or by who must not wait, is sent with memory that was reserved for it
//! ([`super::Peer::send`]): the control work writes it when there is room. The control work is also the only
//! reader.
//!
//! Whoever has written rings the doorbell afterwards, unless another one has rung since ([`ControlRings::take_ring`]).
//! The reader rings the doorbell each time it has passed half a ring, so a writer that found the ring full
//! hears of the room: a full ring holds two halves. What has been handled is reported after some messages, as
//! the report crosses the bus. Only the control work writes answers, so the room for those of a request, once
//! found, is there.
//!
//! This file has more than 500 lines because both directions share the block, its geometry and one doorbell.
//!
//! Locks: all are spinlocks, so that whoever has one is not kept from the processor by others: the control work, and
//! with it everybody, waits for them. Under `writer`, which is held for one message, `late` is taken and the path called.

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

/// Where the other side reports how many messages of a ring it has taken out.
const fn consumed_of(lane: Lane) -> usize {
    match lane {
        Lane::Requests => 64,
        Lane::Answers => 192,
    }
}

static_assert!(SLOTS_OFFSET >= consumed_of(Lane::Answers) + 8 && SLOTS_OFFSET % SLOT_SIZE == 0);

/// A peer that makes no room in a ring for so long does not handle messages any more.
pub(super) const ROOM_MILLISECONDS: u32 = 120_000;

pub(super) const NOT_TAKEN: &str = "it does not take its control messages";

/// Returns the reason, for the log, why the relation ends if its rings can't be used.
pub(super) fn reason(error: Error) -> &'static str {
    if error == EPROTO {
        "it reports messages that were never sent"
    } else {
        NOT_TAKEN
    }
}

type Body = [u8; SEQUENCE_OFFSET];

/// A message that waits for room, or will.
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

/// The memory of one message that is sent later, without waiting and without failing.
pub(crate) struct Reservation(Pin<UniqueArc<Late>>);

impl Reservation {
    /// Reserves the memory; the caller's process pays with `GFP_KERNEL_ACCOUNT`.
    pub(crate) fn new(flags: kernel::alloc::Flags) -> Result<Self> {
        let late = pin_init!(Late {
            body: [0; SEQUENCE_OFFSET],
            links <- ListLinks::new(),
        });
        Ok(Self(UniqueArc::pin_init(late, flags)?))
    }
}

/// The annex of a message that was taken out, until its handling ends.
pub(crate) struct AnnexOf<'a> {
    /// Where it lies; none for an answer.
    place: Option<usize>,
    block: &'a SharedMemory,
}

impl AnnexOf<'_> {
    /// A private copy of so many words; none if it does not have as many.
    pub(crate) fn words(&self, count: usize) -> Option<Annex> {
        let mut annex = Annex::new();
        self.block.read(self.place?, annex.room_for(count)?).ok()?;
        Some(annex)
    }
}

/// The two rings of one lane: the one in our block, and the peer's.
#[pin_data]
struct Ring {
    lane: Lane,
    #[pin]
    reader: SpinLock<SlotReader>,
    /// How many messages the peer knows to have been taken out; written by the control work.
    reported: Atomic<u64>,
    #[pin]
    writer: SpinLock<SlotWriter>,
    /// For the peer to make room for a message that found none. Begins, and ends, under `writer`.
    room: Countdown,
    /// Reserved messages that wait for room.
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

    /// A message has found no room. Under `writer`.
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
    /// Where the peer's block lies, as a bus address of the peer.
    peer_block: u64,
    peer_geometry: ControlGeometry,
    #[pin]
    requests: Ring,
    #[pin]
    answers: Ring,
    /// How many requests of the peer were handled; written by the control work.
    handled: Atomic<u64>,
    /// Counts the reports by which the peer has made room.
    pub(super) progress: Atomic<u64>,
    /// Messages were written, or half a ring was reported, for which the doorbell has not rung.
    is_to_ring: Atomic<bool>,
    /// Woken when the peer has made room, when a request was handled, and when the peer is lost.
    #[pin]
    pub(super) waiters: WaitQueue,
}

impl ControlRings {
    /// The channel between our zeroed `block` and the peer's at `peer_block`, each with the geometry of
    /// such a block: EFAULT if the peer's can't be reached.
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

    /// For how many requests of the peer there is room.
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

    /// Writes a message into the peer's ring if it has room, behind all that waits for room there. Returns false if
    /// it has none; [`Self::progress`] changes when there may be some. Process context.
    pub(super) fn post(&self, path: &dyn Path, envelope: &Envelope, annex: &Annex) -> Result<bool> {
        let ring = self.ring(envelope.lane());
        let posted = self.behind_late(path, ring, 1, |writer| {
            self.write(path, ring, writer, &envelope.encode(), annex)
        })?;
        Ok(posted.is_some())
    }

    /// Writes the answer to the request that is being handled: [`Self::may_handle`] has seen to the room. Process context.
    pub(super) fn answer(&self, path: &dyn Path, envelope: &Envelope) -> Result {
        let ring = &self.answers;
        let mut writer = ring.writer.lock();
        self.write(path, ring, &mut writer, &envelope.encode(), Annex::NONE)
    }

    /// Whether the doorbell is to ring for what was written since the last call: the caller rings it. Whoever
    /// writes calls this afterwards.
    pub(super) fn take_ring(&self) -> bool {
        self.is_to_ring.xchg(false, Full)
    }

    /// Queues a message for [`Self::flush`]. Any context.
    pub(super) fn send(&self, mut reservation: Reservation, envelope: &Envelope) {
        *reservation.0.as_mut().project().body = envelope.encode();
        let mut late = self.ring(envelope.lane()).late.lock();
        late.push_back(ListArc::from(reservation.0));
    }

    /// Writes the queued messages as far as there is room. Only for the control work.
    pub(super) fn flush(&self, path: &dyn Path) -> Result {
        for ring in [&self.answers, &self.requests] {
            self.behind_late(path, ring, 0, |_| Ok(()))?;
        }
        Ok(())
    }

    /// Whether the next request may be handled: there is room for its answers, behind all that waits for room. If
    /// not, the peer rings when there is. Only for the control work, which alone writes answers.
    pub(super) fn may_handle(&self, path: &dyn Path) -> Result<bool> {
        let room = self.behind_late(path, &self.answers, ANSWERS_OF_ONE, |_| Ok(()))?;
        Ok(room.is_some())
    }

    /// Whether messages wait for room. Any context.
    pub(super) fn is_short(&self) -> bool {
        self.requests.room.runs() || self.answers.room.runs()
    }

    /// Whether they have waited for too long, `milliseconds` after the last call. Any context, one call at a time.
    pub(super) fn is_short_for_long(&self, milliseconds: u32) -> bool {
        let late =
            [&self.requests, &self.answers].map(|ring| ring.room.is_over_after(milliseconds));
        late.contains(&true)
    }

    /// Reads how much the peer has taken out, and wakes those who wait for room.
    fn acknowledge(&self, ring: &Ring, writer: &mut SlotWriter) -> Result {
        // The peer writes this word: read once, then checked.
        let consumed = self.block.read_u64(consumed_of(ring.lane))?;
        let has_moved = writer.acknowledge(consumed).map_err(|_| EPROTO)?;
        if has_moved {
            ring.room.set(None);
            self.progress.fetch_add(1, Release);
            self.waiters.wake_all();
        }
        Ok(())
    }

    /// Writes the queued messages of a ring as far as there is room, then calls `f` with the writer if there is room for
    /// so many more. None if there is not: the peer rings when there is.
    fn behind_late<R>(
        &self,
        path: &dyn Path,
        ring: &Ring,
        room: u32,
        f: impl FnOnce(&mut SlotWriter) -> Result<R>,
    ) -> Result<Option<R>> {
        loop {
            // Anew for each message: nobody waits here for many.
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
        // Whoever is told of it in another way finds it.
        flush_writes();
        self.is_to_ring.store(true, Release);
        Ok(())
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Whether the next message of a ring has come. Process context.
    pub(super) fn has_next(&self, lane: Lane) -> Result<bool> {
        let next = self.next_slot(lane, &self.ring(lane).reader.lock())?;
        Ok(next.is_some())
    }

    /// Returns the slot of the next message of a ring, if that has come.
    fn next_slot(&self, lane: Lane, reader: &SlotReader) -> Result<Option<u32>> {
        let (index, _) = reader.expected();
        let is_ready = reader.is_ready(self.sequence_in(lane, index)?);
        Ok(is_ready.map_err(|_| EPROTO)?.then_some(index))
    }

    /// Loads the sequence number of a slot, before what else is in it.
    fn sequence_in(&self, lane: Lane, index: u32) -> Result<u64> {
        let slot = self.geometry.slot(lane, index);
        self.block.load_acquire_u64(slot + SEQUENCE_OFFSET)
    }

    /// Takes the next message of the peer out, if there is one, as a private copy. Its annex stays until
    /// the next call of [`Self::report`]. Only for the control work.
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

    /// Notes that what was taken out was handled, and reports it to the peer: at once, or if it `may_wait` once
    /// it is worth it. Only for the control work.
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
        // The loads of the slot come before the store that gives it away.
        barrier::mb(barrier::Full);
        path.reach(self.peer_block + consumed_of(lane) as u64, 8)?
            .write_u64(0, consumed)?;
        if self.geometry.is_half(consumed) {
            // Another processor may ring for it.
            flush_writes();
            self.is_to_ring.store(true, Release);
        }
        Ok(())
    }

    /// How many requests of the peer have come. Process context.
    pub(super) fn arrived(&self) -> Result<u64> {
        let reader = self.requests.reader.lock();
        reader.arrived(|index| self.sequence_in(Lane::Requests, index))
    }

    /// How many requests of the peer were handled. Any context.
    pub(super) fn handled(&self) -> u64 {
        self.handled.load(Acquire)
    }

    /// Whether all was taken out that was posted, where a node is its own peer. Process context.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(super) fn is_drained(&self) -> bool {
        [&self.requests, &self.answers].into_iter().all(|ring| {
            let writer = ring.writer.lock();
            ring.late.lock().is_empty() && writer.written() == ring.reader.lock().consumed()
        })
    }

    // ----- signs of life -----------------------------------------------------------------------

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
