// SPDX-License-Identifier: GPL-2.0

//! What peers are used for: services.
//!
//! A service has an id, which messages carry (`logic/envelope.rs` gives the numbers out), and makes
//! an [`Attachment`] for each peer that comes. SCIF is the first. To add one is a file of its own and
//! a line in `scif_main.rs`.
//!
//! A peer that has no such service says so, see [`Attachment::refused`].

use super::{
    attachment::Attachment,
    Peer, //
};
use crate::logic::envelope::ServiceId;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// See the head of this file.
pub(crate) trait Service: Send + Sync {
    /// As messages name it.
    fn id(&self) -> ServiceId;

    /// A peer has come: makes what the service has for it. No message comes before this has
    /// returned. May sleep.
    fn attach(&self, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>>;
}
