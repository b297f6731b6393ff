// SPDX-License-Identifier: GPL-2.0

//! Reads that this end leaves to the peer's engine.

use super::Transfers;
use crate::{
    arguments::{
        Direction,
        LocalSide,
        TransferOptions, //
    },
    rma::transfer::Request,
    transport::engine::EngineRoute,
};
use kernel::prelude::*;

impl Transfers {
    /// By this end's engine, or by the peer's if that is better.
    pub(super) fn copy_by_some_engine(
        &self,
        route: &EngineRoute,
        request: Request,
        (local, remote): (&LocalSide, i64),
        options: TransferOptions,
    ) -> Result {
        let is_better = request.direction == Direction::Read
            && self.ways.pulls(request.bytes(), options.synchronous);
        let request = match local.offset() {
            Some(local) if is_better => {
                match self.copy_by_peer(request, (remote as u64, local as u64)) {
                    Ok(result) => return result,
                    Err(request) => request,
                }
            }
            _ => request,
        };
        self.copy_by_engine(route, request, local.is_lent())
    }

    /// Has the peer write what is to be read from its windows at `source` into windows at `destination`.
    /// Gives the request back if that can't be.
    fn copy_by_peer(
        &self,
        request: Request,
        (source, destination): (u64, u64),
    ) -> Result<Result, Request> {
        let synchronous = request.synchronous;
        let places = (source, destination);
        let pulls = &self.ways.pulls;
        let pull = pulls.start(&self.channel, self.engine, places, request)?;
        if !synchronous {
            return Ok(Ok(()));
        }
        let waited = self
            .channel
            .waiters()
            .and_then(|waiters| waiters.wait_killable(|| pull.result()));
        Ok(waited.and_then(|result| result.map_err(|error| self.marks.transfer_error(error))))
    }
}
