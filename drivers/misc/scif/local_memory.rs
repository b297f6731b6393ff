// SPDX-License-Identifier: GPL-2.0

//! Memory of this node as the local side of transfers: pinned, and mapped for the DMA engine.
//!
//! A window has such memory as long as it lives; `vreadfrom` and `vwriteto` pin memory of the
//! caller for one transfer, or longer: see `registration_cache.rs`.

use crate::{
    registration_cache::Registration,
    session::Session,
    sys::{
        dma_map::DmaMapping,
        pin::PinnedPages, //
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
    pub(crate) pages: Arc<PinnedPages>,
}

impl LocalMemory {
    /// Pins `pages` pages of the caller from `address` on, and maps them for the session's engine.
    /// They count against RLIMIT_MEMLOCK if `account` is set. The caller keeps the session from
    /// ending. May sleep; see [`PinnedPages::pin`] for the errors.
    ///
    /// What the process wants now goes before what is kept in case it wants it again.
    pub(crate) fn pin(
        session: &Session,
        address: usize,
        pages: usize,
        writable: bool,
        account: bool,
    ) -> Result<Self> {
        match Self::try_pin(session, address, pages, writable, account) {
            Err(error) if error == EAGAIN && session.fabric.forget_registrations_of_caller() => {
                Self::try_pin(session, address, pages, writable, account)
            }
            result => result,
        }
    }

    /// As [`Self::pin`], and nothing that is kept has to go for it.
    pub(crate) fn try_pin(
        session: &Session,
        address: usize,
        pages: usize,
        writable: bool,
        account: bool,
    ) -> Result<Self> {
        let pages = Arc::new(
            PinnedPages::pin(address, pages, writable, account)?,
            GFP_KERNEL,
        )?;
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

impl LocalPiece {
    /// Pins the `len` bytes of the caller at `address`, whatever their alignment.
    pub(crate) fn pin(
        session: &Session,
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
            holder: Holder::Transient(LocalMemory::pin(
                session,
                address - offset,
                pages,
                writable,
                account,
            )?),
            offset: offset as u64,
            len,
        })
    }

    pub(crate) fn memory(&self) -> &LocalMemory {
        match &self.holder {
            Holder::Window(window) => &window.window.memory,
            Holder::Transient(memory) => memory,
            Holder::Kept(registration) => &registration.memory,
        }
    }
}
