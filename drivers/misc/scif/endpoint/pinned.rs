// SPDX-License-Identifier: GPL-2.0

//! Pages that are pinned by themselves, and registered later, as often as the caller likes.
//!
//! The pages stay pinned, and charged to the process that has pinned them, as long as they have an
//! owner or a window. Each owner can make windows of the pages. `memory/pinned.rs` tells what these
//! windows share, and how many there may be.

use super::{
    scif::Scif,
    Endpoint, //
};
use crate::{
    arguments::{
        WindowOptions,
        PROTECTION_WRITE, //
    },
    memory::{
        local,
        pinned::{
            Account,
            PinnedMemory, //
        },
    },
    sys::{
        buffer::Buffer,
        current::may_access_devices,
        pages::Pages, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Pages that are pinned by themselves, from which windows can be made.
pub(crate) struct PinnedPages {
    memory: Arc<PinnedMemory>,
    /// Largest set of accesses that windows made of the pages allow.
    protection: u32,
}

impl Scif {
    /// Pins whole pages of the caller, for windows that allow `protection`. EINVAL: the memory is
    /// not whole pages. The other errors are those of
    /// [`Windows::register`](crate::memory::windows::Windows::register).
    /// Context: may sleep.
    pub(crate) fn pin(&self, memory: &Buffer, protection: u32) -> Result<PinnedPages> {
        if !memory.is_whole_pages() {
            return Err(EINVAL);
        }
        let writable = protection & PROTECTION_WRITE != 0;
        let (pages, _) = local::take_pages(memory, writable, true, &*self.caches)?;
        self.pinned(pages, protection)
    }

    /// Takes memory of a device, whole pages at a physical address. Nothing is pinned or charged.
    ///
    /// # Errors
    ///
    /// - EPERM: the caller may not access devices.
    /// - EINVAL: the memory is RAM, or does not lie in one device.
    ///
    /// Context: may sleep.
    pub(crate) fn pin_device(
        &self,
        address: u64,
        len: u64,
        protection: u32,
    ) -> Result<PinnedPages> {
        if !may_access_devices() {
            return Err(EPERM);
        }
        let writable = protection & PROTECTION_WRITE != 0;
        let len = usize::try_from(len).map_err(|_| EINVAL)?;
        let pages = Pages::of_device(address, len, writable)?;
        self.pinned(Arc::new(pages, GFP_KERNEL_ACCOUNT)?, protection)
    }

    fn pinned(&self, pages: Arc<Pages>, protection: u32) -> Result<PinnedPages> {
        let account = if pages.are_lent() {
            // The owner of lent kernel memory registers it without a bound.
            None
        } else {
            Account::of_caller(&self.users, pages.len() as u64)?
        };
        Ok(PinnedPages {
            memory: PinnedMemory::new(pages, account)?,
            protection,
        })
    }
}

impl Endpoint {
    /// Registers all of the pinned pages, with their protection. Returns the offset of the window;
    /// see [`Endpoint::register`].
    pub(crate) fn register_pinned(
        &self,
        pinned: &PinnedPages,
        offset: i64,
        fixed: bool,
    ) -> Result<i64> {
        let options = WindowOptions {
            protection: pinned.protection,
            fixed,
        };
        self.register_part(pinned, 0, pinned.memory.size(), offset, options)
    }

    /// Registers `len` bytes of the pinned pages, beginning at `from`. Returns the offset of the
    /// window; see [`Endpoint::register`].
    ///
    /// # Errors
    ///
    /// - EINVAL: the range is not whole pages, or not in the pinned pages.
    /// - EACCES: `options` allow more than the pages do.
    /// - EAGAIN: there are too many windows of the pages.
    pub(crate) fn register_part(
        &self,
        pinned: &PinnedPages,
        from: u64,
        len: u64,
        offset: i64,
        options: WindowOptions,
    ) -> Result<i64> {
        Self::check_place(offset, options)?;
        if !pinned.memory.has_pages(from, len) {
            return Err(EINVAL);
        }
        if options.protection & !pinned.protection != 0 {
            return Err(EACCES);
        }
        self.connection()?
            .windows
            .register_part(&pinned.memory, from, len, offset, options)
    }
}
