// SPDX-License-Identifier: GPL-2.0

//! A window that the peer offers, until all of its extents have come.
//!
//! What is contiguous for the owner need not be so for this end, whose bridge may have several memory windows: an
//! extent is cut where that is so, and then everything that lies in one is contiguous here. Who offers memory
//! passes each such place once, so the cuts are few; more of them are out of reach.

use super::remote_window::Allowance;
use crate::{
    logic::{
        address_space::Range,
        extents::{
            self,
            Extent, //
        },
        messages::{
            Status,
            WindowId,
            EXTENTS_IN_ANNEX,
            EXTENTS_IN_OFFER, //
        },
        window_set::{
            add_part,
            cut,
            put_part,
            Seams,
            MOST_WINDOWS, //
        },
    },
    peer::{
        attachment::Violation,
        channel::Channel, //
    },
    sys::extent_table::{
        self,
        ExtentTable, //
    },
};
use kernel::{
    page::PAGE_SHIFT,
    prelude::*, //
};

/// For how many of the extents that are offered there is room at once.
const SOON: u32 = 1 << 14;

const IMPOSSIBLE_EXTENT: &str = "it sends an impossible extent";

/// An offer, as the peer has made it.
pub(crate) struct Offer {
    pub(crate) window: WindowId,
    pub(crate) protection: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// How many packed extents it has.
    pub(crate) extents: u32,
    /// The first of them; others are in the annex, and follow.
    pub(crate) first: [u64; EXTENTS_IN_OFFER],
    /// The owner waits for an answer.
    pub(crate) wants_answer: bool,
}

impl Offer {
    /// How many of its extents are in the annex.
    pub(crate) fn in_annex(&self) -> usize {
        (self.extents as usize)
            .saturating_sub(EXTENTS_IN_OFFER)
            .min(EXTENTS_IN_ANNEX)
    }
}

/// See the head of this file.
pub(super) struct IncomingWindow {
    pub(super) id: WindowId,
    pub(super) range: Range,
    pub(super) protection: u32,
    pub(super) missing: u32,
    pub(super) extents: ExtentTable,
    /// How many were cut.
    cuts: u32,
    pub(super) status: Status,
    pub(super) wants_answer: bool,
    /// None if the window is refused.
    pub(super) allowance: Option<Allowance>,
}

impl IncomingWindow {
    /// Nothing of it has come. May sleep.
    pub(super) fn new(
        offer: &Offer,
        range: Range,
        allowance: Option<Allowance>,
    ) -> Result<Self, Violation> {
        let mut this = Self {
            id: offer.window,
            range,
            protection: offer.protection,
            missing: offer.extents,
            extents: extent_table::empty().map_err(|_| IMPOSSIBLE_EXTENT)?,
            cuts: 0,
            status: match allowance {
                Some(_) => Status::Done,
                None => Status::NoMemory,
            },
            wants_answer: offer.wants_answer,
            allowance,
        };
        if this.status == Status::Done {
            // Without, the table only grows in more steps.
            let soon = this.missing.min(SOON) as usize;
            let _ = this.extents.reserve(soon, GFP_KERNEL | __GFP_NOWARN);
        }
        Ok(this)
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
        let before = self.extents.entries().len();
        if self.status == Status::Done && self.extents.reserve(count as usize, GFP_KERNEL).is_err()
        {
            self.status = Status::NoMemory;
        }
        let seams = channel.path().seams();
        for word in words {
            let extent = extents::unpack(word, PAGE_SHIFT as u32).ok_or(IMPOSSIBLE_EXTENT)?;
            if self.status == Status::Done {
                self.add(extent, seams)?;
            }
        }
        // The last one of before may have become longer.
        let new = self.extents.entries().get(before.saturating_sub(1)..);
        if !channel.path().reaches(new.unwrap_or_default()) {
            self.status = Status::OutOfReach;
        }
        Ok(())
    }

    /// Adds an extent, for which there mostly is room.
    #[inline(always)]
    fn add(&mut self, extent: Extent, seams: Seams) -> Result<(), Violation> {
        let in_one = seams.before(extent.address(), extent.len()) == extent.len();
        match in_one && put_part(&mut self.extents, extent, seams).is_some() {
            true => Ok(()),
            false => self.add_in_parts(extent, seams),
        }
    }

    fn add_in_parts(&mut self, extent: Extent, seams: Seams) -> Result<(), Violation> {
        for (index, part) in cut(extent, seams).enumerate() {
            self.cuts += u32::from(index > 0);
            if self.cuts >= MOST_WINDOWS {
                self.status = Status::OutOfReach;
                break;
            }
            match add_part(&mut self.extents, part, seams, GFP_KERNEL) {
                Ok(added) => added.ok_or(IMPOSSIBLE_EXTENT)?,
                Err(_) => {
                    self.status = Status::NoMemory;
                    break;
                }
            }
        }
        Ok(())
    }
}
