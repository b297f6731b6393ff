// SPDX-License-Identifier: GPL-2.0

//! Pairing the pieces of both sides of a transfer: the local windows with the remote ones.

use crate::memory::{
    local::LocalPiece,
    range_tree::Few,
    remote_window::RemotePiece, //
};
use kernel::prelude::*;

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
