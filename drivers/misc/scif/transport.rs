// SPDX-License-Identifier: GPL-2.0

//! Reaching a peer: moving bytes and doorbells, and nothing of what they mean.
//!
//! A transport finds peers, one after another, and tells a [`Sink`](sink::Sink) of each: that makes
//! a [`Session`](sink::Session) of it, which the transport tells of doorbells, ticks and the end.
//! What those above get is a [`Path`](path::Path), the way to that one peer, with two sides:
//!
//! - [`Outbound`](outbound::Outbound): an address of the peer turned into something that can be
//!   done with it, or a reason why not;
//! - [`Inbound`](inbound::Inbound): memory of this node that the peer may use.
//!
//! Nobody above asks which transport it is. To add one is a file here, and a line in `scif_main.rs`
//! that starts it. There are:
//!
//! - `ntb/`: the node behind an NTB device;
//! - `loopback.rs`: this node as its own peer.

pub(crate) mod doorbell;
pub(crate) mod engine;
pub(crate) mod inbound;
pub(crate) mod links;
pub(crate) mod loopback;
pub(crate) mod ntb;
pub(crate) mod outbound;
pub(crate) mod path;
pub(crate) mod sink;
