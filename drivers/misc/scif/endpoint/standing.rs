// SPDX-License-Identifier: GPL-2.0

//! How an endpoint stands: for its calls, and for those who watch.
//!
//! The states are explained in `endpoint.rs`. Who watches finds all endpoints that there are in a
//! list (`scif.rs`). It sees nothing of an endpoint but [`Facts`]: whoever looks keeps no connection and
//! no port from going.
//!
//! Locks: `Standing::state` is held for moments only, never while waiting; `Standing::name` comes below it.

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
    /// Asked for; the connection knows of the answer.
    Connecting(Arc<Connection>, Arc<BoundPort>),
    Connected(Arc<Connection>, #[expect(dead_code)] Arc<BoundPort>),
    /// For good: who still calls had begun before.
    Closed,
}

/// What there is to see of an endpoint, or of a connection that has none.
#[derive(Default)]
pub(crate) struct Facts {
    /// In a word for users.
    pub(crate) state: &'static str,
    pub(crate) own_port: Option<u16>,
    pub(crate) peer: Option<PortId>,
    /// The id of this end of the connection.
    pub(crate) channel: Option<u32>,
    /// Requests that wait for accept.
    pub(crate) queued: usize,
    /// The process that has opened it.
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

    /// Of a connection. May sleep.
    pub(super) fn of(state: &'static str, connection: &Connection) -> Self {
        Self {
            peer: Some(connection.peer()),
            channel: Some(connection.channel.id.0),
            traffic: Some(connection.traffic()),
            ..Self::new(state, Some(connection.own_port))
        }
    }
}

/// See the head of this file.
#[pin_data]
pub(super) struct Standing {
    opener: Identity,
    #[pin]
    state: Mutex<State>,
    /// Once the state has been `Connected`, for calls that need not know more than that. It may be over.
    pub(super) connection: SetOnce<Arc<Connection>>,
    /// By which peers find its port; none once it is closed. Changed with the state locked, or after it was
    /// closed.
    #[pin]
    pub(super) name: Mutex<Option<BoundName>>,
    /// When a task that exits has closed its descriptor of it, at last.
    #[pin]
    pub(super) exits_since: SpinLock<Option<Instant<Monotonic>>>,
}

impl Standing {
    /// Nothing was done with it yet; the calling process has opened it.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                opener: Identity::current(),
                state <- new_mutex!(State::Unbound, "Endpoint::state"),
                connection: SetOnce::new(),
                name <- new_mutex!(None, "Standing::name"),
                exits_since <- new_spinlock!(None, "Standing::exits_since"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The endpoint, whose state this is, is connected from now on.
    pub(super) fn connect(
        &self,
        state: &mut State,
        connection: Arc<Connection>,
        port: Arc<BoundPort>,
    ) {
        self.connection.populate(connection.clone());
        *state = State::Connected(connection, port);
    }

    /// What there is to see. May sleep.
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
