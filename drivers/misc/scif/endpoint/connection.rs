// SPDX-License-Identifier: GPL-2.0

//! One end of a connection, from the request until the end is removed from the table of the
//! connections with its peer.
//!
//! A connection has these parts: a channel (the state of the two ends, `peer/channel.rs`), a byte
//! stream (`stream.rs`), the windows of both ends (`memory/`), transfers and fences (`rma/`). This
//! file puts the parts together. It also tells them, in order, what happens to the connection.
//!
//! # Closing
//!
//! An end that closes first stops writing itself and then sends `Close`. It stays in the table, so
//! that the memory of its ring lives, until the peer has sent `CloseDone`. With
//! `CloseDone` the peer says that it writes into the ring no more, and that its transfers are
//! complete. Both ends may close at once: each answers the other's `Close`. An end whose peer has
//! closed is removed without a message.
//!
//! Close waits, in this order, for
//!
//! 1. this end's own transfers, and the signals behind them. An engine that stops is given up after
//!    seconds.
//! 2. callers that are inside the channel, whatever the peer does. Each copies one chunk at most.
//! 3. the peer's `CloseDone`, if this end has windows, so that the peer's transfers are complete,
//!    too. If memory was lent, the peer is lost after ten seconds.
//! 4. the control work, if it releases memory of this end right now.
//!
//! Some of this depends on the peer: slots, reads, `CloseDone`. A process waits for these until it
//! is killed, and then for two seconds in all. A process that exits waits two seconds for all of
//! its descriptors together. Close does not wait for the peer on behalf of a descriptor that
//! outlives its processes (`sync/patience.rs`). When the wait is over, signals that were not given
//! are forgotten. Transfers that are still in flight complete as the peer lets them, and keep their
//! memory until then.
//!
//! The loss of the peer ends each of these waits. When close has returned, the resources that the
//! caller can see (port, pinned memory, charges) are released, except for windows
//!
//! - that the peer has mapped,
//! - that the peer can't be kept out of, because the device is gone,
//! - that the peer does not release, as windows or for transfers, while the process is being
//!   killed.

use super::{
    peer_connections::PeerConnections,
    stream::Stream, //
};
use crate::{
    arguments::PortId,
    logic::{
        envelope::ChannelId,
        messages::{
            Destination,
            Message,
            RingAddress,
            Status, //
        }, //
    },
    memory::{
        remote_windows::RemoteWindows,
        windows::{
            WindowTotals,
            Windows, //
        }, //
    },
    peer::{
        channel::{
            Channel,
            State, //
        },
        doorbells::Subscription, //
    },
    rma::{
        mapping::Mappings,
        marks::Progress,
        transfers::Transfers, //
    },
    sync::{
        fair_share::FairShare,
        flow::{
            Flow,
            Moved, //
        },
        patience::Patience, //
    },
    sys::trace, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SetOnce,
        SpinLock, //
    }, //
};

/// The ports of the two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortPair {
    pub(crate) own: u16,
    pub(crate) peer: u16,
}

/// One end of a connection: its channel and everything that works on it.
#[pin_data]
pub(super) struct Connection {
    pub(super) channel: Arc<Channel>,
    pub(super) own_port: u16,
    /// Destination of this end's request. For an accepted end, the port that sent the request.
    to: Destination,
    /// Port of the peer, once known. Needed for a request that named its destination.
    named_port: SetOnce<u16>,
    pub(super) stream: Arc<Stream>,
    /// Reports doorbells of the peer to the stream. None once the end has left the table.
    #[pin]
    subscription: SpinLock<Option<Subscription>>,
    /// Bytes sent, and the number of calls that sent some.
    pub(super) sent: Flow,
    pub(super) received: Flow,
    pub(super) windows: Arc<Windows>,
    pub(super) remote_windows: Arc<RemoteWindows>,
    #[pin]
    pub(super) transfers: Transfers,
    pub(super) mappings: Arc<Mappings>,
    /// Reason for which the peer refused the request.
    pub(super) refusal: SetOnce<Status>,
    /// Whether the peer has sent `CloseDone`.
    close_answered: Atomic<bool>,
    /// This connection's part of the user's share of connections with the peer.
    _share: FairShare,
    /// Held while the loss of the peer is noted, so that a closing caller can wait until it is
    /// noted.
    #[pin]
    losing: Mutex<()>,
}

impl Connection {
    /// Creates an end in this state, which is not in the table of the peer's connections yet. The
    /// caller is inside the peer.
    /// Context: may sleep.
    pub(super) fn new(
        peer_connections: &Arc<PeerConnections>,
        id: ChannelId,
        own_port: u16,
        to: Destination,
        state: State,
        share: FairShare,
    ) -> Result<Arc<Self>> {
        let channel = Channel::new(&peer_connections.peer, peer_connections.clone(), id, state)?;
        let stream = Stream::new(
            &channel,
            peer_connections.ring_size,
            peer_connections.ring_shares.of_caller()?,
        )?;
        let subscription = Subscription::to_channel(&channel.doorbells, id, stream.clone())?;
        let (exports, caches) = (&peer_connections.exports, &peer_connections.caches);
        let windows = Windows::new(&channel, exports, caches.clone())?;
        let remote_windows = RemoteWindows::new(&channel, &peer_connections.remembered)?;
        let transfers = Transfers::new(
            &channel,
            &windows,
            &remote_windows,
            caches,
            &peer_connections.policy,
        )?;
        Arc::pin_init(
            pin_init!(Self {
                channel,
                own_port,
                to,
                named_port: SetOnce::new(),
                stream,
                subscription <- new_spinlock!(Some(subscription), "Connection::subscription"),
                sent: Flow::new(),
                received: Flow::new(),
                windows,
                remote_windows,
                transfers <- transfers,
                mappings: peer_connections.mappings.clone(),
                refusal: SetOnce::new(),
                close_answered: Atomic::new(false),
                _share: share,
                losing <- new_mutex!((), "Connection::losing"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Releases the resources of this end that the peer can still reach. The caller has removed the
    /// end from the table of the peer's connections.
    /// Context: may sleep.
    pub(super) fn leave(&self) {
        let subscription = self.subscription.lock().take();
        drop(subscription);
        // A caller may keep the connection for long, but the peer writes no more into its ring.
        self.stream.own.unmap();
    }

    /// Notes the id, the port and the ring of the other end. Ends the relation to the peer if the
    /// ring can't be reached.
    pub(super) fn set_remote(&self, id: ChannelId, port: u16, ring: &RingAddress) -> Result {
        self.stream.set_remote(ring)?;
        self.named_port.populate(port);
        self.channel.set_remote(id);
        Ok(())
    }

    /// Returns the ports of both ends. The peer's port is 0 as long as only its name is known.
    pub(super) fn ports(&self) -> PortPair {
        let peer = match self.to.port {
            0 => self.named_port.copy().unwrap_or(0),
            port => port,
        };
        PortPair {
            own: self.own_port,
            peer,
        }
    }

    /// Returns the node and the port of the other end.
    pub(super) fn peer(&self) -> PortId {
        PortId {
            node: self.channel.node(),
            port: self.ports().peer,
        }
    }

    /// Returns the numbers of bytes and messages that this end has moved, and its windows.
    /// Context: may sleep.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent.moved(),
            received: self.received.moved(),
            transfers: self.progress(),
            windows: self.windows.totals(),
        }
    }

    /// Returns the progress of this end's transfers, and what waits for them.
    /// Context: any.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            asked: self.transfers.asked(),
            ..self.transfers.marks.progress()
        }
    }

    /// Returns the data of a trace event about this connection.
    pub(super) fn traced(&self, result: Result) -> trace::Connection {
        let ports = self.ports();
        trace::Connection {
            node: self.channel.node(),
            channel: self.channel.id.0,
            own_port: ports.own,
            peer_port: ports.peer,
            result: trace::errno(&result),
        }
    }

    // ----- messages of the peer; called by the control work -------------------------------------

    /// Handles the peer's acceptance. Returns whether this end still wants the connection.
    pub(super) fn accepted(&self, source: ChannelId, port: u16, ring: &RingAddress) -> bool {
        if self.channel.state() == State::Requested && self.set_remote(source, port, ring).is_err()
        {
            return false;
        }
        let old = self
            .channel
            .change_state(|state| (state == State::Requested).then_some(State::Established));
        self.channel.wake();
        old == State::Requested
    }

    /// Handles the peer's refusal.
    pub(super) fn refused(&self, reason: Status) {
        self.refusal.populate(reason);
        let old = self
            .channel
            .change_state(|state| (state == State::Requested).then_some(State::Refused));
        self.channel.wake();
        if matches!(old, State::Requested | State::Closed) {
            self.channel.remove();
        }
    }

    /// Handles the peer's `Close`.
    pub(super) fn peer_closed(&self) {
        trace::peer_closed(|| self.traced(Ok(())));
        // Closes the uses first, so that a caller that has seen the new state gets no further use.
        self.channel.close_uses();
        self.channel
            .change_state(|state| (state == State::Established).then_some(State::PeerClosed));
        self.channel.wake();
        self.transfers.close_questions();
        // Comes before `CloseDone`, after which the peer has its memory back, unless it is in use.
        self.remote_windows.forget_all();
        // The last use that ends sends the `CloseDone`, so that it comes after the last write.
        self.channel.end_uses();
        // From here on only existing mappings and copies of the peer reach the windows.
        self.windows.revoke_all();
        self.transfers.cache.close_soon();
    }

    /// Handles the peer's `CloseDone`: the peer writes no more into the ring of this closed end,
    /// and its transfers are complete. Removes the end.
    pub(super) fn close_done(&self) {
        if self.channel.state() == State::Closed {
            self.channel.remove();
        }
        self.close_answered.store(true, Relaxed);
        self.channel.wake();
    }

    /// Handles the loss of the peer.
    /// Context: may sleep.
    pub(super) fn lost(&self) {
        trace::lost(|| self.traced(Err(ENODEV)));
        let _losing = self.losing.lock();
        // Closes the uses first, so that a caller that has seen the new state gets no further use.
        self.channel.close_uses();
        self.channel
            .change_state(|state| (state != State::Closed).then_some(State::Lost));
        self.channel.wake();
        self.transfers.close_questions();
        self.remote_windows.forget_all();
        self.windows.revoke_all();
        self.transfers.cache.close();
        self.transfers.marks.forget_deferred();
    }

    // ----- calls of the owner -------------------------------------------------------------------

    /// Closes this end. The module documentation lists what close waits for. Must not be called
    /// from the control work, which handles the peer's answer.
    /// Context: may sleep.
    pub(super) fn close(&self) {
        self.close_with(Patience::of_process(None));
    }

    /// Closes this end, as [`Self::close`]. Waits with `patience`, or without limit if memory is
    /// lent.
    pub(super) fn close_with(&self, patience: Patience) {
        trace::close(|| self.traced(Ok(())));
        let old = self.channel.change_state(|_| Some(State::Closed));
        self.channel.wake();
        // Reads this after the change of the state: no call lends memory from then on.
        let patience = match self.windows.are_lent() {
            true => Patience::Endless,
            false => patience,
        };
        self.transfers.close_questions();
        self.transfers.drain(&patience);
        if !self.channel.drain_uses(&patience) {
            self.transfers.give_up();
        }
        self.transfers.marks.finish_deferred();
        self.windows.revoke_all();
        self.transfers.cache.close();
        self.remote_windows.forget_all();
        match (old, self.channel.remote()) {
            (State::Established, Ok(target)) => {
                self.channel.send_once(&Message::Close {
                    target,
                    source: self.channel.id,
                });
                self.wait_for_peer_transfers(&patience);
            }
            (State::Requested, _) => {
                // Stays in the table until the peer has refused the request, or its acceptance was
                // answered: the peer may already write.
                self.channel.send_once(&Message::Cancel {
                    source: self.channel.id,
                    to: self.to,
                });
            }
            // The end of a lost peer keeps the memory that the peer might write to, until the peer
            // is forgotten.
            (State::Lost, _) => (),
            _ => self.channel.remove(),
        }
        self.wait_until_released();
        self.windows.wait_until_unreachable();
    }

    /// Waits for [`Self::lost`] or the control work, if one of them releases memory of this end
    /// right now.
    fn wait_until_released(&self) {
        if !self.windows.have_resources() && !self.transfers.have_resources() {
            return;
        }
        drop(self.losing.lock());
        self.channel.wait_for_handler();
    }

    /// Waits until the peer, which knows that this end is closed, has completed its transfers from
    /// and to this end's windows. By then the peer has also released the windows that it has not
    /// mapped. The wait ends early when the peer is lost or `patience` is spent.
    fn wait_for_peer_transfers(&self, patience: &Patience) {
        let (Ok(waiters), 1..) = (self.channel.waiters(), self.windows.totals().windows) else {
            return;
        };
        let done = || self.close_answered.load(Relaxed) || self.channel.is_over();
        if !self.windows.wait_if_lent(&waiters, || done().then_some(())) {
            patience.wait_for_answer(&waiters, done);
        }
    }
}

/// Numbers of connections, windows and mappings shared with online nodes.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    /// Connections that are closed here, and wait for the peer's last message.
    pub(crate) closing_connections: usize,
    /// Windows that peers may be using.
    pub(crate) exported_windows: usize,
    /// Mappings of peers' memory in processes.
    pub(crate) mappings: usize,
}

/// Amounts that one end of a connection has moved, and its windows.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) sent: Moved,
    pub(crate) received: Moved,
    pub(crate) transfers: Progress,
    pub(crate) windows: WindowTotals,
}

impl Traffic {
    /// Returns the numbers that both interfaces show (fdinfo, debugfs), each with its name.
    pub(crate) fn fields(&self) -> [(&'static str, u64); 11] {
        let (written, read) = (&self.transfers.written, &self.transfers.read);
        [
            ("sent_bytes", self.sent.bytes),
            ("sent_messages", self.sent.times),
            ("received_bytes", self.received.bytes),
            ("received_messages", self.received.times),
            ("written_bytes", written.bytes),
            ("written_transfers", written.times),
            ("read_bytes", read.bytes),
            ("read_transfers", read.times),
            ("in_flight", self.transfers.in_flight),
            ("windows", self.windows.windows),
            ("window_bytes", self.windows.bytes),
        ]
    }
}
