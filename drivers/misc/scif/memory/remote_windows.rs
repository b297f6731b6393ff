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
//! Lock: `tables` is a spinlock, as the control work takes it; nothing is called under it.

use super::{
    range_tree::{
        self,
        holder,
        overlaps,
        paid_by_caller,
        take_first,
        Few, //
    },
    remote_window::{
        allow,
        grant,
        key_of_unlisted,
        IncomingWindow,
        Remembered,
        RemotePiece,
        RemoteWindow, //
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
        address_space::Range,
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
    alloc::Flags,
    new_spinlock,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        SpinLock,
        UniqueArc, //
    },
    time::Delta,
};

/// How long `mmap` waits until all is handled that the peer has said.
const MMAP_LIMIT: Delta = Delta::from_millis(500);

#[derive(Default)]
struct Tables {
    /// By their [`keys`](RemoteWindow::key).
    windows: RBTree<u64, Arc<RemoteWindow>>,
    /// Whose extents are still coming: an owner that offers windows sends those of one after those of another.
    incoming: Option<IncomingWindow>,
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
    tables: SpinLock<Tables>,
}

impl RemoteWindows {
    /// None yet; what comes counts as `remembered`. May sleep.
    pub(crate) fn new(channel: &Arc<Channel>, remembered: &Arc<Remembered>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                remembered: remembered.clone(),
                tables <- new_spinlock!(Tables::default(), "RemoteWindows::tables"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// The windows that hold all of `range`, of those that the peer has registered by now. Errors as
    /// [`Self::cover`]. Killable; not for handlers of messages, see [`Peer::wait_for_handled`].
    ///
    /// [`Peer::wait_for_handled`]: crate::peer::Peer::wait_for_handled
    pub(crate) fn cover_now(&self, range: Range, protection: u32) -> Result<Few<RemotePiece>> {
        match self.cover(range, protection, paid_by_caller) {
            Err(ENXIO) => {
                self.channel.wait_for_handled()?;
                self.cover(range, protection, paid_by_caller)
            }
            covered => covered,
        }
    }

    /// The windows that hold all of `range`. ENXIO for a gap, or ENOMEM if there may be one for lack of
    /// memory, EACCES if one of them does not allow `protection`.
    pub(crate) fn cover(
        &self,
        range: Range,
        protection: u32,
        flags: fn(usize) -> Flags,
    ) -> Result<Few<RemotePiece>> {
        let (mut from, end) = (range.start(), range.end());
        // On an error they are let go after the lock.
        Few::collect(flags, |pieces| {
            let tables = self.tables.lock();
            let gap = if tables.lacking { ENOMEM } else { ENXIO };
            range_tree::cover(
                &tables.windows,
                &mut from,
                end,
                gap,
                |window, offset, len| {
                    if window.protection & protection != protection {
                        return Err(EACCES);
                    }
                    pieces.push(RemotePiece {
                        window: window.clone(),
                        offset,
                        len,
                    })
                },
            )
        })
    }

    /// The window that holds all of `range`, and where in it that begins: none if there is none, or none that allows
    /// `protection`.
    pub(crate) fn holder(&self, range: Range, protection: u32) -> Option<(Arc<RemoteWindow>, u64)> {
        let tables = self.tables.lock();
        let (window, offset) = holder(&tables.windows, range)?;
        (window.protection & protection == protection).then(|| (window.clone(), offset))
    }

    /// As [`Self::cover_now`], for who keeps them longer than a transfer takes: EACCES if one of them
    /// does not allow that. The caller may be in `mmap`, for which others wait: so it does not wait long for a peer that
    /// keeps this node from handling what it says.
    pub(crate) fn cover_for_long(
        &self,
        range: Range,
        protection: u32,
    ) -> Result<KVVec<RemotePiece>> {
        let pieces = match self.cover(range, protection, paid_by_caller) {
            Err(ENXIO) => {
                self.channel.wait_for_handled_within(MMAP_LIMIT)?;
                self.cover(range, protection, paid_by_caller)?
            }
            covered => covered?,
        };
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
        self.tables.lock().windows.remove(&key_of_unlisted(id))
    }

    /// Lets go of all windows, for good. May sleep.
    pub(crate) fn forget_all(&self) {
        let take_one = || {
            let mut tables = self.tables.lock();
            tables.closed = true;
            take_first(&mut tables.windows)
        };
        while let Some(window) = take_one() {
            // Without the lock.
            drop(window);
        }
        let incoming = self.tables.lock().incoming.take();
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
        let allowance = allow(self.channel.peer(), &self.remembered, count);
        let mut incoming = IncomingWindow::new(self.channel.peer(), &offer, range, allowance);
        let here = offer.extents.min(EXTENTS_IN_OFFER as u32);
        let first = first.into_iter().take(here as usize);
        incoming.take(&self.channel, here, first)?;
        incoming.take(&self.channel, annex.count() as u32, annex.words())?;
        self.go_on(incoming)
    }

    /// More extents of an offered window.
    pub(crate) fn extents_came(&self, id: WindowId, annex: &Annex) -> Result<(), Violation> {
        let mut tables = self.tables.lock();
        if tables.closed {
            drop(tables);
            // A part that came before the end may have found no memory to say that later.
            let peer = self.channel.peer();
            peer.answer(&Message::WindowReleased { window: id });
            return Ok(());
        }
        let incoming = &mut tables.incoming;
        let incoming = incoming.take_if(|incoming| incoming.window.id == id);
        drop(tables);
        let mut incoming =
            incoming.ok_or("it sends extents of a window that it has not offered")?;
        // Without the lock, as it allocates.
        incoming.take(&self.channel, annex.count() as u32, annex.words())?;
        self.go_on(incoming)
    }

    /// Takes the window if all of it is there, else keeps it until more comes.
    fn go_on(&self, incoming: IncomingWindow) -> Result<(), Violation> {
        if incoming.missing == 0 {
            return self.complete(incoming);
        }
        let mut tables = self.tables.lock();
        if tables.closed {
            drop(tables);
            // The peer is told that it is released, or that there was no memory for it.
            return match incoming.status {
                Status::Done => Ok(()),
                _ => self.complete(incoming),
            };
        }
        if tables.incoming.is_some() {
            return Err("it offers too many windows at once");
        }
        tables.incoming = Some(incoming);
        Ok(())
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
    fn keep(&self, mut window: RemoteWindow) -> Result<Status, Violation> {
        if window.is_reached() && window.extents.len() != window.range.len() {
            return Err("it sends extents that do not fill the window");
        }
        let place = UniqueArc::new_uninit(GFP_KERNEL);
        let node = RBTreeNodeReservation::new(GFP_KERNEL);
        let (Ok(place), Ok(node)) = (place, node) else {
            // The answer says it.
            window.release = None;
            return Ok(Status::NoMemory);
        };
        let window = Arc::<RemoteWindow>::from(place.write(window));
        // The lock goes before the window, which is released if it is not kept.
        let mut tables = self.tables.lock();
        if tables.closed {
            // The peer, which hears that this end is closed, does not wait for an answer.
            return Ok(Status::Unknown);
        }
        let is_taken = match window.is_listed() {
            true => overlaps(&tables.windows, window.range),
            false => tables.windows.get(&window.key()).is_some(),
        };
        if is_taken {
            return Err("it offers windows that overlap");
        }
        // None is there.
        tables.windows.insert(node.into_node(window.key(), window));
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
        let incoming = &mut tables.incoming;
        if let Some(mut incoming) = incoming.take_if(|incoming| incoming.window.id == id) {
            // The owner gave up in the middle of its offer.
            drop(tables);
            incoming.window.release = None;
            return true;
        }
        let has_id = |window: &Arc<RemoteWindow>| window.id == id;
        let key = [offset, key_of_unlisted(id)]
            .into_iter()
            .find(|key| tables.windows.get(key).is_some_and(has_id));
        let removed = key.and_then(|key| tables.windows.remove(&key));
        drop(tables);
        removed.is_some_and(RemoteWindow::let_go)
    }
}
