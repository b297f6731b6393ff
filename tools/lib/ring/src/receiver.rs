// SPDX-License-Identifier: LGPL-2.1

//! The direction from the peer. The receiver takes bytes out of this end's ring, and now and then
//! reports that their room is free.
//!
//! A report is a store over the bus and two barriers, which for a small message would cost more
//! than the message. So the receiver reports a quarter of the ring at a time, when the peer has a
//! wake-up request, and when a call finds nothing. Both ends can't wait for each other. A receiver
//! that waits for data has emptied the ring, and the peer knows of at least three quarters of the
//! room. A sender waits for at most half of the ring.
//!
//! Lock: `state` is held while a message is received, so that two threads do not share one.

use std::sync::Mutex;

use awake::Awake;
use rustix::io::Errno;

use crate::barriers;
use crate::bells::Bells;
use crate::bells::Event;
use crate::counters::Size;
use crate::counters::reaches;
use crate::direction::Areas;
use crate::direction::called_in_vain;
use crate::direction::check_open;
use crate::direction::make_wake_request;
use crate::direction::move_all;
use crate::direction::stay_awake;
use crate::direction::turn;
use crate::header::Word;

struct State {
    consumed: u32,
    /// The part of `consumed` that the peer knows of.
    reported: u32,
    /// The last valid value that this side has read from the peer's counter.
    produced: u32,
    idle: u32,
}

/// The receiving direction of a ring.
pub struct Receiver {
    size: Size,
    state: Mutex<State>,
    awake: Awake,
}

impl Receiver {
    /// Makes the direction for a ring of this size.
    pub fn new(size: Size) -> Self {
        Self::starting_at(size, 0)
    }

    /// Makes the direction as if `count` bytes had already passed.
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

    /// Receives bytes, with the contract of `scif_recv()`.
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

    /// Receives some bytes. Returns 0 if it had to wait, or must not wait.
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
        // The difference was checked when the counter was read, and has only become smaller since.
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

    /// Reads the peer's counter. Returns how many bytes can be received now.
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
        // The loads of the bytes come before the store that gives their room away.
        barriers::all();
        areas.peer.store(Word::Consumed, after);
        state.reported = after;
        // The count leaves before the wake-up request is read, see `bells.rs`.
        barriers::all();
        if reaches(areas.own.load(Word::RoomWanted), before, after) {
            bells.ring(Event::Room);
        }
    }

    /// Handles an empty ring: reports the room, and waits if `block` allows it.
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
            // The peer may have stored bytes just before it left.
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
            let available = self.request_wakeup(state, areas, bells, wanted)?;
            if available < wanted && check_open(areas, bells).is_ok() {
                // If the ring is over, the bytes that arrived before are received first.
                if bells.wait(Event::Data) == Err(Errno::INTR) {
                    return Err(Errno::INTR);
                }
            }
            self.awake.learn(start.elapsed());
        }
        Ok(0)
    }

    /// Requests a bell for when `wanted` bytes can be received. Returns how many can be received
    /// already.
    fn request_wakeup(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        wanted: u32,
    ) -> Result<u32, Errno> {
        make_wake_request(areas, Word::DataWanted, state.consumed.wrapping_add(wanted));
        self.look(state, areas, bells)
    }

    /// Returns whether something can be received. If not, the peer rings when something can.
    pub fn is_ready(&self, areas: &Areas, bells: &impl Bells) -> Result<bool, Errno> {
        let Some(mut state) = turn(&self.state, true) else {
            return Ok(false);
        };
        if self.look(&mut state, areas, bells)? > 0 {
            return Ok(true);
        }
        self.report(&mut state, areas, bells);
        Ok(self.request_wakeup(&mut state, areas, bells, 1)? > 0)
    }
}
