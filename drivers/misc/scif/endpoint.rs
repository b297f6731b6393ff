// SPDX-License-Identifier: GPL-2.0

//! Endpoints: what a file of `/dev/scif` is, and the SCIF calls on it.
//!
//! The states, as in the interface's documentation:
//!
//! ```text
//! Unbound -> Bound -> Listening
//!              |  ^
//!              v  | refused, given up
//!           Connecting -> Connected (which its connection knows to be so, or over)
//! ```
//!
//! and from each of them to Closed.
//!
//! A fresh endpoint may also take over a connection that another one has accepted (`ACCEPTREG`);
//! its wait queue stays the same all its life, because pollers hold on to it. The port belongs to the
//! endpoint, and is free again when the last one that has it is closed. Who watches sees what
//! `standing.rs` shows.
//!
//! A name leads to a port, which the peer asks as any other: who has a name need not listen
//! yet. The name is the endpoint's that was given it, not that of the connections which it accepts.
//!
//! Front doors call these functions and add nothing of their own. Unless it says otherwise, a call may
//! sleep, and one that waits is interruptible.

mod accept;
mod connected;
pub(crate) mod connection;
mod contact;
mod messages;
mod own_ring;
mod peer_ring;
pub(crate) mod pinned;
mod ports;
mod rings;
pub(crate) mod scif;
mod service;
pub(crate) mod standing;
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
use standing::{
    Facts,
    Standing,
    State, //
};

/// Ports below this take a privilege (`SCIF_ADMIN_PORT_END`).
const ADMIN_PORT_END: u16 = 1024;

/// See the head of this file.
pub(crate) struct Endpoint {
    pub(crate) scif: Arc<Scif>,
    /// Woken when [`Self::poll_state`] changes.
    pub(crate) waiters: Arc<WaitQueue>,
    state: Arc<Standing>,
    _listed: Listed<Standing>,
    /// Counts closed descriptors of a listener, for who waits in accept.
    flushes: Atomic<u64>,
    /// Whether mappings made from now on read as ones once the peer is lost.
    pub(crate) ones_after_loss: Atomic<bool>,
}

impl Endpoint {
    /// A fresh one. May sleep.
    pub(crate) fn new(scif: &Arc<Scif>) -> Result<Arc<Self>> {
        let waiters = Arc::pin_init(
            new_wait_queue!("scif::Endpoint::waiters"),
            GFP_KERNEL_ACCOUNT,
        )?;
        let state = Standing::new()?;
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

    /// What there is to see of it. May sleep.
    pub(crate) fn facts(&self) -> Facts {
        self.state.facts()
    }

    /// Takes a port: `number`, or for 0 one that is free. Returns it.
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

    /// Connects to a port. Returns which ports are connected.
    ///
    /// With `nonblocking` the first call starts, with EINPROGRESS, and later ones collect the
    /// result. A refused endpoint stays bound and can try again.
    pub(crate) fn connect(&self, peer: PortId, nonblocking: bool) -> Result<PortPair> {
        self.connect_to(peer.node, Destination::of_port(peer.port), nonblocking)
    }

    /// Connects to the port that has a name: ENOENT if none has. For the rest see [`Endpoint::connect`].
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
            // The answer may be there already, but the first call always says "in progress":
            // that is what callers of a non-blocking connect are written for.
            return Err(EINPROGRESS);
        }
        self.conclude(&connection, nonblocking)
    }

    /// Asks for the connection, or finds the one that was asked for. Says whether it is new.
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
        let contact = self.scif.contact(node)?;
        let port = match &*state {
            State::Bound(port) => port.clone(),
            _ => {
                let port = self.scif.ports.bind(0)?;
                *state = State::Bound(port.clone());
                port
            }
        };
        let connection = contact.request(port.number, to, self.waiters.clone())?;
        *state = State::Connecting(connection.clone(), port);
        Ok((connection, true))
    }

    /// Waits for the answer to a request, unless the call must not block, and draws the conclusion from it.
    /// A signal withdraws the request: the endpoint is bound again, and the caller can try again.
    fn conclude(&self, connection: &Arc<Connection>, nonblocking: bool) -> Result<PortPair> {
        if !nonblocking {
            // A signal leaves the request without an answer.
            let _ = self
                .waiters
                .wait(|| (connection.channel.state() != ChannelState::Requested).then_some(()));
        }
        let mut state = self.state.lock();
        let port = match &*state {
            State::Connecting(current, port) if Arc::ptr_eq(current, connection) => port.clone(),
            // Another thread was faster.
            State::Connected(current, _) if Arc::ptr_eq(current, connection) => {
                return Err(EISCONN)
            }
            _ => return Err(ECONNREFUSED),
        };
        let error = match connection.channel.state() {
            ChannelState::Requested if nonblocking => return Err(EINPROGRESS),
            // Not restarted.
            ChannelState::Requested => EINTR,
            // A peer that accepted and closed was there: what it sent can be received.
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

    // ----- the end -----------------------------------------------------------------------------

    /// Closes the endpoint: whoever waits in a call on it returns, and what it has accepted and
    /// nobody took over ends. Its port and its name are free when this returns. May sleep.
    pub(crate) fn close(&self) {
        self.close_with(Patience::of_process);
    }

    /// As [`Self::close`], for a task that drops the last reference to its descriptor.
    pub(crate) fn release(&self) {
        self.close_with(Patience::of_release);
    }

    /// `patience` is made of the moment when a task that exits has closed a descriptor.
    fn close_with(&self, patience: fn(Option<Instant<Monotonic>>) -> Patience) {
        let old = core::mem::replace(&mut *self.state.lock(), State::Closed);
        // First, so that nobody is sent to a port that is about to be free.
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
        // Nothing to do for who has closed it, when nobody was in a call.
        self.close();
    }
}
