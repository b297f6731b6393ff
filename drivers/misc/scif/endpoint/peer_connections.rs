// SPDX-License-Identifier: GPL-2.0

//! The SCIF state that belongs to one peer: the connections, and everything that they share.
//!
//! Lock: `connections` is a spinlock, as the control work takes it.

use super::{
    connection::{
        Connection,
        Counts, //
    },
    endpoint_state::Facts,
    own_ring, //
    ports::{
        Ports,
        Request, //
    },
    scif::Scif,
};
use crate::{
    logic::{
        envelope::ChannelId,
        messages::{
            Destination,
            Message,
            Status, //
        },
    },
    memory::{
        exports::Exports,
        remote_window::Remembered, //
    },
    names::{
        Name,
        Names, //
    },
    peer::{
        channel::{
            Channel,
            ChannelOwner,
            State, //
        },
        channel_table::{
            ChannelTable,
            MAX_CHANNELS, //
        },
        Peer, //
    },
    rma::{
        caches::Caches,
        mapping::Mappings,
        staging::Staging,
        transfer_policy::TransferPolicy, //
    },
    sync::fair_share::FairShares,
    sys::{
        trace,
        wait::WaitQueue, //
    },
};
use kernel::{
    new_spinlock,
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        Arc,
        SpinLock, //
    },
};

/// The SCIF state that belongs to one peer.
#[pin_data]
pub(super) struct PeerConnections {
    pub(super) peer: Arc<Peer>,
    pub(super) exports: Arc<Exports>,
    pub(super) remembered: Arc<Remembered>,
    pub(super) mappings: Arc<Mappings>,
    pub(super) caches: Arc<Caches>,
    pub(super) policy: Arc<TransferPolicy>,
    /// Largest size of a receive ring, in bytes.
    pub(super) ring_size: u32,
    pub(super) ports: Arc<Ports>,
    names: Arc<Names>,
    shares: FairShares,
    /// Shares of the users in the memory of rings.
    pub(super) ring_shares: FairShares,
    #[pin]
    connections: SpinLock<ChannelTable<Connection>>,
}

impl PeerConnections {
    /// Creates the state without connections. Requests of the peer go to the listeners of `scif`.
    /// Context: may sleep.
    pub(super) fn new(peer: &Arc<Peer>, scif: &Scif) -> Result<Arc<Self>> {
        let exports = Exports::new()?;
        let staging = Staging::new(peer, &exports)?;
        let remembered = Arc::new(Remembered::new(), GFP_KERNEL)?;
        let mappings = Mappings::new()?;
        let policy = TransferPolicy::new(peer, staging)?;
        let shares = FairShares::of(MAX_CHANNELS)?;
        let ring_shares = own_ring::shares_of(peer.path())?;
        let connections = ChannelTable::new(peer.doorbells.news)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports,
                remembered,
                mappings,
                caches: scif.caches.clone(),
                policy,
                ring_size: scif.ring_size,
                ports: scif.ports.clone(),
                names: scif.names.clone(),
                shares,
                ring_shares,
                connections <- new_spinlock!(connections, "PeerConnections::connections"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes a connection and puts it into the table. The caller is inside the peer, so that a ring
    /// whose connection does not get into the table can't outlive the session.
    ///
    /// # Errors
    ///
    /// - ENODEV: the peer is lost.
    /// - ENOSPC: the caller's user has its share of connections with the peer.
    ///
    /// Context: may sleep.
    fn insert(
        self: &Arc<Self>,
        own_port: u16,
        to: Destination,
        state: State,
    ) -> Result<Arc<Connection>> {
        let share = self.shares.take()?.ok_or(ENOSPC)?;
        self.policy.staging.open()?;
        let id = self.connections.lock().next_id();
        // Allocates without the lock: the control work takes it, and the charge may make the caller
        // wait.
        let connection = Connection::new(self, id, own_port, to, state, share)?;
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut connections = self.connections.lock();
        // Checks under the lock: so the loop that marks all connections as lost finds this one, or
        // the check finds the peer over.
        if self.peer.is_over() {
            // Releases the lock first, as the connection may be dropped here.
            drop(connections);
            return Err(ENODEV);
        }
        connections.insert(id, connection.clone(), room)?;
        drop(connections);
        Ok(connection)
    }

    /// Asks the peer for a connection. The answer changes the state of the channel and wakes
    /// `waiters`.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn request(
        self: &Arc<Self>,
        own_port: u16,
        to: Destination,
        waiters: Arc<WaitQueue>,
    ) -> Result<Arc<Connection>> {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        let connection = self.insert(own_port, to, State::Requested)?;
        connection.channel.attach(waiters);
        trace::connect(|| connection.traced(Ok(())));
        connection.channel.send_once(&Message::Connect {
            source: connection.channel.id,
            source_port: own_port,
            to,
            ring: connection.stream.ring_address(),
        });
        Ok(connection)
    }

    /// Answers a request with a connection, or refuses the request.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn accept(self: &Arc<Self>, request: Request, port: u16) -> Result<Arc<Connection>> {
        let _inside = self.peer.enter().ok_or(ENODEV)?;
        let from = Destination::of_port(request.source_port);
        let connection = match self.insert(port, from, State::Established) {
            Ok(connection) => connection,
            Err(error) => {
                request.refuse(Status::NoMemory);
                return Err(error);
            }
        };
        let known = connection.set_remote(request.source, request.source_port, &request.ring);
        trace::accept(|| connection.traced(known));
        known.inspect_err(|_| connection.close())?;
        let target = request.source;
        request.answer(&Message::Accept {
            target,
            source: connection.channel.id,
            port,
            ring: connection.stream.ring_address(),
        });
        Ok(connection)
    }

    /// Handles the peer's request for a connection: queues the request, or refuses it.
    /// Context: may sleep.
    pub(super) fn requested(&self, to: Destination, request: Request) {
        match self.port_of(to) {
            Some(port) => self.ports.requested(port, request),
            None => request.refuse(Status::Unknown),
        }
    }

    /// Handles a withdrawal by the peer's connector `source`: refuses its request, if that is
    /// queued.
    /// Context: may sleep.
    pub(super) fn cancelled(&self, source: ChannelId, to: Destination) {
        // A listener loses its name only when it is closed, and has then refused all requests.
        if let Some(port) = self.port_of(to) {
            self.ports.cancelled(&self.peer, source, port);
        }
    }

    /// Finds the port that a connector of the peer wants. None if no endpoint has the name.
    /// Context: may sleep.
    fn port_of(&self, to: Destination) -> Option<u16> {
        match to.class {
            0 => Some(to.port),
            class => self.names.port(Name {
                class,
                number: to.name,
            }),
        }
    }

    /// Finds a connection by this end's id.
    pub(super) fn connection(&self, id: ChannelId) -> Option<Arc<Connection>> {
        self.connections.lock().get(id).cloned()
    }

    /// Iterates over the connections, without holding a lock.
    /// Context: may sleep.
    pub(super) fn connections(self: &Arc<Self>) -> impl Iterator<Item = Arc<Connection>> {
        let (this, mut last) = (self.clone(), ChannelId::NONE);
        core::iter::from_fn(move || {
            let (id, connection) = this.connections.lock().behind(last)?;
            last = id;
            Some(connection)
        })
    }

    /// Returns the facts of each connection that has no endpoint.
    /// Context: may sleep.
    pub(super) fn without_endpoint(self: &Arc<Self>) -> impl Iterator<Item = Facts> {
        self.connections().filter_map(|connection| {
            let state = match connection.channel.state() {
                // The connection has an endpoint soon, or is about to be removed.
                State::Requested | State::Refused => return None,
                // The endpoint of the connection, if there was one, has released it.
                State::Closed => "closing",
                _ if connection.channel.waiters().is_ok() => return None,
                _ => "accepted",
            };
            Some(Facts::of(state, &connection))
        })
    }

    /// Adds the numbers of connections, windows and mappings to `counts`.
    /// Context: may sleep.
    pub(super) fn add_to(self: &Arc<Self>, counts: &mut Counts) {
        for connection in self.connections() {
            match connection.channel.state() {
                State::Closed => counts.closing_connections += 1,
                _ => counts.connections += 1,
            }
        }
        counts.exported_windows += self.exports.count();
        counts.mappings += self.mappings.count();
    }
}

impl ChannelOwner for PeerConnections {
    fn uses_ended(&self, channel: &Channel) {
        if let Ok(target) = channel.remote() {
            channel.send_once(&Message::CloseDone { target });
        }
    }

    fn remove(&self, id: ChannelId) {
        let removed = self.connections.lock().remove(id);
        if let Some(connection) = removed {
            connection.leave();
        }
    }
}
