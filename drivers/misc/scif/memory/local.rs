// SPDX-License-Identifier: GPL-2.0

//! Memory of this node as the local side of transfers: pages, and how an engine names them.
//!
//! The pages are of a process, and pinned, or of the kernel, and given (`sys/pages.rs`); nothing here
//! or above asks which. A window has such memory as long as it lives; `vreadfrom` and `vwriteto` take
//! memory of the caller for one transfer, or longer: see `rma/registration_cache.rs`.

use crate::{
    sys::{
        buffer::Buffer,
        dma_map::DmaMapping,
        ledger::Ledger,
        pages::Pages, //
    },
    transport::{
        engine::EngineRoute,
        extent_table::{
            self,
            ExtentTable, //
        },
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
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

/// See the head of this file.
pub(crate) struct LocalMemory {
    // The mapping goes before the pages.
    _mapping: Option<DmaMapping>,
    /// As the engine names the memory, if there is an engine.
    pub(crate) engine: Option<ExtentTable>,
    pub(crate) pages: Arc<Pages>,
}

impl LocalMemory {
    /// Maps pages for the engine that is to copy from and to them, if there is one. The caller keeps
    /// the peer from ending as long as it has what is returned. May sleep.
    pub(crate) fn map(pages: Arc<Pages>, engine: Option<&EngineRoute>) -> Result<Self> {
        let device = engine.map(|route| route.engine.device());
        let mapping = device
            .as_ref()
            .map(|device| DmaMapping::new(&pages, device))
            .transpose()?;
        let engine = mapping
            .as_ref()
            .map(|mapping| extent_table::collect(mapping.extents()))
            .transpose()?;
        if engine
            .as_ref()
            .is_some_and(|table| table.len() != pages.size() as u64)
        {
            return Err(EINVAL);
        }
        Ok(Self {
            _mapping: mapping,
            engine,
            pages,
        })
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

impl<T: Holder> Holder for Arc<T> {
    fn memory(&self) -> &LocalMemory {
        (**self).memory()
    }
}

/// A part of a transfer that lies in one piece of local memory.
pub(crate) struct LocalPiece {
    holder: KBox<dyn Holder>,
    /// Where in the memory it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl LocalPiece {
    /// The `len` bytes from `offset` on of what `holder` holds. May sleep.
    pub(crate) fn new(holder: impl Holder + 'static, offset: u64, len: u64) -> Result<Self> {
        Ok(Self {
            // Nobody pays, for a moment only: the tables of windows are locked meanwhile.
            holder: KBox::new(holder, GFP_KERNEL)?,
            offset,
            len,
        })
    }

    pub(crate) fn memory(&self) -> &LocalMemory {
        self.holder.memory()
    }
}

/// Memory of the caller for one transfer, not mapped yet.
pub(crate) struct UnmappedPiece {
    pages: Arc<Pages>,
    /// Where in the pages it begins.
    offset: u64,
    len: u64,
}

impl UnmappedPiece {
    /// Takes the pages that hold `memory`, whatever its alignment; see [`take_pages`].
    pub(crate) fn new(
        memory: &Buffer,
        writable: bool,
        account: bool,
        reclaim: &dyn Reclaim,
    ) -> Result<Self> {
        let (pages, offset) = take_pages(memory, writable, account, reclaim)?;
        Ok(Self {
            pages,
            offset: offset as u64,
            len: memory.len() as u64,
        })
    }

    /// See [`LocalMemory::map`].
    pub(crate) fn map(self, engine: Option<&EngineRoute>) -> Result<LocalPiece> {
        LocalPiece::new(LocalMemory::map(self.pages, engine)?, self.offset, self.len)
    }
}
