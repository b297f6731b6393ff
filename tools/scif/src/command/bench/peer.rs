// SPDX-License-Identifier: GPL-2.0

//! The other side of a measurement: the `scif serve` of a node, or its TCP address.

use super::options::Carrier;
use super::options::Common;
use super::options::Parallel;
use crate::command::connect::connect;
use crate::command::node::parse_node;
use crate::error::Error;
use crate::error::Result;
use crate::error::errno_name;
use crate::over_ring::OverRing;
use crate::protocol::Message;
use crate::session::Session;
use crate::tcp::Tcp;
use crate::transport::Connection;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;

/// Returns the node of the command line.
pub fn node(common: &Common) -> Result<u16> {
    parse_node(&common.peer).map_err(Error::Usage)
}

/// Returns the address of the command line.
pub fn address(common: &Common) -> Result<SocketAddr> {
    let peer = &common.peer;
    let mut found = peer
        .to_socket_addrs()
        .map_err(|error| Error::Usage(format!("'{peer}' is not ADDRESS:PORT ({error})")))?;
    (found.next()).ok_or_else(|| Error::Usage(format!("'{peer}' has no address")))
}

/// Starts a conversation over SCIF.
pub fn scif(common: &Common) -> Result<Session<Connection>> {
    connect(node(common)?, common.port, None)
}

/// Starts a conversation over a ring, which a conversation over SCIF asks for.
pub fn ring(common: &Common) -> Result<Session<OverRing<Connection>>> {
    let first = scif(common)?;
    first.send(&Message::Ring)?;
    match first.receive()? {
        Message::Go => {}
        message => return Err(first.unexpected(&message)),
    }
    let session = first.over(OverRing::new, "cannot make a ring")?;
    if let Err(reason) = session.transport().is_mapped() {
        let peer = session.peer();
        return Err(Error::Refused(format!(
            "{peer} and this node can't map each other's memory ({}), so a ring would be the connection itself: \
             measure that, with --transport scif",
            errno_name(&reason)
        )));
    }
    session.greet()?;
    Ok(session)
}

/// Starts a conversation over TCP.
pub fn tcp(common: &Common) -> Result<Session<Tcp>> {
    let address = address(common)?;
    let socket =
        Tcp::connect(address).map_err(Error::local(format!("cannot connect to {address}")))?;
    let session = Session::new(socket, address.to_string());
    session.greet()?;
    Ok(session)
}

/// Starts as many conversations as each thread must have.
pub fn several<S>(parallel: &Parallel, mut open: impl FnMut() -> Result<S>) -> Result<Vec<Vec<S>>> {
    (parallel.connections().into_iter())
        .map(|count| (0..count).map(|_| open()).collect())
        .collect()
}

/// A measurement that is possible over each carrier.
pub trait Both {
    /// Measures over the connections that `open` makes.
    fn over<T: crate::transport::Bytes + Send>(
        &self,
        open: &dyn Fn() -> Result<Session<T>>,
    ) -> Result<()>;
}

/// Measures over the carrier of the command line.
pub fn over(carrier: Carrier, common: &Common, benchmark: &impl Both) -> Result<()> {
    match carrier {
        Carrier::Scif => benchmark.over(&|| scif(common)),
        Carrier::Ring => benchmark.over(&|| ring(common)),
        Carrier::Tcp => benchmark.over(&|| tcp(common)),
    }
}
