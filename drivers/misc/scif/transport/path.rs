// SPDX-License-Identifier: GPL-2.0

//! The path to one peer, during one session.
//!
//! # Outbound
//!
//! The layers above name the peer's memory by *bus addresses* that the peer has sent. A transport
//! translates such an address into a [`Reached`], which the CPU can load and store and a process
//! can map. Its engines translate the address into addresses of their own. Both refuse an address
//! outside the peer's own aperture. So an address that a hostile peer made up can't reach any other
//! memory.
//!
//! # Inbound
//!
//! A path allocates or exports memory of this node for the peer, with addresses that the peer can
//! name. The memory is taken back when it is dropped. A holder of such memory keeps the session
//! from ending, or drops it when the transport says that the peer can't reach it any more.

use super::engine::{
    EngineRoute,
    Routes, //
};
use crate::{
    logic::{
        extents::Entry,
        stores::Stores,
        window_set::Seams, //
    },
    sys::{
        arena::{
            Access,
            Arena,
            Linked, //
        },
        dma_map::DmaMapping,
        extent_table::{
            self,
            ExtentTable, //
        },
        fate::Fated,
        pages::Pages,
        reached::Reached,
        shared_memory::{
            Payer,
            SharedMemory, //
        },
    },
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
};

/// The path to a peer in both directions, its doorbells, and its end.
///
/// A caller is inside the session (`Peer::enter`). The transport waits for all callers before it
/// takes the path down. Doorbells may be rung, and the mode, the device and the engines may be read,
/// without that at any time.
/// Context: any, unless a function says otherwise.
pub(crate) trait Path: Send + Sync {
    /// Returns how the peer's memory is reached, in a word for users.
    fn mode(&self) -> &'static str;

    /// Returns the doorbells that both sides have, as bits.
    fn doorbells(&self) -> u64;

    /// Rings a doorbell of the peer. Memory written before is visible to the peer before. Does
    /// nothing once the device is gone, or the link [`Self::was_down`].
    fn ring(&self, doorbell: u32);

    /// Returns the device that joins this node with the peer. `None` if there is none, or the
    /// session is over.
    fn bridge(&self) -> Option<Bridge> {
        None
    }

    /// Rings all doorbells of the peer if one could not be rung before.
    fn ring_again(&self) {}

    /// Returns whether a log line may be written that the peer has caused. All sessions of a peer
    /// share one limit of such lines.
    fn may_log(&self) -> bool;

    /// Returns whether the link was seen down since the session began. If so, the session is over:
    /// data in flight is lost, and a load from the peer may cause a bus error.
    fn was_down(&self) -> bool {
        false
    }

    /// Checks the link itself, and returns [`Self::was_down`]. For use while the link rests, when
    /// its events are not handled.
    fn is_down(&self) -> bool {
        self.was_down()
    }

    /// Tells the transport that the session has failed. The transport ends it soon.
    fn session_failed(self: ArcBorrow<'_, Self>);

    /// Returns access to the `len` bytes at the peer's `address`, or EFAULT if they can't be
    /// reached, or not any more. The caller has to be inside the session, or to tear it down, as
    /// long as it uses the access.
    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>>;

    /// Returns whether all of these extents can be reached.
    fn reaches(&self, memory: &[Entry]) -> bool {
        memory.iter().all(|entry| {
            self.reach(entry.extent.address(), entry.extent.len())
                .is_ok()
        })
    }

    /// Returns the places where memory that is contiguous for the peer is not contiguous here. A
    /// range that crosses such a seam can't be reached in one piece.
    fn seams(&self) -> Seams {
        Seams::NONE
    }

    /// Returns how many bytes of the peer's memory can be reached at most.
    fn reachable(&self) -> u64;

    /// Returns the first bus address of the peer that can be reached.
    fn first_reachable(&self) -> u64;

    /// Returns the record of stores by this node's CPUs into the peer's memory, except those of
    /// messages. `None` if no engine reaches the peer.
    fn stores(&self) -> Option<&Arc<Stores>> {
        None
    }

    /// Returns when the noted stores have arrived, or the link [`Self::was_down`]. Called before an
    /// engine is used there, because its accesses would overtake the stores. May read across the
    /// link.
    fn settle_stores(&self) {}

    /// Returns the engines that reach the peer's memory. The list is often empty, and engines may
    /// be added. An engine stays valid as long as the path exists, and tells itself whether it has
    /// stopped. May be called without being inside the session.
    fn engines(&self) -> &Routes;

    /// Returns the engine at a place, as long as it works.
    fn engine(&self, place: Option<usize>) -> Option<&EngineRoute> {
        self.engines()
            .get(place?)
            .filter(|route| !route.engine.has_stopped())
    }

    /// Allocates `len` bytes of zeroed kernel memory that the peer may read and write. If the
    /// caller acts for a process, the process pays as `payer` says.
    ///
    /// Returns ENOMEM if there is not enough memory, or no room within the peer's reach.
    /// Context: may sleep.
    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory>;

    /// Gives the peer this access to these pages, or more, if the hardware can't restrict it. If
    /// there is no room within the peer's reach, the [`Export`] has no addresses.
    /// Context: may sleep.
    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export>;

    /// Returns the limits that the layers above have to keep.
    fn limits(&self) -> Limits {
        Limits::NONE
    }
}

/// The device of a path.
pub(crate) struct Bridge {
    /// The device on its own bus, such as PCI.
    pub(crate) device: ARef<Device>,
    /// Mb/s of data that its link carries, if its speed is known.
    pub(crate) megabits: Option<u32>,
}

/// Limits that apply if the peer reaches little of this node's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes to share as bounce buffers for what the peer writes to pages that it does not reach,
    /// or 0 if it reaches all.
    pub(crate) staging: usize,
    /// Maximum size of the ring of one connection.
    pub(crate) ring: u32,
    /// Bytes for the rings of all users, or `None` if the peer reaches all memory.
    pub(crate) rings: Option<u64>,
}

impl Limits {
    /// The limits if the peer reaches all memory.
    pub(crate) const NONE: Self = Self {
        staging: 0,
        ring: u32::MAX,
        rings: None,
    };
}

/// Pages that the peer may use until this is dropped.
pub(crate) enum Export {
    /// The peer uses physical addresses.
    Physical(Fated<Pages>),
    /// The peer reaches the pages through a device, for which they are mapped.
    Device {
        mapping: DmaMapping,
        _kept: Fated<Pages>,
    },
    /// The peer reaches the pages through a device, at a place in an arena.
    Arena {
        // This also holds the pages.
        _linked: Linked,
        addresses: ExtentTable,
    },
    /// The peer does not reach the pages. It writes to bounce buffers, and this node copies the
    /// data.
    Not(ExtentTable),
}

impl Export {
    /// Exports pages through an arena, or to no place if the arena has no room.
    pub(super) fn within(pages: &Arc<Pages>, arena: &Arc<Arena>, access: Access) -> Result<Self> {
        let linked = match arena.link_pages(pages, access) {
            Err(ENOSPC) => return Ok(Self::nowhere()),
            linked => linked?,
        };
        let place = (linked.address(), pages.size() as u64);
        let addresses = extent_table::collect(core::iter::once(place))?;
        Ok(Self::Arena {
            _linked: linked,
            addresses,
        })
    }

    /// Creates an export of pages that the peer does not reach.
    pub(crate) fn nowhere() -> Self {
        Self::Not(ExtentTable::default())
    }

    /// Returns whether the peer reaches the pages itself.
    pub(crate) fn is_reached(&self) -> bool {
        !matches!(self, Self::Not(_))
    }

    /// Returns the addresses that the peer uses.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        match self {
            Self::Physical(pages) => pages.runs(),
            Self::Device { mapping, .. } => mapping.addresses(),
            Self::Arena { addresses, .. } | Self::Not(addresses) => addresses,
        }
    }
}
