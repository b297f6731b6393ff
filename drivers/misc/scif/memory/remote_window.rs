// SPDX-License-Identifier: GPL-2.0

//! One window of a peer: how it comes, extent by extent, and how much of a peer's memory this node remembers.
//!
//! How many windows a peer can make this node remember is bounded, and how many extents by the
//! memory that it could describe with them: see [`Allowance`]. The peer is told those bounds, and which
//! of its memory this node reaches ([`grant`]), and need not ask as long as it keeps to them.

use super::range_tree::Placed;
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
            WindowId, //
            EXTENTS_IN_ANNEX,
            EXTENTS_IN_OFFER,
        },
        window_set::{
            cut,
            Seams, //
            MOST_WINDOWS,
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

/// Windows of one peer: it can't make this node remember any number of them, nor of messages that they are
/// released.
pub(super) const MAX_WINDOWS: u64 = 1 << 17;

/// How often a peer may register each of its pages before extents are counted against it.
const REGISTRATIONS_PER_PAGE: u64 = 4;

/// Extents that a peer may have registered however small its memory is.
const MIN_EXTENTS: u64 = 1 << 16;

/// What one peer has made this node remember: how many windows, and extents of those.
pub(crate) type Remembered = Claimed<2>;

/// The right to remember a window of a peer with its extents.
pub(super) type Allowance = Claim<Remembered, 2>;

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

/// None if the peer has too many already. The caller is inside the peer.
pub(super) fn allow(peer: &Peer, remembered: &Arc<Remembered>, extents: u64) -> Option<Allowance> {
    Claim::new(remembered, [1, extents], [MAX_WINDOWS, extents_limit(peer)])
}

/// A window of a peer; its owner is told that it is released when the last reference is dropped.
pub(crate) struct RemoteWindow {
    pub(crate) id: WindowId,
    pub(crate) range: Range,
    pub(crate) protection: u32,
    /// Bus addresses of the peer, all within reach; none if it is not.
    pub(crate) extents: ExtentTable,
    peer: Arc<Peer>,
    /// For the message that it is released; none if the peer hears of that in another way.
    pub(super) release: Option<Reservation>,
    /// None only until it is refused.
    _allowance: Option<Allowance>,
}

/// By which a window is found that lies nowhere: none begins there.
pub(super) fn key_of_unlisted(id: WindowId) -> u64 {
    1 << 63 | u64::from(id.0)
}

impl RemoteWindow {
    /// Whether it has a place in the address space, by which it is found.
    pub(super) fn is_listed(&self) -> bool {
        self.protection & UNLISTED == 0
    }

    /// By which it is found: where it begins, unless it is not listed.
    pub(super) fn key(&self) -> u64 {
        match self.is_listed() {
            true => self.range.start(),
            false => key_of_unlisted(self.id),
        }
    }

    /// Whether this node gets there by itself.
    pub(crate) fn is_reached(&self) -> bool {
        !self.extents.entries().is_empty()
    }

    /// Drops a reference. If it was the last one, the owner is not told: the caller does it.
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

impl Placed for RemoteWindow {
    fn range(&self) -> Range {
        self.range
    }
}

/// A part of a transfer or a mapping that lies in one remote window.
pub(crate) struct RemotePiece {
    pub(crate) window: Arc<RemoteWindow>,
    /// Where in the window it begins.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// For how many of the extents that are offered there is room at once.
const SOON: u32 = 1 << 14;

const IMPOSSIBLE_EXTENT: &str = "it sends an impossible extent";

/// How many of the extents of an offer are in its annex.
pub(crate) fn in_annex(offer: &Offer) -> usize {
    (offer.extents as usize)
        .saturating_sub(EXTENTS_IN_OFFER)
        .min(EXTENTS_IN_ANNEX)
}

/// A window that the peer offers, until all of its extents have come.
///
/// What is contiguous for the owner need not be so for this end, whose bridge may have several memory windows: an
/// extent is cut where that is so, and then everything that lies in one is contiguous here. Who offers memory
/// passes each such place once, so the cuts are few; more of them are out of reach.
pub(super) struct IncomingWindow {
    /// With the extents that have come.
    pub(super) window: RemoteWindow,
    pub(super) missing: u32,
    /// How many extents were cut.
    cuts: u32,
    pub(super) status: Status,
    /// The owner waits for an answer.
    pub(super) wants_answer: bool,
}

impl IncomingWindow {
    /// Nothing of it has come. May sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        offer: &Offer,
        range: Range,
        allowance: Option<Allowance>,
    ) -> Self {
        let release = Reservation::new(GFP_KERNEL).ok();
        let status = match (&allowance, &release) {
            (Some(_), Some(_)) => Status::Done,
            // The answer says it, which takes no memory.
            _ => Status::NoMemory,
        };
        let mut extents = ExtentTable::default();
        if status == Status::Done {
            // Without, the table only grows in more steps.
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

    /// So many extents have come. The caller is inside the peer. May sleep.
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
        // The last one of before may have become longer.
        let entries = self.window.extents.entries();
        let new = entries.get(before.saturating_sub(1)..);
        if !channel.path().reaches(new.unwrap_or_default()) {
            self.status = Status::OutOfReach;
        }
        Ok(())
    }

    /// Adds an extent, in as many parts as it takes.
    fn add(&mut self, extent: Extent, seams: Seams) -> Result<(), Violation> {
        for (index, part) in cut(extent, seams).enumerate() {
            self.cuts += u32::from(index > 0);
            if self.cuts >= MOST_WINDOWS {
                self.status = Status::OutOfReach;
                break;
            }
            let extents = &mut self.window.extents;
            // There is room for extents that are whole.
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
