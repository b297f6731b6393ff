// SPDX-License-Identifier: GPL-2.0

//! The state that all endpoints of this node share.

use super::{
    connection::Counts,
    endpoint_state::{
        EndpointState,
        Facts, //
    }, //
    peer_connections::PeerConnections,
    ports::Ports,
};
use crate::{
    logic::envelope::ChannelId,
    memory::{
        pinned::Users,
        window::Window, //
    },
    names::Names,
    node::Nodes,
    peer::Peer,
    rma::{
        caches::Caches,
        mapping::AllOnesPage,
        marks::Progress, //
    },
    sync::{
        list::List,
        shared, //
    },
    sys::shared_memory::Payer, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// The state that all endpoints of this node share.
pub(crate) struct Scif {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) names: Arc<Names>,
    pub(crate) caches: Arc<Caches>,
    /// Users that have pinned memory from which many windows may be made.
    pub(super) users: Arc<Users>,
    pub(super) ports: Arc<Ports>,
    /// All endpoints of this node, in the order in which they were opened.
    pub(super) endpoints: Arc<List<EndpointState>>,
    pub(super) all_connections: Arc<List<PeerConnections>>,
    /// Largest size of a receive ring, in bytes: a power of two.
    pub(super) ring_size: u32,
    /// Whether the ioctl numbers of the MIC library are served, see `device_file/call.rs`.
    pub(crate) mic_compat: bool,
    /// Page of ones that readable mappings show instead of lost memory. Made when a mapping may
    /// first need it.
    ones: SetOnce<Arc<AllOnesPage>>,
}

impl Scif {
    /// Creates the state without endpoints and peers.
    /// Context: may sleep.
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        names: &Arc<Names>,
        caches: &Arc<Caches>,
        ring_size: u32,
        mic_compat: bool,
    ) -> Result<Arc<Self>> {
        let scif = Self {
            nodes: nodes.clone(),
            names: names.clone(),
            caches: caches.clone(),
            users: Users::new()?,
            ports: Ports::new()?,
            endpoints: List::new()?,
            all_connections: List::new()?,
            ring_size,
            mic_compat,
            ones: SetOnce::new(),
        };
        Ok(Arc::new(scif, GFP_KERNEL)?)
    }

    /// Returns the page of ones that readable mappings show instead of lost memory. All mappings
    /// share it, and it is charged to no process.
    /// Context: may sleep.
    pub(super) fn ones(&self) -> Result<Arc<AllOnesPage>> {
        let ones = shared::get_or_make(&self.ones, || AllOnesPage::new(Payer::None))?;
        Ok(ones.clone())
    }

    /// Returns the state that belongs to an online node. ENODEV: the node is not online.
    pub(super) fn peer_connections(&self, node: u16) -> Result<Arc<PeerConnections>> {
        self.connections_with(&self.nodes.peer(node)?)
    }

    /// Returns the state that belongs to the peer of a request. ENODEV: the peer is lost.
    pub(super) fn connections_with(&self, peer: &Arc<Peer>) -> Result<Arc<PeerConnections>> {
        let found = self
            .all_connections
            .find(|peer_connections| Arc::ptr_eq(&peer_connections.peer, peer));
        found.ok_or(ENODEV)
    }

    /// Returns the facts of each endpoint of this node, and of each connection that has no
    /// endpoint. Such a connection was accepted and not taken over, or is closed and waits for the
    /// peer's last message.
    /// Context: may sleep.
    pub(crate) fn endpoint_facts(&self) -> impl Iterator<Item = Facts> + '_ {
        let endpoints = self
            .endpoints
            .iter()
            .map(|endpoint_state| endpoint_state.facts());
        let all_connections = self.all_connections.iter();
        Iterator::chain(
            endpoints,
            all_connections.flat_map(|peer_connections| peer_connections.without_endpoint()),
        )
    }

    /// Calls `f`, under a spinlock, with each window that a peer may be using. Stops at the first
    /// error.
    /// Context: may sleep.
    pub(crate) fn for_each_window<E>(
        &self,
        mut f: impl FnMut(&Window) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut all_connections = self.all_connections.iter();
        all_connections.try_for_each(|peer_connections| peer_connections.exports.for_each(&mut f))
    }

    /// Calls `f` with each connection that has transfers, or signals behind them, in flight. `f`
    /// gets the node at the other end, the id of this end, and the progress. Stops at the first
    /// error.
    /// Context: may sleep.
    pub(crate) fn for_each_in_flight<E>(
        &self,
        mut f: impl FnMut(u16, ChannelId, &Progress) -> Result<(), E>,
    ) -> Result<(), E> {
        for peer_connections in self.all_connections.iter() {
            for connection in peer_connections.connections() {
                let (channel, progress) = (&connection.channel, connection.progress());
                if !progress.is_idle() {
                    f(channel.node(), channel.id, &progress)?;
                }
            }
        }
        Ok(())
    }

    /// Counts connections, windows and mappings, with one node or with all.
    /// Context: may sleep.
    pub(crate) fn counts(&self, node: Option<u16>) -> Counts {
        let mut counts = Counts::default();
        for peer_connections in self.all_connections.iter() {
            // A peer that is over only keeps memory that it might still write to.
            let is_wanted = node.is_none_or(|node| node == peer_connections.peer.node());
            if is_wanted && !peer_connections.peer.is_over() {
                peer_connections.add_to(&mut counts);
            }
        }
        counts
    }
}
