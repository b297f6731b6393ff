// SPDX-License-Identifier: GPL-2.0

//! A node of a test's own, whose only peer is itself, and connections within it.

use crate::{
    arguments::PortId,
    endpoint::{
        connection::Counts,
        scif::Scif,
        Endpoint, //
    },
    names::Names,
    node::{
        Arrivals,
        Nodes, //
    },
    peer::{
        service::Service,
        Common,
        Peer, //
    },
    rma::caches::Caches,
    sync::work_queues::WorkQueues,
    sys::{
        buffer::Buffer,
        tunables::tests::Said, //
    },
    transport::{
        links::Links,
        loopback::Loopback,
        sink::Sink, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// By this id whoever reads the log knows that a test loses its peer.
pub(super) const NODE: u16 = u16::MAX;
/// Bytes that wait for who receives, at most: such a ring does not grow.
pub(super) const RING_SIZE: usize = 2048;
/// See [`Bed::settle`].
const MOST_RUNS: usize = 1000;

/// See the head of this file.
pub(super) struct Bed {
    loopback: Loopback,
    scif: Arc<Scif>,
    nodes: Arc<Nodes>,
    queues: Arc<WorkQueues>,
    _said: Said,
}

/// Two ends of a connection.
pub(super) struct Pair {
    /// Has connected.
    pub(super) near: Arc<Endpoint>,
    /// Was accepted.
    pub(super) far: Arc<Endpoint>,
}

impl Bed {
    pub(super) fn new() -> Result<Self> {
        Self::with_rings(RING_SIZE)
    }

    /// One whose rings grow to this size.
    pub(super) fn with_rings(ring_size: usize) -> Result<Self> {
        // Who waits sleeps at once, and is seen to wait.
        let said = Said::no_cpu();
        let ring_size = u32::try_from(ring_size)?;
        let queues = WorkQueues::new()?;
        let nodes = Nodes::new(Some(NODE))?;
        let caches = Caches::new(0, &queues)?;
        let names = Names::new()?;
        let scif = Scif::new(&nodes, &names, &caches, ring_size, false)?;
        let mut services: KVec<Arc<dyn Service>> = KVec::new();
        services.push(scif.clone(), GFP_KERNEL)?;
        let arrivals = Arrivals {
            nodes: nodes.clone(),
            common: Common {
                queues: queues.clone(),
                observer: nodes.clone(),
                heartbeat_timeout: 10_000,
            },
            services,
        };
        let sink: Arc<dyn Sink> = Arc::new(arrivals, GFP_KERNEL)?;
        Ok(Self {
            loopback: Loopback::start(&sink, &queues, &Links::new()?)?,
            scif,
            nodes,
            queues,
            _said: said,
        })
    }

    pub(super) fn open(&self) -> Result<Arc<Endpoint>> {
        Endpoint::new(&self.scif)
    }

    /// An endpoint that listens on a port that was free.
    pub(super) fn listen(&self, backlog: i32) -> Result<(Arc<Endpoint>, PortId)> {
        let listener = self.open()?;
        let port = listener.bind(0)?;
        listener.listen(backlog)?;
        Ok((listener, PortId { node: NODE, port }))
    }

    /// An endpoint that has asked for a connection.
    pub(super) fn request(&self, to: PortId) -> Result<Arc<Endpoint>> {
        let endpoint = self.open()?;
        match endpoint.connect(to, true) {
            Err(EINPROGRESS) => Ok(endpoint),
            result => result.and(Err(EINVAL)),
        }
    }

    /// A connection with nobody but its two ends.
    pub(super) fn pair(&self) -> Result<Pair> {
        let (listener, to) = self.listen(1)?;
        let near = self.request(to)?;
        let (_, far) = listener.accept_endpoint(true)?;
        near.connect(to, false)?;
        Ok(Pair { near, far })
    }

    /// What front doors have, besides endpoints.
    pub(super) fn scif(&self) -> &Scif {
        &self.scif
    }

    /// The node as its own peer.
    pub(super) fn peer(&self) -> Result<Arc<Peer>> {
        self.nodes.peer(NODE)
    }

    /// Waits until all messages that were posted have been handled, and those that they led to: after so
    /// many runs of the control work no test has any left, and what is left then fails its test.
    pub(super) fn settle(&self) {
        for _ in 0..MOST_RUNS {
            // One run handles some messages only, and the last may have led to more.
            let was_drained = self.peer().map_or(true, |peer| peer.is_drained());
            self.queues.flush_all();
            if was_drained {
                return;
            }
        }
    }

    /// Loses the peer, and waits until everybody knows.
    pub(super) fn lose(&self) -> Result {
        self.peer()?.fail("a test loses it");
        self.queues.flush_all();
        Ok(())
    }

    /// Ends the node. An error, with a word in the log, if something is left that should not.
    /// Endpoints go before.
    pub(super) fn end(self) -> Result {
        self.settle();
        let Counts {
            connections,
            closing_connections,
            exported_windows,
            mappings,
        } = self.scif.counts(None);
        drop(self.loopback);
        self.queues.flush_all();
        let scif = Arc::into_unique_or_drop(self.scif).is_some();
        let nodes = Arc::into_unique_or_drop(self.nodes).is_some();
        if scif && nodes && connections + closing_connections + exported_windows + mappings == 0 {
            return Ok(());
        }
        pr_err!(
            "left by a test: {} connections, {} that close, {} windows, {} mappings; somebody has \
             an endpoint: {}, a node: {}\n",
            connections,
            closing_connections,
            exported_windows,
            mappings,
            !scif,
            !nodes
        );
        Err(EBUSY)
    }
}

/// Sends bytes of the kernel.
pub(super) fn send(endpoint: &Endpoint, bytes: &[u8], block: bool) -> Result<usize> {
    Buffer::with_bytes(bytes, |buffer| endpoint.send(buffer, block))
}

/// Receives bytes into memory of the kernel.
pub(super) fn receive(endpoint: &Endpoint, bytes: &mut [u8], block: bool) -> Result<usize> {
    Buffer::with_room(bytes, |buffer| endpoint.receive(buffer, block))
}

/// Whether an end hears the other.
pub(super) fn hears(to: &Endpoint, from: &Endpoint) -> Result<bool> {
    let mut bytes = [0; 4];
    let sent = send(from, b"scif", true)?;
    let received = receive(to, &mut bytes, true)?;
    Ok((sent, received, &bytes) == (4, 4, b"scif"))
}
