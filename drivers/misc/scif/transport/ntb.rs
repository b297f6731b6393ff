// SPDX-License-Identifier: GPL-2.0

//! The node behind an NTB device.
//!
//! - `client.rs`: a device comes and goes
//! - `link.rs`: the link of one device: what the handshake decides (`logic/handshake.rs`) is done
//! - `sessions.rs`: the session that there may be
//! - `state.rs`: what a link has of its peer
//! - `aperture.rs`: the memory window over this node's memory that the peer gets
//! - `memory_windows.rs`: which windows of the device that is made of
//! - `opening.rs`: a link gets its device and comes up, and gives it back
//! - `roster.rs`: the links of all devices rest while the machine sleeps, and when it reboots
//! - `way.rs`: how the peer gets to our memory through it
//! - `path.rs`: what those above get: the peer's memory and doorbells
//! - `interrupts.rs`: doorbells, link events and ticks, on their way up
//! - `facts.rs`: what there is to see of a link
//! - `reports.rs`: what the log says of a peer
//! - `mailbox.rs`: the hellos of both sides, in `scratchpads.rs` or `message_registers.rs`
//! - `outbound_window.rs`: the way to the peer's memory, where this side has to say where it leads
//! - `grace_list.rs`: memory that a peer which seems lost may still write to

mod aperture;
mod client;
mod context;
mod facts;
mod grace_list;
mod interrupts;
mod link;
mod mailbox;
mod memory_windows;
mod message_registers;
mod opening;
mod outbound_window;
mod path;
mod reports;
mod roster;
mod scratchpads;
mod sessions;
mod state;
mod way;

use crate::sys::{
    ntb::Registration,
    power::{
        End,
        Sleep,
        Watch, //
    },
};
use client::{
    Attached,
    Shared, //
};
pub(crate) use context::{
    Context,
    Policy,
    Wanted, //
};
use kernel::prelude::*;
use roster::Roster;

/// The NTB transport; dropping it ends all links.
pub(crate) struct Ntb {
    // Nobody is told any more when the devices go.
    _end: Pin<KBox<Watch<End, Roster>>>,
    _sleep: Pin<KBox<Watch<Sleep, Roster>>>,
    _registration: Registration<Attached>,
}

impl Ntb {
    /// Takes all NTB devices, those that come later too. May sleep.
    pub(crate) fn start(context: Context) -> Result<Self> {
        let roster = Roster::new(&context.engines)?;
        Ok(Self {
            _end: Watch::new(roster.clone())?,
            _sleep: Watch::new(roster.clone())?,
            _registration: Registration::new(c"scif", Shared { context, roster })?,
        })
    }
}
