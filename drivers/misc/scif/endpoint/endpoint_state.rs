// SPDX-License-Identifier: GPL-2.0

//! The state of an endpoint, for its calls and for observers.
//!
//! `endpoint.rs` explains the states. An observer finds all endpoints of the node in a list
//! (`scif.rs`). It sees nothing of an endpoint but [`Facts`], so it keeps no connection and no port
//! alive.
//!
//! Locks: `EndpointState::state` is held for moments only, never while waiting.
//! `EndpointState::name` comes below `EndpointState::state`.

use super::{
    connection::{
        Connection,
        Traffic, //
    },
    ports::{
        BoundPort,
        Listener, //
    }, //
};
use crate::{
    arguments::PortId,
    names::BoundName,
    peer::channel::State as ChannelState,
    sys::current::Identity, //
};
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard,
        SetOnce,
        SpinLock, //
    },
    time::{
        Instant,
        Monotonic, //
    },
};

pub(super) enum State {
    Unbound,
    Bound(Arc<BoundPort>),
    Listening(Arc<Listener>, Arc<BoundPort>),
    /// A request was sent. The connection knows the answer.
    Connecting(Arc<Connection>, Arc<BoundPort>),
    Connected(Arc<Connection>, #[expect(dead_code)] Arc<BoundPort>),
    /// Final. Only calls that began before can still run.
    Closed,
}

/// The visible state of an endpoint, or of a connection that has no endpoint.
#[derive(Default)]
pub(crate) struct Facts {
    /// Name of the state, for users.
    pub(crate) state: &'static str,
    pub(crate) own_port: Option<u16>,
    pub(crate) peer: Option<PortId>,
    /// Id of this end of the connection.
    pub(crate) channel: Option<u32>,
    /// Number of requests that wait for accept.
    pub(crate) queued: usize,
    /// Process that has opened the endpoint.
    pub(crate) opener: Option<Identity>,
    pub(crate) traffic: Option<Traffic>,
}

impl Facts {
    fn new(state: &'static str, own_port: Option<u16>) -> Self {
        Self {
            state,
            own_port,
            ..Self::default()
        }
    }

    /// Returns the facts of a connection.
    /// Context: may sleep.
    pub(super) fn of(state: &'static str, connection: &Connection) -> Self {
        Self {
            peer: Some(connection.peer()),
            channel: Some(connection.channel.id.0),
            traffic: Some(connection.traffic()),
            ..Self::new(state, Some(connection.own_port))
        }
    }
}

/// The state of an endpoint, as its calls and observers share it.
#[pin_data]
pub(super) struct EndpointState {
    opener: Identity,
    #[pin]
    state: Mutex<State>,
    /// Connection of this endpoint, once the state has been `Connected`, for calls that need to
    /// know no more. The connection may be over.
    pub(super) connection: SetOnce<Arc<Connection>>,
    /// Name by which peers find the port. None once the endpoint is closed. Changed with the state
    /// locked, or after the state has become `Closed`.
    #[pin]
    pub(super) name: Mutex<Option<BoundName>>,
    /// Time at which an exiting task last closed a descriptor of the endpoint.
    #[pin]
    pub(super) exits_since: SpinLock<Option<Instant<Monotonic>>>,
}

impl EndpointState {
    /// Creates the state of an endpoint that the calling process has just opened.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                opener: Identity::current(),
                state <- new_mutex!(State::Unbound, "Endpoint::state"),
                connection: SetOnce::new(),
                name <- new_mutex!(None, "EndpointState::name"),
                exits_since <- new_spinlock!(None, "EndpointState::exits_since"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Makes the endpoint of this state connected.
    pub(super) fn connect(
        &self,
        state: &mut State,
        connection: Arc<Connection>,
        port: Arc<BoundPort>,
    ) {
        self.connection.populate(connection.clone());
        *state = State::Connected(connection, port);
    }

    /// Returns the visible state.
    /// Context: may sleep.
    pub(super) fn facts(&self) -> Facts {
        let facts = match &*self.state.lock() {
            State::Unbound => Facts::new("unbound", None),
            State::Closed => Facts::new("closed", None),
            State::Bound(port) => Facts::new("bound", Some(port.number)),
            State::Listening(listener, port) => Facts {
                queued: listener.queued(),
                ..Facts::new("listening", Some(port.number))
            },
            State::Connecting(connection, _) => Facts::of("connecting", connection),
            State::Connected(connection, _) => {
                let state = match connection.channel.state() {
                    ChannelState::PeerClosed => "peer-closed",
                    ChannelState::Lost => "lost",
                    _ => "connected",
                };
                Facts::of(state, connection)
            }
        };
        Facts {
            opener: Some(self.opener.clone()),
            ..facts
        }
    }
}
