// SPDX-License-Identifier: GPL-2.0

//! A transfer by DMA engine: from its first descriptor to the release of what it used.
//!
//! The transfer is split into segments that are contiguous on both sides; each is one descriptor.
//! Whoever ends the last of them, the submitter or the engine's completion, finishes the transfer:
//! the result goes to its [`Completion`](super::operation::Completion). The engine keeps it until somebody in process context lets go of
//! the memory on both sides, which may sleep and the completion must not. Errors of a transfer are its
//! own: who asked for it and how he is told is not known here.
//!
//! The submitter polls for the end, or arms the engine's interrupt (`transport/engine/poller.rs`).
//!
//! While it runs, a transfer keeps the peer in use: a peer that is lost is torn down after its
//! transfers. An engine that stops ends its transfers with EIO, see `transport/engine.rs`.

use super::operation::{
    Operation,
    Request,
    Sides,
    Stretch,
    Surroundings, //
};
use crate::{
    arguments::Direction,
    logic::plan::{
        Plan,
        Segment,
        Walk, //
    },
    sys::dmaengine::{
        Batch,
        CopyFlags, //
    },
    transport::engine::{
        job::{
            self,
            Job,
            JobState, //
        },
        EngineRoute,
        Patience,
        Place, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// A transfer that an engine makes.
pub(super) struct Transfer {
    operation: Operation,
    state: JobState,
    /// Whether the call reports the result, so that no fence does.
    reported: Atomic<bool>,
    // Dropped in this order: the memory before what keeps the surroundings.
    sides: Sides,
    surroundings: Surroundings,
}

impl Job for Transfer {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn tell(&self, result: Result) {
        self.operation.end(result, self.reported.load(Relaxed));
    }
}

/// A walk over a peer's memory that gives the engine's addresses.
struct EngineWalk<'a, W> {
    bus: W,
    route: &'a EngineRoute,
}

impl<W: Walk> Walk for EngineWalk<'_, W> {
    fn next(&mut self, limit: u64) -> Option<(u64, u64)> {
        let (address, len) = self.bus.next(limit)?;
        Some((self.route.address(address, len)?, len))
    }
}

impl Transfer {
    /// Hands a transfer to the engine. When this returns `Ok`, it ends by itself. On an error it
    /// has failed, and what was begun of it ends by itself, too; the caller reports the error, and
    /// nobody else does. Killable while the engine's ring is full. The caller is inside the peer.
    pub(super) fn start(route: &EngineRoute, request: Request) -> Result<Arc<Self>> {
        let (operation, parts) = (request.operation.clone(), request.parts);
        let transfer = Self {
            operation: request.operation,
            state: JobState::new(&route.engine, operation.bytes),
            reported: Atomic::new(request.synchronous),
            sides: request.sides,
            surroundings: request.surroundings,
        };
        let made = Arc::new(transfer, GFP_KERNEL_ACCOUNT).map_err(Error::from);
        let made = made.and_then(|transfer| Ok((transfer, Place::new()?)));
        let (transfer, place) = made.map_err(|error| operation.fail(error))?;
        let direction = operation.direction;
        let submitted = job::start(&transfer, place, |batch| {
            let submitted = transfer.submit(batch, route, direction, parts);
            submitted.inspect_err(|_| transfer.reported.store(true, Relaxed))
        });
        submitted.map(|()| transfer)
    }

    /// None while it runs. Any context.
    pub(super) fn result(&self) -> Option<Result> {
        self.state.result()
    }

    fn submit(
        &self,
        batch: &Batch<Self>,
        route: &EngineRoute,
        direction: Direction,
        (body, tail): (u64, u64),
    ) -> Result {
        let mut submitter = Submitter {
            batch,
            held: None,
            arrival: match direction {
                Direction::Write => Some(route.arrival()),
                Direction::Read => None,
            },
        };
        let max_segment = self.state.engine.longest_segment();
        for (skip, len) in [(0, body), (body, tail)] {
            submitter.begin_part();
            let result = self.sides.for_each_stretch(skip, len, |stretch| {
                submitter.add_stretch(route, direction, &stretch, max_segment)
            });
            if result.is_err() {
                let _ = submitter.finish();
                return result;
            }
        }
        submitter.finish()
    }
}

/// Passes segments on to the engine, one behind, so that the last is known when it goes.
struct Submitter<'a> {
    batch: &'a Batch<Transfer>,
    held: Option<(Segment, CopyFlags)>,
    /// What comes after it, and ends when it has arrived.
    arrival: Option<Segment>,
}

impl Submitter<'_> {
    /// What comes now must not be there before what was added until now.
    fn begin_part(&mut self) {
        if let Some((_, flags)) = &mut self.held {
            flags.fence = true;
        }
    }

    fn add_stretch(
        &mut self,
        route: &EngineRoute,
        direction: Direction,
        stretch: &Stretch<'_>,
        max_segment: u64,
    ) -> Result {
        // Memory that was mapped before there was the engine has no address for it.
        let local = stretch.local.memory().engine_addresses().ok_or(EIO)?;
        let local = local.walk(stretch.local_offset);
        let remote = EngineWalk {
            bus: stretch.remote.window.extents.walk(stretch.remote_offset),
            route,
        };
        match direction {
            Direction::Read => self.add_all(Plan::new(local, remote, stretch.len, max_segment)),
            Direction::Write => self.add_all(Plan::new(remote, local, stretch.len, max_segment)),
        }
    }

    fn add_all<D: Walk, S: Walk>(&mut self, plan: Plan<D, S>) -> Result {
        for segment in plan {
            let segment = segment.map_err(|_| ENXIO)?;
            if let Some((held, flags)) = self.held {
                // On an error the segment stays at hand, for `finish`.
                let is_over = || self.batch.surroundings.peer.is_over();
                self.submit(held, flags, &Patience::Killable(&is_over))?;
            }
            self.held = Some((segment, CopyFlags::NONE));
        }
        Ok(())
    }

    /// Submits the segment at hand as the last one, also if the transfer as a whole has failed. EIO if the
    /// engine has stopped.
    fn finish(&mut self) -> Result {
        let Some((held, _)) = self.held.take() else {
            return Ok(());
        };
        match self.arrival {
            Some(arrival) => {
                self.submit(held, CopyFlags::FENCE, &Patience::Endless)?;
                self.submit(arrival, CopyFlags::NONE, &Patience::Endless)
            }
            None => self.submit(held, CopyFlags::NONE, &Patience::Endless),
        }
    }

    fn submit(&self, segment: Segment, flags: CopyFlags, patience: &Patience<'_>) -> Result {
        let engine = &self.batch.state.engine;
        engine.submit_all(segment, flags, self.batch, patience)
    }
}
