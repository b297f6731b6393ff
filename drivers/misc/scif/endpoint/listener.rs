// SPDX-License-Identifier: GPL-2.0

//! A listening port and the connection requests that wait for accept.
//!
//! Lock: `queue` is a leaf, taken under `Ports::inner`.

use crate::{
    logic::{
        envelope::ChannelId,
        messages::{
            Message,
            Refusal,
            RingAddress, //
        },
    },
    peer::Peer,
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
const MAX_BACKLOG: usize = 1024;

/// A peer's wish for a connection.
pub(super) struct Request {
    pub(super) peer: Arc<Peer>,
    /// The connector's id of the connection.
    pub(super) source: ChannelId,
    pub(super) source_port: u16,
    /// Where it wants data.
    pub(super) ring: RingAddress,
}

/// A port on which an endpoint listens.
#[pin_data]
pub(super) struct Listener {
    pub(super) port: u16,
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
    pub(super) fn new(port: u16, backlog: usize, waiters: Arc<WaitQueue>) -> Result<Arc<Self>> {
        let backlog = backlog.min(MAX_BACKLOG);
        Arc::pin_init(
            pin_init!(Self {
                port,
                backlog,
                queue <- new_mutex!(Some(KVVec::new()), "Listener::queue"),
                queued: Atomic::new(0),
                closed: Atomic::new(false),
                waiters,
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    /// Queues a request and wakes who accepts, or says why not.
    pub(super) fn push(&self, request: Request) -> Result<(), (Refusal, Request)> {
        let mut queue = self.queue.lock();
        let Some(requests) = &mut *queue else {
            return Err((Refusal::ListenerClosed, request));
        };
        if requests.len() >= self.backlog {
            return Err((Refusal::BacklogFull, request));
        }
        // Made as they come: who listens has not asked for any yet.
        if requests.reserve(1, GFP_KERNEL).is_err() {
            return Err((Refusal::NoMemory, request));
        }
        let _ = requests.push_within_capacity(request);
        self.queued.store(requests.len(), Relaxed);
        drop(queue);
        self.waiters.wake_all();
        Ok(())
    }

    /// Takes the first queued request for which `wanted` is true.
    pub(super) fn take_if(&self, wanted: impl Fn(&Request) -> bool) -> Option<Request> {
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
    pub(super) fn pop(&self) -> Option<Request> {
        self.take_if(|_| true)
    }

    /// Whether a request is queued. Any context.
    pub(super) fn is_ready(&self) -> bool {
        self.queued.load(Relaxed) > 0
    }

    /// How many requests are queued. Any context.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// Whether the listener was closed. Any context.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Refuses all that is queued and whatever still comes. The caller has removed the listener
    /// from its port.
    pub(super) fn close(&self) {
        let requests = self.queue.lock().take();
        self.queued.store(0, Relaxed);
        self.closed.store(true, Relaxed);
        self.waiters.wake_all();
        for request in requests.iter().flatten() {
            // Of a peer that is lost nobody waits for the answer.
            let _ = request.peer.post(&Message::Refuse {
                target: request.source,
                reason: Refusal::ListenerClosed,
            });
        }
    }
}
