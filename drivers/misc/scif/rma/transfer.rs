// SPDX-License-Identifier: GPL-2.0

//! Copies by a DMA engine, from the first descriptor to the release of the resources.
//!
//! A copy is split into segments that are contiguous on both sides, with one descriptor each. The
//! submitter or the engine's completion, whichever finishes the last segment, completes the
//! operation. The engine keeps the operation until a task in process context releases the memory on
//! both sides. The release may sleep, which the engine's completion must not.
//!
//! The submitter polls for completion, or arms the engine's interrupt
//! (`transport/engine/poller.rs`).
//!
//! While it is in flight, a transfer keeps the peer in use. So a lost peer is torn down only after
//! its transfers. An engine that stops completes its transfers with EIO, see `transport/engine.rs`.

use super::operation::{
    Caller,
    Operation,
    Stretch, //
};
use crate::{
    arguments::Direction,
    logic::plan::Walk,
    sys::{
        bus_range::BusPlan,
        dmaengine::{
            Batch,
            CopyFlags, //
        }, //
    },
    transport::engine::{
        job::{
            self,
            Job,
            JobState, //
        },
        Engine,
        EngineRoute,
        JobReservation,
        WaitLimit, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A job of an engine that carries out an operation.
struct Transfer {
    state: JobState,
    operation: Arc<Operation>,
}

impl Job for Transfer {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn on_complete(&self, result: Result) {
        self.operation.end(result);
    }
}

/// Has the engine copy. If the operation is synchronous, polls for its completion for a moment. The
/// local side is mapped for the engine. While the engine's ring is full, the wait is killable.
///
/// If this returns `Ok`, the operation completes on its own. On an error the operation has failed
/// and completes on its own as well. The `caller` hears of the error.
pub(super) fn start(route: &EngineRoute, operation: &Arc<Operation>, caller: Caller) -> Result {
    let transfer = Transfer {
        state: JobState::new(&route.engine, operation.bytes),
        operation: operation.clone(),
    };
    let transfer = Arc::new(transfer, GFP_KERNEL_ACCOUNT).map_err(Error::from);
    let made = transfer.and_then(|transfer| Ok((transfer, JobReservation::new()?)));
    let (transfer, reservation) = made.map_err(|error| operation.end_for(caller, error))?;
    let peer = &operation.surroundings.peer;
    // A write by an engine completes with a load from the peer, which must not cross a link that is
    // known to be down.
    if peer.is_over() {
        return Err(operation.end_for(caller, ENODEV));
    }
    // The engine may read or overwrite what the CPU has stored before, so those stores must have
    // arrived.
    peer.path().settle_stores();
    job::start(&transfer, reservation, |transfer, batch| {
        let submitted = transfer.submit(batch, route);
        submitted.inspect_err(|_| operation.report_to(caller))
    })?;
    if operation.synchronous {
        route.engine.poll_until(|| operation.result().is_some());
    } else {
        route.engine.arm();
    }
    Ok(())
}

impl Transfer {
    fn submit<'t>(&'t self, batch: &Batch<'t, Self>, route: &EngineRoute) -> Result {
        let operation = &*self.operation;
        // Takes the route from the peer's list, which the operation keeps alive.
        let routes = operation.surroundings.peer.path().engines();
        let route = routes.same(route).ok_or(EIO)?;
        let submitted = submit_parts(operation, batch, route);
        if operation.direction == Direction::Read {
            return submitted;
        }
        let arrival = route.arrival()?;
        let submit = |flags| {
            let limit = WaitLimit::Endless;
            route.engine.submit_all(arrival, flags, batch, &limit)
        };
        if submitted.is_err() {
            // The copies that were submitted do not end with a fence. They complete before this
            // copy, which does.
            submit(CopyFlags::FENCE)?;
        }
        // Completes the operation only when all data has arrived, also after an error. The peer's
        // memory may be used for something else then.
        submitted.and(submit(CopyFlags::NONE))
    }
}

fn submit_parts<'t>(
    operation: &'t Operation,
    batch: &Batch<'t, Transfer>,
    route: &'t EngineRoute,
) -> Result {
    let is_over = || operation.surroundings.peer.is_over();
    let limit = WaitLimit::Killable(&is_over);
    for (skip, len) in operation.parts() {
        // Fences the last copy of a part that the next part or the arrival must follow.
        let is_followed =
            operation.direction == Direction::Write || operation.is_ordered() && skip == 0;
        let mut to_come = len;
        operation.sides.for_each_stretch(skip, len, |stretch| {
            to_come -= stretch.len;
            let last = CopyFlags {
                interrupt: false,
                fence: is_followed && to_come == 0,
            };
            submit_stretch(operation, batch, route, &stretch, last, &limit)
        })?;
    }
    Ok(())
}

fn submit_stretch<'t>(
    operation: &Operation,
    batch: &Batch<'t, Transfer>,
    route: &'t EngineRoute,
    stretch: &Stretch<'t>,
    last: CopyFlags,
    limit: &WaitLimit<'_>,
) -> Result {
    let engine = &route.engine;
    // Memory that was mapped before the engine existed has no address for the engine.
    let local = stretch.local.memory().engine_walk(stretch.local_offset);
    let local = local.ok_or(EIO)?;
    let extents = &stretch.remote.window.extents;
    let remote = route.view.walk(extents.walk(stretch.remote_offset));
    let (len, longest) = (stretch.len, engine.longest_segment());
    match operation.direction {
        Direction::Read => {
            let plan = BusPlan::new(local, remote, len, longest);
            submit_plan(engine, batch, plan, len, last, limit)
        }
        Direction::Write => {
            let plan = BusPlan::new(remote, local, len, longest);
            submit_plan(engine, batch, plan, len, last, limit)
        }
    }
}

/// Submits the copies of a plan for `len` bytes. The last copy gets the flags `last`. Errors are as
/// those of [`Engine::submit_all`].
pub(super) fn submit_plan<'j, J: Job, D: Walk, S: Walk>(
    engine: &Arc<Engine>,
    batch: &Batch<'j, J>,
    plan: BusPlan<'j, D, S>,
    len: u64,
    last: CopyFlags,
    limit: &WaitLimit<'_>,
) -> Result {
    let mut to_come = len;
    for copy in plan {
        let copy = copy?;
        to_come -= copy.segment().len;
        let flags = if to_come == 0 { last } else { CopyFlags::NONE };
        engine.submit_all(copy, flags, batch, limit)?;
    }
    Ok(())
}
