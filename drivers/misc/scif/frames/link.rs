// SPDX-License-Identifier: GPL-2.0

//! The rings with one peer: how they are joined with the peer's, and how that ends.
//!
//! # States
//!
//! `Idle`: this node has offered nothing, it joins the rings anew, or the peer lacks the service.
//! `Offered`: the peer has an offer of this node. `Joined`: both have the other's. `Ended`: the driver
//! or the peer has gone.
//! `logic/frame_messages.rs` has the messages.
//!
//! # Locks
//!
//! `Link::inner` is held while the client is told, so that it is told in order. So when the driver has
//! ended a link, no other task is in the client's code, and the driver's module can be unloaded.
//! `Link::joins` is ended before that, outside `Link::inner`: its item waits for the peer.

use super::{
    rings::{
        Rings,
        SLOTS, //
    },
    Client, //
};
use crate::{
    logic::{
        budget::Budget,
        envelope::{
            PeerMessage,
            ServiceId, //
        },
        frame_messages::{
            BlockOffer,
            FrameMessage, //
        },
    },
    peer::{
        control::Reservation,
        service::Violation,
        Peer, //
    },
    sync::work_queues::PeerQueue,
    sys::{
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
        workqueue::Queue as WorkQueue, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

/// An offer that can't fail any more.
struct Prepared {
    rings: Rings,
    reservation: Reservation,
}

pub(super) enum State {
    Idle,
    Offered(Rings),
    Joined(Rings),
    /// The driver or the peer has gone. The peer may still write to the rings.
    Ended(Option<Rings>),
}

pub(super) struct Inner {
    pub(super) state: State,
    /// The client, until the driver or the session has gone.
    pub(super) client: Option<Arc<dyn Client>>,
    /// Rings that this node has withdrawn. The peer may still write to them: it has not answered yet, or
    /// is lost.
    kept: Option<Rings>,
    /// The wanted number of slots that could not be had. Then the client gets the usual number.
    refused: Option<u32>,
    /// Milliseconds of [`Link::now`] before which this node does not join the rings anew.
    rejoins_at: u64,
}

/// The frame rings with one peer.
#[pin_data]
pub(crate) struct Link {
    pub(super) peer: Arc<Peer>,
    pub(super) queues: u32,
    #[pin]
    pub(super) inner: Mutex<Inner>,
    /// Whether the peer has said that it uses the rings no more, or is lost.
    is_released: Atomic<bool>,
    /// Whether the client leaves.
    is_leaving: Atomic<bool>,
    /// Milliseconds of [`Link::now`] from which on a peer that has not answered a Withdraw counts as lost.
    release_by: Atomic<u64>,
    /// Woken when one of these is so.
    #[pin]
    released: WaitQueue,
    /// Queue of the item that joins the rings anew.
    #[pin]
    joins: PeerQueue,
    /// The peer's messages that join rings or part them.
    budget: Budget,
    since: Instant<Monotonic>,
}

/// Milliseconds between two times that this node joins the rings anew, at least.
const REJOIN: u64 = 1000;

/// Number of messages by which the peer may join rings, or part them, at once. Each time costs this
/// node allocations, and the lock of all network devices.
const JOINS: u64 = 64;

/// Milliseconds until one more such message is allowed. If both nodes join anew as often as they may, a
/// node gets three for each [`REJOIN`]: an offer for its own, and a withdrawal and an offer of the peer.
/// A peer may load its driver again and again, too.
const JOIN: u64 = REJOIN / 20;

/// Milliseconds after which a peer that does not release the rings counts as lost.
const RELEASE: u64 = 30_000;

impl Inner {
    /// Makes an offer to the peer, if none was made.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn offer(&mut self, peer: &Arc<Peer>, queues: u32) -> Result {
        if matches!(self.state, State::Idle) {
            let prepared = self.prepare(peer, queues)?;
            self.send_offer(peer, prepared);
        }
        Ok(())
    }

    /// Returns the number of slots that the client wants, if it wants one.
    fn wanted(&self) -> Option<u32> {
        self.client.as_ref().and_then(|client| client.slots())
    }

    /// Allocates all that an offer needs.
    /// Context: may sleep, does not wait for the peer.
    fn prepare(&self, peer: &Arc<Peer>, queues: u32) -> Result<Prepared> {
        let reservation = Reservation::new(GFP_KERNEL)?;
        let _inside = peer.enter().ok_or(ENODEV)?;
        let wanted = self.wanted();
        let mut slots = wanted.filter(|_| wanted != self.refused);
        // Smaller rings are better than none.
        let mut rings = loop {
            match (Rings::new(peer, queues, slots), slots) {
                (Ok(rings), _) => break rings,
                (Err(error), None) => return Err(error),
                (Err(_), Some(size)) => slots = Some(size / 2).filter(|size| *size > SLOTS),
            }
        };
        rings.wanted = wanted;
        Ok(Prepared { rings, reservation })
    }

    /// Sends an offer to the peer. The state is `Idle`.
    fn send_offer(&mut self, peer: &Arc<Peer>, prepared: Prepared) {
        let Prepared { rings, reservation } = prepared;
        let offer = rings.offer();
        self.state = State::Offered(rings);
        peer.send(reservation, &offer);
    }

    /// Returns whether the slots of these rings are closer to the wanted number than the present ones.
    fn gets_closer(&self, rings: &Rings) -> bool {
        let State::Joined(present) = &self.state else {
            return true;
        };
        let (slots, before) = (rings.offered.slots(), present.offered.slots());
        rings
            .wanted
            .is_none_or(|wanted| wanted <= before || slots > before)
    }

    /// Ends the use of the rings. Returns the rings, to which the peer may still write.
    /// Context: may sleep.
    pub(super) fn leave(&mut self, next: State) -> Option<Rings> {
        match core::mem::replace(&mut self.state, next) {
            State::Joined(mut rings) => {
                // No doorbell reaches the client any more.
                rings.subscriptions = KVec::new();
                if let Some(client) = &self.client {
                    client.down();
                }
                rings.queues.iter().for_each(|queue| queue.end_use());
                Some(rings)
            }
            State::Offered(rings) => Some(rings),
            State::Idle => None,
            State::Ended(rings) => rings,
        }
    }
}

/// Logs that there are no rings with a peer.
pub(super) fn no_rings(peer: &Peer, error: Error) {
    if peer.may_log() && !peer.is_over() {
        let node = peer.node();
        pr_warn!("node {node}: its frame rings can't be made: {error:?}; its network device stays without carrier\n");
    }
}

/// Logs that the rings with a peer stay as they are.
fn no_other_rings(peer: &Peer, error: Error) {
    if peer.may_log() && !peer.is_over() {
        let node = peer.node();
        pr_warn!("node {node}: its frame rings keep their size: others can't be made: {error:?}\n");
    }
}

impl Link {
    /// Creates the link, with nothing offered.
    /// Context: may sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        queues: u32,
        client: Option<Arc<dyn Client>>,
    ) -> Result<Arc<Self>> {
        let inner = Inner {
            state: State::Idle,
            client,
            kept: None,
            refused: None,
            rejoins_at: 0,
        };
        let joins = WorkQueue::ordered(c"scif_frames")?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                queues,
                inner <- new_mutex!(inner, "frames::Link::inner"),
                is_released: Atomic::new(false),
                is_leaving: Atomic::new(false),
                release_by: Atomic::new(0),
                released <- new_wait_queue!("scif::frames::Link::released"),
                joins <- PeerQueue::new(joins),
                budget: Budget::new(JOINS, JOIN),
                since: Instant::now(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the milliseconds since the link was created.
    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(0)
    }

    /// Counts a message by which the peer joins rings, or parts them.
    pub(super) fn admit_join(&self) -> Result<(), Violation> {
        match self.budget.take(self.now(), 1) {
            true => Ok(()),
            false => Err("it joins frame rings again and again"),
        }
    }

    /// Takes the peer's offer, and makes an own one, if none was made.
    pub(super) fn offered(self: &Arc<Self>, offer: &BlockOffer) -> Result<(), Violation> {
        let mut inner = self.inner.lock();
        if let Err(error) = inner.offer(&self.peer, self.queues) {
            no_rings(&self.peer, error);
            return Ok(());
        }
        let Some(client) = inner.client.clone() else {
            // The driver has gone, and the service will in a moment.
            let service = ServiceId::NET;
            self.peer.answer(&PeerMessage::NoService { service });
            return Ok(());
        };
        let mut rings = match core::mem::replace(&mut inner.state, State::Idle) {
            State::Offered(rings) => rings,
            State::Joined(rings) => {
                inner.state = State::Joined(rings);
                return Err("it offers frame rings twice");
            }
            other => {
                inner.state = other;
                return Ok(());
            }
        };
        let joined = rings.join(self, &client, offer);
        let told = joined.and_then(|()| client.up(&rings.queues).inspect_err(|_| client.down()));
        let error = match told {
            Ok(()) => {
                // The client may have changed its mind since the offer.
                let is_old = rings.wanted != client.slots();
                inner.state = State::Joined(rings);
                if is_old {
                    // Without memory for that, the rings stay as they are.
                    let _ = self.rejoin_later();
                }
                return Ok(());
            }
            Err(error) => error,
        };
        rings.subscriptions = KVec::new();
        rings.queues.iter().for_each(|queue| queue.end_use());
        if error == EFAULT {
            // The peer may use the rings already.
            inner.state = State::Ended(Some(rings));
            return Err("it offers frame rings that can't be reached");
        }
        if rings.wanted == inner.refused {
            inner.state = State::Ended(Some(rings));
            no_rings(&self.peer, error);
            return Ok(());
        }
        // The next offer has the usual size.
        inner.refused = rings.wanted;
        inner.state = State::Joined(rings);
        if let Err(error) = self.rejoin_later() {
            no_rings(&self.peer, error);
        }
        Ok(())
    }

    pub(super) fn release(&self) {
        self.is_released.store(true, Release);
        self.released.wake_all();
    }

    /// Has an item join the rings anew. ENODEV: the link has ended. ENOMEM: there is no memory for a
    /// message or the item.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn rejoin_later(self: &Arc<Self>) -> Result {
        let reservation = Reservation::new(GFP_KERNEL)?;
        let link = self.clone();
        self.joins.spawn(move || link.rejoin(reservation))
    }

    /// Withdraws the offer, and makes another one. The peer may do the same meanwhile. Without memory
    /// for another one, the rings stay as they are.
    /// Context: may sleep, waits for the peer.
    fn rejoin(&self, reservation: Reservation) {
        if !self.is_to_rejoin(&self.inner.lock()) {
            return;
        }
        self.await_turn();
        let mut inner = self.inner.lock();
        if !self.is_to_rejoin(&inner) {
            return;
        }
        inner.rejoins_at = self.now().saturating_add(REJOIN);
        let prepared = match inner.prepare(&self.peer, self.queues) {
            Ok(prepared) => prepared,
            Err(error) => return no_other_rings(&self.peer, error),
        };
        if !inner.gets_closer(&prepared.rings) {
            return no_other_rings(&self.peer, ENOMEM);
        }
        let Some(rings) = inner.leave(State::Idle) else {
            return;
        };
        // Under the lock, so that no new offer is sent before the Withdraw.
        self.say_withdraw(reservation);
        drop(inner);
        let kept = self.await_release(rings);
        let mut inner = self.inner.lock();
        if kept.is_some() {
            inner.kept = kept;
        } else if inner.client.is_some() && matches!(inner.state, State::Idle) {
            inner.send_offer(&self.peer, prepared);
        }
    }

    /// Returns whether the rings are joined, and the client wants others.
    fn is_to_rejoin(&self, inner: &Inner) -> bool {
        let State::Joined(rings) = &inner.state else {
            return false;
        };
        let wanted = inner.wanted();
        let is_refused = wanted.is_some() && wanted == inner.refused;
        (wanted != rings.wanted || is_refused) && !self.is_over()
    }

    /// Returns whether the peer is lost, or the driver goes.
    fn is_over(&self) -> bool {
        self.peer.is_over() || self.is_leaving.load(Acquire)
    }

    /// Waits until this node may join the rings anew, or has no reason to any more.
    /// Context: may sleep, up to [`REJOIN`].
    fn await_turn(&self) {
        let rejoins_at = self.inner.lock().rejoins_at;
        let rest = rejoins_at.saturating_sub(self.now()).min(REJOIN);
        let is_over = || self.is_over().then_some(());
        let rest = Delta::from_millis(rest as i64);
        let _is_over = self.released.wait_uninterruptible_timeout(rest, is_over);
    }

    /// Ends the use of the rings by the client. When this returns, no task is in the client. Returns
    /// the rings, to which the peer may still write.
    /// Context: may sleep, waits for an item that joins the rings anew.
    fn leave_client(&self) -> Option<Rings> {
        self.is_leaving.store(true, Release);
        self.released.wake_all();
        self.joins.end();
        let (rings, client) = {
            let mut inner = self.inner.lock();
            let rings = inner.leave(State::Ended(None));
            (rings, inner.client.take())
        };
        drop(client);
        rings
    }

    /// Ends the use of the rings, as the peer can't reach them any more.
    /// Context: may sleep.
    pub(super) fn forget(&self) {
        let rings = self.leave_client();
        let kept = self.inner.lock().kept.take();
        drop((rings, kept));
    }

    /// Ends the use of the rings by the client, and tells the peer. [`Self::end`] is called afterwards.
    /// Context: may sleep, waits for an item that joins the rings anew.
    pub(super) fn begin_end(&self) {
        let Some(rings) = self.leave_client() else {
            return;
        };
        let mut inner = self.inner.lock();
        // A peer that lies has made an offer before it has released those.
        inner.state = State::Ended(inner.kept.replace(rings));
        drop(inner);
        match Reservation::new(GFP_KERNEL) {
            Ok(reservation) => self.say_withdraw(reservation),
            Err(_) => self.peer.fail("there is no memory to withdraw frame rings"),
        }
    }

    /// Waits until the peer uses the withdrawn rings no more, and frees them.
    /// Context: may sleep, waits for the peer.
    pub(super) fn end(&self) {
        let rings = self.inner.lock().kept.take();
        if let Some(rings) = rings {
            let kept = self.await_release(rings);
            self.inner.lock().kept = kept;
        }
    }

    /// Tells the peer that this node uses its rings no more.
    fn say_withdraw(&self, reservation: Reservation) {
        self.is_released.store(false, Release);
        let release_by = self.now().saturating_add(RELEASE);
        self.release_by.store(release_by, Relaxed);
        self.peer.send(reservation, &FrameMessage::Withdraw {});
    }

    /// Waits until the peer uses withdrawn rings no more, and frees them. If the peer can't be heard
    /// of any more, returns them: they have to stay until the session is forgotten.
    /// Context: may sleep, waits for the peer.
    fn await_release(&self, rings: Rings) -> Option<Rings> {
        let is_over = || self.is_released.load(Acquire) || self.peer.is_over();
        let rest = self.release_by.load(Relaxed).saturating_sub(self.now());
        let rest = Delta::from_millis(rest.min(RELEASE) as i64);
        // No signal may interrupt this: the peer writes to the rings until it has the message.
        let waited = self
            .released
            .wait_uninterruptible_timeout(rest, || is_over().then_some(()));
        if waited.is_none() {
            self.peer.fail("it does not release frame rings");
        }
        self.peer.is_over().then_some(rings)
    }
}
