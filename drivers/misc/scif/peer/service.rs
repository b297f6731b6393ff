// SPDX-License-Identifier: GPL-2.0

//! What peers are used for: services.
//!
//! A service has an id, which messages carry (`logic/envelope.rs` gives the numbers out), and makes
//! an [`Attachment`] for each peer that comes. SCIF is the first. To add one is a file of its own and
//! a line in `scif_main.rs`.
//!
//! A peer that has no such service says so, see [`Attachment::refused`].
//!
//! What a service has for one peer: its state, and the handler of the peer's messages.

use super::{
    control::AnnexOf,
    Peer, //
};
use crate::logic::envelope::{
    Envelope,
    Malformed,
    ServiceId, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

/// See the head of this file.
pub(crate) trait Service: Send + Sync {
    /// As messages name it.
    fn id(&self) -> ServiceId;

    /// A peer has come: makes what the service has for it. No message comes before this has
    /// returned. May sleep.
    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>>;
}

/// Why the relation to a peer ends: what it has done, for the log.
pub(crate) type Violation = &'static str;

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Self {
        malformed.reason()
    }
}

/// See the head of this file.
///
/// The functions of the end are called in the order in which they stand here: `lost` and `drained` once,
/// `unreachable` once or twice, `forget` once or, when the relation could not begin, not at all.
pub(crate) trait Attachment: Send + Sync {
    /// A message for the service. The control work, inside the peer; may sleep, never waits for the
    /// peer.
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation>;

    /// The peer does not have the service, which it says as often as it was asked. As [`Self::message`].
    fn refused(&self) -> Result<(), Violation>;

    /// The peer is gone: marks everything as lost, closes the uses of all channels, which hold the peer, and
    /// wakes all who wait. Others may still be inside. May sleep.
    fn lost(&self);

    /// Nobody is inside any more, or will be: takes the peer's memory away from processes, forgets
    /// what the peer has asked for. May sleep.
    fn drained(&self) {}

    /// The peer can't reach memory of processes any more: lets go of it. May sleep.
    fn unreachable(&self) {}

    /// The peer writes nothing more, ever: lets go of all. May sleep.
    fn forget(&self) {}
}
