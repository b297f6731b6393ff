// SPDX-License-Identifier: GPL-2.0

//! The windows that the other end of a connection has registered, as this end sees them.
//!
//! The owner pushes a window as an offer followed by its extents. Everything in them is the peer's
//! word and checked: ranges, protection, the sum of the lengths, and that each extent lies inside
//! the aperture. An offer that makes no sense ends the session; one that can't be served (no
//! memory, out of reach) is answered so.
//!
//! How many windows a peer can make this node remember is bounded, and how many extents by the
//! memory that it could describe with them: see [`Allowance`].
//!
//! A window that was revoked can't be found any more. The owner is told that it is released when
//! the last user, a transfer or a mapping, drops its [`RemoteWindow`].
//!
//! Lock: `tables` comes after all locks but the leaves, see `scif_main.rs`; nothing is called under it.

use crate::{
    connection::Connection,
    logic::{
        address_space::{
            self,
            Range,
            RangeSource, //
        },
        extents::{
            self,
            Entry,
            Extents, //
        },
        wire::{
            Message,
            Status,
            WindowId,
            EXTENTS_PER_MESSAGE, //
        },
    },
    session::Session,
    window::{
        entry_at_or_before,
        take_first,
        ExtentTable,
        PROTECTION_READ,
        PROTECTION_WRITE, //
    },
};
use kernel::{
    new_mutex,
    page::PAGE_SHIFT,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::Relaxed,
        Arc,
        Mutex, //
    },
};

/// Offers of one connection whose extents are still coming; a sender makes one after another.
const MAX_INCOMING: usize = 16;

/// Windows of one peer: it can't make this node remember any number of them, and all of them can be
/// released at once without the control messages that say so filling the backlog.
const MAX_WINDOWS: u64 = 1 << 17;

/// How often a peer may register each of its pages before extents are counted against it.
const REGISTRATIONS_PER_PAGE: u64 = 4;

/// Extents that a peer may have registered however small its memory is.
const MIN_EXTENTS: u64 = 1 << 16;

/// The right to remember a window of a peer with its extents; given back when dropped.
struct Allowance {
    session: Arc<Session>,
    extents: u64,
}

impl Allowance {
    /// None if the peer has too many already.
    fn take(session: &Arc<Session>, extents: u64) -> Option<Self> {
        let pages = session.transport.reach() >> PAGE_SHIFT;
        let limit = pages
            .saturating_mul(REGISTRATIONS_PER_PAGE)
            .saturating_add(MIN_EXTENTS);
        let windows = session.remote_windows.fetch_add(1, Relaxed);
        let before = session.remote_extents.fetch_add(extents, Relaxed);
        // Gives them back if they are refused.
        let this = Self {
            session: session.clone(),
            extents,
        };
        if windows >= MAX_WINDOWS || before.saturating_add(extents) > limit {
            return None;
        }
        Some(this)
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.session.remote_extents.fetch_sub(self.extents, Relaxed);
        self.session.remote_windows.fetch_sub(1, Relaxed);
    }
}

/// See the head of this file.
pub(crate) struct RemoteWindow {
    id: WindowId,
    pub(crate) range: Range,
    pub(crate) protection: u32,
    /// Bus addresses of the peer, all inside the aperture.
    pub(crate) extents: ExtentTable,
    session: Arc<Session>,
    _allowance: Allowance,
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        // Of a session that is over nobody waits for it.
        let _ = self
            .session
            .post(&Message::WindowReleased { window: self.id });
    }
}

/// A part of a transfer that lies in one remote window.
pub(crate) struct RemotePiece {
    pub(crate) window: Arc<RemoteWindow>,
    /// Where in the window it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A window whose extents are still coming.
struct Incoming {
    id: WindowId,
    range: Range,
    protection: u32,
    missing: u32,
    entries: KVVec<Entry>,
    status: Status,
    /// None if the window is refused.
    allowance: Option<Allowance>,
}

struct Tables {
    windows: RBTree<u64, Arc<RemoteWindow>>,
    incoming: KVec<Incoming>,
    /// The connection is closed: nothing comes in any more.
    closed: bool,
}

/// The windows of the other end.
#[pin_data]
pub(crate) struct RemoteWindows {
    #[pin]
    tables: Mutex<Tables>,
}

impl RangeSource for RBTree<u64, Arc<RemoteWindow>> {
    fn at_or_before(&self, offset: u64) -> Option<Range> {
        entry_at_or_before(self, offset).map(|window| window.range)
    }

    fn at_or_after(&self, offset: u64) -> Option<Range> {
        self.cursor_lower_bound(&offset)
            .map(|cursor| cursor.current().1.range)
    }
}

impl RemoteWindows {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            tables <- new_mutex!(
                Tables {
                    windows: RBTree::new(),
                    incoming: KVec::new(),
                    closed: false,
                },
                "RemoteWindows::tables"
            ),
        })
    }

    /// Lets go of all windows, for good. Returns the offers that were still coming in, whose owner
    /// has to be told. May sleep.
    fn forget_all(&self) -> KVec<Incoming> {
        loop {
            let window = {
                let mut tables = self.tables.lock();
                tables.closed = true;
                take_first(&mut tables.windows)
            };
            if window.is_none() {
                break;
            }
        }
        core::mem::replace(&mut self.tables.lock().incoming, KVec::new())
    }

    /// The windows that hold all of `range`. ENXIO for a gap, EACCES if one of them does not allow
    /// `protection`.
    pub(crate) fn cover(&self, range: Range, protection: u32) -> Result<KVVec<RemotePiece>> {
        let mut pieces = KVVec::new();
        let tables = self.tables.lock();
        for piece in address_space::covering(&tables.windows, range).map_err(|_| ENXIO)? {
            let window = tables.windows.get(&piece.range.start()).ok_or(ENXIO)?;
            pieces.push(
                RemotePiece {
                    window: window.clone(),
                    offset: piece.offset,
                    len: piece.len,
                },
                GFP_KERNEL_ACCOUNT,
            )?;
        }
        drop(tables);
        // Checked, and dropped in case, without the lock.
        if pieces
            .iter()
            .any(|piece| piece.window.protection & protection != protection)
        {
            return Err(EACCES);
        }
        Ok(pieces)
    }
}

/// What a message about windows can have wrong: the session ends with this reason.
type Violation = &'static str;

impl Connection {
    /// Lets go of all windows of the other end, for good. May sleep.
    pub(crate) fn forget_remote_windows(&self) {
        for incoming in &self.remote_windows.forget_all() {
            let _ = self.session.post(&Message::WindowReleased {
                window: incoming.id,
            });
        }
    }

    /// A window is offered. Called by the control work.
    pub(crate) fn window_offered(
        &self,
        id: WindowId,
        protection: u32,
        offset: u64,
        len: u64,
        extents: u32,
    ) -> Result<(), Violation> {
        let range = Range::from_parts(offset, len)
            .ok()
            .filter(|range| range.is_aligned(PAGE_SHIFT as u32))
            .ok_or("it offers a window with an impossible range")?;
        let all = PROTECTION_READ | PROTECTION_WRITE;
        if protection & !all != 0 || extents == 0 || u64::from(extents) > len >> PAGE_SHIFT {
            return Err("it offers a window with impossible properties");
        }
        let mut tables = self.remote_windows.tables.lock();
        if tables.closed {
            drop(tables);
            let _ = self.session.post(&Message::WindowReleased { window: id });
            return Ok(());
        }
        if tables.incoming.len() >= MAX_INCOMING {
            return Err("it offers too many windows at once");
        }
        let allowance = Allowance::take(&self.session, extents.into());
        let incoming = Incoming {
            id,
            range,
            protection,
            missing: extents,
            entries: KVVec::new(),
            status: match allowance {
                Some(_) => Status::Done,
                None => Status::NoMemory,
            },
            allowance,
        };
        tables
            .incoming
            .push(incoming, GFP_KERNEL)
            .map_err(|_| "no memory to take in a window")
    }

    /// More extents of an offered window. Called by the control work.
    pub(crate) fn window_extents(
        &self,
        id: WindowId,
        count: u32,
        extents: &[u64; EXTENTS_PER_MESSAGE],
    ) -> Result<(), Violation> {
        let mut tables = self.remote_windows.tables.lock();
        if tables.closed {
            return Ok(());
        }
        let position = tables
            .incoming
            .iter()
            .position(|incoming| incoming.id == id)
            .ok_or("it sends extents of a window that it has not offered")?;
        let incoming = tables
            .incoming
            .get_mut(position)
            .ok_or("it sends extents of a window that it has not offered")?;
        incoming.missing = incoming
            .missing
            .checked_sub(count)
            .ok_or("it sends more extents than it has offered")?;
        for packed in extents.iter().take(count as usize) {
            self.take_extent(incoming, *packed)?;
        }
        if incoming.missing > 0 {
            return Ok(());
        }
        let incoming = tables
            .incoming
            .remove(position)
            .map_err(|_| "it sends extents of a window that it has not offered")?;
        drop(tables);
        self.window_complete(incoming)
    }

    fn take_extent(&self, incoming: &mut Incoming, packed: u64) -> Result<(), Violation> {
        let extent =
            extents::unpack(packed, PAGE_SHIFT as u32).ok_or("it sends an impossible extent")?;
        if incoming.status != Status::Done {
            return Ok(());
        }
        if !self
            .session
            .transport
            .reaches(extent.address(), extent.len())
        {
            incoming.status = Status::OutOfReach;
            return Ok(());
        }
        let entry = match incoming.entries.as_slice().last() {
            None => Entry::first(extent),
            Some(last) => last.after(extent).ok_or("it sends an impossible extent")?,
        };
        if incoming.entries.push(entry, GFP_KERNEL).is_err() {
            incoming.status = Status::NoMemory;
        }
        Ok(())
    }

    fn window_complete(&self, incoming: Incoming) -> Result<(), Violation> {
        let mut status = incoming.status;
        if let (Status::Done, Some(allowance)) = (status, incoming.allowance) {
            let extents = Extents::new(incoming.entries)
                .map_err(|_| "it sends extents that do not follow each other")?;
            if extents.len() != incoming.range.len() {
                return Err("it sends extents that do not fill the window");
            }
            let window = RemoteWindow {
                id: incoming.id,
                range: incoming.range,
                protection: incoming.protection,
                extents,
                session: self.session.clone(),
                _allowance: allowance,
            };
            status = self.add_remote_window(window)?;
        }
        if let Ok(peer) = self.peer() {
            let _ = self.session.post(&Message::WindowAnswer {
                target: peer.id,
                window: incoming.id,
                status,
            });
        }
        Ok(())
    }

    fn add_remote_window(&self, window: RemoteWindow) -> Result<Status, Violation> {
        let start = window.range.start();
        let Ok(window) = Arc::new(window, GFP_KERNEL) else {
            return Ok(Status::NoMemory);
        };
        let mut tables = self.remote_windows.tables.lock();
        if tables.closed {
            // The window is released when it is dropped, after the lock.
            drop(tables);
            return Ok(Status::Unknown);
        }
        if address_space::overlaps(&tables.windows, window.range) {
            drop(tables);
            return Err("it offers windows that overlap");
        }
        let inserted = tables
            .windows
            .try_create_and_insert(start, window.clone(), GFP_KERNEL)
            .is_ok();
        drop(tables);
        Ok(match inserted {
            true => Status::Done,
            false => Status::NoMemory,
        })
    }

    /// A window was unregistered by its owner. Called by the control work.
    pub(crate) fn window_revoked(&self, id: WindowId, offset: u64) {
        let mut tables = self.remote_windows.tables.lock();
        let position = tables
            .incoming
            .iter()
            .position(|incoming| incoming.id == id);
        if let Some(position) = position {
            // The owner gave up in the middle of its offer.
            let incoming = tables.incoming.remove(position);
            drop(tables);
            drop(incoming);
            let _ = self.session.post(&Message::WindowReleased { window: id });
            self.say_revoke_done(id);
            return;
        }
        let known = tables
            .windows
            .get(&offset)
            .is_some_and(|window| window.id == id);
        let removed = match known {
            true => tables.windows.remove(&offset),
            false => None,
        };
        drop(tables);
        // Says that it is released, unless somebody still uses it.
        drop(removed);
        self.say_revoke_done(id);
    }

    fn say_revoke_done(&self, window: WindowId) {
        if let Ok(peer) = self.peer() {
            let _ = self.session.post(&Message::WindowRevokeDone {
                target: peer.id,
                window,
            });
        }
    }
}
