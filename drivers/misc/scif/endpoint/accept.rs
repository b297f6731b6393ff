// SPDX-License-Identifier: GPL-2.0

//! Accepting connections: from the request of a peer to an endpoint that is connected.
//!
//! A process accepts in two steps, between which what it has accepted is kept for it (`accepted.rs`);
//! who can hold an endpoint itself does it in one.

use super::{
    accepted::{
        Accepted,
        ListenerId, //
    },
    Endpoint,
    State, //
};
use crate::{
    arguments::PortId,
    sys::{
        current::descriptor_table,
        random, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};

impl Endpoint {
    /// Takes the oldest request, makes a connection of it and keeps that for the calling process.
    /// Returns who is connected, and the handle for [`Self::take_over`]. EAGAIN if there is no request
    /// and `block` is not set; EINTR if the listener is closed meanwhile.
    pub(crate) fn accept(&self, block: bool) -> Result<(PortId, u64)> {
        let pending = &self.scif.pending;
        let ticket = pending.lock().begin(self.listener_id())?;
        let accepted = self.accept_request(block);
        // Dropping a connection closes it, which must not happen under the lock.
        let (added, peer, handle) = {
            let mut pending = pending.lock();
            let ended = pending.end(ticket);
            let accepted = accepted?;
            let (peer, handle) = (accepted.peer, random::number());
            let added = match ended {
                Ok(()) => pending.add(handle, self.listener_id(), accepted),
                Err(error) => Err((error, accepted)),
            };
            (added, peer, handle)
        };
        match added {
            Ok(()) => Ok((peer, handle)),
            Err((error, _accepted)) => Err(error),
        }
    }

    /// Nobody will learn of the handle: closes what was accepted.
    pub(crate) fn forget_accepted(&self, handle: u64) {
        let accepted = self.scif.pending.lock().take(handle);
        drop(accepted);
    }

    /// As [`Self::accept`], for who can hold an endpoint itself: makes a connected one.
    pub(crate) fn accept_endpoint(&self, block: bool) -> Result<(PortId, Arc<Endpoint>)> {
        // First, so that nobody connects for nothing.
        let endpoint = Self::new(&self.scif)?;
        let accepted = self.accept_request(block)?;
        let peer = accepted.peer;
        endpoint.adopt(accepted)?;
        Ok((peer, endpoint))
    }

    fn listener_id(&self) -> ListenerId {
        ListenerId(core::ptr::from_ref(self).addr())
    }

    fn accept_request(&self, block: bool) -> Result<Accepted> {
        let (listener, port) = match &*self.state.lock() {
            State::Listening(listener, port) => (listener.clone(), port.clone()),
            _ => return Err(EINVAL),
        };
        let table = descriptor_table();
        let flushes = self.flushes.load(Relaxed);
        // Another thread of the caller has closed a descriptor of the listener.
        let is_flushed =
            || self.flushes.load(Acquire) != flushes && self.flushed_by.load(Relaxed) == table;
        loop {
            let Some(request) = listener.pop() else {
                if listener.is_closed() || is_flushed() {
                    return Err(EINTR);
                }
                if !block {
                    return Err(EAGAIN);
                }
                self.waiters
                    .wait(|| {
                        let go_on = listener.is_ready() || listener.is_closed() || is_flushed();
                        go_on.then_some(())
                    })
                    .map_err(|_| EINTR)?;
                continue;
            };
            let peer = PortId {
                node: request.peer.node(),
                port: request.source_port,
            };
            let made = self
                .scif
                .contact_with(&request.peer)
                .and_then(|contact| contact.accept(&request, port.number));
            match made {
                Ok(connection) => return Ok(Accepted::new(peer, connection, port)),
                // Its node was lost: on to the next one.
                Err(ENODEV) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// A descriptor of the endpoint in `table` was closed; `is_last` says whether there is no other in it,
    /// while others or running calls may keep the endpoint: whoever of the same process waits in
    /// accept returns, and with the last one goes what the process has accepted and not taken over.
    pub(crate) fn flush(&self, table: usize, is_last: impl FnOnce() -> bool) {
        self.flushed_by.store(table, Relaxed);
        self.flushes.fetch_add(1, Release);
        self.waiters.wake_all();
        // Asked of listeners only: it takes a look at the whole table.
        let listening = matches!(&*self.state.lock(), State::Listening(..));
        if listening && is_last() {
            self.close_accepted(Some(table));
        }
    }

    /// Closes what was accepted and not taken over: of one table of descriptors, or of all.
    pub(super) fn close_accepted(&self, table: Option<usize>) {
        loop {
            let accepted = self.scif.pending.lock().take_of(self.listener_id(), table);
            if accepted.is_none() {
                return;
            }
        }
    }

    /// Makes the connection that the calling process has accepted under this handle this endpoint's.
    /// EINVAL if there is none, or unless the endpoint is fresh; a mistake costs no connection.
    pub(crate) fn take_over(&self, handle: u64) -> Result {
        if !matches!(&*self.state.lock(), State::Unbound) {
            return Err(EINVAL);
        }
        let accepted = self.scif.pending.lock().take(handle);
        self.adopt(accepted.ok_or(EINVAL)?)
    }

    /// Makes what was accepted this endpoint's; EINVAL unless the endpoint is fresh, and then the
    /// connection is closed.
    fn adopt(&self, mut accepted: Accepted) -> Result {
        let mut state = self.state.lock();
        if !matches!(&*state, State::Unbound) {
            // Another thread was faster: the connection is closed, after the lock.
            drop(state);
            return Err(EINVAL);
        }
        if let Some((connection, port)) = accepted.take() {
            connection.attach(self.waiters.clone());
            self.state.connect(&mut state, connection, port);
        }
        drop(state);
        self.waiters.wake_all();
        Ok(())
    }
}
