// SPDX-License-Identifier: GPL-2.0

//! Slots that an engine fills, some at a time: the data, and behind it the header, of one after the other.
//!
//! All goes by the same engine, in order, so no header overtakes what it speaks of, and the peer may empty the
//! first slot while the next one is filled. The submitter polls for the end, or arms the engine's interrupt. If the
//! engine fails, the slots become void, and so does the transfer.
//!
//! While it goes on it keeps the memory and the peer in use. An engine that stops ends it with an error.

use super::outbox::Outbox;
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
        Patience,
        Place, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Slots that an engine fills.
pub(super) struct Fill {
    outbox: Arc<Outbox>,
    parts: Parts,
    state: JobState,
    // Dropped in this order: the memory before what keeps the peer.
    from: LocalPiece,
    headers: EngineMemory,
    operation: Arc<Operation>,
}

impl Job for Fill {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn tell(&self, result: Result) {
        self.outbox.engine_has_ended(self.parts, result);
        self.operation.part_ended(result.map_err(|_| EIO));
    }
}

impl Fill {
    /// Has the engine fill slots with `data`, which is mapped for it, and goes on by itself then: this returns an error
    /// only if nothing was begun. May sleep.
    pub(super) fn start(
        outbox: &Arc<Outbox>,
        operation: &Arc<Operation>,
        route: &EngineRoute,
        parts: Parts,
        data: LocalPiece,
    ) -> Result {
        let engine = &route.engine;
        let fill = Self {
            outbox: outbox.clone(),
            parts,
            state: JobState::new(engine, data.len),
            from: data,
            headers: headers_of(parts, engine)?,
            operation: operation.clone(),
        };
        let fill = Arc::new(fill, GFP_KERNEL)?;
        let place = Place::new()?;
        // From here on it is told to others if that fails. What the engine reads stays until then, whatever the peer says of
        // the slots.
        operation.add_part();
        let _ = job::start(&fill, place, |fill, batch| fill.submit(batch, route));
        Ok(())
    }

    /// EIO if the engine has stopped, ENODEV if the peer is lost.
    fn submit<'t>(&'t self, batch: &Batch<'t, Self>, route: &EngineRoute) -> Result {
        let peer = &self.operation.surroundings.peer;
        let is_over = || peer.is_over();
        // It ends with a load from the peer: not across a link that is known to be down.
        if is_over() {
            return Err(ENODEV);
        }
        let patience = Patience::UntilOver(&is_over);
        let engine = &self.state.engine;
        let longest = engine.longest_segment();
        // It is the peer's, whom the operation keeps.
        let route = peer.path().engines().same(route).ok_or(EIO)?;
        for (index, part) in self.parts.enumerate() {
            let sequence = part.header.sequence;
            let data_at = self.outbox.data_address(sequence);
            let to = route.view.range(data_at, part.len);
            let to = to.and_then(|to| to.walk()).ok_or(EFAULT)?;
            let from = self.from.memory().engine_walk(self.from.offset + part.at);
            let plan = BusPlan::new(to, from.ok_or(EIO)?, part.len, longest);
            // All of it has been copied before the header is.
            submit_plan(engine, batch, plan, part.len, CopyFlags::FENCE, &patience)?;
            let header_at = self.outbox.header_address(sequence);
            let to = route.view.range(header_at, HEADER as u64).ok_or(EFAULT)?;
            let from = self.headers.range(index * HEADER, HEADER).ok_or(EFAULT)?;
            let header = BusCopy::new(to, from).ok_or(EFAULT)?;
            engine.submit_all(header, CopyFlags::FENCE, batch, &patience)?;
        }
        // Who is told of them, by whatever way, finds them there.
        engine.submit_all(route.arrival()?, CopyFlags::NONE, batch, &patience)
    }
}

/// The headers, one after the other, where an engine finds them. May sleep.
fn headers_of(parts: Parts, engine: &Engine) -> Result<EngineMemory> {
    let memory = EngineMemory::new(parts.count() * HEADER, &engine.device())?;
    for (index, part) in parts.enumerate() {
        memory.write(index * HEADER, &part.header.encode())?;
    }
    Ok(memory)
}
