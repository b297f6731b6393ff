// SPDX-License-Identifier: GPL-2.0

//! Copies by DMA engine: from the first descriptor to the release of what they use.
//!
//! The copy is split into segments that are contiguous on both sides; each is one descriptor. Whoever ends the last of
//! them, the submitter or the engine's completion, ends the operation. The engine keeps it until somebody in process
//! context lets go of the memory on both sides, which may sleep and the completion must not.
//!
//! The submitter polls for the end, or arms the engine's interrupt (`transport/engine/poller.rs`).
//!
//! While it runs, a transfer keeps the peer in use: a peer that is lost is torn down after its
//! transfers. An engine that stops ends its transfers with EIO, see `transport/engine.rs`.

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
        Patience,
        Place, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// An operation that an engine carries out.
struct Transfer {
    state: JobState,
    operation: Arc<Operation>,
}

impl Job for Transfer {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn tell(&self, result: Result) {
        self.operation.end(result);
    }
}

/// Has the engine copy, and polls for the end for a moment if the operation is synchronous. When this returns `Ok`, the
/// operation ends by itself. On an error it has failed, and ends by itself, too; the `caller` hears of the error.
/// Killable while the engine's ring is full. The local side is mapped for the engine.
pub(super) fn start(route: &EngineRoute, operation: &Arc<Operation>, caller: Caller) -> Result {
    let transfer = Transfer {
        state: JobState::new(&route.engine, operation.bytes),
        operation: operation.clone(),
    };
    let transfer = Arc::new(transfer, GFP_KERNEL_ACCOUNT).map_err(Error::from);
    let made = transfer.and_then(|transfer| Ok((transfer, Place::new()?)));
    let (transfer, place) = made.map_err(|error| operation.end_for(caller, error))?;
    let peer = &operation.surroundings.peer;
    // An engine that writes ends with a load from the peer: none is started across a link that is known to be down.
    if peer.is_over() {
        return Err(operation.end_for(caller, ENODEV));
    }
    // It overwrites, and reads, what the processor has written before.
    peer.path().settle_stores();
    job::start(&transfer, place, |transfer, batch| {
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
        // It is the peer's, whom the operation keeps.
        let routes = operation.surroundings.peer.path().engines();
        let route = routes.same(route).ok_or(EIO)?;
        let submitted = submit_parts(operation, batch, route);
        if operation.direction == Direction::Read {
            return submitted;
        }
        let arrival = route.arrival()?;
        let submit = |flags| {
            let patience = Patience::Endless;
            route.engine.submit_all(arrival, flags, batch, &patience)
        };
        if submitted.is_err() {
            // What was submitted has no fence at its end, but ends before this does.
            submit(CopyFlags::FENCE)?;
        }
        // The operation ends when all has arrived, also if it has failed: the peer's memory may be used for something
        // else then.
        submitted.and(submit(CopyFlags::NONE))
    }
}

fn submit_parts<'t>(
    operation: &'t Operation,
    batch: &Batch<'t, Transfer>,
    route: &'t EngineRoute,
) -> Result {
    let is_over = || operation.surroundings.peer.is_over();
    let patience = Patience::Killable(&is_over);
    for (skip, len) in operation.parts() {
        // The next part, or the arrival, comes after all of this one.
        let is_followed =
            operation.direction == Direction::Write || operation.is_ordered() && skip == 0;
        let mut to_come = len;
        operation.sides.for_each_stretch(skip, len, |stretch| {
            to_come -= stretch.len;
            let last = CopyFlags {
                interrupt: false,
                fence: is_followed && to_come == 0,
            };
            submit_stretch(operation, batch, route, &stretch, last, &patience)
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
    patience: &Patience<'_>,
) -> Result {
    let engine = &route.engine;
    // Memory that was mapped before there was the engine has no address for it.
    let local = stretch.local.memory().engine_walk(stretch.local_offset);
    let local = local.ok_or(EIO)?;
    let extents = &stretch.remote.window.extents;
    let remote = route.view.walk(extents.walk(stretch.remote_offset));
    let (len, longest) = (stretch.len, engine.longest_segment());
    match operation.direction {
        Direction::Read => {
            let plan = BusPlan::new(local, remote, len, longest);
            submit_plan(engine, batch, plan, len, last, patience)
        }
        Direction::Write => {
            let plan = BusPlan::new(remote, local, len, longest);
            submit_plan(engine, batch, plan, len, last, patience)
        }
    }
}

/// Submits the copies of a plan for `len` bytes; the `last` one gets these flags. Errors as those of
/// [`Engine::submit_all`].
pub(super) fn submit_plan<'j, J: Job, D: Walk, S: Walk>(
    engine: &Arc<Engine>,
    batch: &Batch<'j, J>,
    plan: BusPlan<'j, D, S>,
    len: u64,
    last: CopyFlags,
    patience: &Patience<'_>,
) -> Result {
    let mut to_come = len;
    for copy in plan {
        let copy = copy?;
        to_come -= copy.segment().len;
        let flags = if to_come == 0 { last } else { CopyFlags::NONE };
        engine.submit_all(copy, flags, batch, patience)?;
    }
    Ok(())
}
