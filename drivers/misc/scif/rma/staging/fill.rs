// SPDX-License-Identifier: GPL-2.0

//! Slots that an engine fills, a few at a time: the data of a slot, then its header, slot by slot.
//!
//! The same engine writes everything in order. So no header overtakes its data, and the peer may
//! empty the first slot while the engine fills the next one. The submitter polls for completion, or
//! arms the engine's interrupt. If the engine fails, the slots become void and the transfer fails.
//!
//! While the engine fills slots, the memory and the peer stay in use. An engine that stops
//! completes the transfer with an error.

use super::send_slots::SendSlots;
use crate::{
    logic::staging::{
        Parts,
        HEADER, //
    },
    memory::local::LocalPiece,
    rma::{
        operation::Operation,
        transfer::submit_plan, //
    },
    sys::{
        bus_range::{
            BusCopy,
            BusPlan,
            EngineMemory, //
        },
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

/// A job of an engine that fills slots.
pub(super) struct Fill {
    send_slots: Arc<SendSlots>,
    parts: Parts,
    state: JobState,
    // Dropped in this order: the memory goes before the operation, which keeps the peer in use.
    from: LocalPiece,
    headers: EngineMemory,
    operation: Arc<Operation>,
}

impl Job for Fill {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn on_complete(&self, result: Result) {
        self.send_slots.engine_has_ended(self.parts, result);
        self.operation.part_ended(result.map_err(|_| EIO));
    }
}

impl Fill {
    /// Has the engine fill slots with `data`, which is mapped for the engine. The fill then
    /// completes on its own. Returns an error only if nothing was started.
    /// Context: may sleep.
    pub(super) fn start(
        send_slots: &Arc<SendSlots>,
        operation: &Arc<Operation>,
        route: &EngineRoute,
        parts: Parts,
        data: LocalPiece,
    ) -> Result {
        let engine = &route.engine;
        let fill = Self {
            send_slots: send_slots.clone(),
            parts,
            state: JobState::new(engine, data.len),
            from: data,
            headers: headers_of(parts, engine)?,
            operation: operation.clone(),
        };
        let fill = Arc::new(fill, GFP_KERNEL)?;
        let reservation = JobReservation::new()?;
        // From here on a failure is reported through the operation. The memory that the engine
        // reads stays until the engine has finished, regardless of the peer's count of emptied
        // slots.
        operation.add_part();
        let _ = job::start(&fill, reservation, |fill, batch| fill.submit(batch, route));
        Ok(())
    }

    /// Submits the copies of the slots. Returns EIO if the engine has stopped, ENODEV if the peer
    /// is lost.
    fn submit<'t>(&'t self, batch: &Batch<'t, Self>, route: &EngineRoute) -> Result {
        let peer = &self.operation.surroundings.peer;
        let is_over = || peer.is_over();
        // The fill completes with a load from the peer, which must not cross a link that is known
        // to be down.
        if is_over() {
            return Err(ENODEV);
        }
        let limit = WaitLimit::UntilOver(&is_over);
        let engine = &self.state.engine;
        let longest = engine.longest_segment();
        // Takes the route from the peer's list, which the operation keeps alive.
        let route = peer.path().engines().same(route).ok_or(EIO)?;
        for (index, part) in self.parts.enumerate() {
            let sequence = part.header.sequence;
            let data_at = self.send_slots.data_address(sequence);
            let to = route.view.range(data_at, part.len);
            let to = to.and_then(|to| to.walk()).ok_or(EFAULT)?;
            let from = self.from.memory().engine_walk(self.from.offset + part.at);
            let plan = BusPlan::new(to, from.ok_or(EIO)?, part.len, longest);
            // Fences the data, so that all of it has been copied before the header is.
            submit_plan(engine, batch, plan, part.len, CopyFlags::FENCE, &limit)?;
            let header_at = self.send_slots.header_address(sequence);
            let to = route.view.range(header_at, HEADER as u64).ok_or(EFAULT)?;
            let from = self.headers.range(index * HEADER, HEADER).ok_or(EFAULT)?;
            let header = BusCopy::new(to, from).ok_or(EFAULT)?;
            engine.submit_all(header, CopyFlags::FENCE, batch, &limit)?;
        }
        // Completes once the slots have arrived, so a peer that is told of them in any way finds
        // them.
        engine.submit_all(route.arrival()?, CopyFlags::NONE, batch, &limit)
    }
}

/// Returns the headers of the slots in memory that the engine can read.
/// Context: may sleep.
fn headers_of(parts: Parts, engine: &Engine) -> Result<EngineMemory> {
    let memory = EngineMemory::new(parts.count() * HEADER, &engine.device())?;
    for (index, part) in parts.enumerate() {
        memory.write(index * HEADER, &part.header.encode())?;
    }
    Ok(memory)
}
