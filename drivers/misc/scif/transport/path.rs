// SPDX-License-Identifier: GPL-2.0

//! The way to one peer, as long as it is there.

use super::{
    inbound::Inbound,
    outbound::Outbound, //
};
use kernel::sync::ArcBorrow;

/// Both sides of the way to a peer, its doorbells, and its end.
///
/// Whoever uses it is inside the session (`Peer::enter`), which the transport waits for before it
/// takes anything down; a doorbell may be rung, and the mode and the engines looked at, at any time.
/// Any context, unless a function says otherwise.
pub(crate) trait Path: Inbound + Outbound + Send + Sync {
    /// How the peer's memory is reached, in a word for users.
    fn mode(&self) -> &'static str;

    /// The doorbells of this side and of the peer, as bits.
    fn doorbells(&self) -> u64;

    /// Rings a doorbell of the peer; nothing happens once the device is gone. Memory written before
    /// is visible to the peer before.
    fn ring(&self, doorbell: u32);

    /// The session has failed: the transport looks at it soon, and ends it.
    fn session_failed(self: ArcBorrow<'_, Self>);
}
