// SPDX-License-Identifier: GPL-2.0

//! What the other end of a channel has registered, as this end sees it.
//!
//! The owner pushes a window as an offer followed by its extents. Everything in them is the peer's
//! word and checked: ranges, protection, the sum of the lengths, and that each extent is within
//! reach. A window without extents is one that this end does not reach by itself (`rma/staging.rs`). An offer that makes no sense ends the relation to the peer; one that can't be served (no
//! memory, out of reach) is answered so. An owner that keeps to what it was granted does not wait for
//! an answer: so a window can be there that this end has not looked at. Whoever finds none looks again
//! when all has been handled that the peer has said ([`RemoteWindows::cover_now`]); and if one was lost
//! for lack of memory, he is told that, and not that there is none.
//!
//! A window that was revoked can't be found any more. The owner is told that it is released when
//! the last reference to its [`RemoteWindow`], of a transfer or a mapping, is dropped.
//!
//! Lock: `tables` comes after all locks but the leaves, see `scif_main.rs`; nothing is called under it
//! but what [`RemoteWindows::with`] is given.

use super::{
    range_tree::{
        holder,
        take_first,
        Few, //
    },
    remote_window::{
        grant,
        Allowance,
        IncomingWindow,
        Remembered,
        RemotePiece,
        RemoteWindow,
        NO_MEMORY, //
    },
};
use crate::{
    arguments::{
        PROTECTION_READ,
        PROTECTION_WRITE,
        TRANSFERS_ONLY,
        UNLISTED, //
    },
    logic::{
        address_space::{
            self,
            Range, //
        },
        control_block::Annex,
        messages::{
            Message,
            Offer,
            Status,
            WindowId, //
            EXTENTS_IN_OFFER,
        }, //
    },
    peer::{
        channel::Channel,
        service::Violation, //
    }, //
};
use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex,
        UniqueArc, //
    },
};

/// Offers of one channel whose extents are still coming; a sender makes one after another.
const MAX_INCOMING: usize = 16;

#[derive(Default)]
struct Tables {
    windows: RBTree<u64, Arc<RemoteWindow>>,
    /// Those that lie nowhere, by their ids.
    unlisted: RBTree<u64, Arc<RemoteWindow>>,
    incoming: KVec<IncomingWindow>,
    /// A window is missing for lack of memory whose owner thinks that it is there.
    lacking: bool,
    /// The channel is closed: nothing comes in any more.
    closed: bool,
}

/// The windows that the other end of a channel has registered.
#[pin_data]
pub(crate) struct RemoteWindows {
    channel: Arc<Channel>,
    remembered: Arc<Remembered>,
    #[pin]
    tables: Mutex<Tables>,
}

impl RemoteWindows {
    /// None yet; what comes counts as `remembered`. May sleep.
    pub(crate) fn new(channel: &Arc<Channel>, remembered: &Arc<Remembered>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                remembered: remembered.clone(),
                tables <- new_mutex!(Tables::default(), "RemoteWindows::tables"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The windows that hold all of `range`, of those that the peer has registered by now. Errors as
    /// [`Self::cover`]. Killable; not for handlers of messages, see [`Peer::wait_for_handled`].
    ///
    /// [`Peer::wait_for_handled`]: crate::peer::Peer::wait_for_handled
    pub(crate) fn cover_now(&self, range: Range, protection: u32) -> Result<Few<RemotePiece>> {
        match self.cover(range, protection) {
            Err(ENXIO) => {
                self.channel.wait_for_handled()?;
                self.cover(range, protection)
            }
            covered => covered,
        }
    }

    /// The windows that hold all of `range`. ENXIO for a gap, or ENOMEM if there may be one for lack of
    /// memory, EACCES if one of them does not allow `protection`.
    pub(crate) fn cover(&self, range: Range, protection: u32) -> Result<Few<RemotePiece>> {
        // On an error they are let go after the lock.
        let mut pieces = Few::new();
        let tables = self.tables.lock();
        let gap = if tables.lacking { ENOMEM } else { ENXIO };
        for piece in address_space::covering(&tables.windows, range).ok_or(gap)? {
            let window = tables.windows.get(&piece.range.start()).ok_or(ENXIO)?;
            if window.protection & protection != protection {
                return Err(EACCES);
            }
            pieces.push(RemotePiece {
                window: window.clone(),
                offset: piece.offset,
                len: piece.len,
            })?;
        }
        Ok(pieces)
    }

    /// Calls `f` with the window that holds all of `range`, and where in it that begins: none if there is
    /// none, or none that allows `protection`. The table stays locked for as long, so nothing is asked
    /// of this in `f`, and no window goes.
    pub(crate) fn with<R>(
        &self,
        range: Range,
        protection: u32,
        f: impl FnOnce(&RemoteWindow, u64) -> R,
    ) -> Option<R> {
        let tables = self.tables.lock();
        let (window, offset) = holder(&tables.windows, range)?;
        (window.protection & protection == protection).then(|| f(window, offset))
    }

    /// As [`Self::cover_now`], for who keeps them longer than a transfer takes: EACCES if one of them
    /// does not allow that.
    pub(crate) fn cover_for_long(
        &self,
        range: Range,
        protection: u32,
    ) -> Result<KVVec<RemotePiece>> {
        let pieces = self.cover_now(range, protection)?;
        let refused = pieces
            .iter()
            .any(|piece| piece.window.protection & TRANSFERS_ONLY != 0);
        if refused {
            return Err(EACCES);
        }
        pieces.into_list()
    }

    /// Takes away a window that lies nowhere, if the peer has offered one with this id.
    pub(crate) fn take_unlisted(&self, id: WindowId) -> Option<Arc<RemoteWindow>> {
        self.tables.lock().unlisted.remove(&u64::from(id.0))
    }

    /// Lets go of all windows, for good. May sleep.
    pub(crate) fn forget_all(&self) {
        let take_one = || {
            let mut tables = self.tables.lock();
            tables.closed = true;
            take_first(&mut tables.windows).or_else(|| take_first(&mut tables.unlisted))
        };
        while let Some(window) = take_one() {
            // Without the lock.
            drop(window);
        }
        let incoming = core::mem::replace(&mut self.tables.lock().incoming, KVec::new());
        drop(incoming);
    }

    // ----- what the peer says; called by the control work --------------------------------------

    /// A window is offered.
    pub(crate) fn offered(
        &self,
        offer: Offer,
        first: [u64; EXTENTS_IN_OFFER],
        annex: &Annex,
    ) -> Result<(), Violation> {
        let range = Range::from_parts(offer.offset, offer.len)
            .ok()
            .filter(|range| range.is_aligned(PAGE_SHIFT as u32))
            .ok_or("it offers a window with an impossible range")?;
        let all = PROTECTION_READ | PROTECTION_WRITE | TRANSFERS_ONLY | UNLISTED;
        let count = u64::from(offer.extents);
        if offer.protection & !all != 0 || count > offer.len >> PAGE_SHIFT {
            return Err("it offers a window with impossible properties");
        }
        let allowance = Allowance::take(self.channel.peer(), &self.remembered, count);
        let mut incoming = IncomingWindow::new(self.channel.peer(), &offer, range, allowance)?;
        let here = offer.extents.min(EXTENTS_IN_OFFER as u32);
        let first = first.into_iter().take(here as usize);
        incoming.take(&self.channel, here, first)?;
        incoming.take(&self.channel, annex.count() as u32, annex.words())?;
        if incoming.missing == 0 {
            return self.complete(incoming);
        }
        let mut tables = self.tables.lock();
        if tables.closed {
            // The peer is told that it is released, after the lock.
            return Ok(());
        }
        if tables.incoming.len() >= MAX_INCOMING {
            return Err("it offers too many windows at once");
        }
        Ok(tables
            .incoming
            .push(incoming, GFP_KERNEL)
            .map_err(|_| NO_MEMORY)?)
    }

    /// More extents of an offered window.
    pub(crate) fn extents_came(&self, id: WindowId, annex: &Annex) -> Result<(), Violation> {
        const NOT_OFFERED: &str = "it sends extents of a window that it has not offered";

        let mut tables = self.tables.lock();
        if tables.closed {
            return Ok(());
        }
        let position = tables
            .incoming
            .iter()
            .position(|incoming| incoming.window.id == id)
            .ok_or(NOT_OFFERED)?;
        let incoming = tables.incoming.get_mut(position).ok_or(NOT_OFFERED)?;
        incoming.take(&self.channel, annex.count() as u32, annex.words())?;
        if incoming.missing > 0 {
            return Ok(());
        }
        let incoming = tables.incoming.remove(position).map_err(|_| NOT_OFFERED)?;
        drop(tables);
        self.complete(incoming)
    }

    fn complete(&self, mut incoming: IncomingWindow) -> Result<(), Violation> {
        let (window, wants_answer) = (incoming.window.id, incoming.wants_answer);
        let listed = incoming.window.is_listed();
        let status = if incoming.status == Status::Done {
            self.keep(incoming.window)?
        } else {
            incoming.window.release = None;
            incoming.status
        };
        // A peer that has not asked hears of lost windows only; of a closed end it hears anyway.
        if !wants_answer && matches!(status, Status::Done | Status::Unknown) {
            return Ok(());
        }
        if !wants_answer && listed {
            self.tables.lock().lacking = true;
        }
        if let Ok(target) = self.channel.remote() {
            self.channel.answer(&Message::WindowAnswer {
                target,
                window,
                status,
                grant: grant(self.channel.peer()),
            });
        }
        Ok(())
    }

    /// Keeps a window of which all is there.
    fn keep(&self, mut window: UniqueArc<RemoteWindow>) -> Result<Status, Violation> {
        if window.is_reached() && window.extents.len() != window.range.len() {
            return Err("it sends extents that do not fill the window");
        }
        let Ok(node) = RBTreeNodeReservation::new(GFP_KERNEL) else {
            // The answer says it.
            window.release = None;
            return Ok(Status::NoMemory);
        };
        let window = Arc::<RemoteWindow>::from(window);
        // The lock goes before the window, which is released if it is not kept.
        let mut tables = self.tables.lock();
        if tables.closed {
            // The peer, which hears that this end is closed, does not wait for an answer.
            return Ok(Status::Unknown);
        }
        // None is there in the end.
        if window.is_listed() {
            if address_space::overlaps(&tables.windows, window.range) {
                return Err("it offers windows that overlap");
            }
            let node = node.into_node(window.range.start(), window);
            tables.windows.insert(node);
        } else {
            let id = window.id.0.into();
            if tables.unlisted.get(&id).is_some() {
                return Err("it offers a window that it has offered");
            }
            tables.unlisted.insert(node.into_node(id, window));
        }
        Ok(Status::Done)
    }

    /// A window was unregistered by its owner.
    pub(crate) fn revoked(&self, id: WindowId, offset: u64) {
        let released = self.take_out(id, offset);
        if let Ok(target) = self.channel.remote() {
            self.channel.answer(&Message::WindowRevokeDone {
                target,
                window: id,
                released,
            });
        }
    }

    /// Says whether nobody uses the window.
    fn take_out(&self, id: WindowId, offset: u64) -> bool {
        let mut tables = self.tables.lock();
        let mut incoming = tables.incoming.iter();
        if let Some(position) = incoming.position(|incoming| incoming.window.id == id) {
            // The owner gave up in the middle of its offer.
            let incoming = tables.incoming.remove(position);
            drop(tables);
            if let Ok(mut incoming) = incoming {
                incoming.window.release = None;
            }
            return true;
        }
        let known = tables
            .windows
            .get(&offset)
            .is_some_and(|window| window.id == id);
        let removed = if known {
            tables.windows.remove(&offset)
        } else {
            tables.unlisted.remove(&u64::from(id.0))
        };
        drop(tables);
        removed.is_some_and(RemoteWindow::let_go)
    }
}
