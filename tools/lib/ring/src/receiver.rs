// SPDX-License-Identifier: LGPL-2.1

//! The direction from the peer: bytes out of our memory, and now and then the word that their place is free.
//!
//! That word is a store over the bus, and two barriers; for each small message it would cost more than the message. So
//! it is said for a quarter of the ring at a time, when the peer wants to know, and when a call finds nothing. Both can't
//! wait for each other: who waits for data has emptied the ring, of which the peer knows three quarters at least then, and
//! nobody waits for more than half.
//!
//! Lock: `state` is held while a message is taken, so that two threads do not share one.

use std::sync::Mutex;

use awake::Awake;
use rustix::io::Errno;

use crate::barriers;
use crate::bells::Bells;
use crate::bells::What;
use crate::counters::Size;
use crate::counters::reaches;
use crate::direction::Areas;
use crate::direction::called_in_vain;
use crate::direction::check_open;
use crate::direction::make_wish;
use crate::direction::move_all;
use crate::direction::stay_awake;
use crate::direction::turn;
use crate::header::Word;

struct State {
    consumed: u32,
    /// How much of that the peer knows.
    reported: u32,
    /// What the peer's counter was when it was last looked at, and made sense.
    produced: u32,
    idle: u32,
}

/// See the head of this file.
pub struct Receiver {
    size: Size,
    state: Mutex<State>,
    awake: Awake,
}

impl Receiver {
    /// Out of a ring of this size.
    pub fn new(size: Size) -> Self {
        Self::starting_at(size, 0)
    }

    /// The same, where so many bytes have gone already.
    pub(crate) fn starting_at(size: Size, count: u32) -> Self {
        Self {
            size,
            state: Mutex::new(State {
                consumed: count,
                reported: count,
                produced: count,
                idle: 0,
            }),
            awake: Awake::new(),
        }
    }

    /// As `scif_recv()`.
    #[inline]
    pub fn recv(
        &self,
        areas: &Areas,
        bells: &impl Bells,
        bytes: &mut [u8],
        block: bool,
    ) -> Result<usize, Errno> {
        let Some(mut state) = turn(&self.state, block) else {
            return Ok(0);
        };
        move_all(bytes.len(), block, |done| {
            self.some(&mut state, areas, bells, &mut bytes[done..], block)
        })
    }

    /// Receives some bytes, or none if it had to wait, or must not.
    #[inline]
    fn some(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        bytes: &mut [u8],
        block: bool,
    ) -> Result<usize, Errno> {
        let rest = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        // Checked when it was seen, and no less has been taken out since.
        let mut available = state.produced.wrapping_sub(state.consumed);
        if available < rest {
            available = self.look(state, areas, bells)?;
        }
        match available.min(rest) {
            0 => self.none(state, areas, bells, rest, block),
            count => {
                self.pull(state, areas, bells, bytes, count);
                Ok(count as usize)
            }
        }
    }

    /// How much there is now.
    #[inline]
    fn look(&self, state: &mut State, areas: &Areas, bells: &impl Bells) -> Result<u32, Errno> {
        let produced = areas.own.load(Word::Produced);
        let used = self.size.used(produced, state.consumed);
        let available = used.map_err(|_| bells.end(Errno::PROTO))?;
        state.produced = produced;
        Ok(available)
    }

    #[inline]
    fn pull(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        bytes: &mut [u8],
        count: u32,
    ) {
        let mut rest = bytes;
        for range in self.size.ranges(state.consumed, count) {
            let (these, others) = rest.split_at_mut(range.len());
            if !these.is_empty() {
                areas.own.read(range.start, these);
            }
            rest = others;
        }
        state.consumed = state.consumed.wrapping_add(count);
        state.idle = 0;
        let unreported = state.consumed.wrapping_sub(state.reported);
        let wanted = areas.own.load(Word::RoomWanted);
        if unreported >= self.size.bytes() / 4 || reaches(wanted, state.reported, state.consumed) {
            self.report(state, areas, bells);
        }
    }

    /// Tells the peer how much room there is.
    fn report(&self, state: &mut State, areas: &Areas, bells: &impl Bells) {
        let (before, after) = (state.reported, state.consumed);
        if before == after {
            return;
        }
        // The loads of the bytes come before the store that gives their place away.
        barriers::all();
        areas.peer.store(Word::Consumed, after);
        state.reported = after;
        // It leaves before the wish is looked at, see `bells.rs`.
        barriers::all();
        if reaches(areas.own.load(Word::RoomWanted), before, after) {
            bells.ring(What::Room);
        }
    }

    /// There is nothing.
    #[cold]
    fn none(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        rest: u32,
        block: bool,
    ) -> Result<usize, Errno> {
        self.report(state, areas, bells);
        if let Err(error) = check_open(areas, bells) {
            // What had arrived when the peer left is seen then.
            return match self.look(state, areas, bells)? {
                0 => Err(error),
                _ => Ok(0),
            };
        }
        if !block {
            called_in_vain(&mut state.idle, bells);
            return Ok(0);
        }
        let empty_at = state.consumed;
        let has_data =
            || areas.own.load(Word::Produced) != empty_at || check_open(areas, bells).is_err();
        if let Err(start) = stay_awake(&self.awake, has_data) {
            let wanted = rest.min(self.size.bytes() / 2);
            let available = self.wish(state, areas, bells, wanted)?;
            if available < wanted && check_open(areas, bells).is_ok() {
                // If it is over, what has arrived before is taken first.
                if bells.wait(What::Data) == Err(Errno::INTR) {
                    return Err(Errno::INTR);
                }
            }
            self.awake.learn(start.elapsed());
        }
        Ok(0)
    }

    /// Has the peer ring once so much can be received; says how much can already.
    fn wish(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        wanted: u32,
    ) -> Result<u32, Errno> {
        make_wish(areas, Word::DataWanted, state.consumed.wrapping_add(wanted));
        self.look(state, areas, bells)
    }

    /// Whether something can be received; if not, the peer rings when it can.
    pub fn is_ready(&self, areas: &Areas, bells: &impl Bells) -> Result<bool, Errno> {
        let Some(mut state) = turn(&self.state, true) else {
            return Ok(false);
        };
        if self.look(&mut state, areas, bells)? > 0 {
            return Ok(true);
        }
        self.report(&mut state, areas, bells);
        Ok(self.wish(&mut state, areas, bells, 1)? > 0)
    }
}
