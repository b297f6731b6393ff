// SPDX-License-Identifier: GPL-2.0

//! The transport to the node behind an NTB device.
//!
//! - `client.rs`: the NTB client driver: devices, doorbell events and link events
//! - `roster.rs`: links come up, are taken down, and rest while the machine sleeps and when it
//!   reboots
//! - `link.rs`: the link of one device, which carries out the decisions of the handshake
//!   (`logic/handshake.rs`)
//! - `mailbox.rs`: the hellos of both sides, in scratchpads or message registers
//! - `aperture.rs`: the memory windows over this node's memory that the peer gets
//! - `sessions.rs`: start and end of a link's session
//! - `state.rs`: the state of a link, and memory that a peer which seems lost may still write to
//! - `path.rs`: the path to the peer: its memory and doorbells, and the memory of this node that it
//!   may use
//! - `reports.rs`: messages to users about a link and its peer

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

/// The administrator's choice of apertures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// The mode in which peers are to reach this node's memory. `None` means the best mode that is
    /// possible.
    pub(crate) wanted: Option<Mode>,
    /// Whether a peer may reach all memory.
    pub(crate) allow_flat: bool,
    /// Maximum number of memory windows of an aperture.
    pub(crate) most_windows: u32,
}

/// Objects of the rest of the module that all links need.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) engines: Arc<Engines>,
    pub(crate) links: Arc<Links>,
    pub(crate) queues: Arc<WorkQueues>,
    pub(crate) policy: Policy,
}

/// The NTB transport. Dropping it ends all links.
pub(crate) struct Ntb {
    // Declared first, so that the notifiers are unregistered before the devices are released.
    _end: Pin<KBox<Watch>>,
    _sleep: Pin<KBox<Watch>>,
    _registration: Pin<KBox<Registration<NtbLink>>>,
}

impl Ntb {
    /// Registers for all NTB devices, present and future.
    /// Context: may sleep.
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
