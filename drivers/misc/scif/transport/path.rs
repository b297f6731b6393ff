// SPDX-License-Identifier: GPL-2.0

//! The way to one peer, as long as it is there.
//!
//! # Outbound
//!
//! Those above name the peer's memory by *bus addresses* that the peer has told them. A transport
//! turns such an address into something [`Reached`], which the CPU can load and store and a process
//! can map, and its engines turn it into addresses of their own; or it says no. That check is what
//! keeps an address that a hostile peer made up from touching anything but the peer's own aperture.
//!
//! # Inbound
//!
//! Memory of this node that the peer may use is made, gets addresses that the peer can name, and is taken
//! back when it is dropped. Whoever has some keeps the session from ending, or drops it when the
//! transport says that the peer can't reach it any more.

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
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// Both sides of the way to a peer, its doorbells, and its end.
///
/// Whoever uses it is inside the session (`Peer::enter`), which the transport waits for before it
/// takes anything down; a doorbell may be rung, and the mode and the engines looked at, at any time.
/// Any context, unless a function says otherwise.
pub(crate) trait Path: Send + Sync {
    /// How the peer's memory is reached, in a word for users.
    fn mode(&self) -> &'static str;

    /// The doorbells of this side and of the peer, as bits.
    fn doorbells(&self) -> u64;

    /// Rings a doorbell of the peer; nothing happens once the device is gone, or the link [`Self::was_down`]. Memory written
    /// before is visible to the peer before.
    fn ring(&self, doorbell: u32);

    /// Rings all doorbells of the peer if one could not be rung.
    fn ring_again(&self) {}

    /// Whether something may be said in the log that the peer has caused: only so much is, over all of its sessions.
    fn may_log(&self) -> bool;

    /// Whether the link was seen to be down since the session began, which is over then: what was on the way is lost,
    /// and a load from the peer may be an error of the bus.
    fn was_down(&self) -> bool {
        false
    }

    /// Looks at the link itself, and then as [`Self::was_down`]: for what is done while the link rests, when its events
    /// are not heard.
    fn is_down(&self) -> bool {
        self.was_down()
    }

    /// The session has failed: the transport looks at it soon, and ends it.
    fn session_failed(self: ArcBorrow<'_, Self>);

    /// The `len` bytes at the peer's `address`: EFAULT if they can't be reached, or not any more. The caller is inside the
    /// session, or tears it down, as long as this is used.
    fn reach(&self, address: u64, len: u64) -> Result<Reached<'_>>;

    /// Whether all of these can be reached.
    fn reaches(&self, memory: &[Entry]) -> bool {
        memory.iter().all(|entry| {
            self.reach(entry.extent.address(), entry.extent.len())
                .is_ok()
        })
    }

    /// Where what is contiguous for the peer is not so here: nothing that crosses one of these can be
    /// reached in one piece.
    fn seams(&self) -> Seams {
        Seams::NONE
    }

    /// How many bytes of the peer's memory can be reached at most.
    fn reachable(&self) -> u64;

    /// The first address of the peer that can be.
    fn first_reachable(&self) -> u64;

    /// Where it is noted that this node's processor has stored into the peer's memory, outside of what messages use; none
    /// if no engine gets there.
    fn stores(&self) -> Option<&Arc<Stores>> {
        None
    }

    /// Returns when what was noted has arrived, or the link [`Self::was_down`]. Before an engine is used there, as its
    /// accesses would overtake stores. May read across the link.
    fn settle_stores(&self) {}

    /// The engines that reach the peer's memory; often none, and others may come. Any time: they stay what they are
    /// as long as there is the path, and one that has stopped says so.
    fn engines(&self) -> &Routes;

    /// One of them, by its place, as long as it works.
    fn engine(&self, place: Option<usize>) -> Option<&EngineRoute> {
        self.engines()
            .get(place?)
            .filter(|route| !route.engine.has_stopped())
    }

    /// Zeroed memory of the kernel, `len` bytes, that the peer may read and write. For who asks on
    /// behalf of a process, which pays for it as `payer` says. ENOMEM, also if there is no room where the
    /// peer could reach it. May sleep.
    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory>;

    /// Lets the peer do this with these pages; more, where nothing keeps it from that. If there is no room
    /// where the peer could reach them, they have no addresses for it. May sleep.
    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export>;

    /// What is to be kept to.
    fn limits(&self) -> Limits {
        Limits::NONE
    }
}

/// What has to be done without, as the peer reaches little of this node's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Bytes to be shared for staging what the peer writes to pages that it does not reach; 0 if it reaches
    /// all.
    pub(crate) staging: usize,
    /// How large the ring of one connection may become.
    pub(crate) ring: u32,
    /// Bytes for the rings of all users; none if the peer reaches all.
    pub(crate) rings: Option<u64>,
}

impl Limits {
    /// The peer reaches all.
    pub(crate) const NONE: Self = Self {
        staging: 0,
        ring: u32::MAX,
        rings: None,
    };
}

/// Pages that the peer may use, until this is dropped.
pub(crate) enum Export {
    /// It uses physical addresses.
    Physical(Fated<Pages>),
    /// Through a device, for which they are mapped.
    Device {
        mapping: DmaMapping,
        _kept: Fated<Pages>,
    },
    /// Through a device, at a place in an arena.
    Arena {
        // It holds the pages itself.
        _linked: Linked,
        addresses: ExtentTable,
    },
    /// It does not: what is to get there is staged, and copied by this node.
    Not(ExtentTable),
}

impl Export {
    /// To a peer that reaches what lies in an arena, or to nobody if there is no room.
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

    /// To nobody.
    pub(crate) fn nowhere() -> Self {
        Self::Not(ExtentTable::default())
    }

    /// Whether the peer gets there by itself.
    pub(crate) fn is_reached(&self) -> bool {
        !matches!(self, Self::Not(_))
    }

    /// As the peer names them.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        match self {
            Self::Physical(pages) => pages.runs(),
            Self::Device { mapping, .. } => mapping.addresses(),
            Self::Arena { addresses, .. } | Self::Not(addresses) => addresses,
        }
    }
}
