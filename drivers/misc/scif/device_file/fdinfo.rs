// SPDX-License-Identifier: GPL-2.0

//! What `/proc/PID/fdinfo/FD` says of a file of `/dev/scif`: to whom may look into that process.
//!
//! A line `scif-NAME:<tab>VALUE` for each thing there is to know; new ones come at the end.

use crate::endpoint::{
    counts::TRAFFIC_FIELDS,
    standing::Facts,
    Endpoint, //
};
use kernel::fmt;

pub(super) fn show(endpoint: &Endpoint, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let facts = endpoint.facts();
    writeln!(f, "scif-state:\t{}", facts.state)?;
    if let Some(port) = facts.own_port {
        writeln!(f, "scif-own:\t{}:{port}", endpoint.own_node())?;
    }
    if let Facts {
        peer: Some(peer),
        channel: Some(channel),
        ..
    } = facts
    {
        writeln!(f, "scif-peer:\t{}:{}", peer.node, peer.port)?;
        writeln!(f, "scif-channel:\t{channel:#x}")?;
    }
    if let Some(opener) = &facts.opener {
        writeln!(f, "scif-pid:\t{}", opener.pid_for_reader())?;
    }
    writeln!(f, "scif-queued:\t{}", facts.queued)?;
    if let Some(traffic) = &facts.traffic {
        for (name, number) in TRAFFIC_FIELDS.iter().zip(traffic.fields()) {
            writeln!(f, "scif-{name}:\t{number}")?;
        }
    }
    Ok(())
}
