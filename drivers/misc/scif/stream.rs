// SPDX-License-Identifier: GPL-2.0

//! Messages: bytes through the rings of a connection.
//!
//! The sender pushes data into the receiver's ring, then the counter, then rings the bell: stores
//! only, no read crosses the bus. The receiver reads its own memory and pushes its counter back.
//!
//! A sender that finds the ring full says so with a control message, and is told once there is
//! room; without that it could not sleep, because a counter that arrives rings no bell. Announcing
//! and looking once more happen in this order on both sides, so no wake-up is lost: the sender
//! asks, the receiver notes the wish and then looks; a receiver that makes room looks for a wish
//! afterwards.
//!
//! Both counters run freely; what the peer writes there is checked before use, and a peer whose
//! counters contradict each other is dropped.

use crate::{
    connection::{
        Connection,
        Phase,
        CONSUMED,
        DATA,
        PRODUCED, //
    },
    logic::{
        ring::Geometry,
        wire::Message, //
    },
    sys::wait::WaitQueue,
    turn::{
        Turn,
        TurnGuard, //
    },
};
use kernel::{
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
        Arc, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

/// Bytes that go through the kernel's own memory at a time.
const CHUNK: usize = 4096;

/// Takes the turn of a direction; none for a call that must not wait.
fn take_turn(turn: &Turn, block: bool) -> Result<Option<TurnGuard<'_>>> {
    match block {
        true => turn.take().map(Some),
        false => Ok(turn.try_take()),
    }
}

/// What a call that has moved `done` bytes returns when it runs into `error`.
fn partial(done: usize, error: Error) -> Result<usize> {
    match done {
        0 => Err(error),
        _ => Ok(done),
    }
}

impl Connection {
    /// Bytes that can be sent now. For who has the turn: our counter must stand still between the
    /// two loads, or a contradiction would be seen where none is.
    fn room(&self) -> Result<u32> {
        let peer = self.peer()?;
        let consumed = self.inbound.read_u32(CONSUMED)?;
        peer.geometry
            .free(self.produced.load(Relaxed), consumed)
            .map_err(|_| {
                self.session.fail("it takes more data than was sent");
                ECONNRESET
            })
    }

    /// Bytes that can be received now. For who has the turn, as [`Self::room`].
    fn available(&self) -> Result<u32> {
        let produced = self.inbound.load_acquire_u32(PRODUCED)?;
        self.geometry
            .used(produced, self.consumed.load(Relaxed))
            .map_err(|_| {
                self.session.fail("it sends more data than the ring holds");
                ECONNRESET
            })
    }

    /// Whether the peer's ring is not full, as far as anybody can say who has not the turn. Any
    /// context.
    fn seems_to_have_room(&self) -> bool {
        let Ok(peer) = self.peer() else { return false };
        let consumed = self.inbound.load_acquire_u32(CONSUMED).unwrap_or(0);
        self.produced.load(Relaxed).wrapping_sub(consumed) != peer.geometry.size()
    }

    /// Whether our ring is not empty, as far as anybody can say who has not the turn. Any context.
    ///
    /// Our counter is read first, so that the peer's is never behind it.
    fn seems_to_have_data(&self) -> bool {
        let consumed = self.consumed.load(Acquire);
        self.inbound.read_u32(PRODUCED).unwrap_or(0) != consumed
    }

    /// The error of send and receive once the other end is gone; success as long as it is not.
    fn stream_state(&self) -> Result {
        match self.phase() {
            Phase::Established => Ok(()),
            Phase::Requested | Phase::Refused(_) => Err(ENOTCONN),
            Phase::PeerClosed | Phase::Lost | Phase::Closed => Err(ECONNRESET),
        }
    }

    /// The bell for this connection's data has rung; maybe for another that shares it. Hard
    /// interrupt context.
    pub(crate) fn bell_rang(&self) {
        // A counter that makes no sense wakes, too: the reader finds out.
        if self.seems_to_have_data() {
            self.wake();
        }
    }

    // ----- sending -----------------------------------------------------------------------------

    /// Sends `len` bytes of the caller's memory. Returns how many were sent.
    ///
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there is room for.
    pub(crate) fn send(self: &Arc<Self>, from: UserPtr, len: usize, block: bool) -> Result<usize> {
        self.stream_state()?;
        let Some(_turn) = take_turn(&self.send_turn, block)? else {
            return Ok(0);
        };
        let waiters = self.waiters()?;
        let mut chunk = KVec::with_capacity(CHUNK.min(len), GFP_KERNEL)?;
        let mut sent = 0;
        let mut announced = 0;
        let result = loop {
            if sent == len {
                break Ok(sent);
            }
            if let Err(error) = self.stream_state() {
                break partial(sent, error);
            }
            let room = match self.room() {
                Ok(room) => room as usize,
                Err(error) => break partial(sent, error),
            };
            if room == 0 {
                if !block {
                    // Who watches edges (EPOLLET) does not ask again before it is told.
                    let _ = self.ask_for_room();
                    break Ok(sent);
                }
                // The peer must know of what is there, or it will never make room.
                self.announce(&mut announced, sent);
                match self.wait_for_room(&waiters) {
                    Ok(()) => continue,
                    Err(error) => break partial(sent, error),
                }
            }
            let count = room.min(len - sent).min(CHUNK);
            let step = self.send_chunk(&mut chunk, from.wrapping_byte_add(sent), count);
            if let Err(error) = step {
                break partial(sent, error);
            }
            sent += count;
        };
        self.announce(&mut announced, sent);
        result
    }

    /// Rings the peer's bell if anything was sent since the last time.
    fn announce(&self, announced: &mut usize, sent: usize) {
        if let (true, Ok(peer)) = (*announced < sent, self.peer()) {
            self.session.ring(peer.bell);
            *announced = sent;
        }
    }

    /// Moves `count` bytes, for which there is room, into the peer's ring.
    fn send_chunk(&self, chunk: &mut KVec<u8>, from: UserPtr, count: usize) -> Result {
        chunk.clear();
        UserSlice::new(from, count).read_all(chunk, GFP_KERNEL)?;
        let peer = self.peer()?;
        let _session = self.session.enter().ok_or(ECONNRESET)?;
        let _writing = self.begin_writing()?;
        self.push(peer.ring, &peer.geometry, chunk)
    }

    fn push(&self, ring: u64, geometry: &Geometry, bytes: &[u8]) -> Result {
        let transport = &self.session.transport;
        let produced = self.produced.load(Relaxed);
        let count = u32::try_from(bytes.len())?;
        let mut rest = bytes;
        for (offset, len) in geometry.spans(produced, count) {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(EINVAL)?;
            if !now.is_empty() {
                transport.write(ring + (DATA as u64) + u64::from(offset), now)?;
            }
            rest = later;
        }
        let produced = Geometry::advance(produced, count);
        self.produced.store(produced, Relaxed);
        // The counter must not overtake the data.
        transport.flush();
        transport.write_u32(ring + PRODUCED as u64, produced)
    }

    /// Asks the peer to say when there is room, unless it has been asked.
    fn ask_for_room(self: &Arc<Self>) -> Result {
        if !self.space_requested.xchg(true, Full) {
            let target = self.peer()?.id;
            self.session
                .post(&Message::SpaceWanted { target })
                .map_err(|_| ECONNRESET)?;
        }
        Ok(())
    }

    fn wait_for_room(self: &Arc<Self>, waiters: &WaitQueue) -> Result {
        self.ask_for_room()?;
        waiters.wait(|| {
            let go_on = self.stream_state().is_err()
                || !self.space_requested.load(Relaxed)
                || self.room().map_or(true, |room| room > 0);
            go_on.then_some(())
        })
    }

    /// The peer says that there is room.
    pub(crate) fn space_available(&self) {
        self.space_requested.store(false, Relaxed);
        self.wake();
    }

    /// Whether something can be sent; if not, the waiters are woken when it can.
    pub(crate) fn poll_send(self: &Arc<Self>) -> bool {
        self.seems_to_have_room() || self.ask_for_room().is_err() || self.seems_to_have_room()
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Receives up to `len` bytes into the caller's memory. Returns how many were received.
    ///
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there are.
    pub(crate) fn receive(self: &Arc<Self>, to: UserPtr, len: usize, block: bool) -> Result<usize> {
        if matches!(self.phase(), Phase::Requested | Phase::Refused(_)) {
            return Err(ENOTCONN);
        }
        let Some(_turn) = take_turn(&self.receive_turn, block)? else {
            return Ok(0);
        };
        let waiters = self.waiters()?;
        let mut received = 0;
        while received < len {
            // The state is read first: what had arrived when the peer went is then seen.
            let state = self.stream_state();
            let available = match self.available() {
                Ok(available) => available as usize,
                Err(error) => return partial(received, error),
            };
            if available == 0 {
                if let Err(error) = state {
                    return partial(received, error);
                }
                if !block {
                    break;
                }
                let waited = waiters.wait(|| {
                    let go_on = self.stream_state().is_err()
                        || self.available().map_or(true, |bytes| bytes > 0);
                    go_on.then_some(())
                });
                if let Err(error) = waited {
                    return partial(received, error);
                }
                continue;
            }
            let count = available.min(len - received);
            if let Err(error) = self.receive_chunk(to.wrapping_byte_add(received), count) {
                return partial(received, error);
            }
            received += count;
        }
        Ok(received)
    }

    /// Moves `count` bytes, which are there, out of the ring.
    fn receive_chunk(&self, to: UserPtr, count: usize) -> Result {
        let consumed = self.consumed.load(Relaxed);
        let count = u32::try_from(count)?;
        let mut to = to;
        for (offset, len) in self.geometry.spans(consumed, count) {
            self.inbound
                .copy_to_user(DATA + offset as usize, to, len as usize)?;
            to = to.wrapping_byte_add(len as usize);
        }
        self.consumed
            .store(Geometry::advance(consumed, count), Release);
        self.report_consumed();
        Ok(())
    }

    /// Tells the peer how far we have come, and that there is room if it wants to know.
    fn report_consumed(&self) {
        let Ok(peer) = self.peer() else { return };
        if let Some(_session) = self.session.enter() {
            if let Ok(_writing) = self.begin_writing() {
                // The loads of the data come before the store that gives their place away.
                barrier::mb(barrier::Full);
                let _ = self
                    .session
                    .transport
                    .write_u32(peer.ring + CONSUMED as u64, self.consumed.load(Relaxed));
            }
        }
        self.answer_space_wanted();
    }

    /// The peer wants to know of room in our ring.
    pub(crate) fn space_wanted(&self) {
        self.space_wanted.store(true, Relaxed);
        barrier::smp_mb(barrier::Full);
        let produced = self.inbound.read_u32(PRODUCED).unwrap_or(0);
        let used = produced.wrapping_sub(self.consumed.load(Relaxed));
        if used != self.geometry.size() {
            self.answer_space_wanted();
        }
    }

    fn answer_space_wanted(&self) {
        barrier::smp_mb(barrier::Full);
        if take(&self.space_wanted) {
            if let Ok(peer) = self.peer() {
                let _ = self
                    .session
                    .post(&Message::SpaceAvailable { target: peer.id });
            }
        }
    }

    /// Whether data can be received. Any context.
    pub(crate) fn poll_receive(&self) -> bool {
        self.seems_to_have_data()
    }
}

/// Takes a flag down; says whether it was up.
fn take(flag: &Atomic<bool>) -> bool {
    flag.load(Relaxed) && flag.xchg(false, Full)
}
