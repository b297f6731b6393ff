// SPDX-License-Identifier: GPL-2.0

//! Accepting connections: from the request of a peer to an endpoint that is connected.
//!
//! A process accepts in two steps, between which what it has accepted is kept for it (`accepted.rs`);
//! who can hold an endpoint itself does it in one.

use super::{
    accepted::{
        handle_at,
        port_of,
        Accepted, //
    },
    listener::Listener,
    ports::BoundPort,
    Endpoint,
    State, //
};
use crate::{
    arguments::PortId,
    sys::current::descriptor_table, //
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
        let (listener, port) = self.listening()?;
        let waiter = listener.accepted.lock().begin()?;
        let accepted = self.accept_request(&listener, &port, block);
        // Dropping a connection closes it, which must not happen under the lock.
        let (added, peer, handle) = {
            let mut pending = listener.accepted.lock();
            let ended = pending.end(&waiter);
            let accepted = accepted?;
            let (peer, handle) = (accepted.peer, handle_at(port.number));
            let added = match ended {
                Ok(()) => pending.add(handle, accepted),
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
        drop(self.take_accepted(handle));
    }

    /// As [`Self::accept`], for who can hold an endpoint itself: makes a connected one.
    pub(crate) fn accept_endpoint(&self, block: bool) -> Result<(PortId, Arc<Endpoint>)> {
        // First, so that nobody connects for nothing.
        let endpoint = Self::new(&self.scif)?;
        let (listener, port) = self.listening()?;
        let accepted = self.accept_request(&listener, &port, block)?;
        let peer = accepted.peer;
        endpoint.adopt(accepted)?;
        Ok((peer, endpoint))
    }

    fn listening(&self) -> Result<(Arc<Listener>, Arc<BoundPort>)> {
        match &*self.state.lock() {
            State::Listening(listener, port) => Ok((listener.clone(), port.clone())),
            _ => Err(EINVAL),
        }
    }

    /// Takes out what the calling process has accepted under this handle, at whichever port.
    fn take_accepted(&self, handle: u64) -> Option<Accepted> {
        let listener = self.scif.ports.listener(port_of(handle))?;
        let accepted = listener.accepted.lock().take(handle);
        accepted
    }

    fn accept_request(
        &self,
        listener: &Arc<Listener>,
        port: &Arc<BoundPort>,
        block: bool,
    ) -> Result<Accepted> {
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
                Ok(connection) => return Ok(Accepted::new(peer, connection, port.clone())),
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
        if let Ok((listener, _)) = self.listening() {
            if is_last() {
                listener.close_accepted(Some(table));
            }
        }
    }

    /// Makes the connection that the calling process has accepted under this handle this endpoint's.
    /// EINVAL if there is none, or unless the endpoint is fresh; a mistake costs no connection.
    pub(crate) fn take_over(&self, handle: u64) -> Result {
        if !matches!(&*self.state.lock(), State::Unbound) {
            return Err(EINVAL);
        }
        self.adopt(self.take_accepted(handle).ok_or(EINVAL)?)
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
