// SPDX-License-Identifier: GPL-2.0

//! A copy as it is asked for, and the report of its end.
//!
//! An engine (`transfer.rs`), slots (`staging/staged.rs`), the peer (`pulls.rs`) or the processor makes the copy, and
//! ends its [`Operation`] once.

use super::pieces::Sides;
use crate::{
    arguments::Direction,
    peer::{
        channel::OwnedChannelUse,
        PeerUse, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// A listener for the end of operations.
pub(super) trait Completion: Send + Sync {
    /// Takes note that one has ended. If it `is_reported` its caller hears of the result, so no fence has to say it.
    /// Called once for each; in a soft interrupt, or any other context but hard interrupts.
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, is_reported: bool);
}

/// Which copy it is, and the listener for its end.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) completion: Arc<dyn Completion>,
    /// The listener's number for it.
    pub(super) number: u64,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
}

impl Operation {
    /// Reports the end. See [`Completion::ended`].
    pub(super) fn end(&self, result: Result, is_reported: bool) {
        let completion = self.completion.as_arc_borrow();
        completion.ended(self, result, is_reported);
    }

    /// Reports a failure of which the caller hears, too.
    pub(super) fn fail(&self, error: Error) -> Error {
        self.end(Err(error), true);
        error
    }
}

/// What keeps the surroundings of a copy in place. Dropped in this order: the peer's close is answered
/// before the session may go.
pub(super) struct Surroundings {
    /// None for a copy without a channel.
    pub(super) channel: Option<OwnedChannelUse>,
    pub(super) peer: PeerUse,
}

/// An operation, and what is to be done for it.
pub(super) struct Request {
    pub(super) operation: Operation,
    pub(super) sides: Sides,
    /// Bytes that go first, and bytes that go last.
    pub(super) parts: (u64, u64),
    /// The caller waits for the result.
    pub(super) synchronous: bool,
    pub(super) surroundings: Surroundings,
}
