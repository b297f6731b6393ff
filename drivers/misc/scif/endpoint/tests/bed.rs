// SPDX-License-Identifier: GPL-2.0

//! A node that belongs to one test and has no peer but itself, and connections within this node.

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

/// Id of the node. It shows a reader of the log that a test loses its peer.
pub(super) const NODE: u16 = u16::MAX;
/// Largest number of bytes that wait for a receiver. A ring of this size does not grow.
pub(super) const RING_SIZE: usize = 2048;
/// Largest number of runs in [`Bed::settle`].
const MOST_RUNS: usize = 1000;

/// A node that belongs to one test and has no peer but itself.
pub(super) struct Bed {
    loopback: Loopback,
    scif: Arc<Scif>,
    nodes: Arc<Nodes>,
    queues: Arc<WorkQueues>,
    _said: Said,
}

/// Two ends of a connection.
pub(super) struct Pair {
    /// The end that has connected.
    pub(super) near: Arc<Endpoint>,
    /// The end that was accepted.
    pub(super) far: Arc<Endpoint>,
}

impl Bed {
    pub(super) fn new() -> Result<Self> {
        Self::with_rings(RING_SIZE)
    }

    /// Creates a node whose rings grow to this size.
    pub(super) fn with_rings(ring_size: usize) -> Result<Self> {
        // Lets no waiter stay awake: it sleeps at once, and the test sees that it waits.
        let said = Said::no_cpu();
        let ring_size = u32::try_from(ring_size)?;
        let queues = WorkQueues::new()?;
        let nodes = Nodes::new(Some(NODE))?;
        let caches = Caches::new(0, &queues)?;
        let names = Names::new()?;
        let scif = Scif::new(&nodes, &names, &caches, ring_size, false)?;
        let common = Common {
            queues: queues.clone(),
            observer: nodes.clone(),
            heartbeat_timeout: 10_000,
        };
        let arrivals = Arrivals::new(&nodes, common)?;
        arrivals.add_service(scif.clone())?;
        let sink: Arc<dyn Sink> = arrivals;
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

    /// Returns an endpoint that listens on a free port.
    pub(super) fn listen(&self, backlog: i32) -> Result<(Arc<Endpoint>, PortId)> {
        let listener = self.open()?;
        let port = listener.bind(0)?;
        listener.listen(backlog)?;
        Ok((listener, PortId { node: NODE, port }))
    }

    /// Returns an endpoint that has asked for a connection.
    pub(super) fn request(&self, to: PortId) -> Result<Arc<Endpoint>> {
        let endpoint = self.open()?;
        match endpoint.connect(to, true) {
            Err(EINPROGRESS) => Ok(endpoint),
            result => result.and(Err(EINVAL)),
        }
    }

    /// Returns both ends of a new connection.
    pub(super) fn pair(&self) -> Result<Pair> {
        let (listener, to) = self.listen(1)?;
        let near = self.request(to)?;
        let (_, far) = listener.accept_endpoint(true)?;
        near.connect(to, false)?;
        Ok(Pair { near, far })
    }

    /// Returns the state that the interfaces to user space and to kernel modules keep.
    pub(super) fn scif(&self) -> &Scif {
        &self.scif
    }

    /// Returns the node as its own peer.
    pub(super) fn peer(&self) -> Result<Arc<Peer>> {
        self.nodes.peer(NODE)
    }

    /// Waits until all posted messages have been handled, and all messages that these have caused.
    /// Gives up after [`MOST_RUNS`], which is enough for every test. Messages that are left then
    /// make their test fail.
    pub(super) fn settle(&self) {
        for _ in 0..MOST_RUNS {
            // One run handles some messages only, and the last one may have caused more.
            let was_drained = self.peer().map_or(true, |peer| peer.is_drained());
            self.queues.flush_all();
            if was_drained {
                return;
            }
        }
    }

    /// Loses the peer, and waits until all endpoints know.
    pub(super) fn lose(&self) -> Result {
        self.peer()?.fail("a test loses it");
        self.queues.flush_all();
        Ok(())
    }

    /// Ends the node. If resources remain that the node should have released, logs them and fails.
    /// The caller has dropped the endpoints.
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
            "a test has left {} connections, {} closing connections, {} windows, {} mappings, \
             a reference to endpoints: {}, to nodes: {}\n",
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

/// Sends bytes of kernel memory.
pub(super) fn send(endpoint: &Endpoint, bytes: &[u8], block: bool) -> Result<usize> {
    Buffer::with_bytes(bytes, |buffer| endpoint.send(buffer, block))
}

/// Receives bytes into kernel memory.
pub(super) fn receive(endpoint: &Endpoint, bytes: &mut [u8], block: bool) -> Result<usize> {
    Buffer::with_room(bytes, |buffer| endpoint.receive(buffer, block))
}

/// Returns whether one end receives what the other sends.
pub(super) fn hears(to: &Endpoint, from: &Endpoint) -> Result<bool> {
    let mut bytes = [0; 4];
    let sent = send(from, b"scif", true)?;
    let received = receive(to, &mut bytes, true)?;
    Ok((sent, received, &bytes) == (4, 4, b"scif"))
}
