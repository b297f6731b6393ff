// SPDX-License-Identifier: GPL-2.0

//! Reads that this end leaves to the peer's engine.
//!
//! Transfers with windows of the peer that this end does not reach: what is written is staged, what is read
//! the peer is asked for, which stages it, or writes it here.

use super::{
    Transfers,
    Way, //
};
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
        staging::Patience,
        ways, //
    },
    transport::engine::EngineRoute, //
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
        let (channel, pulls) = (&self.channel, &self.ways.pulls);
        let (engine, source) = (channel.engine(), source as u64);
        let started = pulls.start(channel, engine, Must::No, source, destination, request);
        let pull = started.map_err(|(request, _)| {
            self.withdraw(destination);
            request
        })?;
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

impl Transfers {
    /// What is staged may be better off without the engine.
    pub(super) fn leave_engine_if_slower(&self, way: &mut Way<'_>, direction: Direction, len: u64) {
        if !way.is_unreached || direction == Direction::Read || way.route.is_none() {
            return;
        }
        if ways::fills_by_processor(&self.ways.staging, len) {
            way.route = None;
        }
    }

    /// Copies where this end does not reach. Killable, if the local side is not lent.
    pub(super) fn copy_unreached(
        &self,
        route: Option<&EngineRoute>,
        request: Request,
        local: &LocalSide,
        remote: i64,
    ) -> Result {
        match request.operation.direction {
            Direction::Write => self.write_staged(route, request, local.is_lent()),
            Direction::Read => self.read_by_peer(request, local, remote),
        }
    }

    fn write_staged(&self, route: Option<&EngineRoute>, request: Request, is_lent: bool) -> Result {
        // What is lent is in a slot, or not used any more, when this returns.
        let waits = request.synchronous || is_lent && route.is_some();
        let patience = match is_lent {
            true => Patience::Uninterruptible,
            false => Patience::Killable,
        };
        let started = self.ways.staging.write(request, route, patience);
        let staged = started.inspect_err(|_| {
            if is_lent {
                // What was begun of it ends.
                self.marks.drain();
            }
        })?;
        if !waits {
            return Ok(());
        }
        self.wait_for(is_lent, || staged.result())
    }

    fn read_by_peer(&self, request: Request, local: &LocalSide, source: i64) -> Result {
        let is_lent = local.is_lent();
        let waits = request.synchronous || is_lent;
        let destination = self
            .destination(&request, local, Must::Yes)
            .map_err(|error| request.operation.fail(self.channel.end_or(error)))?;
        let (channel, pulls) = (&self.channel, &self.ways.pulls);
        let source = source as u64;
        let started = pulls.start(channel, None, Must::Yes, source, destination, request);
        let pull = started.map_err(|(request, error)| {
            // In this order: what was taken back is not known here any more.
            self.withdraw(destination);
            self.take_back(destination);
            request.operation.fail(self.channel.end_or(error))
        })?;
        if !waits {
            return Ok(());
        }
        let result = self.wait_for(is_lent, || pull.result());
        self.take_back(destination);
        result
    }

    /// What was offered for a read that nobody waits for any more is taken back, whatever the peer does: it may be
    /// used for something else next.
    fn take_back(&self, destination: Destination) {
        if let Destination::Unlisted(window, _) = destination {
            self.windows.take_back_unlisted(window);
            self.ways.staging.wait_for_deliveries();
        }
    }

    /// Waits for a transfer, and says what its failure means. Killable, if the memory is not lent.
    pub(super) fn wait_for(&self, is_lent: bool, result: impl Fn() -> Option<Result>) -> Result {
        let waiters = self.channel.waiters()?;
        let result = match is_lent {
            // Whoever is told of an end takes the memory back. The engine, or the peer, sees to it that there is
            // one, or is lost.
            true => waiters.wait_uninterruptible(&result),
            false => waiters.wait_killable(&result)?,
        };
        result.map_err(|error| self.marks.transfer_error(error))
    }
}
