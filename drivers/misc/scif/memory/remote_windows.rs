// SPDX-License-Identifier: GPL-2.0

//! Windows that the other end of a channel has registered, as this end sees them.
//!
//! The owner sends a window as an offer followed by its extents. All of it is the peer's word and
//! is checked: ranges, protection, the sum of the lengths, and that each extent is within reach. A
//! window without extents is one that this end does not reach by itself (`rma/staging.rs`). An
//! offer that makes no sense ends the session. An offer that can't be served (no memory, out of
//! reach) is answered so.
//!
//! An owner that keeps to its grant does not wait for an answer. So a window may be registered
//! whose offer this end has not handled. A caller that finds no window tries again after all
//! messages of the peer were handled ([`RemoteWindows::cover_now`]). If a window was lost for lack
//! of memory, the caller gets ENOMEM, and not the error for a missing window.
//!
//! A revoked window can't be found any more. The owner is told that the window is released when the
//! last reference to its [`RemoteWindow`], of a transfer or a mapping, is dropped.
//!
//! Lock: `tables` is a spinlock, as the control work takes it. No function of another part is
//! called under it.

use super::{
    range_tree::{
        self,
        holder,
        overlaps,
        paid_by_caller,
        take_first,
        SmallList, //
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
            WindowId,
            EXTENTS_IN_OFFER, //
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

/// Time that `mmap` waits until all messages of the peer were handled.
const MMAP_LIMIT: Delta = Delta::from_millis(500);

#[derive(Default)]
struct Tables {
    /// The windows by their [`keys`](RemoteWindow::key).
    windows: RBTree<u64, Arc<RemoteWindow>>,
    /// The window whose extents are still coming. There is one at most, as an owner sends the
    /// extents of one window after those of another.
    incoming: Option<IncomingWindow>,
    /// Whether a window is missing for lack of memory, while its owner thinks that it is
    /// registered.
    lacking: bool,
    /// Whether the channel is closed, so that no more windows are taken.
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
    /// Creates an empty set of windows. New windows count against `remembered`.
    /// Context: may sleep.
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

    /// Returns the windows that hold all of `range`, including those that the peer has registered
    /// by now. Errors as for [`Self::cover`]. For handlers of messages see
    /// [`Peer::wait_for_handled`].
    ///
    /// [`Peer::wait_for_handled`]: crate::peer::Peer::wait_for_handled
    /// Context: may sleep, killable, not in handlers of messages.
    pub(crate) fn cover_now(
        &self,
        range: Range,
        protection: u32,
    ) -> Result<SmallList<RemotePiece>> {
        match self.cover(range, protection, paid_by_caller) {
            Err(ENXIO) => {
                self.channel.wait_for_handled()?;
                self.cover(range, protection, paid_by_caller)
            }
            covered => covered,
        }
    }

    /// Returns the windows that hold all of `range`.
    ///
    /// # Errors
    ///
    /// - ENXIO: there is a gap.
    /// - ENOMEM: there is a gap, maybe for lack of memory.
    /// - EACCES: a window does not allow `protection`.
    pub(crate) fn cover(
        &self,
        range: Range,
        protection: u32,
        flags: fn(usize) -> Flags,
    ) -> Result<SmallList<RemotePiece>> {
        let (mut from, end) = (range.start(), range.end());
        // On an error, the references are dropped after the lock is released.
        SmallList::collect(flags, |pieces| {
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

    /// Returns the window that holds all of `range`, and the offset of `range` in it. `None` if
    /// there is none, or if it does not allow `protection`.
    pub(crate) fn holder(&self, range: Range, protection: u32) -> Option<(Arc<RemoteWindow>, u64)> {
        let tables = self.tables.lock();
        let (window, offset) = holder(&tables.windows, range)?;
        (window.protection & protection == protection).then(|| (window.clone(), offset))
    }

    /// Returns windows as [`Self::cover_now`] does, for a use that is longer than a transfer.
    /// EACCES if a window does not allow that. The caller may be in `mmap`, for which other tasks
    /// wait. So it does not wait long for a peer that keeps this node from handling its messages.
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

    /// Removes and returns the unlisted window with this id, if the peer has offered one.
    pub(crate) fn take_unlisted(&self, id: WindowId) -> Option<Arc<RemoteWindow>> {
        self.tables.lock().windows.remove(&key_of_unlisted(id))
    }

    /// Releases all windows, for good.
    /// Context: may sleep.
    pub(crate) fn forget_all(&self) {
        let take_one = || {
            let mut tables = self.tables.lock();
            tables.closed = true;
            take_first(&mut tables.windows)
        };
        while let Some(window) = take_one() {
            // Drops the window without the lock.
            drop(window);
        }
        let incoming = self.tables.lock().incoming.take();
        drop(incoming);
    }

    // ----- messages of the peer; called by the control work ------------------------------------

    /// Handles the offer of a window.
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

    /// Handles further extents of an offered window.
    pub(crate) fn extents_came(&self, id: WindowId, annex: &Annex) -> Result<(), Violation> {
        let mut tables = self.tables.lock();
        if tables.closed {
            drop(tables);
            // An earlier part may have found no memory to send this release later.
            let peer = self.channel.peer();
            peer.answer(&Message::WindowReleased { window: id });
            return Ok(());
        }
        let incoming = &mut tables.incoming;
        let incoming = incoming.take_if(|incoming| incoming.window.id == id);
        drop(tables);
        let mut incoming =
            incoming.ok_or("it sends extents of a window that it has not offered")?;
        // Runs without the lock, as it allocates.
        incoming.take(&self.channel, annex.count() as u32, annex.words())?;
        self.go_on(incoming)
    }

    /// Takes the window if all of its extents have come, else stores it until more come.
    fn go_on(&self, incoming: IncomingWindow) -> Result<(), Violation> {
        if incoming.missing == 0 {
            return self.complete(incoming);
        }
        let mut tables = self.tables.lock();
        if tables.closed {
            drop(tables);
            // The peer is told that the window is released, or that there was no memory for it.
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
        // An owner whose window is `Unknown` hears next that this end is closed. Any other answer
        // would tell it that the memory is out of reach. An owner that wants no answer is told of
        // lost windows only.
        if status == Status::Unknown || (!wants_answer && status == Status::Done) {
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

    /// Stores a complete window.
    fn keep(&self, mut window: RemoteWindow) -> Result<Status, Violation> {
        if window.is_reached() && window.extents.len() != window.range.len() {
            return Err("it sends extents that do not fill the window");
        }
        let place = UniqueArc::new_uninit(GFP_KERNEL);
        let node = RBTreeNodeReservation::new(GFP_KERNEL);
        let (Ok(place), Ok(node)) = (place, node) else {
            // The answer tells that the window is not held, so no release is sent.
            window.release = None;
            return Ok(Status::NoMemory);
        };
        let window = Arc::<RemoteWindow>::from(place.write(window));
        // Declared after `window`, so that a window that is not stored is released without the
        // lock.
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
        // No entry is replaced.
        tables.windows.insert(node.into_node(window.key(), window));
        Ok(Status::Done)
    }

    /// Handles the owner's revocation of a window.
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

    /// Removes a window. Returns whether it is released, as nothing uses it.
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
