// SPDX-License-Identifier: GPL-2.0

//! Pages that are pinned by themselves, and registered later, as often as one likes.
//!
//! They stay pinned, and charged, until whoever has pinned them and all windows made of them let go.

use super::{
    scif::Scif,
    Endpoint, //
};
use crate::{
    arguments::{
        WindowOptions,
        PROTECTION_WRITE, //
    },
    memory::local,
    sys::{
        buffer::Buffer,
        pages::Pages, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(crate) struct PinnedPages {
    pages: Arc<Pages>,
    /// What windows made of them allow.
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
        let (pages, _) = local::take_pages(memory, writable, true, self.reclaim())?;
        Ok(PinnedPages { pages, protection })
    }
}

impl Endpoint {
    /// Registers pages that were pinned before: the window has their protection. Returns its offset;
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
        Self::check_place(offset, options)?;
        self.connection()?
            .windows
            .register_pages(&pinned.pages, offset, options)
    }
}
