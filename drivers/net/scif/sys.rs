// SPDX-License-Identifier: GPL-2.0

//! The network stack's C behind safe types.
//!
//! - `sys/netdev.rs`: the device and its NAPI contexts
//! - `sys/skb.rs`: frames of the stack
//! - `sys/xdp.rs`: frames for a program of XDP, and frames of such programs
//! - `sys/calls.rs`: the functions that C calls for a device, and their counterpart in its owner

mod bindings;
mod calls;
mod netdev;
mod skb;
mod xdp;

pub(crate) use calls::{
    Direction,
    Owner, //
};
pub(crate) use netdev::{
    bottom_halves_disabled,
    Counts,
    Napi,
    NetDev, //
};
pub(crate) use skb::{
    Incoming,
    Outgoing, //
};
pub(crate) use xdp::{
    Filter,
    Packet,
    PacketOut, //
};
