// SPDX-License-Identifier: GPL-2.0

//! Endpoints that have a name, and connecting to them by it.
//!
//! A name leads to a port, which a connector then asks as any other: who has a name need not listen
//! yet. The name is the endpoint's that was given it, not that of the connections which it accepts.

use super::{
    connection::PortPair,
    Endpoint,
    State, //
};
use crate::{
    arguments::PortId,
    names::Name, //
};
use kernel::prelude::*;

impl Endpoint {
    /// Gives it a name: this number, or any that is free. Returns it. EADDRINUSE if another endpoint has
    /// it. May sleep.
    pub(crate) fn bind_name(&self, class: u32, number: Option<u32>) -> Result<u32> {
        if class == 0 {
            return Err(EINVAL);
        }
        let state = self.state.lock();
        let port = match &*state {
            State::Unbound => return Err(EINVAL),
            State::Closed => return Err(EBADF),
            State::Bound(port) | State::Listening(_, port) => port.number,
            State::Connecting(..) | State::Connected(..) => return Err(EISCONN),
        };
        // With the state locked, so that the endpoint is not closed before it has the name.
        let mut name = self.state.name.lock();
        if name.is_some() {
            return Err(EINVAL);
        }
        let bound = self.scif.names.bind(class, number, port)?;
        Ok(name.insert(bound).name.number)
    }

    /// Connects to the port that has a name; for the rest see [`Endpoint::connect`].
    ///
    /// The name is looked up first, which waits for the peer's kernel, but for nobody else. A signal
    /// then costs nothing.
    pub(crate) fn connect_name(
        &self,
        node: u16,
        name: Name,
        nonblocking: bool,
    ) -> Result<PortPair> {
        if name.class == 0 {
            return Err(EINVAL);
        }
        let under_way = Self::request_under_way(&self.state.lock())?;
        let connection = if let Some(connection) = under_way {
            self.await_answer(connection, nonblocking)?
        } else {
            let peer = self.scif.nodes.peer(node)?;
            let port = self.scif.names.look_up(&peer, name)?;
            self.connect_to(PortId { node, port }, nonblocking)?
        };
        Ok(connection.ports)
    }
}
