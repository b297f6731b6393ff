// SPDX-License-Identifier: GPL-2.0

//! The ports of this node, and who listens on them.
//!
//! Port 0 means "any" in every call of SCIF and is never given out. Who asks for any port gets the next one
//! behind that which was given out last, from [`FIRST_DYNAMIC`] on: so a port that was just freed comes back as
//! late as possible, as a peer may still hold messages for it.
//!
//! Lock: `inner` is a spinlock, held for a look at one port: all users and the control work need it, however many listeners
//! one user has.
//!
//! A listening port, the connection requests that wait for accept, and the connections that were accepted and wait for
//! an endpoint.
//!
//! Locks: `queue` is a spinlock, which the control work takes; `accepted` is a leaf among the mutexes.

use super::accept::Accepting;
use crate::{
    logic::{
        envelope::ChannelId,
        messages::{
            Message,
            RingAddress, //
            Status,
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

/// The first port that is given out to a caller that does not name one (`SCIF_PORT_RSVD`).
const FIRST_DYNAMIC: u16 = 1088;

/// How many numbers of ports there are.
const PORTS: usize = 1 << 16;

struct Inner {
    /// The ports that are taken, and 0.
    taken: IdPool,
    /// Where to look first for any port.
    next: u16,
    listeners: RBTree<u16, Arc<Listener>>,
}

impl Inner {
    /// Takes the port with this number: EINVAL if an endpoint has it.
    fn take(&mut self, number: u16) -> Result<u16> {
        let free = self.taken.find_unused_id(number.into());
        let free = free.filter(|free| free.as_usize() == number.into());
        free.ok_or(EINVAL)?.acquire();
        Ok(number)
    }

    /// Takes some port from [`FIRST_DYNAMIC`] on: ENOSPC if all of them are taken.
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

/// See the head of this file.
#[pin_data]
pub(super) struct Ports {
    #[pin]
    inner: SpinLock<Inner>,
    shares: FairShares,
}

/// A port of this node that belongs to endpoints; free again when dropped.
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
    /// All of them free. May sleep.
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

    /// Takes a port: `number`, or any that is free for 0. EINVAL if it is taken, ENOSPC if none is
    /// left, or the caller's user has its share.
    pub(super) fn bind(self: &Arc<Self>, number: u16) -> Result<Arc<BoundPort>> {
        let share = self.shares.take()?.ok_or(ENOSPC)?;
        let mut inner = self.inner.lock();
        let taken = match number {
            0 => inner.take_any(),
            _ => inner.take(number),
        };
        // Before the share may go.
        drop(inner);
        // From here on dropping the port frees it, but it has to exist for that.
        let port = BoundPort {
            ports: self.clone(),
            number: taken?,
            _share: share,
        };
        Ok(Arc::new(port, GFP_KERNEL_ACCOUNT)?)
    }

    /// Lets requests for the listener's port come in.
    pub(super) fn add_listener(&self, listener: &Arc<Listener>) -> Result {
        // Before the lock, which all processes need: who pays may have to wait.
        let node = RBTreeNode::new(listener.port, listener.clone(), GFP_KERNEL_ACCOUNT)?;
        let _replaced = self.inner.lock().listeners.insert(node);
        Ok(())
    }

    /// The listener at a port.
    pub(super) fn listener(&self, port: u16) -> Option<Arc<Listener>> {
        self.inner.lock().listeners.get(&port).cloned()
    }

    /// Has no more requests find the listener. One that has found it is refused once it is closed.
    pub(super) fn remove_listener(&self, listener: &Listener) {
        let removed = self.inner.lock().listeners.remove(&listener.port);
        drop(removed);
    }

    /// A peer asks for a connection with `port`: queues the request, or refuses it. May sleep.
    pub(super) fn requested(&self, port: u16, request: Request) {
        let queued = match self.listener(port) {
            Some(listener) => listener.push(request),
            None => Err((Status::Refused, request)),
        };
        if let Err((reason, request)) = queued {
            request.refuse(reason);
        }
    }

    /// A peer's connector with this id has given up what it asked for at `port`: refuses that, if it is queued. May
    /// sleep.
    pub(super) fn cancelled(&self, peer: &Arc<Peer>, source: ChannelId, port: u16) {
        if let Some(listener) = self.listener(port) {
            listener
                .refuse_if(|request| Arc::ptr_eq(&request.peer, peer) && request.source == source);
        }
    }

    /// Refuses the queued requests of a peer, which is lost. May sleep.
    pub(super) fn forget_requests(&self, peer: &Arc<Peer>) {
        let mut next = Some(0);
        while let Some(listener) = next.and_then(|from| self.listener_from(from)) {
            listener.refuse_if(|request| Arc::ptr_eq(&request.peer, peer));
            next = listener.port.checked_add(1);
        }
    }

    /// The first listener at this port or behind it.
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
    fn a_port_is_free_when_the_last_who_has_it_is_gone() -> Result {
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
    fn any_port_is_one_that_is_free() -> Result {
        let ports = Ports::new()?;
        let first = ports.bind(0)?;
        let taken = ports.bind(first.number + 1)?;
        let second = ports.bind(0)?;
        assert_eq!(first.number, FIRST_DYNAMIC);
        assert_eq!(second.number, taken.number + 1);
        Ok(())
    }

    #[test]
    fn a_port_that_was_freed_comes_back_last() -> Result {
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
    fn a_listener_is_known_until_it_is_removed() -> Result {
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

/// Larger backlogs are taken as this.
const MAX_BACKLOG: usize = 1024;

/// A peer's request for a connection. Refused when it is dropped, unless it was answered.
pub(super) struct Request {
    pub(super) peer: Arc<Peer>,
    /// The connector's id of the connection.
    pub(super) source: ChannelId,
    pub(super) source_port: u16,
    /// Where it wants data.
    pub(super) ring: RingAddress,
    /// For the answer.
    reservation: Option<Reservation>,
}

impl Request {
    /// Takes a request in: ENOMEM if there is no memory for its answer. May sleep.
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

    /// Answers it. Any context.
    pub(super) fn answer(mut self, message: &Message) {
        self.send(message);
    }

    /// Refuses it. Any context.
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

/// A port on which an endpoint listens.
#[pin_data]
pub(super) struct Listener {
    /// The endpoint has it, so that it is free when that is closed, whoever still has this.
    pub(super) port: u16,
    backlog: usize,
    /// In the order in which they came; empty once the listener is closed.
    #[pin]
    queue: SpinLock<RBTree<u64, Request>>,
    /// How many requests are queued; written under `queue`.
    queued: Atomic<usize>,
    /// Set under `queue`.
    closed: Atomic<bool>,
    #[pin]
    pub(super) accepted: Mutex<KVec<Accepting>>,
    /// The endpoint's.
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

    /// Queues a request and wakes who accepts, or says why not.
    pub(super) fn push(&self, request: Request) -> Result<(), (Status, Request)> {
        // Made as they come: who listens has not asked for any yet.
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

    /// Refuses all queued requests for which `is_meant` is true. May sleep.
    fn refuse_if(&self, is_meant: impl Fn(&Request) -> bool) {
        // Each is refused without the lock, as it is dropped.
        while self.take_if(&is_meant).is_some() {}
    }

    /// How many requests are queued. Any context.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// Whether the listener was closed. Any context.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Refuses all that is queued and whatever still comes, and closes what was accepted and not taken over. The caller
    /// has removed the listener from its port. May sleep.
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
