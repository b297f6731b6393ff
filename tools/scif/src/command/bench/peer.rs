// SPDX-License-Identifier: GPL-2.0

//! Whom one measures with: the `scif serve` of a node, or what it listens to on TCP.

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

/// The node that is meant.
pub fn node(common: &Common) -> Result<u16> {
    parse_node(&common.peer).map_err(Error::Usage)
}

/// The address that is meant.
pub fn address(common: &Common) -> Result<SocketAddr> {
    let peer = &common.peer;
    let mut found = peer
        .to_socket_addrs()
        .map_err(|error| Error::Usage(format!("'{peer}' is not ADDRESS:PORT ({error})")))?;
    (found.next()).ok_or_else(|| Error::Usage(format!("'{peer}' has no address")))
}

/// A conversation over SCIF.
pub fn scif(common: &Common) -> Result<Session<Connection>> {
    connect(node(common)?, common.port, None)
}

/// A conversation over a ring, which a conversation over SCIF has asked for.
pub fn ring(common: &Common) -> Result<Session<OverRing<Connection>>> {
    let first = scif(common)?;
    first.send(&Message::Ring)?;
    match first.receive()? {
        Message::Go => {}
        message => return Err(first.unexpected(&message)),
    }
    let peer = first.peer().to_owned();
    let ring = OverRing::new(first.into_transport()).map_err(Error::local("cannot make a ring"))?;
    if let Err(reason) = ring.is_mapped() {
        return Err(Error::Refused(format!(
            "{peer} and this node can't map each other's memory ({}), so a ring would be the connection itself: \
             measure that, with --transport scif",
            errno_name(&reason)
        )));
    }
    let session = Session::new(ring, peer);
    session.greet()?;
    Ok(session)
}

/// A conversation over TCP.
pub fn tcp(common: &Common) -> Result<Session<Tcp>> {
    let address = address(common)?;
    let socket =
        Tcp::connect(address).map_err(Error::local(format!("cannot connect to {address}")))?;
    let session = Session::new(socket, address.to_string());
    session.greet()?;
    Ok(session)
}

/// As many conversations as each thread is to have.
pub fn several<S>(parallel: &Parallel, mut open: impl FnMut() -> Result<S>) -> Result<Vec<Vec<S>>> {
    (parallel.connections().into_iter())
        .map(|count| (0..count).map(|_| open()).collect())
        .collect()
}

/// What is measured over either.
pub trait Both {
    /// Over this.
    fn over<T: crate::transport::Bytes + Send>(
        &self,
        open: &dyn Fn() -> Result<Session<T>>,
    ) -> Result<()>;
}

/// Does it over the one that was asked for.
pub fn over(carrier: Carrier, common: &Common, what: &impl Both) -> Result<()> {
    match carrier {
        Carrier::Scif => what.over(&|| scif(common)),
        Carrier::Ring => what.over(&|| ring(common)),
        Carrier::Tcp => what.over(&|| tcp(common)),
    }
}
