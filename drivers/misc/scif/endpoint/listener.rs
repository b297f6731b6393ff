// SPDX-License-Identifier: GPL-2.0

//! A listening port, the connection requests that wait for accept, and the connections that were accepted and wait for
//! an endpoint.
//!
//! Locks: `queue` is a leaf, taken under `Ports::inner`; `accepted` is a leaf.

use super::accept::Pending;
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
    #[pin]
    pub(super) accepted: Mutex<Pending>,
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
                accepted <- new_mutex!(Pending::new(), "Listener::accepted"),
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

    /// Closes what was accepted and not taken over: by a process with this table of descriptors, or by any. May sleep.
    pub(super) fn close_accepted(&self, table: Option<usize>) {
        loop {
            // Dropped without the lock.
            let accepted = self.accepted.lock().take_of(table);
            if accepted.is_none() {
                return;
            }
        }
    }

    /// Refuses all that is queued and whatever still comes, and closes what was accepted and not taken over. The caller
    /// has removed the listener from its port. May sleep.
    pub(super) fn close(&self) {
        let requests = self.queue.lock().take();
        self.queued.store(0, Relaxed);
        self.closed.store(true, Relaxed);
        self.waiters.wake_all();
        self.accepted.lock().close();
        self.close_accepted(None);
        for request in requests.iter().flatten() {
            // Of a peer that is lost nobody waits for the answer.
            let _ = request.peer.post(&Message::Refuse {
                target: request.source,
                reason: Refusal::ListenerClosed,
            });
        }
    }
}
