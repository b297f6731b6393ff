// SPDX-License-Identifier: GPL-2.0

//! The inbound side of a path: memory of this node that the peer may use.
//!
//! It is made, gets addresses that the peer can name, and is taken back when it is dropped. Whoever
//! has some keeps the session from ending (see [`Path`](super::path::Path)), or drops it when the
//! transport says that the peer can't reach it any more.

use crate::sys::{
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
    /// behalf of a process, which pays for it as `payer` says. May sleep.
    fn share(&self, len: usize, payer: Payer<'_>) -> Result<SharedMemory>;

    /// Lets the peer read, and write if they are writable, these pages. May sleep.
    fn export(&self, pages: &Arc<Pages>) -> Result<Export>;
}

/// Pages that the peer may use, until this is dropped.
pub(crate) struct Export {
    /// None if the peer uses physical addresses. Gone before the pages.
    mapped: Option<Mapped>,
    pages: Arc<Pages>,
}

struct Mapped {
    // It holds the pages itself.
    _mapping: DmaMapping,
    addresses: ExtentTable,
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
            mapped: Some(Mapped {
                _mapping: mapping,
                addresses,
            }),
            pages: pages.clone(),
        })
    }

    /// To a peer that uses physical addresses.
    pub(crate) fn physical(pages: &Arc<Pages>) -> Self {
        Self {
            mapped: None,
            pages: pages.clone(),
        }
    }

    /// As the peer names them.
    pub(crate) fn addresses(&self) -> &ExtentTable {
        match &self.mapped {
            Some(mapped) => &mapped.addresses,
            None => self.pages.runs(),
        }
    }
}
