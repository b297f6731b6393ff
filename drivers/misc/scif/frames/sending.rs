// SPDX-License-Identifier: GPL-2.0

//! Sending frames by a queue.
//!
//! A sender puts frames into buffers of the peer, as many as there is room for, and then tells the
//! peer of all of them at once. The CPU copies small frames while the sender waits, an engine copies
//! large ones later (`frames/flight.rs`). The peer is told of a frame when it and all frames before
//! it have arrived. Until then they are *pending*.

use super::{
    fifo::Fifo,
    flight::{
        Flight,
        Place, //
    },
    queue::{
        Queue,
        Sender,
        MOST_ENGINES, //
    },
    receiving::MOST_BYTES,
};
use crate::{
    logic::{
        copy_costs::{
            Copier,
            CopyCosts, //
        },
        frame_ring::{
            self,
            Corrupt,
            Descriptor,
            FILLED,
            FRAME_WISH,
            META,
            POSTED, //
        },
    },
    rma::transfer_policy::{
        configured_threshold,
        WRITE, //
    },
    sync::in_flight::InFlightGuard,
    sys::{
        payload::Payload,
        reached::{
            flush_writes,
            Room, //
        },
    },
    transport::engine::ChosenEngine,
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SpinLockGuard, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};

/// Number of times that the sender tries to settle a failed engine.
const MOST_ATTEMPTS: u32 = 1 << 16;

/// Frames of which the peer was not told.
pub(super) struct Pending {
    /// Number of the buffer behind the last frame.
    end: u32,
    stage: Stage,
}

/// The stage of a pending frame.
enum Stage {
    /// It has arrived.
    Filled,
    /// An engine copies it.
    Flying(Arc<Flight>),
    /// The engine has failed, and may still have writes under way.
    Settling {
        failed: Arc<Flight>,
        settling: Option<Arc<Flight>>,
        attempts: u32,
    },
}

/// Frames that an engine has copied since the user asked last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Landed {
    /// Number of frames.
    pub frames: u32,
    /// Number of their bytes.
    pub bytes: u32,
}

/// An engine that is to copy a frame.
pub struct FrameEngine(usize);

/// A sender at work. The drop publishes what it has put, unless more follows.
pub struct Sending<'a> {
    pub(super) queue: &'a Arc<Queue>,
    pub(super) more_follows: bool,
    pub(super) state: SpinLockGuard<'a, Sender>,
    // Dropped last: everything else happens inside the peer.
    pub(super) _inside: InFlightGuard<'a>,
}

impl Sender {
    /// Creates the state of a sender that has sent nothing.
    /// Context: may sleep.
    pub(super) fn new(slots: u32) -> Result<Self> {
        Ok(Self {
            published: 0,
            filled: 0,
            pending: Fifo::new(slots as usize)?,
            engines: Default::default(),
            turn: 0,
            costs: CopyCosts::new(),
            landed: Landed::default(),
        })
    }

    /// Notes that the buffers up to `end` belong to frames at this stage.
    fn pend(&mut self, end: u32, stage: Stage) {
        if let (Some(last), Stage::Filled) = (self.pending.last_mut(), &stage) {
            if let Stage::Filled = last.stage {
                last.end = end;
                return;
            }
        }
        self.pending.push(Pending { end, stage });
    }
}

impl Sending<'_> {
    /// Returns the number of buffers that can be filled.
    ///
    /// # Errors
    ///
    /// The peer breaks the rules, which ends the session.
    pub fn room(&self) -> Result<u32> {
        let posted = self.queue.ours().load(POSTED)?;
        let free = frame_ring::free(self.queue.own, posted, self.state.filled);
        free.map_err(|Corrupt| self.queue.fail(EIO))
    }

    /// Returns the number of buffers that a frame of `len` bytes takes.
    pub fn buffers_of(&self, len: u32) -> u32 {
        self.queue.remote.geometry.buffers_of(len)
    }

    /// Returns the engine that should copy a frame of `len` bytes. `None` if the CPU should.
    ///
    /// The CPU copies what takes it no longer than to ask an engine. That is measured, unless the
    /// administrator has set the threshold.
    pub fn engine_for(&mut self, len: u32) -> Option<FrameEngine> {
        let is_wanted = match configured_threshold() {
            Some(most_by_cpu) => u64::from(len) > most_by_cpu,
            None => is_measured(len) && self.state.costs.choose(len) == Copier::Engine,
        };
        is_wanted.then(|| self.engine()).flatten()
    }

    /// Returns an engine that works and is not busy. The engines of the queue take turns.
    fn engine(&mut self) -> Option<FrameEngine> {
        (0..MOST_ENGINES).find_map(|_| self.next_engine())
    }

    /// Returns the engine whose turn it is, if it works and is not busy.
    fn next_engine(&mut self) -> Option<FrameEngine> {
        let path = self.queue.peer.path();
        let turn = self.state.turn;
        self.state.turn = (turn + 1) % MOST_ENGINES;
        let is_working = |chosen: &ChosenEngine| path.engine(Some(chosen.place)).is_some();
        if !self
            .state
            .engines
            .get(turn)?
            .as_ref()
            .is_some_and(is_working)
        {
            let places = self.state.engines.each_ref();
            let places =
                places.map(|chosen| chosen.as_ref().map_or(usize::MAX, |chosen| chosen.place));
            *self.state.engines.get_mut(turn)? = ChosenEngine::among(path.engines(), &places);
        }
        let place = self.state.engines.get(turn)?.as_ref()?.place;
        let route = path.engine(Some(place))?;
        // A frame begins and ends at any byte, so the engine must not require an alignment.
        let takes_all = route.engine.can_copy(1, 1, 1);
        (takes_all && !route.engine.is_busy()).then_some(FrameEngine(place))
    }

    /// Puts a frame of `total` bytes into buffers of the peer. `fill` stores the bytes from an offset
    /// of the frame on in a part of the memory.
    ///
    /// # Errors
    ///
    /// - EMSGSIZE: the frame is longer than [`MOST_BYTES`].
    /// - EAGAIN: there is no room.
    /// - Errors of `fill`: the frame is not sent.
    /// - The peer breaks the rules, which ends the session.
    pub fn put(
        &mut self,
        total: u32,
        meta: &[u8; META],
        fill: impl FnMut(u32, &Room<'_>) -> Result,
    ) -> Result {
        let place = self.place_for(total)?;
        let began = is_measured(total).then(Instant::<Monotonic>::now);
        self.fill(place, fill)?;
        self.measured(Copier::Cpu, total, began);
        let end = self.describe(place, meta)?;
        if self.state.pending.len() != 0 {
            self.state.pend(end, Stage::Filled);
        }
        self.state.filled = end;
        Ok(())
    }

    /// Puts a frame of `total` bytes as [`Self::put`] does. The engine copies it if it can, and the
    /// frame is dropped when it has arrived. Returns whether the engine copies it.
    pub fn put_by(
        &mut self,
        engine: FrameEngine,
        total: u32,
        meta: &[u8; META],
        frame: KBox<dyn Payload>,
    ) -> Result<bool> {
        let place = self.place_for(total)?;
        // Before the flight begins: after an error, no flight uses the buffers.
        let end = self.describe(place, meta)?;
        let began = is_measured(total).then(Instant::<Monotonic>::now);
        match Flight::start(self.queue, engine.0, place, frame) {
            Ok(flight) => {
                self.measured(Copier::Engine, total, began);
                self.state.pend(end, Stage::Flying(flight));
                self.state.filled = end;
                Ok(true)
            }
            Err(frame) => {
                let put = self.put(total, meta, |from, room| frame.copy_to(from, room));
                put.map(|()| false)
            }
        }
    }

    /// Notes what a frame has cost that was begun at this time, if that is measured.
    fn measured(&mut self, copier: Copier, total: u32, began: Option<Instant<Monotonic>>) {
        let elapsed = began.map(|began| began.elapsed().as_nanos());
        if let Some(Ok(nanoseconds)) = elapsed.map(u64::try_from) {
            self.state.costs.measured(copier, total, nanoseconds);
        }
    }

    fn place_for(&self, total: u32) -> Result<Place> {
        if total > MOST_BYTES {
            // The peer would end the session.
            return Err(EMSGSIZE);
        }
        if total == 0 || self.buffers_of(total) > self.room()? {
            return Err(EAGAIN);
        }
        Ok(Place {
            number: self.state.filled,
            total,
        })
    }

    /// Has the CPU fill buffers.
    fn fill(&self, place: Place, mut fill: impl FnMut(u32, &Room<'_>) -> Result) -> Result {
        let queue = self.queue;
        for (number, offset, len) in queue.remote.buffers(place) {
            let address = queue.buffer_address(number)?;
            let memory = queue.peer.path().reach(address, len.into());
            let memory = memory.map_err(|error| queue.fail(error))?;
            fill(offset, &Room::new(memory, len))?;
        }
        Ok(())
    }

    /// Writes the descriptors of a frame. Returns the number of the buffer behind it.
    fn describe(&self, place: Place, meta: &[u8; META]) -> Result<u32> {
        let (queue, total) = (self.queue, place.total);
        let theirs = queue.theirs()?;
        let mut end = place.number;
        for (number, offset, len) in queue.remote.buffers(place) {
            let is_first = offset == 0;
            let descriptor = Descriptor {
                len,
                has_more: offset + len < total,
                total: if is_first { total } else { 0 },
                meta: if is_first { *meta } else { [0; META] },
            };
            theirs.write(queue.own.descriptor(number), &descriptor.encode())?;
            end = number.wrapping_add(1);
        }
        Ok(end)
    }

    /// Leaves it to the next sender to tell the peer. The caller sends again at once.
    pub fn leave_to_next(mut self) {
        self.more_follows = true;
    }

    /// Tells the peer of the frames that have arrived, and rings if it sleeps.
    pub fn publish(&mut self) -> Result {
        let (before, after) = (self.state.published, self.arrived()?);
        if before == after {
            return Ok(());
        }
        // All bytes and descriptors arrive before the count.
        flush_writes();
        self.queue.theirs()?.write_u32(FILLED, after)?;
        flush_writes();
        self.state.published = after;
        self.queue.answer(FRAME_WISH, before, after)
    }

    /// Returns the number of the buffer up to which all have arrived.
    fn arrived(&mut self) -> Result<u32> {
        let mut arrived = self.state.published;
        while self.has_first_arrived()? {
            let Some(first) = self.state.pending.pop() else {
                return Ok(self.state.filled);
            };
            arrived = first.end;
        }
        Ok(arrived)
    }

    /// Returns whether the first pending frames have arrived, or there are none.
    fn has_first_arrived(&mut self) -> Result<bool> {
        let Some(first) = self.state.pending.first_mut() else {
            return Ok(true);
        };
        let landed = match &mut first.stage {
            Stage::Filled => return Ok(true),
            Stage::Flying(flight) => match flight.result() {
                None => return Ok(false),
                Some(Ok(())) => flight.clone(),
                Some(Err(_)) => {
                    let failed = flight.clone();
                    first.stage = Stage::Settling {
                        failed,
                        settling: None,
                        attempts: 0,
                    };
                    return self.has_first_arrived();
                }
            },
            Stage::Settling {
                failed,
                settling,
                attempts,
            } => match settle(failed, settling, attempts) {
                Ok(false) => return Ok(false),
                Ok(true) => {
                    let failed = failed.clone();
                    self.fill_again(&failed)?;
                    failed
                }
                Err(error) => return Err(self.queue.fail(error)),
            },
        };
        if let Some((_, place)) = landed.frame() {
            let landed = &mut self.state.landed;
            landed.frames = landed.frames.wrapping_add(1);
            landed.bytes = landed.bytes.wrapping_add(place.total);
        }
        Ok(true)
    }

    /// Has the CPU copy the frame of a flight that has failed.
    fn fill_again(&self, failed: &Flight) -> Result {
        let (frame, place) = failed.frame().ok_or(EINVAL)?;
        let filled = self.fill(place, |from, room| frame.copy_to(from, room));
        // The peer has been told the place of later frames, so this one can't be left out.
        filled.map_err(|error| self.queue.fail(error))
    }

    /// Reports copies of the engine that have completed. Returns whether frames are pending.
    pub fn reap(&mut self) -> bool {
        match self.state.pending.first_mut().map(|first| &first.stage) {
            None => false,
            Some(Stage::Flying(flight)) => {
                flight.reap();
                true
            }
            Some(_) => true,
        }
    }

    /// Returns whether the sender has to publish again soon, though no doorbell rings and no engine
    /// ends: an engine has failed.
    pub fn is_settling(&mut self) -> bool {
        let first = self.state.pending.first_mut();
        first.is_some_and(|first| matches!(first.stage, Stage::Settling { .. }))
    }

    /// Returns the frames that an engine has copied since the last call.
    pub fn landed(&mut self) -> Landed {
        core::mem::take(&mut self.state.landed)
    }

    /// Asks the peer to ring once `wanted` buffers can be filled. Returns whether they already can
    /// be, so that the sender need not wait.
    pub fn wait_for_room(&mut self, wanted: u32) -> Result<bool> {
        let wanted = wanted.min(self.queue.own.slots());
        let at = self.state.filled.wrapping_add(wanted);
        let theirs = self.queue.theirs()?;
        self.queue.room.make(&theirs, &self.queue.ours(), at)
    }
}

/// Returns whether the costs of a frame of `len` bytes are measured. The CPU copies smaller ones.
fn is_measured(len: u32) -> bool {
    u64::from(len) > WRITE
}

/// Goes on with the settling of an engine that has failed. Returns whether it writes no more. EIO:
/// that can't be found out.
fn settle(
    failed: &Arc<Flight>,
    settling: &mut Option<Arc<Flight>>,
    attempts: &mut u32,
) -> Result<bool> {
    match settling.as_ref().map(|flight| flight.result()) {
        Some(None) => return Ok(false),
        Some(Some(Ok(()))) => return Ok(true),
        Some(Some(Err(_))) | None => {}
    }
    *attempts += 1;
    if *attempts > MOST_ATTEMPTS {
        return Err(EIO);
    }
    match failed.settle() {
        Ok(flight) => *settling = Some(flight),
        Err(EAGAIN) => *settling = None,
        // The engine has stopped.
        Err(_) => return Ok(true),
    }
    Ok(false)
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.more_follows {
            // Fails only if the peer's memory is out of reach, which ends the session.
            let _ = self.publish();
        }
    }
}
