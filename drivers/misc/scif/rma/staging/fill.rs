// SPDX-License-Identifier: GPL-2.0

//! Slots that an engine fills, some at a time: the data, and behind it the header, of one after the other.
//!
//! All goes by the same engine, in order, so no header overtakes what it speaks of, and the peer may empty the
//! first slot while the next one is filled. The submitter polls for the end, or arms the engine's interrupt. If the
//! engine fails, the slots become void, and so does the transfer.
//!
//! While it goes on it keeps the memory and the peer in use. An engine that stops ends it with an error.

use super::Staged;
use crate::{
    logic::{
        plan::{
            Linear,
            Plan,
            Segment,
            Walk, //
        },
        staging::{
            Parts,
            HEADER, //
        },
    },
    memory::local::LocalPiece,
    peer::PeerUse,
    sys::{
        dmaengine::{
            Batch,
            CopyFlags, //
        },
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
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
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// Where a slot is, in bus addresses of the peer.
pub(super) struct SlotPlace {
    pub(super) header: u64,
    pub(super) data: u64,
}

/// Whose slots are filled.
pub(super) trait Slots: Send + Sync {
    /// Where a slot is.
    fn place(&self, sequence: u64) -> SlotPlace;

    /// Those were filled. Soft interrupt context, or any other but hard interrupts.
    fn filled(self: ArcBorrow<'_, Self>, parts: Parts);

    /// Those could not be filled, or not all of them. Likewise.
    fn unfilled(self: ArcBorrow<'_, Self>, parts: Parts);
}

/// See the head of this file.
pub(super) struct Fill {
    slots: Arc<dyn Slots>,
    staged: Arc<Staged>,
    parts: Parts,
    state: JobState,
    // Dropped in this order: the memory before what keeps the peer.
    from: LocalPiece,
    headers: SharedMemory,
    peer: PeerUse,
}

impl Job for Fill {
    fn state(&self) -> &JobState {
        &self.state
    }

    fn tell(&self, result: Result) {
        let slots = self.slots.as_arc_borrow();
        match result {
            Ok(()) => slots.filled(self.parts),
            Err(_) => {
                self.staged.fail(EIO);
                slots.unfilled(self.parts);
            }
        }
    }
}

impl Fill {
    /// Has the engine fill slots with `data`, which is mapped for it, and goes on by itself then: this returns an error
    /// only if nothing was begun. The slots are in memory of `peer`. May sleep.
    pub(super) fn start(
        slots: Arc<dyn Slots>,
        staged: &Arc<Staged>,
        route: &EngineRoute,
        parts: Parts,
        data: LocalPiece,
        peer: PeerUse,
    ) -> Result {
        let engine = &route.engine;
        let fill = Self {
            slots,
            staged: staged.clone(),
            parts,
            state: JobState::new(engine, data.len),
            from: data,
            headers: headers_of(parts, engine)?,
            peer,
        };
        let fill = Arc::new(fill, GFP_KERNEL)?;
        let place = Place::new()?;
        // From here on it is told to others if that fails.
        let _ = job::start(&fill, place, |batch| fill.submit(batch, route));
        Ok(())
    }

    fn submit(&self, batch: &Batch<Self>, route: &EngineRoute) -> Result {
        let from = self.from.memory().engine_addresses().ok_or(EIO)?;
        for (index, part) in self.parts.enumerate() {
            let place = self.slots.place(part.header.sequence);
            let data_at = route.address(place.data, part.len).ok_or(EFAULT)?;
            let to = Linear::new(data_at, part.len).ok_or(EFAULT)?;
            let from = from.walk(self.from.offset + part.at);
            let plan = Plan::new(to, from, part.len, self.state.engine.longest_segment());
            self.submit_data(batch, plan, part.len)?;
            let header = Segment {
                destination: route.address(place.header, HEADER as u64).ok_or(EFAULT)?,
                source: self.headers.bus_address() + (index * HEADER) as u64,
                len: HEADER as u64,
            };
            self.submit_one(batch, header, CopyFlags::FENCE)?;
        }
        // Who is told of them, by whatever way, finds them there.
        self.submit_one(batch, route.arrival(), CopyFlags::NONE)
    }

    /// `len` bytes, all of which have been copied before anything else is.
    fn submit_data<D: Walk, S: Walk>(
        &self,
        batch: &Batch<Self>,
        plan: Plan<D, S>,
        len: u64,
    ) -> Result {
        let mut to_come = len;
        for segment in plan {
            let segment = segment.map_err(|_| ENXIO)?;
            let flags = match segment.len == to_come {
                true => CopyFlags::FENCE,
                false => CopyFlags::NONE,
            };
            self.submit_one(batch, segment, flags)?;
            to_come -= segment.len;
        }
        Ok(())
    }

    /// EIO if the engine has stopped, ENODEV if the peer is lost.
    fn submit_one(&self, batch: &Batch<Self>, segment: Segment, flags: CopyFlags) -> Result {
        let is_over = || self.peer.is_over();
        let patience = Patience::UntilOver(&is_over);
        self.state
            .engine
            .submit_all(segment, flags, batch, &patience)
    }
}

/// The headers, one after the other, where an engine finds them. May sleep.
fn headers_of(parts: Parts, engine: &Engine) -> Result<SharedMemory> {
    let len = parts.count() * HEADER;
    let memory = SharedMemory::new(len, User::Device(&engine.device()), Payer::Nobody)?;
    for (index, part) in parts.enumerate() {
        memory.write(index * HEADER, &part.header.encode())?;
    }
    Ok(memory)
}
