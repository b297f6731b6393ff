// SPDX-License-Identifier: GPL-2.0

//! The node behind an NTB device.
//!
//! - `client.rs`: a device comes and goes, and tells of doorbells and of its link
//! - `roster.rs`: links come up, are taken down, and rest while the machine sleeps, and when it reboots
//! - `link.rs`: the link of one device: what the handshake decides (`logic/handshake.rs`) is done
//! - `mailbox.rs`: the hellos of both sides, in scratchpads or message registers
//! - `aperture.rs`: the memory windows over this node's memory that the peer gets
//! - `sessions.rs`: the session that there may be
//! - `state.rs`: what a link has of its peer, and memory that a peer which seems lost may still write to
//! - `path.rs`: what those above get: the peer's memory and doorbells, and how the peer gets to our memory
//! - `reports.rs`: what people are told of a link and its peer

mod aperture;
mod client;
mod link;
mod mailbox;
mod path;
mod reports;
mod roster;
mod sessions;
mod state;

use super::{
    engine::Engines,
    links::Links,
    sink::Sink, //
};
use crate::{
    logic::hello::Mode,
    sync::work_queues::WorkQueues,
    sys::{
        notifiers::{
            Chain,
            Event,
            Watch, //
        },
        ntb::Registration, //
    },
};
use client::Shared;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use link::NtbLink;
use roster::Roster;

/// Which apertures may be offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// How the administrator wants peers to reach this node's memory; none for what is best of what can be.
    pub(crate) wanted: Option<Mode>,
    /// A peer may reach all memory.
    pub(crate) allow_flat: bool,
    /// Of how many memory windows an aperture may be made.
    pub(crate) most_windows: u32,
}

/// What all links need of the rest.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
    pub(crate) queues: Arc<WorkQueues>,
    pub(crate) policy: Policy,
}

/// The NTB transport; dropping it ends all links.
pub(crate) struct Ntb {
    // Nobody is told any more when the devices go.
    _end: Pin<KBox<Watch>>,
    _sleep: Pin<KBox<Watch>>,
    _registration: Pin<KBox<Registration<NtbLink>>>,
}

impl Ntb {
    /// Takes all NTB devices, those that come later too. May sleep.
    pub(crate) fn start(context: Context) -> Result<Self> {
        let roster = Roster::new(&context.engines)?;
        let watch = |chain| {
            let roster = roster.clone();
            let told = move |event: Event<'_>| roster.told(event);
            Watch::new(chain, KBox::new(told, GFP_KERNEL)?)
        };
        Ok(Self {
            _end: watch(Chain::End)?,
            _sleep: watch(Chain::Sleep)?,
            _registration: Registration::new(c"scif", Shared { context, roster })?,
        })
    }
}
