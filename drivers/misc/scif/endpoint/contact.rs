// SPDX-License-Identifier: GPL-2.0

//! What SCIF has with one peer: the connections, and what they share.
//!
//! Lock: `connections` is a spinlock, as the control work takes it.

use super::{
    connection::{
        Connection,
        Counts, //
    },
    own_ring,
    ports::{
        Ports,
        Request, //
    },
    scif::Scif,
    standing::Facts, //
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
            Owner,
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
        ways::Ways, //
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

/// See the head of this file.
#[pin_data]
pub(super) struct Contact {
    pub(super) peer: Arc<Peer>,
    pub(super) exports: Arc<Exports>,
    pub(super) remembered: Arc<Remembered>,
    pub(super) mappings: Arc<Mappings>,
    pub(super) caches: Arc<Caches>,
    pub(super) ways: Arc<Ways>,
    /// Bytes of a receive ring, at most.
    pub(super) ring_size: u32,
    pub(super) ports: Arc<Ports>,
    names: Arc<Names>,
    shares: FairShares,
    /// Of the memory of rings.
    pub(super) ring_shares: FairShares,
    #[pin]
    connections: SpinLock<ChannelTable<Connection>>,
}

impl Contact {
    /// No connections yet; requests go to the listeners of `scif`. May sleep.
    pub(super) fn new(peer: &Arc<Peer>, scif: &Scif) -> Result<Arc<Self>> {
        let exports = Exports::new()?;
        let staging = Staging::new(peer, &exports)?;
        let remembered = Arc::new(Remembered::new(), GFP_KERNEL)?;
        let mappings = Mappings::new()?;
        let ways = Ways::new(peer, staging)?;
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
                ways,
                ring_size: scif.ring_size,
                ports: scif.ports.clone(),
                names: scif.names.clone(),
                shares,
                ring_shares,
                connections <- new_spinlock!(connections, "Contact::connections"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes a connection and puts it into the table: ENODEV if the peer is lost, ENOSPC if the caller's user has its
    /// share of connections with it. The caller is inside
    /// the peer: a ring that finds no place must not outlive the session. May sleep.
    fn insert(
        self: &Arc<Self>,
        own_port: u16,
        to: Destination,
        state: State,
    ) -> Result<Arc<Connection>> {
        let share = self.shares.take()?.ok_or(ENOSPC)?;
        self.ways.staging.open()?;
        let id = self.connections.lock().next_id();
        // Without the lock, which the control work takes: who pays may have to wait.
        let connection = Connection::new(self, id, own_port, to, state, share)?;
        let room = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let mut connections = self.connections.lock();
        // Under the lock, so that whoever marks all as lost either sees it or has been seen.
        if self.peer.is_over() {
            // Before the connection may go.
            drop(connections);
            return Err(ENODEV);
        }
        connections.insert(id, connection.clone(), room)?;
        drop(connections);
        Ok(connection)
    }

    /// Asks the peer for a connection. The answer changes the state of its channel and wakes
    /// `waiters`. May sleep, does not wait for the peer.
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

    /// Answers a request with a connection, or refuses it. May sleep, does not wait for the peer.
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

    /// The peer asks for a connection: queues the request, or refuses it. May sleep.
    pub(super) fn requested(&self, to: Destination, request: Request) {
        match self.port_of(to) {
            Some(port) => self.ports.requested(port, request),
            None => request.refuse(Status::Unknown),
        }
    }

    /// The peer's connector with this id has given up: refuses its request, if that is queued. May sleep.
    pub(super) fn cancelled(&self, source: ChannelId, to: Destination) {
        // Without its name a listener is closed, and has refused all.
        if let Some(port) = self.port_of(to) {
            self.ports.cancelled(&self.peer, source, port);
        }
    }

    /// Finds the port that a connector of the peer wants; none if nobody has the name. May sleep.
    fn port_of(&self, to: Destination) -> Option<u16> {
        match to.class {
            0 => Some(to.port),
            class => self.names.port(Name {
                class,
                number: to.name,
            }),
        }
    }

    /// Finds a connection by the id that the peer names.
    pub(super) fn connection(&self, id: ChannelId) -> Option<Arc<Connection>> {
        self.connections.lock().get(id).cloned()
    }

    /// Walks over the connections, without a lock. May sleep.
    pub(super) fn connections(self: &Arc<Self>) -> impl Iterator<Item = Arc<Connection>> {
        let (this, mut last) = (self.clone(), ChannelId::NONE);
        core::iter::from_fn(move || {
            let (id, connection) = this.connections.lock().behind(last)?;
            last = id;
            Some(connection)
        })
    }

    /// Returns the facts of each connection that no endpoint has. May sleep.
    pub(super) fn without_endpoint(self: &Arc<Self>) -> impl Iterator<Item = Facts> {
        self.connections().filter_map(|connection| {
            let state = match connection.channel.state() {
                // About to get its endpoint, or to go.
                State::Requested | State::Refused => return None,
                // Its endpoint, if it had one, has let go of it.
                State::Closed => "closing",
                _ if connection.channel.waiters().is_ok() => return None,
                _ => "accepted",
            };
            Some(Facts::of(state, &connection))
        })
    }

    /// Adds what there is to `counts`. May sleep.
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

impl Owner for Contact {
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
