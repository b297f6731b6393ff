// SPDX-License-Identifier: GPL-2.0

//! Pages that are pinned by themselves, and registered later, as often as one likes.
//!
//! They stay pinned, and charged to who has pinned them, until all who have them, and all windows made of
//! them, let go; whoever has them can make windows of them. What those have in common is in
//! `memory/pinned.rs`, and how many there may be.

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

/// See the head of this file.
pub(crate) struct PinnedPages {
    memory: Arc<PinnedMemory>,
    /// The most that windows made of them allow.
    protection: u32,
}

impl Scif {
    /// Pins whole pages of the caller, for windows that allow `protection`. EINVAL unless they are
    /// whole pages; for the rest see [`Windows::register`](crate::memory::windows::Windows::register).
    /// May sleep.
    pub(crate) fn pin(&self, memory: &Buffer, protection: u32) -> Result<PinnedPages> {
        if !memory.is_whole_pages() {
            return Err(EINVAL);
        }
        let writable = protection & PROTECTION_WRITE != 0;
        let (pages, _) = local::take_pages(memory, writable, true, &*self.caches)?;
        self.pinned(pages, protection)
    }

    /// Memory of a device, whole pages at a physical address: nothing is pinned or charged. EPERM without
    /// the right to access devices, EINVAL if it is RAM, or not all of one device. May sleep.
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
            // The kernel's own is registered by whoever has lent it.
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
    /// Registers all of what was pinned before: the window has its protection. Returns its offset; see
    /// [`Endpoint::register`].
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

    /// Registers a part of what was pinned before, so many bytes from there on. EINVAL unless they are
    /// whole pages and in it, EACCES for more than it allows, EAGAIN if there are too many of it. Returns the offset; see
    /// [`Endpoint::register`].
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
