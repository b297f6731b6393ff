// SPDX-License-Identifier: GPL-2.0

//! Endpoints, and connections to the `scif serve` of another node.

use crate::cancel::Cancel;
use crate::device::Endpoint;
use crate::device::PortId;
use crate::error::Error;
use crate::error::Result;
use crate::session::Session;
use crate::transport::Connection;
use std::io;
use std::time::Duration;

/// Opens an endpoint. The error says why there is no SCIF here.
pub fn open() -> Result<Endpoint> {
    Endpoint::open().map_err(|source| {
        let advice = match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                "this user may not use SCIF: the user is not in the group scif, or this container lacks the device; \
                 `scif doctor` says more"
            }
            Some(libc::EMFILE | libc::ENFILE) => "too many open files; see `ulimit -n`",
            Some(libc::ENOMEM) => "the machine is out of memory",
            _ => "is the module loaded? (modprobe scif, or insmod scif.ko)",
        };
        Error::NoDevice { advice, source }
    })
}

/// Connects to the `scif serve` on a node and greets it.
pub fn connect(node: u16, port: u16, cancel: Option<Cancel>) -> Result<Session<Connection>> {
    let endpoint = open()?;
    let timeout = Duration::from_secs(10);
    let connection = Connection::connect(endpoint, PortId { node, port }, timeout, cancel)
        .map_err(|source| unreachable(node, port, source))?;
    let session =
        Session::new(connection, format!("node {node}")).with_node_lost(move || is_lost(node));
    session.greet()?;
    Ok(session)
}

fn unreachable(node: u16, port: u16, source: io::Error) -> Error {
    let timed_out = source.kind() == io::ErrorKind::TimedOut;
    let advice = match source.raw_os_error() {
        Some(libc::EINTR) => return Error::Interrupted,
        Some(libc::ENODEV) => "there is no such node online; `scif nodes` lists them",
        Some(libc::ECONNREFUSED) => {
            "no program listens there, or its backlog is full; run `scif serve --root DIR` on that node"
        }
        Some(libc::EINVAL) => "no program can connect to this port",
        _ if timed_out => "the program that listens there does not accept; is it stopped?",
        _ => "see the kernel log of both nodes",
    };
    let source = if timed_out {
        io::Error::from_raw_os_error(libc::ETIMEDOUT)
    } else {
        source
    };
    Error::Unreachable {
        node,
        port,
        advice,
        source,
    }
}

/// Returns whether a node is not online any more, as far as this node can tell.
pub fn is_lost(node: u16) -> bool {
    Endpoint::open()
        .and_then(|endpoint| endpoint.node_ids())
        .is_ok_and(|nodes| !nodes.online.contains(&node))
}
