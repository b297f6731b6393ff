// SPDX-License-Identifier: GPL-2.0

//! The inbound side of a path: memory of this node that the peer may use.
//!
//! It is made, gets addresses that the peer can name, and is taken back when it is dropped. Whoever
//! has some keeps the session from ending (see [`Path`](super::path::Path)), or drops it when the
//! transport says that the peer can't reach it any more.

use crate::sys::{
    arena::{
        Access,
        Arena,
        LinkedPages, //
    },
    dma_map::DmaMapping,
    extent_table::{
        self,
        ExtentTable, //
    },
    pages::Pages,
    shared_memory::{
        Payer,
        SharedMemory, //
    }, //
};
use kernel::{
    device::Device,
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    },
};

/// See the head of this file.
pub(crate) trait Inbound {
    /// Zeroed memory of the kernel, `len` bytes, that the peer may read and write. For who asks on
    /// behalf of a process, which pays for it as `payer` says. ENOMEM, also if there is no room where the
    /// peer could reach it. May sleep.
    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory>;

    /// Lets the peer do this with these pages; more, where nothing keeps it from that. If there is no room
    /// where the peer could reach them, they have no addresses for it. May sleep.
    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export>;

    /// What is to be kept to. Any context.
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
}

impl Limits {
    /// The peer reaches all.
    pub(crate) const NONE: Self = Self {
        staging: 0,
        ring: u32::MAX,
    };
}

/// Pages that the peer may use, until this is dropped.
pub(crate) struct Export {
    by: By,
}

/// How the peer gets there.
enum By {
    /// It uses physical addresses.
    Physical(Arc<Pages>),
    /// Through a device, for which they are mapped.
    Device {
        // It holds the pages itself.
        _mapping: DmaMapping,
        addresses: ExtentTable,
    },
    /// Through a device, at a place in an arena.
    Arena {
        // It holds the pages itself.
        _linked: LinkedPages,
        addresses: ExtentTable,
    },
    /// It does not.
    Not(ExtentTable),
}

impl Export {
    /// To a peer that reaches memory through a device. EINVAL if that does not reach all of it.
    pub(crate) fn through(pages: &Arc<Pages>, device: &ARef<Device>) -> Result<Self> {
        let mapping = DmaMapping::new(pages, device)?;
        let addresses = extent_table::collect(mapping.extents())?;
        if addresses.len() != pages.size() as u64 {
            return Err(EINVAL);
        }
        Ok(Self {
            by: By::Device {
                _mapping: mapping,
                addresses,
            },
        })
    }

    /// To a peer that reaches what lies in an arena. ENOSPC if there is no room.
    pub(crate) fn within(pages: &Arc<Pages>, arena: &Arc<Arena>, access: Access) -> Result<Self> {
        let linked = arena.link_pages(pages, access)?;
        let place = (linked.address(), pages.size() as u64);
        Ok(Self {
            by: By::Arena {
                _linked: linked,
                addresses: extent_table::collect(core::iter::once(place))?,
            },
        })
    }

    /// To a peer that uses physical addresses.
    pub(crate) fn physical(pages: &Arc<Pages>) -> Self {
        Self {
            by: By::Physical(pages.clone()),
        }
    }

    /// To nobody: what is to get there is staged, and copied by this node.
    pub(crate) fn nowhere() -> Result<Self> {
        Ok(Self {
            by: By::Not(extent_table::empty()?),
        })
    }

    /// Whether the peer gets there by itself.
    pub(crate) fn is_reached(&self) -> bool {
        !matches!(self.by, By::Not(_))
    }

    /// As the peer names them.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        match &self.by {
            By::Device { addresses, .. } | By::Arena { addresses, .. } => addresses,
            By::Not(none) => none,
            By::Physical(pages) => pages.runs(),
        }
    }
}
