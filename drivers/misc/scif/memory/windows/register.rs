// SPDX-License-Identifier: GPL-2.0

//! Registering: a window is made and offered to the peer, which has granted it or is asked for it.
//!
//! A window that is granted is there when the call returns: the peer is not rung for it, as it looks
//! when somebody there asks for a window that it does not know, or when it is told something else. What
//! is not granted, the first window of all to begin with, the peer answers, which takes its time.
//!
//! Memory is taken outside of the peer, because the process whose it is decides how long that takes.

use super::{
    Place,
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

/// What a window is made of.
struct Taken {
    pages: Arc<Pages>,
    /// Of what the pages are a part that others may share; none if they are the window's own.
    part: Option<PartOfMemory>,
}

/// What the peer may do, as far as the bridge can keep it from the rest.
fn access_by(protection: u32) -> Access {
    match (
        protection & PROTECTION_READ != 0,
        protection & PROTECTION_WRITE != 0,
    ) {
        (true, true) => Access::Both,
        (false, true) => Access::Write,
        // One of them there is.
        _ => Access::Read,
    }
}

/// An annex of packed extents, as many as it holds. EINVAL for one that could not be packed.
fn next_annex(extents: &mut impl Iterator<Item = Option<u64>>) -> Result<Annex> {
    let mut annex = Annex::new();
    for extent in extents.take(EXTENTS_IN_ANNEX) {
        annex.push(extent.ok_or(EINVAL)?);
    }
    Ok(annex)
}

impl Windows {
    /// Registers whole pages of the caller. Returns the offset of the window. Killable.
    ///
    /// ENOSPC if the aperture through which the peer would reach it is full; EAGAIN if the memory can't be pinned for lack of resources or is out of the peer's reach, as
    /// the original driver did; ENOMEM if either side has no memory to keep track of it.
    pub(crate) fn register(
        self: &Arc<Self>,
        memory: &Buffer,
        offset: i64,
        options: WindowOptions,
    ) -> Result<i64> {
        let writable = options.protection & PROTECTION_WRITE != 0;
        self.register_with(memory.len(), offset, options, || {
            let (pages, _) = local::take_pages(memory, writable, true, &*self.reclaim)?;
            Ok(Taken { pages, part: None })
        })
    }

    /// As [`Self::register`], with the `len` bytes from `from` on of memory that is pinned already;
    /// EINVAL unless they are pages of it, EACCES if the window is to allow more than it does, EAGAIN if there
    /// are too many of it.
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
            Ok(Taken { pages, part })
        })
    }

    /// Registers what `take` comes up with, `len` bytes, once there is a place for it.
    fn register_with(
        self: &Arc<Self>,
        len: usize,
        offset: i64,
        options: WindowOptions,
        take: impl FnOnce() -> Result<Taken>,
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
        take: impl FnOnce() -> Result<Taken>,
    ) -> Result<i64> {
        self.channel.check_established()?;
        let place = self.take_place(offset, len as u64, options.fixed)?;
        let offset = place.range.offset();
        self.used.store(true, Relaxed);
        let taken = take()?;
        let mut protection = options.protection;
        if taken.pages.are_lent() {
            self.lent.store(true, Relaxed);
        }
        if !taken.pages.are_held() {
            protection |= TRANSFERS_ONLY;
        }
        // Before the peer hears of the window: what fails later keeps the range until the peer has let go of it.
        let reservation = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let (_inside, window, granted) = self.make_exported(taken, place, protection)?;
        let mut offered = false;
        let accepted = self.offer(&window, granted, &mut offered);
        match accepted.and_then(|()| self.activate(&window, reservation)) {
            Ok(()) => Ok(offset),
            Err(error) => {
                if !offered {
                    self.exports.release(window.id);
                }
                self.revoke(&window);
                if self.lent.load(Relaxed) {
                    // Who has lent it takes it back when it hears of the error.
                    self.wait_for_release(|| self.exports.get(window.id).is_some());
                }
                Err(error)
            }
        }
    }

    /// Makes a window and keeps it for the peer. What keeps the peer from ending comes with it, and
    /// is to go after it; and whether the peer has granted it.
    fn make_exported(
        &self,
        taken: Taken,
        place: Place,
        protection: u32,
    ) -> Result<(PeerUse, Arc<Window>, bool)> {
        // Whoever has a window keeps its mappings, which must not outlive the session.
        let inside = self.channel.enter_owned().ok_or(ENODEV)?;
        let (memory, export) = match taken.part {
            None => {
                let path = self.channel.path();
                let export = path.export(&taken.pages, access_by(protection))?;
                (LocalMemory::new(taken.pages), Exported::own(export))
            }
            Some(part) => (part.local(), part.export(self.channel.peer())?),
        };
        let all = Range::from_parts(0, place.range.len()).map_err(|_| EINVAL)?;
        let id = self.exports.new_id();
        let window = Window::new(id, place, protection, memory, all, export)?;
        let granted = self.exports.add(&window)?;
        Ok((inside, window, granted))
    }

    /// Pushes the window to the peer, and waits for its answer if it has not `granted` it.
    ///
    /// `offered` says afterwards whether the peer has heard of it.
    pub(super) fn offer(&self, window: &Window, granted: bool, offered: &mut bool) -> Result {
        self.push(window, granted, offered)?;
        if granted {
            window.set_answer(Status::Done);
            return Ok(());
        }
        self.channel.waiters()?.wait_killable(|| {
            // A peer that lets go of the window instead of answering has closed its end, or its node
            // goes: the news of that comes, too.
            window
                .answer()
                .or_else(|| self.channel.check_established().err().map(Err))
        })?
    }

    fn push(&self, window: &Window, granted: bool, offered: &mut bool) -> Result {
        // One after another, so that a process can't fill the peer with half offers.
        let _offering = self.offering.lock()?;
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
                offset: window.place.range.start(),
                len: window.place.range.len(),
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
                    // Before anybody offers the next one: the peer keeps one that is not complete.
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

    /// The peer has answered an offer. Called by the control work.
    pub(crate) fn answered(&self, id: WindowId, status: Status, grant: Grant) {
        self.exports.set_grant(grant);
        if let Some(window) = self.exports.get(id) {
            // One that is not listed has served by then, or the transfer goes another way.
            let is_lost = !window.set_answer(status) && status != Status::Done;
            if is_lost && window.place.is_listed && self.channel.may_log() {
                pr_warn!(
                    "node {} has lost a window of this node, for lack of memory\n",
                    self.channel.node()
                );
            }
            self.channel.wake();
        }
        if status != Status::Done {
            // The peer does not hold it.
            self.exports.release(id);
        }
    }
}

#[kunit_tests(scif_memory_packed_extents)]
mod tests {
    use super::*;
    use crate::logic::control_block::ANNEX_WORDS;

    #[test]
    fn all_come_in_order() -> Result {
        let words = ANNEX_WORDS as u64;
        let mut extents = (0..words + 1).map(Some);
        assert!(next_annex(&mut extents)?.words().eq(0..words));
        assert!(next_annex(&mut extents)?.words().eq(words..words + 1));
        assert!(next_annex(&mut extents)?.as_bytes().is_empty());
        Ok(())
    }

    #[test]
    fn what_can_not_be_packed_is_said() {
        let filled = next_annex(&mut [Some(2), None].into_iter());
        assert!(filled.is_err_and(|error| error == EINVAL));
    }
}
