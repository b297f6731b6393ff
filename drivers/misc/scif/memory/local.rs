// SPDX-License-Identifier: GPL-2.0

//! Memory of this node as the local side of transfers: pages, and their addresses for an engine.
//!
//! The pages are pinned pages of a process, or given pages of the kernel (`sys/pages.rs`). No code
//! here or above asks which. A window has such memory for all its life. `vreadfrom` and `vwriteto`
//! take memory of the caller for one transfer, or longer: see `rma/registration_cache.rs`.

use core::ops::Deref;

use crate::{
    logic::extents::ExtentWalk,
    sync::shared::get_or_make,
    sys::{
        buffer::Buffer,
        bus_range::BusWalk,
        dma_map::DmaMapping,
        ledger::Ledger,
        pages::Pages,
        shared_table::{
            Share,
            SharedTable, //
        },
    },
    transport::engine::{
        Engine,
        EngineRoute, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// A holder of pinned memory that could be released. It is pinned only in case a process wants it
/// again, so a process that needs memory now comes first.
pub(crate) trait Reclaim: Send + Sync {
    /// Releases memory kept for the calling process and for others of its user, with whom it shares
    /// a limit. Returns whether there may have been any.
    /// Context: may sleep.
    fn reclaim_of_caller(&self) -> bool;

    /// Returns the ledger of the pages that each process has pinned.
    fn ledger(&self) -> &Arc<Ledger>;
}

/// Takes the pages that hold memory of the caller, and returns the offset at which it begins in
/// them. They count against the caller's limits if `account` is set. See [`Buffer::pages`] for the
/// errors.
///
/// A process can delay its page faults as long as it likes (`userfaultfd`, FUSE). So the caller is
/// not inside a peer, and holds nothing that others wait for.
/// Context: may sleep.
pub(crate) fn take_pages(
    memory: &Buffer,
    writable: bool,
    account: bool,
    reclaim: &dyn Reclaim,
) -> Result<(Arc<Pages>, usize)> {
    let account = account.then(|| reclaim.ledger());
    let (pages, offset) = match memory.pages(writable, account) {
        Err(EAGAIN) if reclaim.reclaim_of_caller() => memory.pages(writable, account),
        result => result,
    }?;
    Ok((Arc::new(pages, GFP_KERNEL_ACCOUNT)?, offset))
}

/// Pages of this node, and their addresses for an engine.
pub(crate) struct LocalMemory {
    // Dropped before the pages, which it maps.
    mapped: SetOnce<Mapping>,
    pub(crate) pages: Arc<Pages>,
    /// Mappings shared with other holders of the same pages.
    mappings: Option<Arc<EngineMappings>>,
}

/// Mappings shared by several holders of the same pages, by the engine's instance. When the driver
/// of the engine's device has gone, so have the mappings. Another engine may have the device later.
pub(crate) type EngineMappings = SharedTable<u64, Mapped>;

enum Mapping {
    Own(Mapped),
    Shared(Share<u64, Mapped>),
}

impl Deref for Mapping {
    type Target = Mapped;

    fn deref(&self) -> &Mapped {
        match self {
            Self::Own(mapped) => mapped,
            Self::Shared(mapped) => mapped,
        }
    }
}

/// Memory with its addresses for an engine.
pub(crate) struct Mapped {
    mapping: DmaMapping,
    /// Number of the engine's instance.
    engine: u64,
}

impl Mapped {
    fn new(pages: &Arc<Pages>, engine: &Engine) -> Result<Self> {
        Ok(Self {
            mapping: DmaMapping::new(pages, &engine.device())?,
            engine: engine.instance,
        })
    }
}

impl LocalMemory {
    /// Creates memory that is mapped for no engine yet.
    pub(crate) fn new(pages: Arc<Pages>) -> Self {
        Self {
            mapped: SetOnce::new(),
            pages,
            mappings: None,
        }
    }

    /// Creates memory as [`Self::new`] does, of pages that other holders have, too, with shared
    /// mappings.
    pub(super) fn shared(pages: Arc<Pages>, mappings: Arc<EngineMappings>) -> Self {
        Self {
            mappings: Some(mappings),
            ..Self::new(pages)
        }
    }

    fn mapping(&self, engine: &Engine) -> Result<Mapping> {
        let map = || Mapped::new(&self.pages, engine);
        match &self.mappings {
            None => map().map(Mapping::Own),
            Some(mappings) => {
                let shared = mappings.join_or_make(engine.instance, map);
                shared.map(Mapping::Shared)
            }
        }
    }

    /// Maps the pages for an engine, if they are not mapped. The pages are not mapped earlier, as
    /// much memory is only ever used by the peer, or by the CPU. The caller keeps the peer from
    /// ending as long as it has the memory, and drops `self` before that.
    /// Context: may sleep.
    pub(crate) fn map_for(&self, route: &EngineRoute) -> Result {
        if route.engine.has_stopped() {
            // The device may have no driver any more.
            return Err(EIO);
        }
        let mapped = get_or_make(&self.mapped, || self.mapping(&route.engine))?;
        // A channel always uses the same engine.
        if mapped.engine != route.engine.instance {
            return Err(EIO);
        }
        Ok(())
    }

    /// Returns a walk over the engine's addresses from `offset` on, once the memory is mapped.
    pub(crate) fn engine_walk(&self, offset: u64) -> Option<BusWalk<'_, ExtentWalk<'_>>> {
        Some(self.mapped.as_ref()?.mapping.walk(offset))
    }
}

/// A holder that keeps local memory in place as long as a transfer needs it.
pub(crate) trait Holder: Send + Sync {
    fn memory(&self) -> &LocalMemory;
}

/// The holder of memory for one transfer.
impl Holder for LocalMemory {
    fn memory(&self) -> &LocalMemory {
        self
    }
}

/// A part of a transfer that lies in one piece of local memory.
pub(crate) struct LocalPiece {
    pub(crate) holder: Arc<dyn Holder>,
    /// Offset of the part in the memory.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl LocalPiece {
    /// Takes the pages that hold `memory` of the caller, whatever its alignment, for one transfer.
    /// See [`take_pages`].
    pub(crate) fn of_caller(
        memory: &Buffer,
        writable: bool,
        account: bool,
        reclaim: &dyn Reclaim,
    ) -> Result<Self> {
        let (pages, offset) = take_pages(memory, writable, account, reclaim)?;
        Ok(Self {
            holder: Arc::new(LocalMemory::new(pages), GFP_KERNEL_ACCOUNT)?,
            offset: offset as u64,
            len: memory.len() as u64,
        })
    }

    /// Returns the `len` bytes from `offset` on of the memory of this piece. The result holds the
    /// memory, too.
    /// Context: any.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Self {
        Self {
            holder: self.holder.clone(),
            offset,
            len,
        }
    }

    pub(crate) fn memory(&self) -> &LocalMemory {
        self.holder.memory()
    }
}
