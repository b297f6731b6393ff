// SPDX-License-Identifier: GPL-2.0

//! One window of a peer, and how much of a peer's memory this node remembers.
//!
//! How many windows a peer can make this node remember is bounded, and how many extents by the
//! memory that it could describe with them: see [`Allowance`]. The peer is told those bounds, and which
//! of its memory this node reaches ([`grant`]), and need not ask as long as it keeps to them.

use super::range_tree::Placed;
use crate::{
    logic::{
        address_space::Range,
        messages::{
            Grant,
            Message,
            WindowId, //
        },
    },
    peer::{
        control::BACKLOG_LIMIT,
        Peer, //
    },
    sys::extent_table::ExtentTable, //
};
use kernel::{
    page::PAGE_SHIFT,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

/// Windows of one peer: it can't make this node remember any number of them, and all of them can be
/// released at once without the control messages that say so filling the backlog.
const MAX_WINDOWS: u64 = 1 << 17;
static_assert!(MAX_WINDOWS < BACKLOG_LIMIT as u64);

/// How often a peer may register each of its pages before extents are counted against it.
const REGISTRATIONS_PER_PAGE: u64 = 4;

/// Extents that a peer may have registered however small its memory is.
const MIN_EXTENTS: u64 = 1 << 16;

/// What one peer has made this node remember.
pub(crate) struct Remembered {
    windows: Atomic<u64>,
    extents: Atomic<u64>,
}

impl Remembered {
    pub(crate) const fn new() -> Self {
        Self {
            windows: Atomic::new(0),
            extents: Atomic::new(0),
        }
    }
}

/// The right to remember a window of a peer with its extents; given back when dropped.
pub(super) struct Allowance {
    remembered: Arc<Remembered>,
    extents: u64,
}

/// How many extents this node remembers of a peer. The caller is inside the peer.
fn extents_limit(peer: &Peer) -> u64 {
    let pages = peer.path().reachable() >> PAGE_SHIFT;
    pages
        .saturating_mul(REGISTRATIONS_PER_PAGE)
        .saturating_add(MIN_EXTENTS)
}

/// What a peer need not ask for. The caller is inside the peer.
pub(super) fn grant(peer: &Peer) -> Grant {
    Grant {
        from: peer.path().first_reachable(),
        len: peer.path().reachable(),
        windows: MAX_WINDOWS as u32,
        extents: extents_limit(peer),
    }
}

impl Allowance {
    /// None if the peer has too many already.
    pub(super) fn take(peer: &Peer, remembered: &Arc<Remembered>, extents: u64) -> Option<Self> {
        let limit = extents_limit(peer);
        let windows = remembered.windows.fetch_add(1, Relaxed);
        let before = remembered.extents.fetch_add(extents, Relaxed);
        // Gives them back if they are refused.
        let this = Self {
            remembered: remembered.clone(),
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
        self.remembered.extents.fetch_sub(self.extents, Relaxed);
        self.remembered.windows.fetch_sub(1, Relaxed);
    }
}

/// A window of a peer; its owner is told that it is released when the last reference is dropped.
pub(crate) struct RemoteWindow {
    pub(crate) id: WindowId,
    pub(crate) range: Range,
    pub(crate) protection: u32,
    /// Bus addresses of the peer, all within reach; none if it is not.
    pub(crate) extents: ExtentTable,
    pub(super) peer: Arc<Peer>,
    /// The owner hears in another way that it is released.
    pub(super) is_silent: bool,
    pub(super) _allowance: Allowance,
}

impl RemoteWindow {
    /// Whether this node gets there by itself.
    pub(crate) fn is_reached(&self) -> bool {
        !self.extents.entries().is_empty()
    }

    /// Drops a reference. If it was the last one, the owner is not told: the caller does it.
    pub(super) fn let_go(window: Arc<Self>) -> bool {
        let Some(mut window) = Arc::into_unique_or_drop(window) else {
            return false;
        };
        window.is_silent = true;
        true
    }
}

impl Placed for RemoteWindow {
    fn range(&self) -> Range {
        self.range
    }
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        if self.is_silent {
            return;
        }
        // Of a peer that is lost nobody waits for it.
        let _ = self.peer.post(&Message::WindowReleased { window: self.id });
    }
}

/// A part of a transfer or a mapping that lies in one remote window.
pub(crate) struct RemotePiece {
    pub(crate) window: Arc<RemoteWindow>,
    /// Where in the window it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}
