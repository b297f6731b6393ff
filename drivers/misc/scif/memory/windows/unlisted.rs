// SPDX-License-Identifier: GPL-2.0

//! Memory that is no window, offered to the peer for one copy into it.
//!
//! It becomes a window that lies nowhere: nobody finds it, on neither side, but who is told its id. The
//! copy takes it away, so the peer lets go of it when that has ended, and until then it stays pinned as
//! any window does, whatever becomes of the peer. It counts as one of those that the peer has granted; if
//! it hasn't, the memory is not offered at all, as nobody waits for an answer.

use super::{
    Place,
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
    /// Offers pages, of which these `bytes` may be written. The caller is inside the peer, and has it told next
    /// what they are for. If the peer has not granted them it is asked, if that is worth the `wait`; else it
    /// is EAGAIN. Killable.
    ///
    /// Of what is lent, the peer gets to no other byte if it can be kept from that: it is staged.
    pub(crate) fn offer_unlisted(
        self: &Arc<Self>,
        pages: &Arc<Pages>,
        bytes: Range,
        wait: bool,
    ) -> Result<WindowId> {
        let id = self.exports.new_id();
        // That number stands for none.
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
        let place = Place {
            owner: self.clone(),
            range,
            is_listed: false,
            _share: None,
        };
        let window = Window::new(id, place, protection, memory, bytes, export)?;
        let granted = self.exports.add(&window)?;
        let mut offered = false;
        let taken = if granted || wait {
            self.offer(&window, granted, &mut offered)
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

    /// The peer was not told after all what the memory is for. With the peer lost, it is the session's end that
    /// lets go.
    pub(crate) fn withdraw_unlisted(&self, window: WindowId) {
        if let Some(window) = self.exports.get(window) {
            self.revoke(&window);
        }
    }

    /// Takes the memory back from the peer, though it has not said that it has let go: it may be one that never
    /// does. What is on its way is waited for elsewhere. May sleep.
    pub(crate) fn take_back_unlisted(&self, window: WindowId) {
        self.exports.release(window);
    }

    /// How many of them the peer, or anybody else, may be using. Any context.
    pub(crate) fn count_unlisted(&self) -> usize {
        self.unlisted.load(Relaxed)
    }
}
