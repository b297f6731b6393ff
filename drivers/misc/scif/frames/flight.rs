// SPDX-License-Identifier: GPL-2.0

//! Frames that an engine copies to the peer.
//!
//! The sender does not wait. The frame's memory stays until the engine has ended, and the peer is
//! told of the frame afterwards (`frames/sending.rs`).
//!
//! If the engine fails, or its ring is full in the middle of a frame, the CPU copies the frame again.
//! Before that, no earlier write of the engine may be under way any more, as it would overwrite what
//! the peer has made of the buffer meanwhile. So a *settling* flight without a frame follows, which
//! only reads from the peer.

use super::queue::Queue;
use crate::{
    peer::PeerUse,
    sync::outcome::Outcome,
    sys::{
        bus_range::BusCopy,
        dmaengine::{
            Batch,
            CopyFlags, //
        },
        payload::{
            Cursor,
            MappedPayload,
            Payload, //
        },
    },
    transport::engine::{
        job::{
            self,
            Job,
            JobState, //
        },
        EngineRoute,
        JobReservation,
        WaitLimit, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    },
};

/// The buffers of the peer that a frame fills.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Number of the first buffer.
    pub(super) number: u32,
    /// Bytes of the frame.
    pub(super) total: u32,
}

/// A frame that an engine copies, or the settling of an engine that has failed.
pub(super) struct Flight {
    state: JobState,
    outcome: Outcome,
    frame: Option<(MappedPayload, Place)>,
    /// Place of the engine among those of the path.
    engine: usize,
    peer: PeerUse,
    // Dropped last: the queue waits for the drop of all else.
    aloft: Aloft,
}

/// A flight that a queue counts, until it is dropped.
struct Aloft(Arc<Queue>);

impl Drop for Aloft {
    fn drop(&mut self) {
        self.0.flights.leave();
    }
}

impl Job for Flight {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn on_complete(&self, result: Result) {
        self.outcome.end_with(result);
        self.aloft.0.landed();
    }
}

impl Flight {
    /// Has the engine at a place of the path copy a frame. Gives the frame back if that can't be
    /// begun.
    /// Context: bottom halves disabled.
    pub(super) fn start(
        queue: &Arc<Queue>,
        engine: usize,
        place: Place,
        payload: KBox<dyn Payload>,
    ) -> Result<Arc<Self>, KBox<dyn Payload>> {
        let Some(route) = queue.peer.path().engine(Some(engine)) else {
            return Err(payload);
        };
        let memory = UniqueArc::new_uninit(GFP_ATOMIC | __GFP_NOWARN);
        let (Ok(memory), Ok(reservation)) = (memory, JobReservation::atomic()) else {
            return Err(payload);
        };
        let (Some(peer), Some(aloft)) = (queue.peer.enter_owned(), queue.aloft()) else {
            return Err(payload);
        };
        let mapped = MappedPayload::new(&route.engine.device(), payload)?;
        let flight = memory.write(Self {
            state: JobState::new(&route.engine, place.total.into()),
            outcome: Outcome::new(),
            frame: Some((mapped, place)),
            engine,
            peer,
            aloft,
        });
        Ok(Self::begin(flight.into(), reservation))
    }

    /// Has the engine of this flight, which has failed, end its writes. EAGAIN: the engine has no
    /// room. EIO: the engine has stopped, and writes no more.
    /// Context: bottom halves disabled.
    pub(super) fn settle(&self) -> Result<Arc<Self>> {
        let queue = &self.aloft.0;
        let route = queue.peer.path().engine(Some(self.engine)).ok_or(EIO)?;
        if route.engine.is_busy() {
            return Err(EAGAIN);
        }
        let flight = Self {
            state: JobState::new(&route.engine, 0),
            outcome: Outcome::new(),
            frame: None,
            engine: self.engine,
            peer: queue.peer.enter_owned().ok_or(EIO)?,
            aloft: queue.aloft().ok_or(EIO)?,
        };
        let flight = Arc::new(flight, GFP_ATOMIC).map_err(|_| EAGAIN)?;
        let reservation = JobReservation::atomic().map_err(|_| EAGAIN)?;
        Ok(Self::begin(flight, reservation))
    }

    fn begin(flight: Arc<Self>, reservation: JobReservation) -> Arc<Self> {
        // A failure is the result of the flight.
        let _ = job::start_now(&flight, reservation, |flight, batch| flight.submit(batch));
        flight
    }

    fn submit<'t>(&'t self, batch: &Batch<'t, Self>) -> Result {
        // Takes the route from the peer's list, which the flight keeps alive.
        let route = self.peer.path().engine(Some(self.engine)).ok_or(EIO)?;
        if let Some((payload, place)) = &self.frame {
            self.submit_frame(batch, route, payload, *place)?;
        }
        // The flight completes only when all data has arrived.
        let arrival = route.arrival()?;
        let limit = WaitLimit::Never;
        route
            .engine
            .submit_all(arrival, CopyFlags::NONE, batch, &limit)
    }

    fn submit_frame<'t>(
        &'t self,
        batch: &Batch<'t, Self>,
        route: &'t EngineRoute,
        payload: &'t MappedPayload,
        place: Place,
    ) -> Result {
        let mut cursor = Cursor::START;
        let mut to_come = place.total;
        let queue = &self.aloft.0;
        for (number, _, len) in queue.remote.buffers(place) {
            let (address, mut at) = (queue.buffer_address(number)?, 0);
            while at < len {
                let from = payload.take(&mut cursor, len - at).ok_or(EINVAL)?;
                let count = from.len() as u32;
                let to = route
                    .view
                    .range(address.checked_add(at.into()).ok_or(EFAULT)?, count.into());
                let copy = BusCopy::new(to.ok_or(EFAULT)?, from).ok_or(EINVAL)?;
                at += count;
                to_come -= count;
                // Fences the last copy, which the arrival must follow.
                let flags = CopyFlags {
                    interrupt: false,
                    fence: to_come == 0,
                };
                route
                    .engine
                    .submit_all(copy, flags, batch, &WaitLimit::Never)?;
            }
        }
        Ok(())
    }

    /// Returns the result, or `None` while the engine copies.
    pub(super) fn result(&self) -> Option<Result> {
        self.outcome.result()
    }

    /// Returns the frame and its place.
    pub(super) fn frame(&self) -> Option<(&dyn Payload, Place)> {
        let (payload, place) = self.frame.as_ref()?;
        Some((payload.payload(), *place))
    }

    /// Reports copies of the engine that have completed without an interrupt.
    pub(super) fn reap(&self) {
        self.state.engine.reap();
    }
}

impl Queue {
    fn aloft(self: &Arc<Self>) -> Option<Aloft> {
        self.flights.enter_unscoped().then(|| Aloft(self.clone()))
    }
}
