// SPDX-License-Identifier: GPL-2.0

//! Messages: the calls that send and receive bytes, and who waits in them.
//!
//! The bytes go through `rings.rs`. A call that has to wait stays awake for a moment, if that
//! has been worth it lately, and then tells the peer at which count it is to be woken: so a peer rings for who sleeps, and for
//! nobody else. Who receives much is woken when half a ring is there, or all that is missing; who sends
//! much, when as much is free. Both can't wait for each other: one waits while less than half a ring
//! is there, the other while more is.
//!
//! # Those who poll
//!
//! They stand in the same wait queue and want to hear of everything that arrives, also if nobody has
//! taken what came before (`EPOLLET`): whoever looks by `poll`, and every call that receives while
//! somebody stands there, has the peer ring for the next byte. As there is one wish for all, a call that
//! sleeps looks whether it is still its own.

use super::{
    own_ring::OwnRing,
    peer_ring::PeerRing,
    rings::{
        Wish,
        Wisher,
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
        doorbells::Rung,
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

/// Bytes that go into the ring before their counter does, and out of it: the other end takes them out, or
/// writes where they were, while the next ones are copied.
const PIECE: usize = 65536;

/// See the head of this file.
#[pin_data]
pub(super) struct Stream {
    pub(super) channel: Arc<Channel>,
    /// Of who waits for room, and for data.
    awake_for_room: Awake,
    awake_for_data: Awake,
    #[pin]
    pub(super) sending: CallLock,
    #[pin]
    receiving: CallLock,
    #[pin]
    pub(super) own: OwnRing,
    /// The doorbell by which the peer wakes us, if it is not asked for another one.
    pub(super) doorbell: u32,
    pub(super) remote: SetOnce<PeerRing>,
    /// Bytes written into the peer's ring, ever; written by who is sending.
    pub(super) produced: Atomic<u32>,
    /// Bytes taken out of our ring, ever; written by who is receiving.
    pub(super) consumed: Atomic<u32>,
    /// What the peer's counters were when they were last looked at, and found to make sense: of who
    /// is sending, and of who is receiving.
    pub(super) seen_consumed: Atomic<u32>,
    pub(super) seen_produced: Atomic<u32>,
    #[pin]
    pub(super) room_wish: Wish,
    #[pin]
    pub(super) data_wish: Wish,
}

/// What a call that has moved `done` bytes returns when it runs into `error`.
fn partial(done: usize, error: Error) -> Result<usize> {
    if done == 0 {
        return Err(error);
    }
    Ok(done)
}

/// Ends a call that has found nothing to move, if there is a signal. Those who wait look for one where they
/// sleep, which a peer that moves its counters to and fro can keep them from.
pub(super) fn look_for_signals() -> Result {
    if current!().signal_pending() {
        return Err(ERESTARTSYS);
    }
    Ok(())
}

/// For how much a call waits that has `rest` bytes to go through a ring of `size`.
fn wanted(rest: usize, size: u32) -> u32 {
    let half = (size / 2).max(1);
    u32::try_from(rest).map_or(half, |rest| rest.min(half))
}

impl Rung for Stream {
    fn rung(&self) {
        if self.has_news() {
            self.channel.wake();
        }
    }
}

impl Stream {
    /// Our end of a stream, with a ring that may become as large as `limit` bytes, a power of two; its
    /// user's `share` begins with nothing. The caller is inside the peer. May sleep.
    pub(super) fn new(channel: &Arc<Channel>, limit: u32, share: FairShare) -> Result<Arc<Self>> {
        let own = OwnRing::new(channel.path(), limit, share)?;
        let doorbell = channel.doorbells.for_data(channel.id.0);
        let room_wish = Wish::none(ROOM_WANTED, ROOM_DOORBELL, doorbell, CONSUMED);
        let data_wish = Wish::none(DATA_WANTED, DATA_DOORBELL, doorbell, PRODUCED);
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
                room_wish <- room_wish,
                data_wish <- data_wish,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The error of send and receive once the other end is gone; success as long as it is not.
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
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there is room for. `waiters` is the queue of those who wait or poll.
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
                    // It may have wished for more than those want who poll.
                    if waiters.has_waiters() && self.watch_for_room() {
                        self.channel.wake();
                    }
                    return partial(sent, error);
                }
            }
        }
        Ok(sent)
    }

    /// Moves on by some bytes, or none if it had to wait; `None` if it would have to and must not. Who begins has seen
    /// that the other end is there.
    fn send_some(&self, from: &Buffer, sent: usize, block: bool) -> Result<Option<usize>> {
        if sent > 0 {
            self.check_open()?;
        }
        let rest = from.len() - sent;
        let room = self.room_for(rest.min(PIECE))? as usize;
        if room < rest {
            // The more it gets, the less it waits; if it gets nothing, it goes through what there is.
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

    /// Has those who poll hear of room, as who watches edges (`EPOLLET`) does not ask again before it is told.
    /// Says whether there is some already. Not needed where nobody stands in the queue: who comes there
    /// looks, and wishes for it.
    pub(super) fn watch_for_room(&self) -> bool {
        self.wish_for_room(1).is_ok() && self.room().is_ok_and(|room| room > 0)
    }

    pub(super) fn wait_for_room(&self, wanted: u32) -> Result {
        let wish = self.wish_for_room(wanted)?;
        self.channel.waiters()?.wait(|| {
            let go_on = self.check_open().is_err()
                || !self.room_wish.stands_at(wish)
                || self.room().map_or(true, |room| room >= wanted);
            go_on.then_some(())
        })
    }

    /// Whether something can be sent; if not, the waiters are woken when it can. May sleep.
    pub(super) fn poll_send(&self) -> bool {
        self.seems_to_have_room() || self.wish_for_room(1).is_err() || self.seems_to_have_room()
    }

    // ----- receiving ---------------------------------------------------------------------------

    /// Receives into the memory of a caller. Returns how many bytes were received.
    ///
    /// Blocking, all of them, unless a signal or the loss of the peer comes in between;
    /// otherwise, as many as there are. `waiters` is the queue of those who wait or poll.
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

    /// Moves on by some bytes, or none if it had to wait; `None` if it would have to and must not.
    fn receive_some(&self, to: &Buffer, received: usize, block: bool) -> Result<Option<usize>> {
        let rest = to.len() - received;
        let mut available = self.available_for(rest)? as usize;
        if available == 0 {
            // The state is read before the last look: what had arrived when the peer went is then seen.
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
        // A peer that has closed its end meanwhile does not ring, but is seen to have closed.
        let wish = self.wish_for_data(wanted).ok();
        waiters.wait(|| {
            let go_on = self.check_open().is_err()
                || !wish.is_some_and(|wish| self.data_wish.stands_at(wish))
                || self.available().map_or(true, |bytes| bytes >= wanted)
                || self.is_waited_for();
            go_on.then_some(())
        })
    }

    /// Has those hear of what comes who stand in the queue, once a call that has received leaves.
    fn leave_to_others(&self, interrupted: bool) {
        let moved = self.watch_for_data(Wisher::Other) == Ok(true);
        // A call that waits for much leaves behind what has come, of which nobody was told.
        if moved || (interrupted && self.unread_here() > 0) {
            self.channel.wake();
        }
    }

    /// Whether data can be received; the waiters are woken when more comes. May sleep.
    pub(super) fn poll_receive(&self) -> bool {
        let moved = self.watch_for_data(Wisher::Sleeper) == Ok(true);
        moved || self.unread_here() > 0
    }
}
