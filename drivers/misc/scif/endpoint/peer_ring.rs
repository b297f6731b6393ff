// SPDX-License-Identifier: GPL-2.0

//! State of the peer's ring, into which an end of a connection sends.
//!
//! The ring lies in the peer's memory. The peer makes it larger on request (`own_ring.rs`,
//! `logic/ring.rs`). The sender asks once, when it has more to send than there is room, whether the
//! peer receives or not. The area that the peer offers counts at once as room, and the next send
//! moves there.
//!
//! All that the peer says is checked here. Only a control message asks for a larger ring and only a
//! control message offers one: nothing is read over the bus.

use super::own_ring::{
    HEADER,
    MOVE, //
};
use crate::{
    logic::{
        messages::RingAddress,
        ring::{
            self,
            Geometry, //
        },
    },
    sys::reached::Reached,
    transport::path::Path, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        SetOnce, //
    },
};

/// The peer was not asked for a larger ring.
const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
/// The peer has offered a second area, or keeps the ring as it is.
const ANSWERED: u32 = 2;

/// A part of the peer's memory that holds bytes of the ring.
#[derive(Clone, Copy)]
pub(super) struct Area {
    /// Bus address of the peer.
    address: u64,
    pub(super) geometry: Geometry,
}

/// The peer's ring, as far as this end knows it.
pub(super) struct PeerRing {
    /// Bus address of the header.
    header: u64,
    /// Doorbell that wakes the peer.
    pub(super) doorbell: u32,
    /// Largest size to which the peer extends the ring.
    limit: u32,
    first: Area,
    /// Second area, once the peer has offered it.
    second: SetOnce<Area>,
    /// Whether bytes go to the second area; written by the sender.
    has_moved: Atomic<bool>,
    /// State of the request for a larger ring, as one of the constants above.
    growth: Atomic<u32>,
}

impl PeerRing {
    /// Checks the address of the peer's ring. None if the ring can't be reached. The caller is
    /// inside the peer.
    pub(super) fn new(path: &dyn Path, ring: &RingAddress) -> Option<Self> {
        let len = HEADER as u64 + u64::from(ring.size);
        if ring.address % 8 != 0 || path.reach(ring.address, len).is_err() {
            return None;
        }
        let first = Area {
            address: ring.address + HEADER as u64,
            geometry: Geometry::new(ring.size)?,
        };
        Some(Self {
            header: ring.address,
            doorbell: ring.doorbell,
            limit: ring.limit.min(Geometry::MAX),
            first,
            second: SetOnce::new(),
            has_moved: Atomic::new(false),
            growth: Atomic::new(NOT_ASKED),
        })
    }

    /// Returns the area for the bytes that are sent now.
    /// Context: any.
    pub(super) fn latest(&self) -> &Area {
        self.second.as_ref().unwrap_or(&self.first)
    }

    /// Returns how many bytes can be sent before the peer receives any.
    /// Context: any.
    pub(super) fn size(&self) -> u32 {
        self.latest().geometry.size()
    }

    /// Returns the header, for stores. The caller is inside the peer.
    pub(super) fn reach_header<'a>(&self, path: &'a dyn Path) -> Result<Reached<'a>> {
        path.reach(self.header, HEADER as u64)
    }

    /// Returns the bytes of an area, for stores. The caller is inside the peer.
    pub(super) fn reach_area<'a>(&self, path: &'a dyn Path, area: &Area) -> Result<Reached<'a>> {
        path.reach(area.address, area.geometry.size().into())
    }

    /// Moves to the latest area: bytes from count `produced` on lie there. The caller, which is the
    /// sender, stores the counter after this.
    pub(super) fn move_on(&self, header: &Reached<'_>, produced: u32) -> Result<&Area> {
        let Some(second) = self.second.as_ref() else {
            return Ok(&self.first);
        };
        if !self.has_moved.load(Relaxed) {
            header.write_u64(MOVE, ring::move_at(produced))?;
            self.has_moved.store(true, Relaxed);
        }
        Ok(second)
    }

    /// Returns whether the ring may become larger than it is.
    pub(super) fn may_grow(&self) -> bool {
        self.size() < self.limit && self.growth.load(Acquire) != ANSWERED
    }

    /// Returns how many bytes can ever be sent before the peer receives any.
    pub(super) fn largest(&self) -> u32 {
        if self.may_grow() {
            self.limit
        } else {
            self.size()
        }
    }

    /// Returns whether the caller has to ask the peer for room for `wanted` bytes. Called by the
    /// sender, if it finds too little room in a ring that may grow.
    pub(super) fn is_to_grow(&self, wanted: u32) -> bool {
        wanted > self.size() && self.growth.cmpxchg(NOT_ASKED, ASKED, Full).is_ok()
    }

    /// Handles the answer of the peer, which offers an area if `size` is not 0. Returns the reason
    /// if the offer can't be. The caller is inside the peer.
    pub(super) fn answered(
        &self,
        path: &dyn Path,
        address: u64,
        size: u32,
    ) -> Result<(), &'static str> {
        if self.growth.load(Relaxed) != ASKED {
            return Err("it offers a ring that was not requested");
        }
        if size != 0 {
            if size <= self.size() || size > self.limit {
                return Err("it offers a ring of an impossible size");
            }
            let geometry = Geometry::new(size).filter(|_| address % 8 == 0);
            let (Some(geometry), Ok(_)) = (geometry, path.reach(address, size.into())) else {
                return Err("it offers a ring that can't be reached");
            };
            self.second.populate(Area { address, geometry });
        }
        self.growth.store(ANSWERED, Release);
        Ok(())
    }
}
