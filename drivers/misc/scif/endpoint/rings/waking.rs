// SPDX-License-Identifier: GPL-2.0

//! How the two ends of a connection wake each other, and only if the other sleeps.
//!
//! No end rings for one that is awake. A caller that is about to sleep writes the value into the peer's memory that
//! the peer's counter has to reach (a *wish*), and looks at the counter once more. An end that moves a counter looks
//! at the wish, and rings if the counter has just reached it. One wish is answered by one doorbell, or by the caller
//! that replaces it at that moment.
//!
//! Neither may miss the other, although their stores cross on a bus that orders only one direction:
//! between the wish and the second look, the wish is *read back*. The read can't overtake the wish on
//! its way there, and its answer can't overtake, on its way back, what the peer has stored before the
//! wish arrived. So either the peer sees the wish, or the second look sees the counter. That is the one
//! read over the bus, and only a caller that is about to sleep pays for it.
//!
//! # Doorbells
//!
//! At first the peer rings the doorbell that was said when the connection was made. A caller that is about to sleep
//! may ask for another one, which rings on the CPU on which it sleeps (`logic/doorbells.rs`): a word in the peer's
//! memory, next to the wish, and stored before it. Which doorbell it is decides where the caller is woken, and nothing
//! else: the peer marks the connection before it rings (`peer/doorbells.rs`), and any doorbell has marks looked at.
//!
//! # Locks
//!
//! `Wish::turn` is held for a store and a load over the bus, and nothing is taken under it.

use super::{
    Stream,
    PRODUCED,
    ROOM_WANTED, //
};
use crate::{
    logic::ring::{
        is_missed,
        reaches,
        WishState, //
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

/// A value of a counter of the peer at which the peer rings: a word in the peer's memory.
#[pin_data]
pub(in crate::endpoint) struct Wish {
    /// Where it stands in the header of the peer's ring.
    word: usize,
    /// Where the doorbell stands there by which the peer is to answer it, if not by the first one.
    doorbell: usize,
    /// The one that was asked for last.
    asked_for: Atomic<u32>,
    /// Where the counter stands in the header of ours.
    counter: usize,
    /// Replaced under `turn`.
    state: WishState,
    #[pin]
    turn: SpinLock<()>,
}

impl Wish {
    /// Nothing was wished for; the peer would ring the `first` doorbell.
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
            state: WishState::new(),
            turn <- new_spinlock!((), "Wish::turn"),
        })
    }

    /// Whether this is what the peer has been told last, and so rings for: who sleeps has to wish anew if
    /// not.
    pub(in crate::endpoint) fn stands_at(&self, value: u32) -> bool {
        self.state.stands_at(value)
    }

    /// Tells the peer; `theirs` is the header of its ring, `ours` of our own. Says whether those who wait are to be
    /// woken, as the peer may ring no more for what they wait for.
    pub(super) fn make(
        &self,
        theirs: &Reached<'_>,
        ours: &SharedMemory,
        value: u32,
    ) -> Result<bool> {
        let _turn = self.turn.lock();
        let before = match self.state.is_open_at(value) {
            // Who has written it has read it back, or does so, and has everybody woken then.
            true => None,
            false => self.replace(theirs, value)?,
        };
        Ok(is_missed(
            value,
            before,
            ours.load_acquire_u32(self.counter)?,
        ))
    }

    /// Under `turn`: as [`WishState::replace`].
    fn replace(&self, theirs: &Reached<'_>, value: u32) -> Result<Option<u32>> {
        theirs.write_u32(self.word, value)?;
        theirs.read_back(self.word)?;
        Ok(self.state.replace(value))
    }

    /// The doorbell rang, maybe for something else. Says whether those who wait are to be woken. Any
    /// context.
    pub(super) fn is_answered(&self, ours: &SharedMemory) -> bool {
        ours.load_acquire_u32(self.counter)
            .is_ok_and(|counter| self.state.is_answered_at(counter))
    }
}

/// Who makes a wish.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::endpoint) enum Wisher {
    /// Who is about to sleep: he wants to be woken where he is.
    Sleeper,
    /// Somebody on his behalf.
    Other,
}

impl Stream {
    /// Rings if the peer has wanted to know that our counter, which was `before` and has been stored as
    /// `after`, gets as far.
    ///
    /// The peer's wish stands in our header where ours of the same `kind` stands in its.
    pub(super) fn answer(&self, kind: &Wish, before: u32, after: u32) -> Result {
        // The counter leaves before the wish is looked at, see the head of this file.
        barrier::mb(barrier::Full);
        // The doorbell was stored before the wish.
        let wanted = self.header().load_acquire_u32(kind.word)?;
        if reaches(wanted, before, after) {
            // A number that can't be only harms who has written it.
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

    /// Has the peer ring once `wanted` bytes can be sent, at most the size of its ring. To be called
    /// before the last look; see [`Wish::stands_at`] for what is returned.
    pub(in crate::endpoint) fn wish_for_room(&self, wanted: u32) -> Result<u32> {
        let free_at = self
            .produced
            .load(Relaxed)
            .wrapping_sub(self.remote_size()?)
            .wrapping_add(wanted);
        self.wish(&self.room_wish, free_at, Wisher::Sleeper)
    }

    /// The peer moves its counter, and does not ring, as if it had not looked yet.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(in crate::endpoint) fn pretend_more_was_sent(&self, count: u32) -> Result {
        let produced = self.header().read_u32(PRODUCED)?;
        self.header()
            .write_u32(PRODUCED, produced.wrapping_add(count))
    }

    /// As [`Self::wish_for_room`], for data that can be received.
    pub(in crate::endpoint) fn wish_for_data(&self, wanted: u32) -> Result<u32> {
        let there_at = self.consumed.load(Relaxed).wrapping_add(wanted);
        self.wish(&self.data_wish, there_at, Wisher::Sleeper)
    }

    /// Has the peer ring for whatever comes beyond what is there; says whether something has come
    /// meanwhile. May sleep.
    pub(in crate::endpoint) fn watch_for_data(&self, by: Wisher) -> Result<bool> {
        let seen = self.header().load_acquire_u32(PRODUCED)?;
        self.wish(&self.data_wish, seen.wrapping_add(1), by)?;
        Ok(self.header().load_acquire_u32(PRODUCED)? != seen)
    }

    fn wish(&self, wish: &Wish, value: u32, by: Wisher) -> Result<u32> {
        let _use = self.channel.begin_use()?;
        // The wish is loaded from the peer: not across a link that is known to be down.
        if self.channel.is_over() {
            return Err(ENODEV);
        }
        let header = self.remote()?.reach_header(self.channel.path())?;
        // Who rings at this node itself wakes the sleeper from wherever he is.
        if by == Wisher::Sleeper && !self.channel.peer().is_this {
            self.steer(wish, &header)?;
        }
        if wish.make(&header, self.header(), value)? {
            self.channel.wake();
        }
        Ok(value)
    }

    /// Has the peer ring where the caller is, if there is a better doorbell for that. Two callers at a time may
    /// have it ring where one of them is not.
    fn steer(&self, wish: &Wish, header: &Reached<'_>) -> Result {
        let current = wish.asked_for.load(Relaxed);
        let doorbells = &self.channel.doorbells;
        if let Some(better) = doorbells.better_here(current, self.channel.id.0) {
            header.write_u32(wish.doorbell, better)?;
            flush_writes();
            wish.asked_for.store(better, Relaxed);
        }
        Ok(())
    }

    /// Has the peer look whether it is waited for.
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

    /// Whether the peer waits for something to be taken out while we may wait for half a ring, see
    /// `messages.rs`. Any context.
    pub(in crate::endpoint) fn is_waited_for(&self) -> bool {
        let consumed = self.consumed.load(Relaxed);
        let wanted = self.header().read_u32(ROOM_WANTED).unwrap_or(consumed);
        // What was wanted before lies behind.
        let (ahead, unread) = (wanted.wrapping_sub(consumed), self.unread_here());
        ahead != 0 && ahead <= unread && unread < self.own.size() / 2
    }

    /// The doorbell has rung, maybe for another connection: whether somebody is to be woken. That is so once
    /// for each wish: who polls by edges hears of nothing twice. Any context.
    pub(in crate::endpoint) fn has_news(&self) -> bool {
        let data = self.data_wish.is_answered(self.header());
        let room = self.room_wish.is_answered(self.header());
        data || room || self.is_waited_for()
    }
}
