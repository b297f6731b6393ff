// SPDX-License-Identifier: GPL-2.0

//! Wake-ups between the two ends of a connection. An end rings only if the other end sleeps.
//!
//! No end rings a doorbell for a caller that is awake. A caller that is about to sleep writes a
//! *wake-up request* into the peer's memory: the value that the peer's counter has to reach. Then
//! it reads the counter once more. An end that moves its counter reads the request, and rings if
//! the counter has just reached that value. One request is answered by one doorbell, or by the
//! caller that replaces the request at that moment.
//!
//! Neither end may miss the other, although their stores cross on a bus that orders only one
//! direction. So the caller *reads back* the request before it reads the counter again. The read
//! can't overtake the request on its way to the peer. On its way back, the read's answer can't
//! overtake what the peer has stored before the request arrived. So either the peer sees the
//! request, or the caller sees the counter. This is the only read over the bus, and only a caller
//! that is about to sleep pays for it.
//!
//! # Doorbells
//!
//! At first the peer rings the doorbell that was named when the connection was made. A caller that
//! is about to sleep may ask for another doorbell, which rings on the CPU on which it sleeps
//! (`logic/doorbells.rs`). It does so with a word in the peer's memory, next to the request and
//! stored before it. The choice of the doorbell decides where the caller is woken, and nothing
//! else. The peer marks the connection before it rings (`peer/doorbells.rs`), and the handler of
//! any doorbell reads these marks.
//!
//! # Locks
//!
//! `WakeRequest::turn` is held for a store and a load over the bus, and nothing is taken under it.

use super::{
    Stream,
    PRODUCED,
    ROOM_WANTED, //
};
use crate::{
    logic::ring::{
        is_missed,
        reaches,
        WakeRequestState, //
    },
    sys::{
        reached::{
            flush_writes,
            Reached, //
        },
        shared_memory::SharedMemory, //
    }, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        SpinLock, //
    }, //
};

/// A wake-up request to the peer: the value of its counter at which it rings, a word in its memory.
#[pin_data]
pub(in crate::endpoint) struct WakeRequest {
    /// Offset of the word in the header of the peer's ring.
    word: usize,
    /// Offset in that header of the number of the doorbell to ring, if not the first doorbell.
    doorbell: usize,
    /// Doorbell that the peer was asked for last.
    asked_for: Atomic<u32>,
    /// Offset of the peer's counter in the header of this end's ring.
    counter: usize,
    /// Replaced under `turn`.
    state: WakeRequestState,
    #[pin]
    turn: SpinLock<()>,
}

impl WakeRequest {
    /// Creates the state without a request. The peer would ring the doorbell `first`.
    pub(in crate::endpoint) fn none(
        word: usize,
        doorbell: usize,
        first: u32,
        counter: usize,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            word,
            doorbell,
            asked_for: Atomic::new(first),
            counter,
            state: WakeRequestState::new(),
            turn <- new_spinlock!((), "WakeRequest::turn"),
        })
    }

    /// Returns whether `value` is the latest request that the peer knows. If it is not, a caller
    /// that sleeps for `value` has to make its request again.
    pub(in crate::endpoint) fn stands_at(&self, value: u32) -> bool {
        self.state.stands_at(value)
    }

    /// Tells the peer to ring at `value`. `theirs` is the header of its ring, `ours` of this end's
    /// ring. Returns whether the caller has to wake the waiters, because the peer may ring no more
    /// for what they wait for.
    pub(super) fn make(
        &self,
        theirs: &Reached<'_>,
        ours: &SharedMemory,
        value: u32,
    ) -> Result<bool> {
        let _turn = self.turn.lock();
        let before = match self.state.is_open_at(value) {
            // The request is in the peer's memory. The caller that wrote it reads it back, and
            // wakes all waiters if it has to.
            true => None,
            false => self.replace(theirs, value)?,
        };
        Ok(is_missed(
            value,
            before,
            ours.load_acquire_u32(self.counter)?,
        ))
    }

    /// Replaces the request at the peer and in `state`. The caller holds `turn`.
    fn replace(&self, theirs: &Reached<'_>, value: u32) -> Result<Option<u32>> {
        theirs.write_u32(self.word, value)?;
        theirs.read_back(self.word)?;
        Ok(self.state.replace(value))
    }

    /// Handles a doorbell, which may have rung for something else. Returns whether the waiters are
    /// to be woken.
    /// Context: any.
    pub(super) fn is_answered(&self, ours: &SharedMemory) -> bool {
        ours.load_acquire_u32(self.counter)
            .is_ok_and(|counter| self.state.is_answered_at(counter))
    }
}

/// The caller of a function that makes a wake-up request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum Requester {
    /// The task that is about to sleep: it wants to be woken on its CPU.
    Sleeper,
    /// Another task on its behalf.
    Other,
}

impl Stream {
    /// Rings if the move of this end's counter from `before` to `after`, which has been stored, has
    /// reached the value that the peer has requested.
    ///
    /// The peer's request stands in this end's header at the offset at which this end's request of
    /// the same `kind` stands in its header.
    pub(super) fn answer(&self, kind: &WakeRequest, before: u32, after: u32) -> Result {
        // The counter is stored before the request is read: the peer writes its request and then
        // reads the counter.
        barrier::mb(barrier::Full);
        // The peer has stored the doorbell before the request.
        let wanted = self.header().load_acquire_u32(kind.word)?;
        if reaches(wanted, before, after) {
            // An invalid number only harms the peer that has written it.
            let asked_for = self.header().read_u32(kind.doorbell)?;
            let number = if self.channel.doorbells.is_for_data(asked_for) {
                asked_for
            } else {
                self.remote()?.doorbell
            };
            self.ring_by(number)?;
        }
        Ok(())
    }

    /// Has the peer ring once `wanted` bytes can be sent, at most the size of its ring. The caller
    /// must read the counter once more afterwards. Returns the value for
    /// [`WakeRequest::stands_at`].
    pub(in crate::endpoint) fn request_wakeup_for_room(&self, wanted: u32) -> Result<u32> {
        let free_at = self
            .produced
            .load(Relaxed)
            .wrapping_sub(self.remote_size()?)
            .wrapping_add(wanted);
        self.request_wakeup(&self.room_request, free_at, Requester::Sleeper)
    }

    /// Moves the peer's counter without a doorbell, as if the peer had not read the request yet.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(in crate::endpoint) fn pretend_more_was_sent(&self, count: u32) -> Result {
        let produced = self.header().read_u32(PRODUCED)?;
        self.header()
            .write_u32(PRODUCED, produced.wrapping_add(count))
    }

    /// Has the peer ring once `wanted` bytes can be received, as [`Self::request_wakeup_for_room`].
    pub(in crate::endpoint) fn request_wakeup_for_data(&self, wanted: u32) -> Result<u32> {
        let there_at = self.consumed.load(Relaxed).wrapping_add(wanted);
        self.request_wakeup(&self.data_request, there_at, Requester::Sleeper)
    }

    /// Has the peer ring for the next byte that comes. Returns whether bytes have come meanwhile.
    /// Context: may sleep.
    pub(in crate::endpoint) fn watch_for_data(&self, by: Requester) -> Result<bool> {
        let seen = self.header().load_acquire_u32(PRODUCED)?;
        self.request_wakeup(&self.data_request, seen.wrapping_add(1), by)?;
        Ok(self.header().load_acquire_u32(PRODUCED)? != seen)
    }

    fn request_wakeup(&self, request: &WakeRequest, value: u32, by: Requester) -> Result<u32> {
        let _use = self.channel.begin_use()?;
        // The request is read back from the peer: not over a link that is known to be down.
        if self.channel.is_over() {
            return Err(ENODEV);
        }
        let header = self.remote()?.reach_header(self.channel.path())?;
        // If the peer is this node, no doorbell is better: it wakes the sleeper on any CPU.
        if by == Requester::Sleeper && !self.channel.peer().is_this {
            self.steer(request, &header)?;
        }
        if request.make(&header, self.header(), value)? {
            self.channel.wake();
        }
        Ok(value)
    }

    /// Has the peer ring on the CPU of the caller, if there is a doorbell for that. If two callers
    /// do this at once, the doorbell may ring on the CPU of only one of them.
    fn steer(&self, request: &WakeRequest, header: &Reached<'_>) -> Result {
        let current = request.asked_for.load(Relaxed);
        let doorbells = &self.channel.doorbells;
        if let Some(better) = doorbells.better_here(current, self.channel.id.0) {
            header.write_u32(request.doorbell, better)?;
            flush_writes();
            request.asked_for.store(better, Relaxed);
        }
        Ok(())
    }

    /// Has the peer check whether this end waits for it.
    pub(in crate::endpoint) fn ring(&self) -> Result {
        let _inside = self.channel.enter().ok_or(ECONNRESET)?;
        self.ring_by(self.remote()?.doorbell)
    }

    /// Rings a doorbell of the peer, for this connection.
    fn ring_by(&self, number: u32) -> Result {
        let (channel, path) = (&self.channel, self.channel.path());
        channel.doorbells.ring_for(path, channel.remote()?, number);
        Ok(())
    }

    /// Returns whether the peer waits for this end to take bytes out, while a call here may wait
    /// for half a ring (`messages.rs`).
    /// Context: any.
    pub(in crate::endpoint) fn is_waited_for(&self) -> bool {
        let consumed = self.consumed.load(Relaxed);
        let wanted = self.header().read_u32(ROOM_WANTED).unwrap_or(consumed);
        // Our counter has passed an older request.
        let (ahead, unread) = (wanted.wrapping_sub(consumed), self.unread_here());
        ahead != 0 && ahead <= unread && unread < self.own.size() / 2
    }

    /// Handles a doorbell, which may have rung for another connection. Returns whether the waiters
    /// are to be woken: once for each request, so that an edge-triggered poller sees no event
    /// twice.
    /// Context: any.
    pub(in crate::endpoint) fn has_news(&self) -> bool {
        let data = self.data_request.is_answered(self.header());
        let room = self.room_request.is_answered(self.header());
        data || room || self.is_waited_for()
    }
}
