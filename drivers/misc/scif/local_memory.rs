// SPDX-License-Identifier: GPL-2.0

//! Memory of this node as the local side of transfers: pinned, and mapped for the DMA engine.
//!
//! A window has such memory as long as it lives; `vreadfrom` and `vwriteto` pin memory of the
//! caller for one transfer, or longer: see `registration_cache.rs`.

use crate::{
    node::Fabric,
    registration_cache::Registration,
    session::Session,
    sys::{
        dma_map::DmaMapping,
        pages::Pages, //
    },
    window::{
        checked_table,
        extent_table,
        ExtentTable,
        WindowUse, //
    },
};
use kernel::{
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(crate) struct LocalMemory {
    // The mapping goes before the pages.
    _mapping: Option<DmaMapping>,
    /// As this node's DMA engine names the memory, if there is an engine.
    pub(crate) engine: Option<ExtentTable>,
    pub(crate) pages: Arc<Pages>,
}

/// Pins `pages` pages of the caller from `address` on. They count against RLIMIT_MEMLOCK if
/// `account` is set. May sleep; see [`Pages::pin`] for the errors.
///
/// Not for calling inside a session, or with anything held that others wait for: a process can have
/// its page faults take as long as it likes (`userfaultfd`, FUSE).
///
/// What the process wants now goes before what is kept in case it wants it again.
pub(crate) fn pin(
    fabric: &Fabric,
    address: usize,
    pages: usize,
    writable: bool,
    account: bool,
) -> Result<Arc<Pages>> {
    let pinned = match Pages::pin(address, pages, writable, account) {
        Err(error) if error == EAGAIN && fabric.forget_registrations_of_caller() => {
            Pages::pin(address, pages, writable, account)
        }
        result => result,
    };
    Ok(Arc::new(pinned?, GFP_KERNEL)?)
}

impl LocalMemory {
    /// Maps pinned pages for the session's engine. The caller keeps the session from ending as long
    /// as it has what is returned. May sleep.
    pub(crate) fn map(session: &Session, pages: Arc<Pages>) -> Result<Self> {
        let device = session
            .transport
            .engine()
            .map(|engine| engine.channel.device());
        let mapping = device
            .as_ref()
            .map(|device| DmaMapping::new(&pages, device))
            .transpose()?;
        let engine = mapping
            .as_ref()
            .map(|mapping| extent_table(mapping.extents()).and_then(checked_table))
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

/// What keeps the memory of a piece in place.
pub(crate) enum Holder {
    Window(WindowUse),
    /// Pinned for one transfer.
    Transient(LocalMemory),
    /// Perhaps kept for later ones.
    Kept(Arc<Registration>),
}

/// A part of a transfer that lies in one piece of local memory.
pub(crate) struct LocalPiece {
    pub(crate) holder: Holder,
    /// Where in the memory it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Memory of the caller for one transfer, pinned and not mapped yet.
pub(crate) struct PinnedPiece {
    pages: Arc<Pages>,
    /// Where in the pages it begins.
    offset: u64,
    len: u64,
}

impl PinnedPiece {
    /// Pins the `len` bytes of the caller at `address`, whatever their alignment; see [`pin`].
    pub(crate) fn new(
        fabric: &Fabric,
        address: usize,
        len: u64,
        writable: bool,
        account: bool,
    ) -> Result<Self> {
        let offset = address % PAGE_SIZE;
        let end = usize::try_from(len)?
            .checked_add(offset)
            .and_then(|bytes| bytes.checked_add(PAGE_SIZE - 1))
            .ok_or(EFAULT)?;
        let pages = end >> PAGE_SHIFT;
        Ok(Self {
            pages: pin(fabric, address - offset, pages, writable, account)?,
            offset: offset as u64,
            len,
        })
    }

    /// See [`LocalMemory::map`].
    pub(crate) fn map(self, session: &Session) -> Result<LocalPiece> {
        Ok(LocalPiece {
            holder: Holder::Transient(LocalMemory::map(session, self.pages)?),
            offset: self.offset,
            len: self.len,
        })
    }
}

impl LocalPiece {
    pub(crate) fn memory(&self) -> &LocalMemory {
        match &self.holder {
            Holder::Window(window) => &window.window.memory,
            Holder::Transient(memory) => memory,
            Holder::Kept(registration) => &registration.memory,
        }
    }
}
