// SPDX-License-Identifier: GPL-2.0

//! What SCIF has with one peer: the connections, and what they share.
//!
//! Lock: `connections` comes before those of the parts of a connection, see `scif_main.rs`.

use super::{
    connection::{
        Connection,
        Counts,
        Options,
        PortPair,
        Shared, //
    },
    ports::{
        Ports,
        Request, //
    },
    standing::Facts, //
};
use crate::{
    logic::{
        envelope::ChannelId,
        messages::{
            Message,
            Refusal,
            Status,
            WindowId, //
        },
    },
    memory::{
        exports::{
            Exports,
            WindowFacts, //
        },
        remote_window::Remembered, //
    },
    peer::{
        channel::{
            Channel,
            Owner,
            State, //
        },
        channel_table::ChannelTable,
        Peer, //
    },
    rma::{
        caches::Caches,
        mapping::Mappings,
        marks::Progress,
        staging::Staging,
        ways::Ways, //
    },
    sys::{
        trace,
        wait::WaitQueue, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// See the head of this file.
#[pin_data]
pub(super) struct Contact {
    shared: Shared,
    pub(super) ports: Arc<Ports>,
    #[pin]
    connections: Mutex<ChannelTable<Connection>>,
}

impl Contact {
    /// No connections yet; requests go to the listeners of `ports`. May sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        ports: &Arc<Ports>,
        caches: &Arc<Caches>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let exports = Exports::new()?;
        let staging = Staging::new(peer, &exports)?;
        let shared = Shared {
            peer: peer.clone(),
            exports,
            remembered: Arc::new(Remembered::new(), GFP_KERNEL)?,
            mappings: Mappings::new()?,
            caches: caches.clone(),
            ways: Ways::new(peer, staging, options.dma_threshold)?,
            options,
        };
        Arc::pin_init(
            pin_init!(Self {
                shared,
                ports: ports.clone(),
                connections <- new_mutex!(ChannelTable::new(), "Contact::connections"),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer.
    pub(super) fn peer(&self) -> &Arc<Peer> {
        &self.shared.peer
    }

    /// What is for memory that the other side does not reach.
    pub(super) fn staging(&self) -> &Arc<Staging> {
        &self.shared.ways.staging
    }

    /// Makes a connection and puts it into the table: ENODEV if the peer is lost. The caller is inside
    /// the peer: a ring that finds no place must not outlive the session. May sleep.
    fn insert(self: &Arc<Self>, ports: PortPair, state: State) -> Result<Arc<Connection>> {
        self.staging().open()?;
        let id = self.connections.lock().reserve()?;
        // Without the lock, which the control work takes: who pays may have to wait.
        let made = Connection::new(&self.shared, self.clone(), id, ports, state);
        let mut connections = self.connections.lock();
        // Under the lock, so that whoever marks all as lost either sees it or has been seen.
        if let (Ok(connection), false) = (&made, self.peer().is_over()) {
            connections.publish(id, connection.clone());
            return made;
        }
        connections.give_back(id);
        // Before the connection may go.
        drop(connections);
        made.and(Err(ENODEV))
    }

    /// Asks the peer for a connection. The answer changes the state of its channel and wakes
    /// `waiters`. Killable.
    pub(super) fn request(
        self: &Arc<Self>,
        ports: PortPair,
        waiters: Arc<WaitQueue>,
    ) -> Result<Arc<Connection>> {
        let _inside = self.peer().enter().ok_or(ENODEV)?;
        let connection = self.insert(ports, State::Requested)?;
        connection.attach(waiters);
        trace::connect(|| connection.traced(Ok(())));
        let posted = self.peer().post(&Message::Connect {
            source: connection.channel.id,
            source_port: ports.own,
            port: ports.peer,
            ring: connection.stream.rings.address(),
        });
        // Not sent: no answer will come.
        posted.inspect_err(|_| connection.abandon())?;
        Ok(connection)
    }

    /// Answers a request with a connection, or refuses it. Killable.
    pub(super) fn accept(self: &Arc<Self>, request: Request, port: u16) -> Result<Arc<Connection>> {
        let _inside = self.peer().enter().ok_or(ENODEV)?;
        let ports = PortPair {
            own: port,
            peer: request.source_port,
        };
        let connection = match self.insert(ports, State::Established) {
            Ok(connection) => connection,
            Err(error) => {
                request.refuse(Refusal::NoMemory);
                return Err(error);
            }
        };
        let answer = connection
            .set_remote(request.source, &request.ring)
            .and_then(|()| {
                self.peer().post(&Message::Accept {
                    target: request.source,
                    source: connection.channel.id,
                    ring: connection.stream.rings.address(),
                })
            });
        trace::accept(|| connection.traced(answer));
        answer.inspect_err(|_| connection.abandon())?;
        request.accepted();
        Ok(connection)
    }

    /// Finds a connection by the id that the peer names.
    pub(super) fn connection(&self, id: ChannelId) -> Option<Arc<Connection>> {
        self.connections.lock().get(id).cloned()
    }

    /// Calls `f` with each connection, one at a time, without a lock.
    fn for_each(&self, mut f: impl FnMut(&Connection)) {
        let mut index = 0;
        loop {
            let next = self.connections.lock().at_or_after(index);
            let Some((found, connection)) = next else {
                break;
            };
            index = found + 1;
            f(&connection);
        }
    }

    /// Calls `f` with each connection that no endpoint has. May sleep.
    pub(super) fn for_each_without_endpoint(&self, mut f: impl FnMut(&Facts)) {
        self.for_each(|connection| {
            if connection.channel.waiters().is_ok() {
                return;
            }
            match connection.channel.state() {
                // About to get its endpoint, or to go.
                State::Requested | State::Refused => (),
                State::Closed => f(&Facts::of("closing", connection)),
                _ => f(&Facts::of("accepted", connection)),
            }
        });
    }

    /// Calls `f` with each window that the peer may be using. May sleep.
    pub(super) fn for_each_window(&self, mut f: impl FnMut(u16, &WindowFacts)) {
        let node = self.peer().node();
        self.shared.exports.for_each(|window| f(node, window));
    }

    /// Calls `f` with each connection of which something is in flight. May sleep.
    pub(super) fn for_each_in_flight(&self, mut f: impl FnMut((u16, ChannelId), &Progress)) {
        let node = self.peer().node();
        self.for_each(|connection| {
            let progress = connection.progress();
            if !progress.is_idle() {
                f((node, connection.channel.id), &progress);
            }
        });
    }

    /// Adds what there is to `counts`. May sleep.
    pub(super) fn add_to(&self, counts: &mut Counts) {
        self.for_each(|connection| match connection.channel.state() {
            State::Closed => counts.closing_connections += 1,
            _ => counts.connections += 1,
        });
        counts.exported_windows += self.shared.exports.count();
        counts.mappings += self.shared.mappings.count();
    }

    /// The peer has answered who wanted it to copy something.
    pub(super) fn push_done(&self, token: u32, status: Status) {
        self.shared.ways.pulls.answered(token, status);
    }

    /// The peer has let go of a window, of whatever connection.
    pub(super) fn window_released(&self, window: WindowId) {
        self.shared.exports.release(window);
    }

    // ----- the end of the peer, in this order; each may sleep ----------------------------------

    /// It is lost: marks all connections, and wakes who waits.
    pub(super) fn lost(&self) {
        self.for_each(|connection| connection.lost());
        self.shared.ways.pulls.lost();
        self.staging().lost();
    }

    /// Nobody is inside the peer any more.
    pub(super) fn drained(&self) {
        // Signals that were deferred since the connections were marked keep windows in use.
        self.for_each(|connection| connection.transfers.marks.forget_deferred());
        // No fault puts pages back from here on.
        self.shared.mappings.revoke_all();
        self.staging().drained();
        // Requests came from the control work, which is out now, too.
        self.ports.forget_requests(self.peer());
    }

    /// It can't reach the windows any more.
    pub(super) fn unreachable(&self) {
        self.shared.exports.release_all();
    }

    /// It has let go of all memory of this node.
    pub(super) fn forget(&self) {
        self.for_each(|connection| connection.channel.remove());
        self.staging().forget();
    }
}

impl Owner for Contact {
    fn uses_ended(&self, channel: &Channel) {
        if let Ok(target) = channel.remote() {
            channel.send_last(&Message::CloseDone { target });
        }
    }

    fn remove(&self, id: ChannelId) {
        let removed = self.connections.lock().remove(id);
        if let Some(connection) = removed {
            connection.leave();
        }
    }
}
