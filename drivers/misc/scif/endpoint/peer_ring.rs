// SPDX-License-Identifier: GPL-2.0

//! What an end of a connection knows of the ring into which it sends, in the peer's memory.
//!
//! The peer makes it larger if it is asked to (`own_ring.rs`, `logic/ring.rs`). The sender asks, once, when
//! there is more to send than there is room, whether anybody receives or not. The area that the peer
//! offers counts at once for a look for room, and the next send moves there.
//!
//! What the peer says is checked here. What it has not said, is not believed: it is asked by control
//! message only, nothing is read over the bus.

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

/// Whether the peer was asked for a larger ring.
const NOT_ASKED: u32 = 0;
const ASKED: u32 = 1;
/// It has a second area now, or stays as it is.
const ANSWERED: u32 = 2;

/// Bytes of the ring.
#[derive(Clone, Copy)]
pub(super) struct Area {
    /// As a bus address of the peer.
    address: u64,
    pub(super) geometry: Geometry,
}

/// See the head of this file.
pub(super) struct PeerRing {
    /// Bus address of the header.
    header: u64,
    /// The doorbell that wakes the peer.
    pub(super) doorbell: u32,
    /// How large the peer makes it at most.
    limit: u32,
    first: Area,
    /// The second area, once it was offered.
    second: SetOnce<Area>,
    /// Whether bytes go there; written by the sender.
    has_moved: Atomic<bool>,
    /// [`NOT_ASKED`] and so on.
    growth: Atomic<u32>,
}

impl PeerRing {
    /// The ring that the peer has named; none if that can't be reached. The caller is inside the peer.
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

    /// Where bytes go that are sent now. Any context.
    pub(super) fn latest(&self) -> &Area {
        self.second.as_ref().unwrap_or(&self.first)
    }

    /// How much can be sent before anything is received. Any context.
    pub(super) fn size(&self) -> u32 {
        self.latest().geometry.size()
    }

    /// The header, which can be stored to. The caller is inside the peer.
    pub(super) fn reach_header<'a>(&self, path: &'a dyn Path) -> Result<Reached<'a>> {
        path.reach(self.header, HEADER as u64)
    }

    /// Bytes of an area, which can be stored to. The caller is inside the peer.
    pub(super) fn reach_area<'a>(&self, path: &'a dyn Path, area: &Area) -> Result<Reached<'a>> {
        path.reach(area.address, area.geometry.size().into())
    }

    /// Moves to the latest area: what is sent from `produced` on lies there, and our counter is
    /// stored behind this. For the sender.
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

    /// Whether it may become larger than it is.
    pub(super) fn may_grow(&self) -> bool {
        self.size() < self.limit && self.growth.load(Acquire) != ANSWERED
    }

    /// The most that can ever be sent before anything is received.
    pub(super) fn largest(&self) -> u32 {
        if self.may_grow() {
            self.limit
        } else {
            self.size()
        }
    }

    /// Whether the peer is to be asked for room for `wanted` bytes: if so, the caller asks. For the sender, if it has too
    /// little room in a ring that may grow.
    pub(super) fn is_to_grow(&self, wanted: u32) -> bool {
        wanted > self.size() && self.growth.cmpxchg(NOT_ASKED, ASKED, Full).is_ok()
    }

    /// The peer offers an area, if `size` is not 0: says why that can't be. The caller is inside the
    /// peer.
    pub(super) fn answered(
        &self,
        path: &dyn Path,
        address: u64,
        size: u32,
    ) -> Result<(), &'static str> {
        if self.growth.load(Relaxed) != ASKED {
            return Err("it offers a ring that nobody has asked for");
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
