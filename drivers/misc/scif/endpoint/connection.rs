// SPDX-License-Identifier: GPL-2.0

//! One end of a connection, from the request to the last word about it.
//!
//! A connection is parts: a channel (how the two ends stand, `peer/channel.rs`), a byte stream
//! (`stream.rs`), the windows of both ends (`memory/`), transfers and fences (`rma/`). It is here that
//! they are put together, and that they are told of what happens to the connection, in order.
//!
//! # Closing
//!
//! An end that closes first stops writing itself, then says `Close` and stays in the contact's table,
//! so that its ring's memory lives, until the other end has said `CloseDone`: that it will write into
//! the ring no more, and that its transfers have ended. Both may close at once: each answers the
//! other's `Close`. An end whose peer has closed leaves without a word.
//!
//! Close waits, in this order, for
//!
//! 1. this end's own transfers, and signals behind them: an engine that stops is given up after seconds;
//! 2. callers that are inside the channel, whatever the peer does: each copies one chunk at most;
//! 3. if this end has windows, the peer's `CloseDone`, so that the peer's transfers are complete, too. If memory was lent,
//!    the peer is lost after ten seconds;
//! 4. the control work, if it releases this end's memory right now.
//!
//! What of this is up to the peer (slots, reads, `CloseDone`) a process waits for until it is killed, and then for two
//! seconds in all, as does one that exits for all of its descriptors. A descriptor that outlives its processes is not
//! waited for (`sync/patience.rs`). Signals that are not given by then are forgotten; transfers end by themselves, as the
//! peer lets them, and keep their memory until then.
//!
//! The loss of the peer ends each of these. What the caller can see, port, pins and charges, is gone when close has
//! returned, but for windows
//!
//! - that the peer has mapped,
//! - that the peer can't be kept out of, because the device is gone,
//! - that the peer does not release while the process is being killed, as windows or for transfers.

use super::{
    contact::Contact,
    stream::Stream, //
};
use crate::{
    arguments::PortId,
    logic::{
        envelope::ChannelId,
        messages::{
            Destination,
            Message,
            RingAddress, //
            Status,
        }, //
    },
    memory::{
        remote_windows::RemoteWindows,
        windows::{
            Held,
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

/// Which ports it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortPair {
    pub(crate) own: u16,
    pub(crate) peer: u16,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Connection {
    pub(super) channel: Arc<Channel>,
    pub(super) own_port: u16,
    /// Whom it was asked for; of an end that was accepted, who has asked.
    to: Destination,
    /// The port of whom it was asked for by name, once the peer has said it.
    named_port: SetOnce<u16>,
    pub(super) stream: Arc<Stream>,
    /// Has the stream told of news, until the peer can't have any.
    #[pin]
    subscription: SpinLock<Option<Subscription>>,
    /// Messages are calls that have moved something.
    pub(super) sent: Flow,
    pub(super) received: Flow,
    pub(super) windows: Arc<Windows>,
    pub(super) remote_windows: Arc<RemoteWindows>,
    #[pin]
    pub(super) transfers: Transfers,
    pub(super) mappings: Arc<Mappings>,
    /// Why the peer did not want it.
    pub(super) refusal: SetOnce<Status>,
    /// Whether the peer has said `CloseDone`.
    close_answered: Atomic<bool>,
    /// Of the connections that users may have with the peer.
    _share: FairShare,
    /// Held while the loss of the peer is noted, so that a closer waits for that.
    #[pin]
    losing: Mutex<()>,
}

impl Connection {
    /// An end in this state that nobody knows of yet. The caller is inside the peer. May sleep.
    pub(super) fn new(
        contact: &Arc<Contact>,
        id: ChannelId,
        own_port: u16,
        to: Destination,
        state: State,
        share: FairShare,
    ) -> Result<Arc<Self>> {
        let channel = Channel::new(&contact.peer, contact.clone(), id, state)?;
        let stream = Stream::new(
            &channel,
            contact.ring_size,
            contact.ring_shares.of_caller()?,
        )?;
        let subscription = Subscription::to_channel(&channel.doorbells, id, stream.clone())?;
        let (exports, caches) = (&contact.exports, &contact.caches);
        let windows = Windows::new(&channel, exports, caches.clone())?;
        let remote_windows = RemoteWindows::new(&channel, &contact.remembered)?;
        let transfers = Transfers::new(&channel, &windows, &remote_windows, caches, &contact.ways)?;
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
                mappings: contact.mappings.clone(),
                refusal: SetOnce::new(),
                close_answered: Atomic::new(false),
                _share: share,
                losing <- new_mutex!((), "Connection::losing"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Takes away what the peer can still reach, as it is out of the table. May sleep.
    pub(super) fn leave(&self) {
        let subscription = self.subscription.lock().take();
        drop(subscription);
        // Somebody may hold on to the connection for long, but the peer writes no more.
        self.stream.own.unmap();
    }

    /// Learns of the other end. Ends the relation to the peer if what it says can't be.
    pub(super) fn set_remote(&self, id: ChannelId, port: u16, ring: &RingAddress) -> Result {
        self.stream.set_remote(ring)?;
        self.named_port.populate(port);
        self.channel.set_remote(id);
        Ok(())
    }

    /// Returns the ports of both ends; the peer's is 0 as long as there is only a name for it.
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

    /// What it has moved, and has. May sleep.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            sent: self.sent.moved(),
            received: self.received.moved(),
            transfers: self.progress(),
            windows: self.windows.held(),
        }
    }

    /// How its transfers go, and what waits for them. Any context.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            asked: self.transfers.asked(),
            ..self.transfers.marks.progress()
        }
    }

    /// What the events of its life are told.
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

    // ----- what the peer says; called by the control work --------------------------------------

    /// The peer has accepted. Returns whether this end still wants the connection.
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

    /// The peer has refused.
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

    /// The peer has closed its end.
    pub(super) fn peer_closed(&self) {
        trace::peer_closed(|| self.traced(Ok(())));
        // First, so that whoever has seen the state is refused.
        self.channel.close_uses();
        self.channel
            .change_state(|state| (state == State::Established).then_some(State::PeerClosed));
        self.channel.wake();
        self.transfers.close_questions();
        // Before the answer: when that is there, the peer has its memory back, unless it is in use.
        self.remote_windows.forget_all();
        // Whoever is the last to leave answers, so that the answer comes after the last write.
        self.channel.end_uses();
        // Nobody can reach them any more, but who has mapped them or copies already.
        self.windows.revoke_all();
        self.transfers.cache.close_soon();
    }

    /// The peer will write no more into the ring of this closed end, and its transfers have ended:
    /// the end can go.
    pub(super) fn close_done(&self) {
        if self.channel.state() == State::Closed {
            self.channel.remove();
        }
        self.close_answered.store(true, Relaxed);
        self.channel.wake();
    }

    /// The peer's node is gone. May sleep.
    pub(super) fn lost(&self) {
        trace::lost(|| self.traced(Err(ENODEV)));
        let _losing = self.losing.lock();
        // First, so that whoever has seen the state is refused.
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

    // ----- what the owner wants ----------------------------------------------------------------

    /// Closes this end. May sleep; the head of this file says what for. Not for calling from the control work, which
    /// hears the peer's answer.
    pub(super) fn close(&self) {
        self.close_with(Patience::of_process(None));
    }

    /// As [`Self::close`], with this patience, unless memory is lent.
    pub(super) fn close_with(&self, patience: Patience) {
        trace::close(|| self.traced(Ok(())));
        let old = self.channel.change_state(|_| Some(State::Closed));
        self.channel.wake();
        // Looked at now, as calls that lend memory are refused from here on.
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
                // Stays in the table until the request is refused or its acceptance has been
                // answered: the peer may already write.
                self.channel.send_once(&Message::Cancel {
                    source: self.channel.id,
                    to: self.to,
                });
            }
            // A peer that is lost keeps what it might write to until it is forgotten.
            (State::Lost, _) => (),
            _ => self.channel.remove(),
        }
        self.wait_until_released();
        self.windows.wait_until_unreachable();
    }

    /// Waits until [`Self::lost`] or the control work, if one of them releases memory of this end right now, has done
    /// so.
    fn wait_until_released(&self) {
        if !self.windows.were_used() && !self.transfers.were_used() {
            return;
        }
        drop(self.losing.lock());
        self.channel.wait_for_handler();
    }

    /// Waits until the peer, which has been told that this end is closed, has no transfer from or to
    /// its windows under way, and has let go of those that it has not mapped. The loss of the peer ends the wait, and so
    /// does the end of `patience`.
    fn wait_for_peer_transfers(&self, patience: &Patience) {
        let (Ok(waiters), 1..) = (self.channel.waiters(), self.windows.held().windows) else {
            return;
        };
        let done = || self.close_answered.load(Relaxed) || self.channel.is_over();
        if !self.windows.wait_if_lent(&waiters, || done().then_some(())) {
            patience.wait_for_answer(&waiters, done);
        }
    }
}

/// What there is with the nodes that are online.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    /// Those that are closed here, and wait for the peer's last word.
    pub(crate) closing_connections: usize,
    /// Windows that peers may be using.
    pub(crate) exported_windows: usize,
    /// Of peers' memory, in processes.
    pub(crate) mappings: usize,
}

/// What one end of a connection has moved, and has.
#[derive(Default)]
pub(crate) struct Traffic {
    pub(crate) sent: Moved,
    pub(crate) received: Moved,
    pub(crate) transfers: Progress,
    pub(crate) windows: Held,
}

impl Traffic {
    /// The numbers that every front door shows, and what they are called.
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
