// SPDX-License-Identifier: GPL-2.0

//! What an end of a connection knows of the ring into which it sends, in the peer's memory.
//!
//! The peer makes it larger if it is asked to (`own_ring.rs`, `logic/areas.rs`). Who sends asks when
//! there is more to send than there is room, whether anybody receives or not, and one question at a
//! time; once the peer had no memory for it, not soon again. An area that the peer has
//! offered counts at once for who looks for room, and who sends next moves there.
//!
//! What the peer says is checked here. What it has not said, is not believed: it is asked by control
//! message only, nothing is read over the bus.

use super::own_ring::{
    HEADER,
    MOVES, //
};
use crate::{
    logic::{
        areas,
        messages::RingAddress,
        ring::Geometry, //
    },
    transport::{
        outbound::Reached,
        path::Path, //
    },
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

/// How often, after a refusal, there is too little room before the peer is asked again.
const PATIENCE: u32 = 64;

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
    /// Those that were offered after it, in order.
    larger: [SetOnce<Area>; areas::MOST],
    /// How many these are; written by who handles the offers.
    offered: Atomic<usize>,
    /// To how many of them we have moved; written by who is sending.
    moved: Atomic<usize>,
    /// Whether the peer was asked and has not answered.
    asked: Atomic<bool>,
    /// How often there has to be too little room before it is asked again; written by who is sending
    /// but for a refusal.
    patience: Atomic<u32>,
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
            larger: [const { SetOnce::new() }; areas::MOST],
            offered: Atomic::new(0),
            moved: Atomic::new(0),
            asked: Atomic::new(false),
            patience: Atomic::new(0),
        })
    }

    /// Where bytes go that are sent now. Any context.
    pub(super) fn latest(&self) -> &Area {
        self.area(self.offered())
    }

    /// The one that was offered as this, from 1 on; 0 is the first area.
    fn area(&self, number: usize) -> &Area {
        let larger = number.checked_sub(1).and_then(|it| self.larger.get(it));
        larger.and_then(SetOnce::as_ref).unwrap_or(&self.first)
    }

    /// How much can be sent before anything is received. Any context.
    pub(super) fn size(&self) -> u32 {
        self.latest().geometry.size()
    }

    fn offered(&self) -> usize {
        self.offered.load(Acquire)
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
    /// stored behind this. For who is sending.
    pub(super) fn move_on(&self, header: &Reached<'_>, produced: u32) -> Result<&Area> {
        let moved = self.moved.load(Relaxed);
        let offered = self.offered();
        for index in moved..offered {
            header.write_u64(MOVES + 8 * index, areas::move_at(produced))?;
        }
        if moved != offered {
            self.moved.store(offered, Relaxed);
        }
        Ok(self.area(offered))
    }

    /// Whether it may become larger than it is.
    pub(super) fn may_grow(&self) -> bool {
        self.size() < self.limit && self.offered() < areas::MOST
    }

    /// The most that can ever be sent before anything is received.
    pub(super) fn largest(&self) -> u32 {
        match self.may_grow() {
            true => self.limit,
            false => self.size(),
        }
    }

    /// Whether the peer is to be asked for room for `wanted` bytes: if so, the caller asks. For who
    /// is sending, and has too little room.
    pub(super) fn is_to_grow(&self, wanted: u32) -> bool {
        if wanted <= self.size() || !self.may_grow() {
            return false;
        }
        let patience = self.patience.load(Relaxed);
        if patience > 0 {
            self.patience.store(patience - 1, Relaxed);
            return false;
        }
        !self.asked.xchg(true, Full)
    }

    /// The peer offers an area, if `size` is not 0: says why that can't be. The caller is inside the
    /// peer.
    pub(super) fn answered(
        &self,
        path: &dyn Path,
        address: u64,
        size: u32,
    ) -> Result<(), &'static str> {
        if !self.asked.load(Relaxed) {
            return Err("it offers a ring that nobody has asked for");
        }
        if size == 0 {
            self.patience.store(PATIENCE, Relaxed);
        } else {
            if size <= self.size() || size > self.limit {
                return Err("it offers a ring of an impossible size");
            }
            let geometry = Geometry::new(size).filter(|_| address % 8 == 0);
            let (Some(geometry), Ok(_)) = (geometry, path.reach(address, size.into())) else {
                return Err("it offers a ring that can't be reached");
            };
            let offered = self.offered();
            if let Some(place) = self.larger.get(offered) {
                place.populate(Area { address, geometry });
                self.offered.store(offered + 1, Release);
            }
        }
        self.asked.store(false, Release);
        Ok(())
    }
}
