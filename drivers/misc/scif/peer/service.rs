// SPDX-License-Identifier: GPL-2.0

//! Services: the uses of a peer.
//!
//! A service has an id, which messages carry (`logic/envelope.rs` defines the ids), and makes an
//! [`Attachment`] for each new peer. SCIF is the first service. A new service takes a file of its
//! own and a line in `scif_main.rs`.
//!
//! A peer that lacks the service says so: see [`Attachment::refused`].
//!
//! An [`Attachment`] is a service's state for one peer, and the handler of the peer's messages.

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

/// A use of peers, such as SCIF.
pub(crate) trait Service: Send + Sync {
    /// Returns the id by which messages name the service.
    fn id(&self) -> ServiceId;

    /// Makes the service's state for a new peer. No message comes before this has returned.
    /// Context: may sleep.
    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>>;

    /// Takes note that no more peers come by a link, and that all sessions there are forgotten.
    /// Context: may sleep.
    fn link_gone(&self, _link: &CStr) {}
}

/// The reason, for the log, why a session ends: the peer's violation of the protocol.
pub(crate) type Violation = &'static str;

impl From<Malformed> for Violation {
    fn from(malformed: Malformed) -> Self {
        malformed.reason()
    }
}

/// A service's state for one peer, and the handler of the peer's messages.
///
/// `begin` is called once. At the end of a session the functions are called in the order in which they stand here. `lost`
/// and `drained` are called once, `unreachable` once or twice. `forget` is called once, or not at
/// all if the session could not begin.
pub(crate) trait Attachment: Send + Sync {
    /// Begins: from now on, the peer's messages are delivered, and the peer can be sent some.
    /// Context: may sleep, does not wait for the peer.
    fn begin(&self) {}

    /// Handles a message for the service. The caller is inside the peer.
    /// Context: control work, may sleep, does not wait for the peer.
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation>;

    /// Handles the peer's notice that it lacks the service, which it sends for each request. The
    /// caller is inside the peer.
    /// Context: control work, may sleep, does not wait for the peer.
    fn refused(&self) -> Result<(), Violation>;

    /// Marks all state as lost, closes the uses of all channels, which hold the peer, and wakes all
    /// waiters. Other callers may still be inside.
    /// Context: may sleep.
    fn lost(&self);

    /// Unmaps the peer's memory from processes, and forgets the requests of the peer. No caller is
    /// inside, or will be.
    /// Context: may sleep.
    fn drained(&self) {}

    /// Releases memory of processes, which the peer can't reach any more.
    /// Context: may sleep.
    fn unreachable(&self) {}

    /// Releases everything else, as the peer will never write again.
    /// Context: may sleep.
    fn forget(&self) {}
}
