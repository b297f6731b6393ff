// SPDX-License-Identifier: GPL-2.0

//! Copies by an engine that are made to see how long they take.
//!
//! They go between memory of this module's own and a place at the peer that is there for that, a
//! [`TrialSite`].

use super::awaited_copies;
use crate::{
    logic::{
        control_geometry::SCRATCH_SIZE,
        plan::Segment, //
    },
    peer::Peer,
    sys::{
        busy_wait::now,
        dmaengine::CopyFlags,
        shared_memory::{
            Payer,
            SharedMemory,
            User, //
        }, //
    },
    transport::engine::{
        Engine,
        EngineRoute, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(super) struct TrialSite<'a> {
    pub(super) peer: &'a Arc<Peer>,
    route: &'a EngineRoute,
    local: SharedMemory,
}

impl<'a> TrialSite<'a> {
    /// With the first engine that works: ENODEV if there is none, or no peer any more. May sleep.
    pub(super) fn new(peer: &'a Arc<Peer>) -> Result<Self> {
        let route = {
            let _inside = peer.enter().ok_or(ENODEV)?;
            peer.path().working_engine().ok_or(ENODEV)?
        };
        let device = route.engine.device();
        let local = SharedMemory::new(SCRATCH_SIZE, User::Device(&device), Payer::Nobody)?;
        Ok(Self { peer, route, local })
    }

    /// Where there are [`SCRATCH_SIZE`] bytes here, for the engine.
    pub(super) fn here(&self) -> u64 {
        self.local.bus_address()
    }

    /// The engine.
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.route.engine
    }

    /// What the engine calls an address of the peer. EFAULT if it does not reach all `len` bytes there.
    pub(super) fn address(&self, there: u64, len: usize) -> Result<u64> {
        self.route.address(there, len as u64).ok_or(EFAULT)
    }

    /// Where there are [`SCRATCH_SIZE`] bytes here, and there, for the engine.
    pub(super) fn places(&self) -> Result<(u64, u64)> {
        let there = self.peer.scratch(SCRATCH_SIZE).ok_or(ENODEV)?;
        Ok((self.here(), self.address(there, SCRATCH_SIZE)?))
    }

    /// Makes the copies of `segments`, all at once, and says how many nanoseconds that took, from the first
    /// thought to the wake-up. May sleep: until the engine has ended them, or is given up.
    pub(super) fn time(&self, segments: &[Segment]) -> Result<u64> {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        // As any transfer: see `EngineRoute::arrival`.
        let arrival = self.route.arrival();
        self.time_copies(Iterator::chain(segments.iter().copied(), [arrival]))
    }

    /// Likewise, of copies that end at this node.
    pub(super) fn time_copies(&self, segments: impl Iterator<Item = Segment>) -> Result<u64> {
        let start = now();
        let segments = segments.map(|segment| (segment, CopyFlags::NONE));
        awaited_copies::copy(&self.route.engine, segments, || self.peer.is_over())?;
        let took = u64::try_from(start.elapsed().as_nanos())?;
        self.route.engine.release_ended();
        Ok(took)
    }
}
