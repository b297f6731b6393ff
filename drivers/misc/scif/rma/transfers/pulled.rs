// SPDX-License-Identifier: GPL-2.0

//! Reads that this end leaves to the peer's engine.

use super::Transfers;
use crate::{
    arguments::{
        Direction,
        LocalSide, //
    },
    logic::address_space::Range,
    rma::{
        operation::Request,
        pulls::{
            Destination,
            Must, //
        },
    },
};
use kernel::prelude::*;

/// Memory of the caller is offered for one transfer as long as no more than this is offered for each
/// byte that is needed: what is kept for later ones can be larger.
const MOST_SPARE: u64 = 4;

impl Transfers {
    /// Whether a transfer is one of those that the peer's engine had better make.
    pub(super) fn may_be_pulled(
        &self,
        direction: Direction,
        local: &LocalSide,
        remote: Range,
    ) -> bool {
        // What is lent must not be out of reach of who has lent it for longer than the call takes.
        direction == Direction::Read && !local.is_lent() && self.ways.by_peer(remote.len())
    }

    /// Has the peer write what is to be read from its windows at `source`. Gives the request back if that
    /// can't be. Killable.
    pub(super) fn copy_by_peer(
        &self,
        request: Request,
        source: i64,
        local: &LocalSide,
    ) -> Result<Result, Request> {
        let synchronous = request.synchronous;
        let Ok(destination) = self.destination(&request, local, Must::No) else {
            return Err(request);
        };
        let pulls = &self.ways.pulls;
        let places = (source as u64, destination);
        let started = pulls.start(&self.channel, self.channel.engine(), places, request);
        let pull = started.inspect_err(|_| self.withdraw(destination))?;
        if !synchronous {
            return Ok(Ok(()));
        }
        let waited = self
            .channel
            .waiters()
            .and_then(|waiters| waiters.wait_killable(|| pull.result()));
        Ok(waited.and_then(|result| result.map_err(|error| self.marks.transfer_error(error))))
    }

    /// The peer was not told after all to write there.
    pub(super) fn withdraw(&self, destination: Destination) {
        if let Destination::Unlisted(window, _) = destination {
            self.windows.withdraw_unlisted(window);
        }
    }

    /// What the peer is told to write to. Killable.
    pub(super) fn destination(
        &self,
        request: &Request,
        local: &LocalSide,
        must: Must,
    ) -> Result<Destination> {
        if let Some(offset) = local.offset() {
            return Ok(Destination::Registered(offset as u64));
        }
        let piece = request.sides.local.iter().next().ok_or(EINVAL)?;
        let pages = &piece.memory().pages;
        let must = must == Must::Yes;
        if !must && pages.size() as u64 / MOST_SPARE > piece.len {
            return Err(EINVAL);
        }
        let bytes = Range::from_parts(piece.offset, piece.len).map_err(|_| EINVAL)?;
        let window = self.windows.offer_unlisted(pages, bytes, must)?;
        Ok(Destination::Unlisted(window, piece.offset))
    }
}
