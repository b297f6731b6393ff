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

    /// Lets the peer do this with these pages; more, where nothing keeps it from that. ENOSPC if there is no
    /// room where the peer could reach them. May sleep.
    fn export(&self, pages: &Arc<Pages>, access: Access) -> Result<Export>;
}

/// Pages that the peer may use, until this is dropped.
pub(crate) struct Export {
    // Gone before the pages.
    by: By,
    pages: Arc<Pages>,
}

/// How the peer gets there.
enum By {
    /// It uses physical addresses.
    Physical,
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
            pages: pages.clone(),
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
            pages: pages.clone(),
        })
    }

    /// To a peer that uses physical addresses.
    pub(crate) fn physical(pages: &Arc<Pages>) -> Self {
        Self {
            by: By::Physical,
            pages: pages.clone(),
        }
    }

    /// As the peer names them.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        match &self.by {
            By::Device { addresses, .. } | By::Arena { addresses, .. } => addresses,
            By::Physical => self.pages.runs(),
        }
    }
}
