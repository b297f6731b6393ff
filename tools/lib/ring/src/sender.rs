// SPDX-License-Identifier: LGPL-2.1

//! The direction to the peer: stores bytes into its memory, then their count.
//!
//! Lock: `state` is held while a message is sent, so that messages of two threads do not mix.

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

/// Bytes that are stored before their count is: the peer takes them out while the next ones go.
const PIECE: u32 = 65536;

struct State {
    produced: u32,
    /// The last valid value that this side has read from the peer's counter.
    consumed: u32,
    idle: u32,
}

/// The sending direction of a ring.
pub struct Sender {
    /// The size of the peer's ring.
    size: Size,
    state: Mutex<State>,
    awake: Awake,
}

impl Sender {
    /// Makes the direction for a ring of this size.
    pub fn new(size: Size) -> Self {
        Self::starting_at(size, 0)
    }

    /// Makes the direction as if `count` bytes had already passed.
    pub(crate) fn starting_at(size: Size, count: u32) -> Self {
        Self {
            size,
            state: Mutex::new(State {
                produced: count,
                consumed: count,
                idle: 0,
            }),
            awake: Awake::new(),
        }
    }

    /// Sends bytes, with the contract of `scif_send()`.
    #[inline]
    pub fn send(
        &self,
        areas: &Areas,
        bells: &impl Bells,
        bytes: &[u8],
        block: bool,
    ) -> Result<usize, Errno> {
        let Some(mut state) = turn(&self.state, block) else {
            return Ok(0);
        };
        move_all(bytes.len(), block, |done| {
            self.some(&mut state, areas, bells, &bytes[done..], block)
        })
    }

    /// Sends some of the bytes. Returns 0 if it had to wait, or must not wait.
    #[inline]
    fn some(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        bytes: &[u8],
        block: bool,
    ) -> Result<usize, Errno> {
        check_open(areas, bells)?;
        let rest = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let mut room = self.room(state).map_err(|why| bells.end(why))?;
        if room < rest {
            state.consumed = areas.own.load(Word::Consumed);
            room = self.room(state).map_err(|why| bells.end(why))?;
        }
        match room.min(rest).min(PIECE) {
            0 => self.none(state, areas, bells, rest, block),
            count => {
                self.push(state, areas, bells, bytes, count);
                Ok(count as usize)
            }
        }
    }

    #[inline]
    fn room(&self, state: &State) -> Result<u32, Errno> {
        (self.size.room(state.produced, state.consumed)).map_err(|_| Errno::PROTO)
    }

    #[inline]
    fn push(&self, state: &mut State, areas: &Areas, bells: &impl Bells, bytes: &[u8], count: u32) {
        let before = state.produced;
        let mut rest = bytes;
        for range in self.size.ranges(before, count) {
            let (these, others) = rest.split_at(range.len());
            if !these.is_empty() {
                areas.peer.write(range.start, these);
            }
            rest = others;
        }
        let after = before.wrapping_add(count);
        // The count must not overtake the bytes that it counts.
        barriers::stores();
        areas.peer.store(Word::Produced, after);
        state.produced = after;
        state.idle = 0;
        // The count leaves before the wake-up request is read, see `bells.rs`.
        barriers::all();
        if reaches(areas.own.load(Word::DataWanted), before, after) {
            bells.ring(Event::Data);
        }
    }

    /// Handles a full ring: waits if `block` allows it.
    #[cold]
    fn none(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        rest: u32,
        block: bool,
    ) -> Result<usize, Errno> {
        if !block {
            called_in_vain(&mut state.idle, bells);
            return Ok(0);
        }
        let full_at = state.consumed;
        let has_room =
            || areas.own.load(Word::Consumed) != full_at || check_open(areas, bells).is_err();
        if let Err(start) = stay_awake(&self.awake, has_room) {
            let wanted = rest.min(self.size.bytes() / 2);
            if !self.request_wakeup(state, areas, bells, wanted)?
                && check_open(areas, bells).is_ok()
            {
                bells.wait(Event::Room)?;
            }
            self.awake.learn(start.elapsed());
        }
        Ok(0)
    }

    /// Requests a bell for when `wanted` bytes can be sent. Returns whether they can be sent
    /// already.
    fn request_wakeup(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        wanted: u32,
    ) -> Result<bool, Errno> {
        let free_at = (state.produced)
            .wrapping_sub(self.size.bytes())
            .wrapping_add(wanted);
        make_wake_request(areas, Word::RoomWanted, free_at);
        state.consumed = areas.own.load(Word::Consumed);
        let room = self.room(state).map_err(|why| bells.end(why))?;
        Ok(room >= wanted)
    }

    /// Returns whether something can be sent. If not, the peer rings when something can.
    pub fn is_ready(&self, areas: &Areas, bells: &impl Bells) -> Result<bool, Errno> {
        let Some(mut state) = turn(&self.state, true) else {
            return Ok(false);
        };
        check_open(areas, bells)?;
        state.consumed = areas.own.load(Word::Consumed);
        if self.room(&state).map_err(|why| bells.end(why))? > 0 {
            return Ok(true);
        }
        self.request_wakeup(&mut state, areas, bells, 1)
    }
}
