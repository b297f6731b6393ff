// SPDX-License-Identifier: GPL-2.0

//! Messages: bytes through the rings of a connection.
//!
//! Each end owns the ring in which it receives, in its own memory:
//!
//! ```text
//!   0  produced  u32  bytes that the peer has written into this ring, ever
//!  64  consumed  u32  bytes that the peer has taken out of *its* ring, ever
//! 128  data           `Geometry::size` bytes
//! ```
//!
//! The sender pushes data into the receiver's ring, then the counter, then rings the doorbell: stores
//! only, no read crosses the bus. The receiver reads its own memory and pushes its counter back.
//!
//! A sender that finds the ring full says so with a control message, and is told once there is
//! room; without that it could not sleep, because a counter that arrives rings no doorbell. Announcing
//! and looking once more happen in this order on both sides, so no wake-up is lost: the sender
//! asks, the receiver notes the wish and then looks; a receiver that makes room looks for a wish
//! afterwards.
//!
//! Both counters run freely; what the peer writes there is checked before use, and a peer whose
//! counters contradict each other is dropped.

use crate::{
    logic::{
        messages::{
            Message,
            RingAddress, //
        },
        ring::Geometry, //
    },
    peer::{
        channel::{
            Channel,
            State, //
        },
        doorbells::Rung, //
    },
    sync::call_lock::CallLock,
    sys::{
        buffer::Buffer,
        shared_memory::SharedMemory,
        wait::WaitQueue, //
    },
    transport::outbound::flush_writes,
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
        Arc,
        SetOnce, //
    },
};

const PRODUCED: usize = 0;
const CONSUMED: usize = 64;
const DATA: usize = 128;

/// Bytes that go through the kernel's own memory at a time.
const CHUNK: usize = 4096;

/// What is known of the peer's ring.
struct RemoteRing {
    /// As a bus address of the peer.
    address: u64,
    geometry: Geometry,
    /// The doorbell that announces data in it.
    doorbell: u32,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Stream {
    channel: Arc<Channel>,
    inbound: SharedMemory,
    geometry: Geometry,
    /// The doorbell by which the peer announces data.
    pub(super) doorbell: u32,
    remote: SetOnce<RemoteRing>,
    #[pin]
    sending: CallLock,
    #[pin]
    receiving: CallLock,
    /// Bytes written into the peer's ring, ever; written by who is sending.
    produced: Atomic<u32>,
    /// Bytes taken out of our ring, ever; written by who is receiving.
    consumed: Atomic<u32>,
    /// We have asked the peer to tell us of room in its ring.
    room_requested: Atomic<bool>,
    /// The peer has asked us to tell it of room in our ring.
    room_wanted: Atomic<bool>,
}

/// What a call that has moved `done` bytes returns when it runs into `error`.
fn partial(done: usize, error: Error) -> Result<usize> {
    match done {
        0 => Err(error),
        _ => Ok(done),
    }
}

/// Takes a flag down; says whether it was up.
fn take(flag: &Atomic<bool>) -> bool {
    flag.load(Relaxed) && flag.xchg(false, Full)
}

impl Rung for Stream {
    fn rung(&self) {
        // A counter that makes no sense wakes, too: the reader finds out.
        if self.seems_to_have_data() {
            self.channel.wake();
        }
    }
}

impl Stream {
    /// Our end of a stream, with a ring of `size` bytes, a power of two, that the peer can reach. The
    /// caller is inside the peer. May sleep.
    pub(super) fn new(channel: &Arc<Channel>, size: u32) -> Result<Arc<Self>> {
        let geometry = Geometry::new(size).ok_or(EINVAL)?;
        let inbound = channel.path().share(DATA + size as usize)?;
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                inbound,
                geometry,
                doorbell: channel.data_doorbell(),
                remote: SetOnce::new(),
                sending <- CallLock::new(),
                receiving <- CallLock::new(),
                produced: Atomic::new(0),
                consumed: Atomic::new(0),
                room_requested: Atomic::new(false),
                room_wanted: Atomic::new(false),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// What the peer has to know of our ring.
    pub(super) fn address(&self) -> RingAddress {
        RingAddress {
            address: self.inbound.bus_address(),
            size: self.geometry.size(),
            doorbell: self.doorbell,
        }
    }

    /// Learns of the peer's ring; what the peer says of it is checked here. Ends the relation to it if
    /// that can't be.
    pub(super) fn set_remote(&self, ring: &RingAddress) -> Result {
        let len = DATA as u64 + u64::from(ring.size);
        let reached = self.channel.path().reach(ring.address, len).is_ok();
        let doorbell_exists = self.channel.has_doorbell(ring.doorbell);
        let (true, true, Some(geometry), 0) = (
            reached,
            doorbell_exists,
            Geometry::new(ring.size),
            ring.address % 8,
        ) else {
            self.channel.fail("it offers a ring that can't be reached");
            return Err(ENODEV);
        };
        self.remote.populate(RemoteRing {
            address: ring.address,
            geometry,
            doorbell: ring.doorbell,
        });
        Ok(())
    }

    /// The peer's ring: ENOTCONN before it is known.
    fn remote(&self) -> Result<&RemoteRing> {
        self.remote.as_ref().ok_or(ENOTCONN)
    }

    /// Takes the ring away from the peer; the data stays. May sleep.
    pub(super) fn unmap(&self) {
        self.inbound.unmap();
    }

    // ----- the rings ---------------------------------------------------------------------------

    /// Bytes that can be sent now. For who is sending: our counter must stand still between the two
    /// loads, or a contradiction would be seen where none is.
    fn room(&self) -> Result<u32> {
        let remote = self.remote()?;
        let consumed = self.inbound.read_u32(CONSUMED)?;
        remote
            .geometry
            .free(self.produced.load(Relaxed), consumed)
            .map_err(|_| {
                self.channel.fail("it takes more data than was sent");
                ECONNRESET
            })
    }

    /// Bytes that can be received now. For who is receiving, as [`Self::room`].
    fn available(&self) -> Result<u32> {
        let produced = self.inbound.load_acquire_u32(PRODUCED)?;
        self.geometry
            .used(produced, self.consumed.load(Relaxed))
            .map_err(|_| {
                self.channel.fail("it sends more data than the ring holds");
                ECONNRESET
            })
    }

    /// Whether the peer's ring is not full, as far as anybody can say who is not sending. Any
    /// context.
    fn seems_to_have_room(&self) -> bool {
        let Ok(remote) = self.remote() else {
            return false;
        };
        let consumed = self.inbound.load_acquire_u32(CONSUMED).unwrap_or(0);
        self.produced.load(Relaxed).wrapping_sub(consumed) != remote.geometry.size()
    }

    /// Whether our ring is not empty, as far as anybody can say who is not receiving. Any context.
    ///
    /// Our counter is read first, so that the peer's is never behind it.
    fn seems_to_have_data(&self) -> bool {
        let consumed = self.consumed.load(Acquire);
        self.inbound.read_u32(PRODUCED).unwrap_or(0) != consumed
    }

    /// The error of send and receive once the other end is gone; success as long as it is not.
    fn check_open(&self) -> Result {
        match self.channel.state() {
            State::Established => Ok(()),
            State::Requested | State::Refused => Err(ENOTCONN),
            State::PeerClosed | State::Lost | State::Closed => Err(ECONNRESET),
        }
    }

    /// Bytes in the peer's ring, as far as anybody can say who is not sending. Any context.
    pub(super) fn unread_there(&self) -> u32 {
        let consumed = self.inbound.read_u32(CONSUMED).unwrap_or(0);
        self.produced.load(Relaxed).wrapping_sub(consumed)
    }

    /// Bytes in our ring, as far as anybody can say who is not receiving. Any context.
    pub(super) fn unread_here(&self) -> u32 {
        let produced = self.inbound.read_u32(PRODUCED).unwrap_or(0);
        produced.wrapping_sub(self.consumed.load(Relaxed))
    }

    // ----- sending -----------------------------------------------------------------------------

    /// Sends the bytes of a caller. Returns how many were sent.
    ///
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there is room for.
    pub(super) fn send(&self, from: &Buffer, block: bool) -> Result<usize> {
        self.check_open()?;
        let Some(_sending) = self.sending.lock_for(block)? else {
            return Ok(0);
        };
        let waiters = self.channel.waiters()?;
        let len = from.len();
        let mut chunk = KVec::with_capacity(CHUNK.min(len), GFP_KERNEL_ACCOUNT)?;
        let mut sent = 0;
        let mut announced = 0;
        let result = loop {
            if sent == len {
                break Ok(sent);
            }
            if let Err(error) = self.check_open() {
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
            if let Err(error) = self.send_chunk(&mut chunk, from, sent, count) {
                break partial(sent, error);
            }
            sent += count;
        };
        self.announce(&mut announced, sent);
        result
    }

    /// Rings the peer's doorbell if anything was sent since the last time.
    fn announce(&self, announced: &mut usize, sent: usize) {
        if let (true, Ok(remote)) = (*announced < sent, self.remote()) {
            self.channel.path().ring(remote.doorbell);
            *announced = sent;
        }
    }

    /// Moves `count` bytes from `at` on, for which there is room, into the peer's ring.
    fn send_chunk(&self, chunk: &mut KVec<u8>, from: &Buffer, at: usize, count: usize) -> Result {
        chunk.clear();
        from.append_to(at, count, chunk)?;
        let remote = self.remote()?;
        let _inside = self.channel.enter().ok_or(ECONNRESET)?;
        let _use = self.channel.begin_use()?;
        self.push(remote, chunk)
    }

    fn push(&self, remote: &RemoteRing, bytes: &[u8]) -> Result {
        let geometry = &remote.geometry;
        let ring = self
            .channel
            .path()
            .reach(remote.address, DATA as u64 + u64::from(geometry.size()))?;
        let produced = self.produced.load(Relaxed);
        let count = u32::try_from(bytes.len())?;
        let mut rest = bytes;
        for (offset, len) in geometry.spans(produced, count) {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(EINVAL)?;
            if !now.is_empty() {
                ring.write(DATA + offset as usize, now)?;
            }
            rest = later;
        }
        let produced = Geometry::advance(produced, count);
        self.produced.store(produced, Relaxed);
        // The counter must not overtake the data.
        flush_writes();
        ring.write_u32(PRODUCED, produced)
    }

    /// Asks the peer to say when there is room, unless it has been asked.
    fn ask_for_room(&self) -> Result {
        if !self.room_requested.xchg(true, Full) {
            let target = self.channel.remote()?;
            self.channel
                .post(&Message::SpaceWanted { target })
                .map_err(|_| ECONNRESET)?;
        }
        Ok(())
    }

    fn wait_for_room(&self, waiters: &WaitQueue) -> Result {
        self.ask_for_room()?;
        waiters.wait(|| {
            let go_on = self.check_open().is_err()
                || !self.room_requested.load(Relaxed)
                || self.room().map_or(true, |room| room > 0);
            go_on.then_some(())
        })
    }

    /// The peer says that there is room.
    pub(super) fn space_available(&self) {
        self.room_requested.store(false, Relaxed);
        self.channel.wake();
    }

    /// Whether something can be sent; if not, the waiters are woken when it can.
    pub(super) fn poll_send(&self) -> bool {
        self.seems_to_have_room() || self.ask_for_room().is_err() || self.seems_to_have_room()
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Receives into the memory of a caller. Returns how many bytes were received.
    ///
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there are.
    pub(super) fn receive(&self, to: &Buffer, block: bool) -> Result<usize> {
        if matches!(self.channel.state(), State::Requested | State::Refused) {
            return Err(ENOTCONN);
        }
        let Some(_receiving) = self.receiving.lock_for(block)? else {
            return Ok(0);
        };
        let waiters = self.channel.waiters()?;
        let len = to.len();
        let mut received = 0;
        while received < len {
            // The state is read first: what had arrived when the peer went is then seen.
            let state = self.check_open();
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
                    let go_on = self.check_open().is_err()
                        || self.available().map_or(true, |bytes| bytes > 0);
                    go_on.then_some(())
                });
                if let Err(error) = waited {
                    return partial(received, error);
                }
                continue;
            }
            let count = available.min(len - received);
            if let Err(error) = self.receive_chunk(to, received, count) {
                return partial(received, error);
            }
            received += count;
        }
        Ok(received)
    }

    /// Moves `count` bytes, which are there, out of the ring to `at`.
    fn receive_chunk(&self, to: &Buffer, at: usize, count: usize) -> Result {
        let consumed = self.consumed.load(Relaxed);
        let mut at = at;
        for (offset, len) in self.geometry.spans(consumed, u32::try_from(count)?) {
            let len = len as usize;
            to.write_shared(at, &self.inbound, DATA + offset as usize, len)?;
            at += len;
        }
        self.consumed
            .store(Geometry::advance(consumed, count as u32), Release);
        self.report_consumed();
        Ok(())
    }

    /// Tells the peer how far we have come, and that there is room if it wants to know.
    fn report_consumed(&self) {
        let Ok(remote) = self.remote() else { return };
        if let Some(_inside) = self.channel.enter() {
            if let Ok(_use) = self.channel.begin_use() {
                // The loads of the data come before the store that gives their place away.
                barrier::mb(barrier::Full);
                let _ = self
                    .channel
                    .path()
                    .reach(remote.address, DATA as u64)
                    .and_then(|ring| ring.write_u32(CONSUMED, self.consumed.load(Relaxed)));
            }
        }
        self.answer_space_wanted();
    }

    /// The peer wants to know of room in our ring.
    pub(super) fn space_wanted(&self) {
        self.room_wanted.store(true, Relaxed);
        barrier::smp_mb(barrier::Full);
        let produced = self.inbound.read_u32(PRODUCED).unwrap_or(0);
        let used = produced.wrapping_sub(self.consumed.load(Relaxed));
        if used != self.geometry.size() {
            self.answer_space_wanted();
        }
    }

    fn answer_space_wanted(&self) {
        barrier::smp_mb(barrier::Full);
        if take(&self.room_wanted) {
            if let Ok(target) = self.channel.remote() {
                let _ = self.channel.post(&Message::SpaceAvailable { target });
            }
        }
    }

    /// Whether data can be received. Any context.
    pub(super) fn poll_receive(&self) -> bool {
        self.seems_to_have_data()
    }
}
