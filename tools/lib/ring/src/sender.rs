// SPDX-License-Identifier: LGPL-2.1

//! The direction to the peer: bytes into its memory, then the count of them.
//!
//! Lock: `state` is held while a message goes, so that those of two threads do not mix.

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

/// Bytes that go before their count does: the peer takes them out while the next ones go.
const PIECE: u32 = 65536;

struct State {
    produced: u32,
    /// What the peer's counter was when it was last looked at, and made sense.
    consumed: u32,
    idle: u32,
}

/// See the head of this file.
pub struct Sender {
    /// Of the peer's ring.
    size: Size,
    state: Mutex<State>,
    awake: Awake,
}

impl Sender {
    /// Into a ring of this size.
    pub fn new(size: Size) -> Self {
        Self::starting_at(size, 0)
    }

    /// The same, where so many bytes have gone already.
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

    /// As `scif_send()`.
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

    /// Sends some of the bytes, or none if it had to wait, or must not.
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
        // The count must not overtake what it counts.
        barriers::stores();
        areas.peer.store(Word::Produced, after);
        state.produced = after;
        state.idle = 0;
        // It leaves before the wish is looked at, see `bells.rs`.
        barriers::all();
        if reaches(areas.own.load(Word::DataWanted), before, after) {
            bells.ring(What::Data);
        }
    }

    /// There is no room.
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
            if !self.wish(state, areas, bells, wanted)? && check_open(areas, bells).is_ok() {
                bells.wait(What::Room)?;
            }
            self.awake.learn(start.elapsed());
        }
        Ok(0)
    }

    /// Has the peer ring once so much can be sent; says whether it can already.
    fn wish(
        &self,
        state: &mut State,
        areas: &Areas,
        bells: &impl Bells,
        wanted: u32,
    ) -> Result<bool, Errno> {
        let free_at = (state.produced)
            .wrapping_sub(self.size.bytes())
            .wrapping_add(wanted);
        make_wish(areas, Word::RoomWanted, free_at);
        state.consumed = areas.own.load(Word::Consumed);
        let room = self.room(state).map_err(|why| bells.end(why))?;
        Ok(room >= wanted)
    }

    /// Whether something can be sent; if not, the peer rings when it can.
    pub fn is_ready(&self, areas: &Areas, bells: &impl Bells) -> Result<bool, Errno> {
        let Some(mut state) = turn(&self.state, true) else {
            return Ok(false);
        };
        check_open(areas, bells)?;
        state.consumed = areas.own.load(Word::Consumed);
        if self.room(&state).map_err(|why| bells.end(why))? > 0 {
            return Ok(true);
        }
        self.wish(&mut state, areas, bells, 1)
    }
}
