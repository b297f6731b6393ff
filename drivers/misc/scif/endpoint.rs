// SPDX-License-Identifier: GPL-2.0

//! Endpoints: the state behind an open file of `/dev/scif`, and the SCIF calls on it.
//!
//! The states, as in the interface's documentation:
//!
//! ```text
//! Unbound -> Bound -> Listening
//!              |  ^
//!              v  | refused, given up
//!           Connecting -> Connected (the connection knows whether it is over)
//! ```
//!
//! and from each of them to Closed.
//!
//! A fresh endpoint may also take over a connection that another endpoint has accepted
//! (`ACCEPTREG`). An endpoint keeps one wait queue all its life, because pollers hold on to the
//! queue. An accepted connection shares the port of its listener. A port is free again when the
//! last endpoint that has it is closed. Observers (debugfs, fdinfo) see of an endpoint what
//! `endpoint_state.rs` shows.
//!
//! A name stands for a port. A connector that uses a name sends the name to the peer, and the peer
//! finds the port. An endpoint may have a name before it listens. The name belongs to the endpoint
//! that it was given to, not to the connections which that endpoint accepts.
//!
//! The interfaces to user space (`device_file.rs`) and to kernel modules (`kernel_api.rs`) call
//! these functions and add nothing of their own.
//! Context: may sleep, unless a function says otherwise. A call that waits is interruptible.

mod accept;
mod connected;
pub(crate) mod connection;
pub(crate) mod endpoint_state;
mod messages;
mod own_ring;
mod peer_connections;
mod peer_ring;
pub(crate) mod pinned;
mod ports;
mod rings;
pub(crate) mod scif;
mod service;
mod stream;
#[cfg(CONFIG_KUNIT = "y")]
mod tests;

pub(crate) use crate::rma::mapping::RemotePages;
use crate::{
    arguments::PortId,
    logic::messages::{
        Destination,
        Status, //
    },
    names::Name,
    peer::channel::State as ChannelState,
    sync::{
        list::Listed,
        patience::Patience, //
    },
    sys::{
        current::may_bind_low_ports,
        trace,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
};
use connection::{
    Connection,
    PortPair, //
};
use endpoint_state::{
    EndpointState,
    Facts,
    State, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};
use ports::Listener;
use scif::Scif;

/// First port that needs no privilege to bind (`SCIF_ADMIN_PORT_END`).
const ADMIN_PORT_END: u16 = 1024;

/// An endpoint of this node.
pub(crate) struct Endpoint {
    pub(crate) scif: Arc<Scif>,
    /// Woken when [`Self::poll_state`] changes.
    pub(crate) waiters: Arc<WaitQueue>,
    state: Arc<EndpointState>,
    _listed: Listed<EndpointState>,
    /// Number of closed descriptors of a listener. A call that waits in accept watches this number.
    flushes: Atomic<u64>,
    /// Whether mappings made from now on read as all ones once the peer is lost.
    pub(crate) ones_after_loss: Atomic<bool>,
}

impl Endpoint {
    /// Creates an unbound endpoint.
    /// Context: may sleep.
    pub(crate) fn new(scif: &Arc<Scif>) -> Result<Arc<Self>> {
        let waiters = Arc::pin_init(
            new_wait_queue!("scif::Endpoint::waiters"),
            GFP_KERNEL_ACCOUNT,
        )?;
        let state = EndpointState::new()?;
        let this = Self {
            scif: scif.clone(),
            waiters,
            _listed: scif.endpoints.add(&state)?,
            state,
            flushes: Atomic::new(0),
            ones_after_loss: Atomic::new(false),
        };
        Ok(Arc::new(this, GFP_KERNEL_ACCOUNT)?)
    }

    /// Returns the facts that observers see of this endpoint.
    /// Context: may sleep.
    pub(crate) fn facts(&self) -> Facts {
        self.state.facts()
    }

    /// Binds the endpoint to port `number`, or to any free port if `number` is 0. Returns the port.
    pub(crate) fn bind(&self, number: u16) -> Result<u16> {
        if number != 0 && number < ADMIN_PORT_END && !may_bind_low_ports() {
            return Err(EACCES);
        }
        let mut state = self.state.lock();
        match &*state {
            State::Unbound => (),
            State::Closed => return Err(EBADF),
            State::Bound(_) => return Err(EINVAL),
            _ => return Err(EISCONN),
        }
        let port = self.scif.ports.bind(number)?;
        let number = port.number;
        *state = State::Bound(port);
        Ok(number)
    }

    /// Starts to listen on the bound port.
    pub(crate) fn listen(&self, backlog: i32) -> Result {
        let mut state = self.state.lock();
        let port = match &*state {
            State::Unbound => return Err(EINVAL),
            State::Closed => return Err(EBADF),
            State::Bound(port) => port.clone(),
            _ => return Err(EISCONN),
        };
        if backlog <= 0 {
            return Err(EINVAL);
        }
        let listener = Listener::new(port.number, backlog as usize, self.waiters.clone())?;
        self.scif.ports.add_listener(&listener)?;
        *state = State::Listening(listener, port);
        Ok(())
    }

    /// Connects to a port. Returns the ports of both ends.
    ///
    /// With `nonblocking`, the first call sends the request and returns EINPROGRESS. Later calls
    /// collect the result. A refused endpoint stays bound and can try again.
    pub(crate) fn connect(&self, peer: PortId, nonblocking: bool) -> Result<PortPair> {
        self.connect_to(peer.node, Destination::of_port(peer.port), nonblocking)
    }

    /// Connects to the port that has this name, as [`Endpoint::connect`] does to a number. ENOENT:
    /// no endpoint of the node has the name.
    pub(crate) fn connect_name(
        &self,
        node: u16,
        name: Name,
        nonblocking: bool,
    ) -> Result<PortPair> {
        let to = Destination {
            port: 0,
            class: name.class,
            name: name.number,
        };
        self.connect_to(node, to, nonblocking)
    }

    fn connect_to(&self, node: u16, to: Destination, nonblocking: bool) -> Result<PortPair> {
        let (connection, is_new) = self.begin_connect(node, to)?;
        if is_new && nonblocking {
            // The answer may have come already, but the first call always says "in progress".
            // Callers of a non-blocking connect are written for that.
            return Err(EINPROGRESS);
        }
        self.conclude(&connection, nonblocking)
    }

    /// Asks the peer for a connection, or finds the request that is in flight. Returns the
    /// connection and whether it is new.
    fn begin_connect(&self, node: u16, to: Destination) -> Result<(Arc<Connection>, bool)> {
        let mut state = self.state.lock();
        match &*state {
            State::Listening(..) => return Err(EOPNOTSUPP),
            State::Connected(..) => return Err(EISCONN),
            State::Closed => return Err(EBADF),
            State::Connecting(connection, _) => return Ok((connection.clone(), false)),
            State::Unbound | State::Bound(_) => (),
        }
        if to.port == 0 && to.class == 0 {
            return Err(EINVAL);
        }
        let peer_connections = self.scif.peer_connections(node)?;
        let port = match &*state {
            State::Bound(port) => port.clone(),
            _ => {
                let port = self.scif.ports.bind(0)?;
                *state = State::Bound(port.clone());
                port
            }
        };
        let connection = peer_connections.request(port.number, to, self.waiters.clone())?;
        *state = State::Connecting(connection.clone(), port);
        Ok((connection, true))
    }

    /// Waits for the answer to a request, unless the call must not block, and changes the state
    /// accordingly. A signal withdraws the request: the endpoint is bound again, and the caller can
    /// try again.
    fn conclude(&self, connection: &Arc<Connection>, nonblocking: bool) -> Result<PortPair> {
        if !nonblocking {
            // After a signal the state below may still be `Requested`.
            let _ = self
                .waiters
                .wait(|| (connection.channel.state() != ChannelState::Requested).then_some(()));
        }
        let mut state = self.state.lock();
        let port = match &*state {
            State::Connecting(current, port) if Arc::ptr_eq(current, connection) => port.clone(),
            // Another thread has collected the result.
            State::Connected(current, _) if Arc::ptr_eq(current, connection) => {
                return Err(EISCONN)
            }
            _ => return Err(ECONNREFUSED),
        };
        let error = match connection.channel.state() {
            ChannelState::Requested if nonblocking => return Err(EINPROGRESS),
            // A signal came. The call is not restarted.
            ChannelState::Requested => EINTR,
            // The peer may have accepted and then closed: its data can still be received.
            ChannelState::Established | ChannelState::PeerClosed => {
                self.state.connect(&mut state, connection.clone(), port);
                trace::connect_done(|| connection.traced(Ok(())));
                return Ok(connection.ports());
            }
            ChannelState::Refused => match connection.refusal.copy() {
                Some(Status::NoMemory) => ENOMEM,
                Some(Status::Unknown) => ENOENT,
                _ => ECONNREFUSED,
            },
            ChannelState::Lost | ChannelState::Closed => ENODEV,
        };
        *state = State::Bound(port);
        drop(state);
        trace::connect_done(|| connection.traced(Err(error)));
        connection.close();
        Err(error)
    }

    // ----- names -------------------------------------------------------------------------------

    /// Gives the endpoint the name `number`, or any free name of the class. Returns its number.
    /// EADDRINUSE: another endpoint has the name.
    /// Context: may sleep.
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
        // Takes the name with the state locked, so that the endpoint is not closed in between.
        let mut name = self.state.name.lock();
        if name.is_some() {
            return Err(EINVAL);
        }
        let bound = self.scif.names.bind(class, number, port)?;
        Ok(name.insert(bound).name.number)
    }

    // ----- closing -----------------------------------------------------------------------------

    /// Closes the endpoint. Calls that wait on it return, and connections that it has accepted are
    /// closed unless an endpoint took them over. When this returns, its name is free, and so is its
    /// port unless another endpoint shares it.
    /// Context: may sleep.
    pub(crate) fn close(&self) {
        self.close_with(Patience::of_process);
    }

    /// Closes the endpoint, as [`Self::close`], for a task that drops the last reference to its
    /// file.
    /// Context: may sleep.
    pub(crate) fn release(&self) {
        self.close_with(Patience::of_release);
    }

    /// Closes the endpoint. `patience` makes a [`Patience`] from the time at which an exiting task
    /// closed a descriptor, if one did.
    fn close_with(&self, patience: fn(Option<Instant<Monotonic>>) -> Patience) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Closed);
        // Removes the name first, so that no request is sent to a port that is about to be free.
        let name = self.state.name.lock().take();
        drop(name);
        match &old {
            State::Unbound | State::Bound(_) | State::Closed => (),
            State::Listening(listener, _) => {
                self.scif.ports.remove_listener(listener);
                listener.close();
            }
            State::Connecting(connection, _) | State::Connected(connection, _) => {
                let exits_since = *self.state.exits_since.lock();
                connection.close_with(patience(exits_since));
            }
        }
        self.waiters.wake_all();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // Does nothing if the endpoint was closed before and no call was inside.
        self.close();
    }
}
