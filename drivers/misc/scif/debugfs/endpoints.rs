// SPDX-License-Identifier: GPL-2.0

//! `endpoints`: a line for each endpoint, and for each connection that has none.

use super::field::{
    Hex,
    OrDash, //
};
use crate::endpoint::{
    counts::TRAFFIC_FIELDS,
    scif::Scif,
    standing::Facts, //
};
use kernel::fmt;

pub(super) fn show(scif: &Scif, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("state own peer channel queued pid uid name")?;
    for name in TRAFFIC_FIELDS {
        write!(f, " {name}")?;
    }
    f.write_str("\n")?;
    let own_node = scif.own_node();
    let mut result = Ok(());
    scif.for_each_endpoint(|facts| {
        if result.is_ok() {
            result = line(facts, own_node, f);
        }
    });
    result
}

fn line(facts: &Facts, own_node: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{} {own_node}:{} ", facts.state, OrDash(facts.own_port))?;
    match facts.peer {
        Some(peer) => write!(f, "{}:{}", peer.node, peer.port)?,
        None => f.write_str("-")?,
    }
    let channel = facts.channel.map(Hex);
    write!(f, " {} {}", OrDash(channel), facts.queued)?;
    match &facts.opener {
        Some(opener) => write!(f, " {} {} {}", opener.pid, opener.uid, opener.name())?,
        None => f.write_str(" - - -")?,
    }
    let numbers = facts.traffic.as_ref().map(|traffic| traffic.fields());
    for number in numbers.unwrap_or_default() {
        write!(f, " {number}")?;
    }
    f.write_str("\n")
}
