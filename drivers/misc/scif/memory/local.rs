// SPDX-License-Identifier: GPL-2.0

//! Memory of this node as the local side of transfers: pages, and how an engine names them.
//!
//! The pages are of a process, and pinned, or of the kernel, and given (`sys/pages.rs`); nothing here
//! or above asks which. A window has such memory as long as it lives; `vreadfrom` and `vwriteto` take
//! memory of the caller for one transfer, or longer: see `rma/registration_cache.rs`.

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

/// Who has memory of processes pinned that could be let go: what a process wants now goes before
/// what is kept in case somebody wants it again.
pub(crate) trait Reclaim: Send + Sync {
    /// Lets go of what is kept of the calling process and of others of its user, with whom it shares
    /// a limit. Returns whether there may have been any. May sleep.
    fn reclaim_of_caller(&self) -> bool;

    /// Where it is written down who has pinned what.
    fn ledger(&self) -> &Arc<Ledger>;
}

/// Takes the pages that hold memory of the caller, and says where in them it begins. They count
/// against its limits if `account` is set. May sleep; see [`Buffer::pages`] for the errors.
///
/// Not for calling inside a peer, or with anything held that others wait for: a process can have its
/// page faults take as long as it likes (`userfaultfd`, FUSE).
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

/// Pages of this node, and how engines name them.
pub(crate) struct LocalMemory {
    // The mapping goes before the pages.
    mapped: SetOnce<Mapping>,
    pub(crate) pages: Arc<Pages>,
    /// Those of others who have the same pages.
    mappings: Option<Arc<EngineMappings>>,
}

/// Mappings of the same pages that several have, by the engine's instance: when the driver of its device has
/// gone, so have the mappings, and another engine may have the device later.
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

/// Memory as an engine names it.
pub(crate) struct Mapped {
    mapping: DmaMapping,
    /// The engine's instance.
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
    /// Pages that no engine knows of yet.
    pub(crate) fn new(pages: Arc<Pages>) -> Self {
        Self {
            mapped: SetOnce::new(),
            pages,
            mappings: None,
        }
    }

    /// The same, of pages that others have, too, and the mappings with them.
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

    /// Maps the pages for an engine that is to copy from and to them, if they are not: much memory is only
    /// ever used by the peer, or by the CPU. The caller keeps the peer from ending as long as it has the
    /// memory, and `self` goes before that. May sleep.
    pub(crate) fn map_for(&self, route: &EngineRoute) -> Result {
        if route.engine.has_stopped() {
            // It may have no driver any more.
            return Err(EIO);
        }
        let mapped = get_or_make(&self.mapped, || self.mapping(&route.engine))?;
        // All engines of a channel are one.
        if mapped.engine != route.engine.instance {
            return Err(EIO);
        }
        Ok(())
    }

    /// A walk from an offset on, as the engine names the memory, once it is mapped.
    pub(crate) fn engine_walk(&self, offset: u64) -> Option<BusWalk<'_, ExtentWalk<'_>>> {
        Some(self.mapped.as_ref()?.mapping.walk(offset))
    }
}

/// What keeps local memory in place as long as a transfer needs it.
pub(crate) trait Holder: Send + Sync {
    fn memory(&self) -> &LocalMemory;
}

/// For one transfer.
impl Holder for LocalMemory {
    fn memory(&self) -> &LocalMemory {
        self
    }
}

/// A part of a transfer that lies in one piece of local memory.
pub(crate) struct LocalPiece {
    pub(crate) holder: Arc<dyn Holder>,
    /// Where in the memory it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl LocalPiece {
    /// Takes the pages that hold `memory` of the caller, whatever its alignment, for one transfer; see
    /// [`take_pages`].
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

    /// The `len` bytes from `offset` on of the memory that this is a part of, which is held as long. Any
    /// context.
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
