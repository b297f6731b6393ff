// SPDX-License-Identifier: GPL-2.0

//! Unlisted windows: memory offered to the peer for one copy into it.
//!
//! An unlisted window has no range in the registered address space: both sides find it by its id
//! only. The copy takes the window from the peer's table, so the peer releases it when the copy is
//! complete. Until then the memory stays pinned as for any window, even if the peer is lost. The
//! window counts against the peer's grant. If the grant does not suffice, the memory is not offered
//! unless the caller waits for an answer.

use super::{
    RegisteredRange,
    Windows, //
};
use crate::{
    arguments::{
        PROTECTION_WRITE,
        UNLISTED, //
    },
    logic::{
        address_space::Range,
        messages::WindowId, //
    },
    memory::{
        local::LocalMemory,
        pinned::Exported,
        window::Window, //
    },
    sys::{
        arena::Access,
        pages::Pages, //
    },
    transport::path::Export, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

impl Windows {
    /// Offers `pages`, of which the peer may write `bytes`. The caller is inside the peer. Its next
    /// message tells the peer the purpose of the pages. If the window is not granted and the caller
    /// can `wait`, waits for the peer's answer. If the caller can't wait, returns EAGAIN.
    pub(crate) fn offer_unlisted(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        bytes: Range,
        wait: bool,
    ) -> Result<WindowId> {
        let id = self.exports.new_id();
        // The number 0 stands for no window.
        if id.0 == 0 {
            return Err(EAGAIN);
        }
        let range = Range::from_parts(0, pages.size() as u64).map_err(|_| EINVAL)?;
        let path = self.channel.path();
        let export = if pages.are_lent() && path.limits().staging > 0 {
            Export::nowhere()
        } else {
            path.export(pages, Access::Write)?
        };
        let memory = LocalMemory::new(pages.clone());
        let protection = PROTECTION_WRITE | UNLISTED;
        let export = Exported::own(export);
        self.unlisted.fetch_add(1, Relaxed);
        let registered = RegisteredRange {
            owner: self.clone(),
            range,
            is_listed: false,
            _share: None,
        };
        let window = Window::new(id, registered, protection, memory, bytes, export)?;
        let granted = self.exports.add(&window)?;
        let mut offered = false;
        let taken = if granted || wait {
            // A copy is not interrupted, as its caller could not tell how much of it was done.
            let turn = self.offering.lock_killable();
            turn.and_then(|turn| self.offer(&window, granted, turn, &mut offered))
        } else {
            Err(EAGAIN)
        };
        if taken.is_err() {
            if offered {
                self.withdraw_unlisted(id);
            }
            if !offered || pages.are_lent() {
                self.exports.release(id);
            }
        }
        taken.map(|()| id)
    }

    /// Withdraws a window whose use the peer was not told after all. If the peer is lost, the end
    /// of the session releases the window.
    pub(crate) fn withdraw_unlisted(&self, window: WindowId) {
        if let Some(window) = self.exports.get(window) {
            self.revoke(&window);
        }
    }

    /// Takes the memory back from the peer, even if the peer has not released it and never will.
    /// Transfers in flight are waited for elsewhere.
    /// Context: may sleep.
    pub(crate) fn take_back_unlisted(&self, window: WindowId) {
        self.exports.release(window);
    }

    /// Returns the number of unlisted windows that still exist, used by the peer or by this node.
    /// Context: any.
    pub(crate) fn count_unlisted(&self) -> usize {
        self.unlisted.load(Relaxed)
    }
}
