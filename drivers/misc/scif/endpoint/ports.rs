// SPDX-License-Identifier: GPL-2.0

//! The ports of this node, and the listeners on them.
//!
//! Port 0 means "any" in every call of SCIF and is never given out. A caller that asks for any port
//! gets the next free one behind the port that was given out last, from [`FIRST_DYNAMIC`] on. So a
//! port that was just freed is given out again as late as possible: a peer may still hold messages
//! for it.
//!
//! A listener has a queue of requests that wait for accept, and a list of accepted connections that
//! wait for an endpoint.
//!
//! Locks:
//!
//! - `Ports::inner` is a spinlock, held for the access to one port only. All users and the control
//!   work need it, however many listeners one user has.
//! - `Listener::queue` is a spinlock, which the control work takes.
//! - `Listener::accepted` is a leaf among the mutexes.

use super::accept::Accepting;
use crate::{
    logic::{
        envelope::ChannelId,
        messages::{
            Message,
            RingAddress,
            Status, //
        }, //
    },
    peer::{
        control::Reservation,
        Peer, //
    },
    sync::fair_share::{
        FairShare,
        FairShares, //
    },
    sys::wait::WaitQueue, //
};
use kernel::{
    id_pool::IdPool,
    new_mutex,
    new_spinlock,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    }, //
};

/// First port that is given out to a caller that asks for any port (`SCIF_PORT_RSVD`).
const FIRST_DYNAMIC: u16 = 1088;

/// Number of ports.
const PORTS: usize = 1 << 16;

struct Inner {
    /// Ports that are taken, and port 0.
    taken: IdPool,
    /// Number from which the search for any port begins.
    next: u16,
    listeners: RBTree<u16, Arc<Listener>>,
}

impl Inner {
    /// Takes the port with this number. EINVAL: an endpoint has the port.
    fn take(&mut self, number: u16) -> Result<u16> {
        let free = self.taken.find_unused_id(number.into());
        let free = free.filter(|free| free.as_usize() == number.into());
        free.ok_or(EINVAL)?.acquire();
        Ok(number)
    }

    /// Takes any port from [`FIRST_DYNAMIC`] on. ENOSPC: all of them are taken.
    fn take_any(&mut self) -> Result<u16> {
        let start = match self.taken.find_unused_id(self.next.into()) {
            Some(_) => self.next,
            None => FIRST_DYNAMIC,
        };
        let free = self.taken.find_unused_id(start.into()).ok_or(ENOSPC)?;
        let number = free.acquire() as u16;
        self.next = number.checked_add(1).unwrap_or(FIRST_DYNAMIC);
        Ok(number)
    }
}

/// The ports of this node and their listeners.
#[pin_data]
pub(super) struct Ports {
    #[pin]
    inner: SpinLock<Inner>,
    shares: FairShares,
}

/// A port of this node that belongs to endpoints. The drop frees the port.
pub(super) struct BoundPort {
    ports: Arc<Ports>,
    pub(super) number: u16,
    _share: FairShare,
}

impl Drop for BoundPort {
    fn drop(&mut self) {
        let number = self.number.into();
        self.ports.inner.lock().taken.release_id(number);
    }
}

impl Ports {
    /// Creates the table with all ports free.
    /// Context: may sleep.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut inner = Inner {
            taken: IdPool::with_capacity(PORTS, GFP_KERNEL)?,
            next: FIRST_DYNAMIC,
            listeners: RBTree::new(),
        };
        inner.take(0)?;
        let shares = FairShares::of(PORTS)?;
        Arc::pin_init(
            pin_init!(Self {
                inner <- new_spinlock!(inner, "Ports::inner"),
                shares,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes port `number`, or any free port if `number` is 0.
    ///
    /// # Errors
    ///
    /// - EINVAL: the port is taken.
    /// - ENOSPC: no port is left, or the caller's user has its share of ports.
    pub(super) fn bind(self: &Arc<Self>, number: u16) -> Result<Arc<BoundPort>> {
        let share = self.shares.take()?.ok_or(ENOSPC)?;
        let mut inner = self.inner.lock();
        let taken = match number {
            0 => inner.take_any(),
            _ => inner.take(number),
        };
        // Releases the lock before an error drops the share.
        drop(inner);
        // From here on the drop of `port` frees the number. A failed allocation below drops it,
        // too.
        let port = BoundPort {
            ports: self.clone(),
            number: taken?,
            _share: share,
        };
        Ok(Arc::new(port, GFP_KERNEL_ACCOUNT)?)
    }

    /// Makes the listener known for requests to its port.
    pub(super) fn add_listener(&self, listener: &Arc<Listener>) -> Result {
        // Allocates before it takes the lock that all processes need: the charge may make the
        // caller wait.
        let node = RBTreeNode::new(listener.port, listener.clone(), GFP_KERNEL_ACCOUNT)?;
        let _replaced = self.inner.lock().listeners.insert(node);
        Ok(())
    }

    /// Returns the listener at a port.
    pub(super) fn listener(&self, port: u16) -> Option<Arc<Listener>> {
        self.inner.lock().listeners.get(&port).cloned()
    }

    /// Hides the listener from further requests. A request that has already found the listener is
    /// refused once the listener is closed.
    pub(super) fn remove_listener(&self, listener: &Listener) {
        let removed = self.inner.lock().listeners.remove(&listener.port);
        drop(removed);
    }

    /// Handles a peer's request for a connection with `port`: queues the request, or refuses it.
    /// Context: may sleep.
    pub(super) fn requested(&self, port: u16, request: Request) {
        let queued = match self.listener(port) {
            Some(listener) => listener.push(request),
            None => Err((Status::Refused, request)),
        };
        if let Err((reason, request)) = queued {
            request.refuse(reason);
        }
    }

    /// Handles a withdrawal by the peer's connector `source`: refuses its request to `port`, if
    /// that is queued.
    /// Context: may sleep.
    pub(super) fn cancelled(&self, peer: &Arc<Peer>, source: ChannelId, port: u16) {
        if let Some(listener) = self.listener(port) {
            listener
                .refuse_if(|request| Arc::ptr_eq(&request.peer, peer) && request.source == source);
        }
    }

    /// Refuses the queued requests of a lost peer.
    /// Context: may sleep.
    pub(super) fn forget_requests(&self, peer: &Arc<Peer>) {
        let mut next = Some(0);
        while let Some(listener) = next.and_then(|from| self.listener_from(from)) {
            listener.refuse_if(|request| Arc::ptr_eq(&request.peer, peer));
            next = listener.port.checked_add(1);
        }
    }

    /// Returns the listener with the lowest port that is at least `port`.
    fn listener_from(&self, port: u16) -> Option<Arc<Listener>> {
        let inner = self.inner.lock();
        let cursor = inner.listeners.cursor_lower_bound(&port)?;
        Some(cursor.current().1.clone())
    }
}

#[kunit_tests(scif_endpoint_ports)]
mod tests {
    use super::*;
    use crate::sys::wait::new_wait_queue;

    const NUMBER: u16 = 2000;

    #[test]
    fn port_is_free_after_its_last_reference_is_dropped() -> Result {
        let ports = Ports::new()?;
        let port = ports.bind(NUMBER)?;
        let other = port.clone();
        drop(port);
        assert!(matches!(ports.bind(NUMBER), Err(error) if error == EINVAL));
        drop(other);
        let again = ports.bind(NUMBER)?;
        assert_eq!(again.number, NUMBER);
        drop(again);
        assert!(Arc::into_unique_or_drop(ports).is_some());
        Ok(())
    }

    #[test]
    fn bind_to_port_zero_chooses_a_free_port() -> Result {
        let ports = Ports::new()?;
        let first = ports.bind(0)?;
        let taken = ports.bind(first.number + 1)?;
        let second = ports.bind(0)?;
        assert_eq!(first.number, FIRST_DYNAMIC);
        assert_eq!(second.number, taken.number + 1);
        Ok(())
    }

    #[test]
    fn freed_port_is_reused_after_all_other_ports() -> Result {
        let ports = Ports::new()?;
        let mut inner = ports.inner.lock();
        assert_eq!(inner.take(0), Err(EINVAL));
        assert_eq!(inner.take_any(), Ok(FIRST_DYNAMIC));
        inner.taken.release_id(FIRST_DYNAMIC.into());
        for number in FIRST_DYNAMIC + 1..=u16::MAX {
            assert_eq!(inner.take_any(), Ok(number));
        }
        assert_eq!(inner.take_any(), Ok(FIRST_DYNAMIC));
        assert_eq!(inner.take_any(), Err(ENOSPC));
        inner.taken.release_id(2000);
        assert_eq!(inner.take_any(), Ok(2000));
        assert_eq!(inner.take_any(), Err(ENOSPC));
        Ok(())
    }

    #[test]
    fn listener_is_found_by_port_until_removed() -> Result {
        let ports = Ports::new()?;
        let waiters = Arc::pin_init(new_wait_queue!("scif_test::Ports::waiters"), GFP_KERNEL)?;
        let listener = Listener::new(NUMBER, 1, waiters)?;
        ports.add_listener(&listener)?;
        assert!(ports.inner.lock().listeners.get(&NUMBER).is_some());
        ports.remove_listener(&listener);
        assert!(ports.inner.lock().listeners.get(&NUMBER).is_none());
        assert!(Arc::into_unique_or_drop(listener).is_some());
        Ok(())
    }
}

/// Largest backlog. Larger ones are reduced to it.
const MAX_BACKLOG: usize = 1024;

/// A peer's request for a connection. The drop refuses the request, unless it was answered.
pub(super) struct Request {
    pub(super) peer: Arc<Peer>,
    /// Id of the connector's end.
    pub(super) source: ChannelId,
    pub(super) source_port: u16,
    /// Ring in which the connector receives.
    pub(super) ring: RingAddress,
    /// Memory for the answer. None once the request is answered.
    reservation: Option<Reservation>,
}

impl Request {
    /// Creates a request. ENOMEM: there is no memory for its answer.
    /// Context: may sleep.
    pub(super) fn new(
        peer: &Arc<Peer>,
        source: ChannelId,
        source_port: u16,
        ring: RingAddress,
    ) -> Result<Self> {
        Ok(Self {
            peer: peer.clone(),
            source,
            source_port,
            ring,
            reservation: Some(Reservation::new(GFP_KERNEL)?),
        })
    }

    /// Answers the request.
    /// Context: any.
    pub(super) fn answer(mut self, message: &Message) {
        self.send(message);
    }

    /// Refuses the request.
    /// Context: any.
    pub(super) fn refuse(mut self, reason: Status) {
        let target = self.source;
        self.send(&Message::Refuse { target, reason });
    }

    fn send(&mut self, message: &Message) {
        if let Some(reservation) = self.reservation.take() {
            self.peer.send(reservation, message);
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.send(&Message::Refuse {
            target: self.source,
            reason: Status::Refused,
        });
    }
}

/// A port on which an endpoint listens, with its requests and accepted connections.
#[pin_data]
pub(super) struct Listener {
    /// Number of the port. Its [`BoundPort`] belongs to the endpoint. So the port is free once the
    /// endpoint is closed, even if a reference to this listener is left.
    pub(super) port: u16,
    backlog: usize,
    /// Requests in the order in which they came. Empty once the listener is closed.
    #[pin]
    queue: SpinLock<RBTree<u64, Request>>,
    /// Number of queued requests; written under `queue`.
    queued: Atomic<usize>,
    /// Set under `queue`.
    closed: Atomic<bool>,
    #[pin]
    pub(super) accepted: Mutex<KVec<Accepting>>,
    /// Wait queue of the endpoint.
    waiters: Arc<WaitQueue>,
}

impl Listener {
    pub(super) fn new(port: u16, backlog: usize, waiters: Arc<WaitQueue>) -> Result<Arc<Self>> {
        let backlog = backlog.min(MAX_BACKLOG);
        Arc::pin_init(
            pin_init!(Self {
                port,
                backlog,
                queue <- new_spinlock!(RBTree::new(), "Listener::queue"),
                queued: Atomic::new(0),
                closed: Atomic::new(false),
                accepted <- new_mutex!(KVec::new(), "Listener::accepted"),
                waiters,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Queues a request and wakes the callers of accept. Otherwise returns the request and the
    /// reason for refusal.
    pub(super) fn push(&self, request: Request) -> Result<(), (Status, Request)> {
        // Allocated for each request, and not charged: the listener has not asked for this one.
        let Ok(node) = RBTreeNodeReservation::new(GFP_KERNEL) else {
            return Err((Status::NoMemory, request));
        };
        let mut requests = self.queue.lock();
        if self.is_closed() || self.queued() >= self.backlog {
            return Err((Status::Refused, request));
        }
        let last = requests.cursor_back().map(|last| *last.current().0);
        requests.insert(node.into_node(last.map_or(0, |last| last + 1), request));
        self.queued.fetch_add(1, Relaxed);
        drop(requests);
        self.waiters.wake_all();
        Ok(())
    }

    /// Takes the first queued request for which `wanted` is true.
    pub(super) fn take_if(&self, wanted: impl Fn(&Request) -> bool) -> Option<Request> {
        let mut requests = self.queue.lock();
        let mut queued = requests.iter();
        let number = queued.find_map(|(number, request)| wanted(request).then_some(*number))?;
        self.queued.fetch_sub(1, Relaxed);
        requests.remove(&number)
    }

    /// Refuses all queued requests for which `is_meant` is true.
    /// Context: may sleep.
    fn refuse_if(&self, is_meant: impl Fn(&Request) -> bool) {
        // The drop refuses each request, without the lock.
        while self.take_if(&is_meant).is_some() {}
    }

    /// Returns how many requests are queued.
    /// Context: any.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// Returns whether the listener was closed.
    /// Context: any.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Refuses all requests, queued and later ones, and closes the accepted connections that were
    /// not taken over. The caller has removed the listener from its port.
    /// Context: may sleep.
    pub(super) fn close(&self) {
        let requests = {
            let mut requests = self.queue.lock();
            self.queued.store(0, Relaxed);
            self.closed.store(true, Relaxed);
            core::mem::take(&mut *requests)
        };
        self.waiters.wake_all();
        self.close_accepted(None);
        drop(requests);
    }
}
