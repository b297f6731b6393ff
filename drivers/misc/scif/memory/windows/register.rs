// SPDX-License-Identifier: GPL-2.0

//! Registration: making a window and offering it to the peer.
//!
//! The peer *grants* windows in advance, within bounds. A granted window is registered when the
//! call returns. The peer is not woken for it. It handles the offer when a caller there asks for a
//! window that it does not know, or with the next message. The peer answers the offer of a window
//! that is not granted, which takes a round trip. The first window is never granted, as only its
//! answer brings the grant.
//!
//! Memory is pinned outside of the peer, because the process that owns it decides how long that
//! takes.

use super::{
    RegisteredRange,
    Windows, //
};
use crate::{
    arguments::{
        WindowOptions,
        PROTECTION_READ,
        PROTECTION_WRITE,
        TRANSFERS_ONLY, //
    },
    logic::{
        address_space::Range,
        control_block::Annex,
        messages::{
            Grant,
            Message,
            Offer,
            Status,
            WindowId,
            EXTENTS_IN_ANNEX,
            EXTENTS_IN_OFFER, //
        },
    },
    memory::{
        local::{
            self,
            LocalMemory, //
        },
        pinned::{
            Exported,
            PartOfMemory,
            PinnedMemory, //
        },
        window::Window, //
    },
    peer::PeerUse,
    sync::call_lock::CallGuard,
    sys::{
        arena::Access,
        buffer::Buffer,
        pages::Pages,
        trace, //
    },
};
use kernel::{
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};

/// The memory of a new window.
struct WindowMemory {
    pages: Arc<Pages>,
    /// Part of pinned memory that other windows may share. `None` if the pages are the window's
    /// own.
    part: Option<PartOfMemory>,
}

/// Returns the accesses that the bridge should allow the peer, as far as it can tell them apart.
fn access_by(protection: u32) -> Access {
    match (
        protection & PROTECTION_READ != 0,
        protection & PROTECTION_WRITE != 0,
    ) {
        (true, true) => Access::Both,
        (false, true) => Access::Write,
        // At least one of the two flags is set.
        _ => Access::Read,
    }
}

/// Fills an annex with as many packed extents as it holds. EINVAL for an extent that could not be
/// packed.
fn next_annex(extents: &mut impl Iterator<Item = Option<u64>>) -> Result<Annex> {
    let mut annex = Annex::new();
    for extent in extents.take(EXTENTS_IN_ANNEX) {
        annex.push(extent.ok_or(EINVAL)?);
    }
    Ok(annex)
}

impl Windows {
    /// Registers whole pages of the caller. Returns the offset of the window.
    ///
    /// # Errors
    ///
    /// - ENOSPC: the aperture by which the peer would reach the window is full.
    /// - EAGAIN: resources to pin the memory are missing, or the memory is out of the peer's reach.
    ///   The original driver returned EAGAIN, too.
    /// - ENOMEM: one of the sides has no memory to keep track of the window.
    ///
    /// Context: may sleep, killable.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: &Buffer,
        offset: i64,
        options: WindowOptions,
    ) -> Result<i64> {
        let writable = options.protection & PROTECTION_WRITE != 0;
        self.register_with(memory.len(), offset, options, || {
            let (pages, _) = local::take_pages(memory, writable, true, &*self.reclaim)?;
            Ok(WindowMemory { pages, part: None })
        })
    }

    /// Registers, as [`Self::register`] does, the `len` bytes from `from` on of pinned memory.
    ///
    /// # Errors
    ///
    /// - EINVAL: the bytes are not whole pages of the memory.
    /// - EACCES: the window would allow more than the memory does.
    /// - EAGAIN: there are too many windows of the memory.
    pub(crate) fn register_part(
        self: &Arc<Self>,
        memory: &Arc<PinnedMemory>,
        from: u64,
        len: u64,
        offset: i64,
        options: WindowOptions,
    ) -> Result<i64> {
        let part = memory.part(from, len, access_by(options.protection))?;
        let len = usize::try_from(len)?;
        self.register_with(len, offset, options, || {
            let pages = part.pages().clone();
            let part = Some(part);
            Ok(WindowMemory { pages, part })
        })
    }

    /// Registers the `len` bytes of memory that `take` returns, once there is a range for them.
    fn register_with(
        self: &Arc<Self>,
        len: usize,
        offset: i64,
        options: WindowOptions,
        take: impl FnOnce() -> Result<WindowMemory>,
    ) -> Result<i64> {
        let result = self.register_untraced(len, offset, options, take);
        trace::register(|| trace::Window {
            node: self.channel.node(),
            channel: self.channel.id.0,
            offset: result.unwrap_or(offset),
            len: len as u64,
            protection: options.protection,
            result: trace::errno(&result),
        });
        result
    }

    fn register_untraced(
        self: &Arc<Self>,
        len: usize,
        offset: i64,
        options: WindowOptions,
        take: impl FnOnce() -> Result<WindowMemory>,
    ) -> Result<i64> {
        self.channel.check_established()?;
        let registered = self.take_range(offset, len as u64, options.fixed)?;
        let offset = registered.range.offset();
        self.used.store(true, Relaxed);
        let taken = take()?;
        let mut protection = options.protection;
        if taken.pages.are_lent() {
            self.lent.store(true, Relaxed);
        }
        if !taken.pages.are_held() {
            protection |= TRANSFERS_ONLY;
        }
        // Allocates before the peer hears of the window. A later failure would keep the range taken
        // until the peer has released the window.
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let (_inside, window, granted) = self.make_exported(taken, registered, protection)?;
        let mut offered = false;
        let turn = self.offering.lock();
        let accepted = turn.and_then(|turn| self.offer(&window, granted, turn, &mut offered));
        match accepted.and_then(|()| self.activate(&window, reservation)) {
            Ok(()) => Ok(offset),
            Err(error) => {
                if !offered {
                    self.exports.release(window.id);
                }
                self.revoke(&window);
                if self.lent.load(Relaxed) {
                    // The lender takes the memory back when it gets the error.
                    self.wait_for_release(|| self.exports.get(window.id).is_some());
                }
                Err(error)
            }
        }
    }

    /// Makes a window and adds it to the peer's exports. Returns a use of the peer, the window, and
    /// whether the peer has granted it. The caller drops the use, which keeps the peer from ending,
    /// after the window.
    fn make_exported(
        &self,
        taken: WindowMemory,
        registered: RegisteredRange,
        protection: u32,
    ) -> Result<(PeerUse, Arc<Window>, bool)> {
        // A window holds its mappings, which must not outlive the session.
        let inside = self.channel.enter_owned().ok_or(ENODEV)?;
        let (memory, export) = match taken.part {
            None => {
                let path = self.channel.path();
                let export = path.export(&taken.pages, access_by(protection))?;
                (LocalMemory::new(taken.pages), Exported::own(export))
            }
            Some(part) => (part.local(), part.export(self.channel.peer())?),
        };
        let all = Range::from_parts(0, registered.range.len()).map_err(|_| EINVAL)?;
        let id = self.exports.new_id();
        let window = Window::new(id, registered, protection, memory, all, export)?;
        let granted = self.exports.add(&window)?;
        Ok((inside, window, granted))
    }

    /// Sends the window to the peer, and waits for its answer if it has not `granted` the window.
    ///
    /// Offers go one after another, so that a process can't fill the peer with incomplete ones: the
    /// `turn` is a guard of [`Windows::offering`]. Sets `offered` to whether the peer has heard of
    /// the window.
    pub(super) fn offer(
        &self,
        window: &Window,
        granted: bool,
        turn: CallGuard<'_>,
        offered: &mut bool,
    ) -> Result {
        self.push(window, granted, turn, offered)?;
        if granted {
            window.set_answer(Status::Done);
            return Ok(());
        }
        self.channel.waiters()?.wait_killable(|| {
            // A peer that releases the window instead of answering has closed its end, or its node
            // goes. The channel's state tells this.
            window
                .answer()
                .or_else(|| self.channel.check_established().err().map(Err))
        })?
    }

    fn push(
        &self,
        window: &Window,
        granted: bool,
        _turn: CallGuard<'_>,
        offered: &mut bool,
    ) -> Result {
        let target = self.channel.remote()?;
        let mut extents = window.packed();
        let mut first = [0; EXTENTS_IN_OFFER];
        for (place, extent) in first.iter_mut().zip(&mut extents) {
            *place = extent.ok_or(EINVAL)?;
        }
        let mut annex = next_annex(&mut extents)?;
        let mut message = Message::WindowOffer {
            target,
            offer: Offer {
                window: window.id,
                protection: window.protection,
                offset: window.registered.range.start(),
                len: window.registered.range.len(),
                extents: window.packed_extents,
                wants_answer: !granted,
            },
            first,
        };
        loop {
            let posted = self.channel.post_with(&message, &annex).and_then(|()| {
                *offered = true;
                next_annex(&mut extents)
            });
            annex = posted.inspect_err(|_| {
                if *offered {
                    // Revokes before the next offer begins, as the peer stores one incomplete offer
                    // only.
                    self.revoke(window);
                }
            })?;
            let count = annex.count() as u32;
            if count == 0 {
                return Ok(());
            }
            message = Message::WindowExtents {
                target,
                window: window.id,
                count,
            };
        }
    }

    /// Handles the peer's answer to an offer.
    /// Context: control work.
    pub(crate) fn answered(&self, id: WindowId, status: Status, grant: Grant) {
        self.exports.set_grant(grant);
        if let Some(window) = self.exports.get(id) {
            // Only the loss of a listed window is logged: an unlisted one has served by then, or
            // the transfer goes another way.
            let is_lost = !window.set_answer(status) && status != Status::Done;
            if is_lost && window.registered.is_listed && self.channel.may_log() {
                pr_warn!(
                    "node {} has dropped a window of this node, for lack of memory or reach: programs there can't use it\n",
                    self.channel.node()
                );
            }
            self.channel.wake();
        }
        if status != Status::Done {
            // The peer does not hold the window.
            self.exports.release(id);
        }
    }
}

#[kunit_tests(scif_memory_windows_register)]
mod tests {
    use super::*;
    use crate::logic::control_block::ANNEX_WORDS;

    #[test]
    fn extents_are_packed_into_annexes_in_order() -> Result {
        let words = ANNEX_WORDS as u64;
        let mut extents = (0..words + 1).map(Some);
        assert!(next_annex(&mut extents)?.words().eq(0..words));
        assert!(next_annex(&mut extents)?.words().eq(words..words + 1));
        assert!(next_annex(&mut extents)?.as_bytes().is_empty());
        Ok(())
    }

    #[test]
    fn unpackable_extent_fails_the_annex() {
        let filled = next_annex(&mut [Some(2), None].into_iter());
        assert!(filled.is_err_and(|error| error == EINVAL));
    }
}
