// SPDX-License-Identifier: GPL-2.0

//! A copy as it is asked for, and the report of its end.
//!
//! An engine (`transfer.rs`), slots (`staging/staged.rs`), the peer (`pulls.rs`) or the processor makes the copy, and
//! ends its [`Operation`] once.
//!
//! Pairing the pieces of both sides of a transfer: the local windows with the remote ones.

use crate::{
    arguments::Direction,
    memory::{
        local::LocalPiece,
        range_tree::Few,
        remote_window::RemotePiece, //
    },
    peer::{
        channel::OwnedChannelUse,
        PeerUse, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
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

/// Whether this end gets to all of these by itself.
pub(super) fn are_reached(pieces: &Few<RemotePiece>) -> bool {
    pieces.iter().all(|piece| piece.window.is_reached())
}

/// Both sides of a transfer: pieces of memory, in order, and as long as the transfer.
pub(super) struct Sides {
    // Dropped in this order.
    pub(super) local: Few<LocalPiece>,
    pub(super) remote: Few<RemotePiece>,
}

/// A stretch of a transfer that lies in one piece on each side.
pub(super) struct Stretch<'a> {
    pub(super) local: &'a LocalPiece,
    pub(super) local_offset: u64,
    pub(super) remote: &'a RemotePiece,
    pub(super) remote_offset: u64,
    pub(super) len: u64,
}

impl Sides {
    /// Calls `f` with each stretch of `skip..skip + len` of the transfer, in order. ENXIO if a side
    /// is too short.
    pub(super) fn for_each_stretch<'a>(
        &'a self,
        skip: u64,
        len: u64,
        mut f: impl FnMut(Stretch<'a>) -> Result,
    ) -> Result {
        let (mut locals, mut remotes) = (self.local.iter(), self.remote.iter());
        let (mut local, mut remote) = (locals.next(), remotes.next());
        // Where in the current pieces we are, and in the transfer.
        let (mut local_at, mut remote_at, mut at) = (0, 0, 0);
        let end = skip + len;
        while at < end {
            let (Some(l), Some(r)) = (local, remote) else {
                return Err(ENXIO);
            };
            let step = (l.len - local_at).min(r.len - remote_at).min(end - at);
            // What lies before `skip` is passed over.
            let unwanted = skip.saturating_sub(at).min(step);
            if unwanted < step {
                f(Stretch {
                    local: l,
                    local_offset: l.offset + local_at + unwanted,
                    remote: r,
                    remote_offset: r.offset + remote_at + unwanted,
                    len: step - unwanted,
                })?;
            }
            at += step;
            local_at += step;
            remote_at += step;
            if local_at == l.len {
                (local, local_at) = (locals.next(), 0);
            }
            if remote_at == r.len {
                (remote, remote_at) = (remotes.next(), 0);
            }
        }
        Ok(())
    }
}
