// SPDX-License-Identifier: GPL-2.0

//! Accepting connections: from the request of a peer to an endpoint that is connected.
//!
//! A process accepts in two steps, between which what it has accepted is kept for it (`accepted.rs`);
//! who can hold an endpoint itself does it in one.
//!
//! Connections that a listener has accepted and that have no endpoint yet.
//!
//! `ACCEPTREQ` gives out a handle, an opaque number that is hard to guess, and `ACCEPTREG` takes the
//! connection over; the handle is good once, and only for the process that accepted. The handle ends in the listener's
//! port, so that the listener is found by it. What is not taken over ends when that process closes its last
//! descriptor of the listening endpoint, or ends.
//!
//! Dropping a connection closes it, which sleeps: nothing is dropped under the lock of [`Pending`].

use super::{
    connection::Connection,
    ports::{
        BoundPort,
        Listener, //
    },
    Endpoint,
    State, //
};
use crate::{
    arguments::PortId,
    sys::{
        current::{
            descriptor_table,
            Process, //
        },
        random, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
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
                .and_then(|contact| contact.accept(request, port.number));
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

/// Connections that one listener has accepted and nobody has taken over yet.
const MAX_ACCEPTED: usize = 1024;

/// A handle that is hard to guess, of a connection that was accepted at this port.
pub(super) fn handle_at(port: u16) -> u64 {
    random() & !u64::from(u16::MAX) | u64::from(port)
}

/// The port of a handle.
pub(super) fn port_of(handle: u64) -> u16 {
    handle as u16
}

/// An accepted connection; closed if it never gets an endpoint.
pub(crate) struct Accepted {
    pub(crate) peer: PortId,
    /// Taken out by who takes it over.
    parts: Option<(Arc<Connection>, Arc<BoundPort>)>,
}

impl Accepted {
    /// With the port that it shares with its listener.
    pub(super) fn new(peer: PortId, connection: Arc<Connection>, port: Arc<BoundPort>) -> Self {
        Self {
            peer,
            parts: Some((connection, port)),
        }
    }

    /// Takes the connection out.
    pub(super) fn take(&mut self) -> Option<(Arc<Connection>, Arc<BoundPort>)> {
        self.parts.take()
    }
}

impl Drop for Accepted {
    fn drop(&mut self) {
        if let Some((connection, _port)) = self.parts.take() {
            connection.close();
        }
    }
}

struct Entry {
    handle: u64,
    process: Process,
    /// The table of descriptors of that process: the close of its last descriptor of the listener ends what was not
    /// taken over.
    table: usize,
    accepted: Accepted,
}

/// A call that accepts.
pub(super) struct Waiter {
    table: usize,
    /// What it accepts has to go: the last descriptor was closed meanwhile.
    cancelled: Atomic<bool>,
}

/// Those of one listener, by handle, and the calls that are about to add one.
pub(super) struct Pending {
    entries: KVec<Entry>,
    waiters: KVec<Arc<Waiter>>,
    /// The listener is.
    closed: bool,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            entries: KVec::new(),
            waiters: KVec::new(),
            closed: false,
        }
    }

    /// A call begins to accept. EINVAL for a caller that is no process, and could never take over; ENOMEM if
    /// there is no room for another connection: asked before it is accepted, so that nobody connects for
    /// nothing. What is returned is for [`Self::end`].
    pub(super) fn begin(&mut self) -> Result<Arc<Waiter>> {
        if Process::current().is_none() {
            return Err(EINVAL);
        }
        self.make_room()?;
        let waiter = Waiter {
            table: descriptor_table(),
            cancelled: Atomic::new(self.closed),
        };
        let waiter = Arc::new(waiter, GFP_KERNEL_ACCOUNT)?;
        self.waiters.push(waiter.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(waiter)
    }

    /// The call has accepted something, or failed. EINTR if the last descriptor was closed meanwhile:
    /// then nothing may be added.
    pub(super) fn end(&mut self, waiter: &Arc<Waiter>) -> Result {
        self.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        match waiter.cancelled.load(Relaxed) {
            true => Err(EINTR),
            false => Ok(()),
        }
    }

    fn make_room(&mut self) -> Result {
        if self.entries.len() >= MAX_ACCEPTED {
            return Err(ENOMEM);
        }
        Ok(self.entries.reserve(1, GFP_KERNEL_ACCOUNT)?)
    }

    /// Keeps a connection for the calling process.
    pub(super) fn add(&mut self, handle: u64, accepted: Accepted) -> Result<(), (Error, Accepted)> {
        if let Err(error) = self.make_room() {
            return Err((error, accepted));
        }
        let Some(process) = Process::current() else {
            return Err((EINVAL, accepted));
        };
        let entry = Entry {
            handle,
            process,
            table: descriptor_table(),
            accepted,
        };
        let _ = self.entries.push_within_capacity(entry);
        Ok(())
    }

    /// Takes out what the calling process has accepted under this handle.
    pub(super) fn take(&mut self, handle: u64) -> Option<Accepted> {
        self.take_if(|entry| entry.handle == handle && entry.process.is_current())
    }

    /// Takes out one that was accepted by a process with this table of descriptors, or any. Calls that are about to add
    /// one will not.
    pub(super) fn take_of(&mut self, table: Option<usize>) -> Option<Accepted> {
        let is_of = |other: usize| table.is_none_or(|table| table == other);
        for waiter in self.waiters.iter().filter(|waiter| is_of(waiter.table)) {
            waiter.cancelled.store(true, Relaxed);
        }
        self.take_if(|entry| is_of(entry.table))
    }

    /// The listener is closed: nothing is added any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    fn take_if(&mut self, wanted: impl Fn(&Entry) -> bool) -> Option<Accepted> {
        let position = self.entries.iter().position(wanted)?;
        Some(self.entries.remove(position).ok()?.accepted)
    }
}
