// SPDX-License-Identifier: GPL-2.0

//! A listening port and the connection requests that wait for accept.
//!
//! Lock: `queue` is a leaf, taken under `Fabric::ports`.

use crate::{
    logic::wire::{
        ConnectionId,
        Message,
        Refusal,
        RingAddress, //
    },
    node::BoundPort,
    session::Session,
    sys::wait::WaitQueue,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    },
};

/// Larger backlogs are taken as this.
pub(crate) const MAX_BACKLOG: usize = 1024;

/// A peer's wish for a connection.
pub(crate) struct Request {
    pub(crate) session: Arc<Session>,
    /// The connector's id of the connection.
    pub(crate) source: ConnectionId,
    pub(crate) source_port: u16,
    /// Where it wants data.
    pub(crate) ring: RingAddress,
}

/// A port on which an endpoint listens.
#[pin_data]
pub(crate) struct Listener {
    pub(crate) port: Arc<BoundPort>,
    backlog: usize,
    /// None once the listener is closed.
    #[pin]
    queue: Mutex<Option<KVVec<Request>>>,
    /// How many requests are queued; written under `queue`.
    queued: Atomic<usize>,
    closed: Atomic<bool>,
    /// The endpoint's.
    waiters: Arc<WaitQueue>,
}

impl Listener {
    pub(crate) fn new(
        port: Arc<BoundPort>,
        backlog: usize,
        waiters: Arc<WaitQueue>,
    ) -> Result<Arc<Self>> {
        let backlog = backlog.min(MAX_BACKLOG);
        let queue = KVVec::with_capacity(backlog, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                port,
                backlog,
                queue <- new_mutex!(Some(queue), "Listener::queue"),
                queued: Atomic::new(0),
                closed: Atomic::new(false),
                waiters,
            }),
            GFP_KERNEL,
        )
    }

    /// Queues a request and wakes who accepts, or says why not.
    pub(crate) fn push(&self, request: Request) -> Result<(), (Refusal, Request)> {
        let mut queue = self.queue.lock();
        let Some(requests) = &mut *queue else {
            return Err((Refusal::ListenerClosed, request));
        };
        if requests.len() >= self.backlog {
            return Err((Refusal::BacklogFull, request));
        }
        if let Err(error) = requests.push_within_capacity(request) {
            return Err((Refusal::BacklogFull, error.0));
        }
        self.queued.store(requests.len(), Relaxed);
        drop(queue);
        self.waiters.wake_all();
        Ok(())
    }

    /// Takes the first queued request for which `wanted` is true.
    pub(crate) fn take_if(&self, wanted: impl Fn(&Request) -> bool) -> Option<Request> {
        let mut queue = self.queue.lock();
        let Some(requests) = &mut *queue else {
            return None;
        };
        let position = requests.iter().position(wanted)?;
        let request = requests.remove(position).ok();
        self.queued.store(requests.len(), Relaxed);
        request
    }

    /// Takes the oldest request.
    pub(crate) fn pop(&self) -> Option<Request> {
        self.take_if(|_| true)
    }

    /// Whether a request is queued. Any context.
    pub(crate) fn is_ready(&self) -> bool {
        self.queued.load(Relaxed) > 0
    }

    /// Whether the listener was closed. Any context.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Refuses all that is queued and whatever still comes. The caller has removed the listener
    /// from its port.
    pub(crate) fn close(&self) {
        let requests = self.queue.lock().take();
        self.queued.store(0, Relaxed);
        self.closed.store(true, Relaxed);
        self.waiters.wake_all();
        for request in requests.iter().flatten() {
            // Of a session that is over nobody waits for the answer.
            let _ = request.session.post(&Message::Refuse {
                target: request.source,
                reason: Refusal::ListenerClosed,
            });
        }
    }
}
