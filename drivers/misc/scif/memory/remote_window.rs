// SPDX-License-Identifier: GPL-2.0

//! One window of a peer: how it arrives, extent by extent, and the bounds on windows of one peer.
//!
//! The number of windows that a peer can make this node remember is bounded. The number of extents
//! is bounded by the memory that they could describe: see [`Allowance`]. The peer is told these
//! bounds, and the part of its memory that this node reaches ([`grant`]). It need not ask while it
//! keeps to them.

use super::range_tree::HasRange;
use crate::{
    arguments::UNLISTED,
    logic::{
        address_space::Range,
        extents::{
            self,
            Extent, //
        },
        messages::{
            Grant,
            Message,
            Offer,
            Status,
            WindowId,
            EXTENTS_IN_ANNEX,
            EXTENTS_IN_OFFER, //
        },
        window_set::{
            cut,
            Seams,
            MOST_WINDOWS, //
        }, //
    },
    peer::{
        channel::Channel,
        control::Reservation,
        service::Violation,
        Peer, //
    },
    sync::claim::{
        Claim,
        Claimed, //
    },
    sys::extent_table::ExtentTable, //
};
use kernel::{
    page::PAGE_SHIFT,
    prelude::*,
    sync::Arc, //
};

/// Most windows of one peer that this node remembers. It bounds the messages of their release, too.
pub(super) const MAX_WINDOWS: u64 = 1 << 17;

/// Number of times that a peer may register each of its pages before extents are counted against
/// it.
const REGISTRATIONS_PER_PAGE: u64 = 4;

/// Extents that a peer may have registered, however small its memory is.
const MIN_EXTENTS: u64 = 1 << 16;

/// The numbers of windows, and of their extents, that one peer has made this node remember.
pub(crate) type Remembered = Claimed<2>;

/// The right to remember a window of a peer with its extents.
pub(super) type Allowance = Claim<Remembered, 2>;

/// Returns the number of extents that this node remembers of a peer. The caller is inside the peer.
fn extents_limit(peer: &Peer) -> u64 {
    let pages = peer.path().reachable() >> PAGE_SHIFT;
    pages
        .saturating_mul(REGISTRATIONS_PER_PAGE)
        .saturating_add(MIN_EXTENTS)
}

/// Returns the bounds within which a peer need not ask. The caller is inside the peer.
pub(super) fn grant(peer: &Peer) -> Grant {
    Grant {
        from: peer.path().first_reachable(),
        len: peer.path().reachable(),
        windows: MAX_WINDOWS as u32,
        extents: extents_limit(peer),
    }
}

/// Claims one window with `extents` extents. `None` if the peer would have too many. The caller is
/// inside the peer.
pub(super) fn allow(peer: &Peer, remembered: &Arc<Remembered>, extents: u64) -> Option<Allowance> {
    Claim::new(remembered, [1, extents], [MAX_WINDOWS, extents_limit(peer)])
}

/// A window of a peer. When the last reference is dropped, this node tells the peer that the window
/// is released.
pub(crate) struct RemoteWindow {
    pub(crate) id: WindowId,
    pub(crate) range: Range,
    pub(crate) protection: u32,
    /// Bus addresses of the peer, all within reach. Empty if this node does not reach the window.
    pub(crate) extents: ExtentTable,
    peer: Arc<Peer>,
    /// Memory for the message of the release. `None` if the peer learns of the release in another
    /// way.
    pub(super) release: Option<Reservation>,
    /// The claim on this node's memory. `None` only in a window that will be refused.
    _allowance: Option<Allowance>,
}

/// Returns the key of an unlisted window. No listed window begins at such an offset.
pub(super) fn key_of_unlisted(id: WindowId) -> u64 {
    1 << 63 | u64::from(id.0)
}

impl RemoteWindow {
    /// Returns whether the window has a place in the address space, by which it is found.
    pub(super) fn is_listed(&self) -> bool {
        self.protection & UNLISTED == 0
    }

    /// Returns the key by which the window is found: its start, or a key of its id if it is
    /// unlisted.
    pub(super) fn key(&self) -> u64 {
        match self.is_listed() {
            true => self.range.start(),
            false => key_of_unlisted(self.id),
        }
    }

    /// Returns whether this node reaches the window by itself.
    pub(crate) fn is_reached(&self) -> bool {
        !self.extents.entries().is_empty()
    }

    /// Drops a reference. Returns true if it was the last one: then the caller, and not the drop,
    /// tells the owner of the release.
    pub(super) fn let_go(window: Arc<Self>) -> bool {
        let Some(mut window) = Arc::into_unique_or_drop(window) else {
            return false;
        };
        window.release = None;
        true
    }
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        if let Some(reservation) = self.release.take() {
            let released = Message::WindowReleased { window: self.id };
            self.peer.send(reservation, &released);
        }
    }
}

impl HasRange for RemoteWindow {
    fn range(&self) -> Range {
        self.range
    }
}

/// A part of a transfer or a mapping that lies in one remote window.
pub(crate) struct RemotePiece {
    pub(crate) window: Arc<RemoteWindow>,
    /// Offset of the part in the window.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Most offered extents for which memory is reserved at once.
const SOON: u32 = 1 << 14;

const IMPOSSIBLE_EXTENT: &str = "it sends an impossible extent";

/// Returns the number of an offer's extents that are in its annex.
pub(crate) fn in_annex(offer: &Offer) -> usize {
    (offer.extents as usize)
        .saturating_sub(EXTENTS_IN_OFFER)
        .min(EXTENTS_IN_ANNEX)
}

/// A window that the peer offers, until all of its extents have come.
///
/// Memory that is contiguous for the owner need not be so for this end, whose bridge may have
/// several memory windows. An extent is cut where two of them meet, so that each extent is
/// contiguous here. Offered memory passes each such place once, so the cuts are few. A window with
/// more cuts counts as out of reach.
pub(super) struct IncomingWindow {
    /// The window with the extents that have come.
    pub(super) window: RemoteWindow,
    pub(super) missing: u32,
    /// Number of cuts.
    cuts: u32,
    pub(super) status: Status,
    /// Whether the owner waits for an answer.
    pub(super) wants_answer: bool,
}

impl IncomingWindow {
    /// Creates a window of which no extent has come.
    /// Context: may sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        offer: &Offer,
        range: Range,
        allowance: Option<Allowance>,
    ) -> Self {
        let release = Reservation::new(GFP_KERNEL).ok();
        let status = match (&allowance, &release) {
            (Some(_), Some(_)) => Status::Done,
            // The answer, which takes no memory, tells the owner.
            _ => Status::NoMemory,
        };
        let mut extents = ExtentTable::default();
        if status == Status::Done {
            // A failure does no harm: the table then grows in more steps.
            let soon = offer.extents.min(SOON) as usize;
            let _ = extents.entries.reserve(soon, GFP_KERNEL | __GFP_NOWARN);
        }
        let window = RemoteWindow {
            id: offer.window,
            range,
            protection: offer.protection,
            extents,
            peer: peer.clone(),
            release,
            _allowance: allowance,
        };
        Self {
            window,
            missing: offer.extents,
            cuts: 0,
            status,
            wants_answer: offer.wants_answer,
        }
    }

    /// Adds `count` extents that have come. The caller is inside the peer.
    /// Context: may sleep.
    pub(super) fn take(
        &mut self,
        channel: &Channel,
        count: u32,
        words: impl Iterator<Item = u64>,
    ) -> Result<(), Violation> {
        self.missing = self
            .missing
            .checked_sub(count)
            .ok_or("it sends more extents than it has offered")?;
        let before = self.window.extents.entries().len();
        if self.status == Status::Done {
            let entries = &mut self.window.extents.entries;
            if entries.reserve(count as usize, GFP_KERNEL).is_err() {
                self.status = Status::NoMemory;
            }
        }
        let seams = channel.path().seams();
        for word in words {
            let extent = extents::unpack(word, PAGE_SHIFT as u32).ok_or(IMPOSSIBLE_EXTENT)?;
            if self.status == Status::Done {
                self.add(extent, seams)?;
            }
        }
        // The last extent of an earlier part may have become longer.
        let entries = self.window.extents.entries();
        let new = entries.get(before.saturating_sub(1)..);
        if !channel.path().reaches(new.unwrap_or_default()) {
            self.status = Status::OutOfReach;
        }
        Ok(())
    }

    /// Adds an extent, cut into as many parts as needed.
    fn add(&mut self, extent: Extent, seams: Seams) -> Result<(), Violation> {
        for (index, part) in cut(extent, seams).enumerate() {
            self.cuts += u32::from(index > 0);
            if self.cuts >= MOST_WINDOWS {
                self.status = Status::OutOfReach;
                break;
            }
            let extents = &mut self.window.extents;
            // The caller has reserved room for uncut extents only.
            if extents.entries.reserve(1, GFP_KERNEL).is_err() {
                self.status = Status::NoMemory;
                break;
            }
            let may_join = !seams.is_at(part.address());
            extents.add(part, may_join).ok_or(IMPOSSIBLE_EXTENT)?;
        }
        Ok(())
    }
}
