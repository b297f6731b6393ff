// SPDX-License-Identifier: GPL-2.0

//! Messages: the calls that send and receive bytes, and their waits.
//!
//! The bytes go through `rings.rs`. A call that has to wait stays awake for a moment, if this has
//! been worth it lately. Then it tells the peer the count at which it is to be woken, so that the
//! peer rings for sleepers only. A receiver of much data is woken when half a ring is there, or all
//! that is missing. A sender of much data is woken when as much is free. Both can't wait for each
//! other: the receiver waits while less than half a ring is there, the sender while more is.
//!
//! # Pollers
//!
//! Pollers wait in the same queue. They want to hear of all data that arrives, even if no call has
//! received what came before (`EPOLLET`). So each `poll`, and each call that receives while a
//! poller is in the queue, has the peer ring for the next byte. An end has one wake-up request for
//! all its waiters, so a call that sleeps checks whether the request is still its own.

use super::{
    own_ring::OwnRing,
    peer_ring::PeerRing,
    rings::{
        Requester,
        WakeRequest,
        CONSUMED,
        DATA_DOORBELL,
        DATA_WANTED,
        PRODUCED,
        ROOM_DOORBELL,
        ROOM_WANTED, //
    }, //
};
use crate::{
    peer::{
        channel::{
            Channel,
            State, //
        },
        doorbells::DoorbellHandler,
    },
    sync::{
        awake::Awake,
        call_lock::CallLock,
        fair_share::FairShare, //
    },
    sys::{
        buffer::Buffer,
        wait::WaitQueue, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        SetOnce, //
    },
};

/// Bytes that a call copies before it moves its counter. While it copies the next bytes, the other
/// end takes these out, or reuses their room.
const PIECE: usize = 65536;

/// One end of a byte stream: its ring, its counters and its waits.
#[pin_data]
pub(super) struct Stream {
    pub(super) channel: Arc<Channel>,
    /// Time for which a call that waits for room, or for data, polls before it sleeps.
    awake_for_room: Awake,
    awake_for_data: Awake,
    #[pin]
    pub(super) sending: CallLock,
    #[pin]
    receiving: CallLock,
    #[pin]
    pub(super) own: OwnRing,
    /// Doorbell by which the peer wakes a caller here, unless it is asked for another one.
    pub(super) doorbell: u32,
    pub(super) remote: SetOnce<PeerRing>,
    /// Bytes written into the peer's ring, ever; written by the sender.
    pub(super) produced: Atomic<u32>,
    /// Bytes ever taken out of this end's ring; written by the receiver.
    pub(super) consumed: Atomic<u32>,
    /// Last values of the peer's counters that were read and found to be consistent:
    /// `seen_consumed` by the sender, `seen_produced` by the receiver.
    pub(super) seen_consumed: Atomic<u32>,
    pub(super) seen_produced: Atomic<u32>,
    #[pin]
    pub(super) room_request: WakeRequest,
    #[pin]
    pub(super) data_request: WakeRequest,
}

/// Returns the result of a call that has moved `done` bytes when it meets `error`.
fn partial(done: usize, error: Error) -> Result<usize> {
    if done == 0 {
        return Err(error);
    }
    Ok(done)
}

/// Ends a call that has found nothing to move, if a signal is pending. A sleep checks for signals,
/// too, but a peer that moves its counters to and fro can keep a caller from sleeping.
pub(super) fn look_for_signals() -> Result {
    if current!().signal_pending() {
        return Err(ERESTARTSYS);
    }
    Ok(())
}

/// Returns the number of bytes for which a call waits that has `rest` bytes to move through a ring
/// of `size`.
fn wanted(rest: usize, size: u32) -> u32 {
    let half = (size / 2).max(1);
    u32::try_from(rest).map_or(half, |rest| rest.min(half))
}

impl DoorbellHandler for Stream {
    fn on_doorbell(&self) {
        if self.has_news() {
            self.channel.wake();
        }
    }
}

impl Stream {
    /// Creates an end of a stream, with a ring that may become as large as `limit` bytes, a power
    /// of two. Nothing is counted in the user's `share` yet. The caller is inside the peer.
    /// Context: may sleep.
    pub(super) fn new(channel: &Arc<Channel>, limit: u32, share: FairShare) -> Result<Arc<Self>> {
        let own = OwnRing::new(channel.path(), limit, share)?;
        let doorbell = channel.doorbells.for_data(channel.id.0);
        let room_request = WakeRequest::none(ROOM_WANTED, ROOM_DOORBELL, doorbell, CONSUMED);
        let data_request = WakeRequest::none(DATA_WANTED, DATA_DOORBELL, doorbell, PRODUCED);
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                awake_for_room: Awake::new(),
                awake_for_data: Awake::new(),
                sending <- CallLock::new(),
                receiving <- CallLock::new(),
                own <- own,
                doorbell,
                remote: SetOnce::new(),
                produced: Atomic::new(0),
                consumed: Atomic::new(0),
                seen_consumed: Atomic::new(0),
                seen_produced: Atomic::new(0),
                room_request <- room_request,
                data_request <- data_request,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Fails with the error of send and receive if the connection is not established, or not any
    /// more.
    pub(super) fn check_open(&self) -> Result {
        match self.channel.state() {
            State::Established => Ok(()),
            State::Requested | State::Refused => Err(ENOTCONN),
            State::PeerClosed | State::Lost | State::Closed => Err(ECONNRESET),
        }
    }

    // ----- sending -----------------------------------------------------------------------------

    /// Sends the bytes of a caller. Returns how many were sent.
    ///
    /// If the call blocks, it sends all bytes, unless a signal or the loss of the peer interrupts
    /// it. If it does not block, it sends as many bytes as there is room for. `waiters` is the
    /// queue of the waiters and pollers.
    pub(super) fn send(&self, from: &Buffer, block: bool, waiters: &WaitQueue) -> Result<usize> {
        self.check_open()?;
        let Some(_sending) = self.sending.lock_for(block)? else {
            return Ok(0);
        };
        let mut sent = 0;
        while sent < from.len() {
            match self.send_some(from, sent, block) {
                Ok(Some(count)) => sent += count,
                Ok(None) if waiters.has_waiters() && self.watch_for_room() => (),
                Ok(None) => break,
                Err(error) => {
                    // This call's wake-up request may ask for more than the pollers want.
                    if waiters.has_waiters() && self.watch_for_room() {
                        self.channel.wake();
                    }
                    return partial(sent, error);
                }
            }
        }
        Ok(sent)
    }

    /// Sends some bytes. Returns their number, 0 if the call had to wait, or `None` if it would
    /// have to wait and must not. For the first bytes, the caller has checked that the connection
    /// is open.
    fn send_some(&self, from: &Buffer, sent: usize, block: bool) -> Result<Option<usize>> {
        if sent > 0 {
            self.check_open()?;
        }
        let rest = from.len() - sent;
        let room = self.room_for(rest.min(PIECE))? as usize;
        if room < rest {
            // A larger ring means fewer waits. Without one, the bytes go through the ring that
            // there is.
            let _ = self.ask_for_room(rest);
        }
        if room > 0 {
            let count = room.min(rest).min(PIECE);
            return self.push(from, sent, count, false).map(Some);
        }
        self.check_open()?;
        if !block {
            return Ok(None);
        }
        look_for_signals()?;
        let has_room = || self.check_open().is_err() || self.room() != Ok(0);
        self.awake_for_room.wait(has_room, || {
            self.wait_for_room(wanted(rest, self.remote_size()?))
        })?;
        Ok(Some(0))
    }

    /// Has pollers woken when there is room, because an edge-triggered poller (`EPOLLET`) does not
    /// ask again before it is told. Returns whether there is room already. Not needed if the queue
    /// is empty: a poller that comes later checks for room and makes its own request.
    pub(super) fn watch_for_room(&self) -> bool {
        self.request_wakeup_for_room(1).is_ok() && self.room().is_ok_and(|room| room > 0)
    }

    pub(super) fn wait_for_room(&self, wanted: u32) -> Result {
        let request = self.request_wakeup_for_room(wanted)?;
        self.channel.waiters()?.wait(|| {
            let go_on = self.check_open().is_err()
                || !self.room_request.stands_at(request)
                || self.room().map_or(true, |room| room >= wanted);
            go_on.then_some(())
        })
    }

    /// Returns whether something can be sent. If not, the waiters are woken when something can.
    /// Context: may sleep.
    pub(super) fn poll_send(&self) -> bool {
        self.seems_to_have_room()
            || self.request_wakeup_for_room(1).is_err()
            || self.seems_to_have_room()
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Receives into the memory of a caller. Returns how many bytes were received.
    ///
    /// If the call blocks, it receives all bytes, unless a signal or the loss of the peer
    /// interrupts it. If it does not block, it receives as many bytes as there are. `waiters` is
    /// the queue of the waiters and pollers.
    pub(super) fn receive(&self, to: &Buffer, block: bool, waiters: &WaitQueue) -> Result<usize> {
        if matches!(self.channel.state(), State::Requested | State::Refused) {
            return Err(ENOTCONN);
        }
        let Some(_receiving) = self.receiving.lock_for(block)? else {
            return Ok(0);
        };
        let mut received = 0;
        let mut result = Ok(());
        while received < to.len() {
            match self.receive_some(to, received, block) {
                Ok(Some(count)) => received += count,
                Ok(None) => break,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if waiters.has_waiters() {
            self.leave_to_others(result.is_err());
        }
        match result {
            Ok(()) => Ok(received),
            Err(error) => partial(received, error),
        }
    }

    /// Receives some bytes. Returns their number, 0 if the call had to wait, or `None` if it would
    /// have to wait and must not.
    fn receive_some(&self, to: &Buffer, received: usize, block: bool) -> Result<Option<usize>> {
        let rest = to.len() - received;
        let mut available = self.available_for(rest)? as usize;
        if available == 0 {
            // Reads the state before it reads the counter again, so that data which had arrived
            // before the peer went is seen.
            let state = self.check_open();
            available = self.available()? as usize;
            if available == 0 {
                state?;
            }
        }
        if available > 0 {
            let count = available.min(rest).min(PIECE);
            self.pull(to, received, count)?;
            return Ok(Some(count));
        }
        if !block {
            return Ok(None);
        }
        look_for_signals()?;
        let has_data = || self.available() != Ok(0) || self.check_open().is_err();
        self.awake_for_data.wait(has_data, || {
            self.wait_for_data(wanted(rest, self.own.size()))
        })?;
        Ok(Some(0))
    }

    fn wait_for_data(&self, wanted: u32) -> Result {
        let waiters = self.channel.waiters()?;
        // The request fails if the peer has closed its end meanwhile. That peer does not ring, but
        // the condition below sees the close.
        let request = self.request_wakeup_for_data(wanted).ok();
        waiters.wait(|| {
            let go_on = self.check_open().is_err()
                || !request.is_some_and(|request| self.data_request.stands_at(request))
                || self.available().map_or(true, |bytes| bytes >= wanted)
                || self.is_waited_for();
            go_on.then_some(())
        })
    }

    /// Has the waiters and pollers in the queue woken for the next data, when a call that has
    /// received leaves.
    fn leave_to_others(&self, interrupted: bool) {
        let moved = self.watch_for_data(Requester::Other) == Ok(true);
        // A call that was interrupted while it waited for much leaves behind data of which no
        // waiter was told.
        if moved || (interrupted && self.unread_here() > 0) {
            self.channel.wake();
        }
    }

    /// Returns whether data can be received. The waiters are woken when more comes.
    /// Context: may sleep.
    pub(super) fn poll_receive(&self) -> bool {
        let moved = self.watch_for_data(Requester::Sleeper) == Ok(true);
        moved || self.unread_here() > 0
    }
}
