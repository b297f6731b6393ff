// SPDX-License-Identifier: GPL-2.0

//! Accepting connections: from the request of a peer to a connected endpoint.
//!
//! A process accepts in two steps, between which its listener keeps the accepted connection. A
//! caller inside the kernel can hold an endpoint itself, and accepts in one step.
//!
//! `ACCEPTREQ` gives out a handle, an opaque number that is hard to guess, and `ACCEPTREG` takes
//! the connection over. A handle is good once, and only for the process that accepted. The handle
//! ends in the listener's port, by which `ACCEPTREG` finds the listener. A connection that was not
//! taken over is closed when that process closes its last descriptor of the listening endpoint, or
//! ends.
//!
//! The drop of a connection closes it, and that sleeps: nothing is dropped under the lock
//! `Listener::accepted`.

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
            can_be_killed,
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
            Release, //
        },
        Arc, //
    },
    time::Instant,
    types::ScopeGuard, //
};

impl Endpoint {
    /// Takes the oldest request, makes a connection of it and keeps the connection for the calling
    /// process. Returns the node and the port of the peer, and the handle for [`Self::take_over`].
    ///
    /// # Errors
    ///
    /// - EAGAIN: there is no request, and `block` is not set.
    /// - EINTR: a signal came, or the listener or one of its descriptors was closed meanwhile.
    pub(crate) fn accept(&self, block: bool) -> Result<(PortId, u64)> {
        let (listener, _) = self.listening()?;
        let handle = listener.begin_accept()?;
        let accepted = self.accept_request(&listener, block, || listener.is_ended(handle));
        Ok((listener.end_accept(handle, accepted)?, handle))
    }

    /// Accepts the oldest request, as [`Self::accept`] does, for a caller that can hold an
    /// endpoint. Returns the connected endpoint.
    pub(crate) fn accept_endpoint(&self, block: bool) -> Result<(PortId, Arc<Endpoint>)> {
        // Allocates first, so that no peer is connected and then closed for lack of memory.
        let endpoint = Self::new(&self.scif)?;
        let (listener, _) = self.listening()?;
        // This caller has no descriptors that another thread could close.
        let accepted = self.accept_request(&listener, block, || false)?;
        let peer = accepted.connection.peer();
        endpoint.adopt(|| Some(accepted))?;
        Ok((peer, endpoint))
    }

    pub(super) fn listening(&self) -> Result<(Arc<Listener>, Arc<BoundPort>)> {
        match &*self.state.lock() {
            State::Listening(listener, port) => Ok((listener.clone(), port.clone())),
            _ => Err(EINVAL),
        }
    }

    /// Takes out the connection that the calling process has accepted under this handle, at any
    /// port. The drop of the result closes the connection.
    pub(crate) fn take_accepted(&self, handle: u64) -> Option<Unclaimed> {
        let listener = self.scif.ports.listener(handle as u16)?;
        let taken = take_if(&mut listener.accepted.lock(), |entry| {
            entry.handle == handle && entry.process.is_current() && entry.accepted.is_some()
        });
        taken?.accepted
    }

    /// Makes a connection of the oldest request. `is_ended` returns whether the call has to return
    /// because another thread of the caller has closed a descriptor of the listener.
    /// Context: may sleep.
    pub(super) fn accept_request(
        &self,
        listener: &Listener,
        block: bool,
        is_ended: impl Fn() -> bool,
    ) -> Result<Unclaimed> {
        loop {
            // Reads the number before it calls `is_ended`, so that a later flush ends the wait.
            let flushes = self.flushes.load(Acquire);
            let Some(request) = listener.take_if(|_| true) else {
                if listener.is_closed() {
                    return Err(EINTR);
                }
                if !block {
                    return Err(EAGAIN);
                }
                if is_ended() {
                    return Err(EINTR);
                }
                self.waiters
                    .wait(|| {
                        let is_flushed = self.flushes.load(Acquire) != flushes;
                        let go_on = listener.queued() > 0 || listener.is_closed() || is_flushed;
                        go_on.then_some(())
                    })
                    .map_err(|_| EINTR)?;
                continue;
            };
            // The early return drops the request and so refuses it, if the listener was closed
            // meanwhile.
            let (_, port) = self.listening().map_err(|_| EINTR)?;
            let made = self
                .scif
                .connections_with(&request.peer)
                .and_then(|peer_connections| peer_connections.accept(request, listener.port));
            match made {
                Ok(connection) => {
                    let accepted = Accepted { connection, port };
                    return Ok(ScopeGuard::new_with_data(accepted, Accepted::close));
                }
                // The requesting node was lost: goes on to the next request.
                Err(ENODEV) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    /// Handles the close of a descriptor of the endpoint in `table`. `is_last` returns whether
    /// `table` has no other descriptor of the endpoint. The endpoint may live on in other tables or
    /// running calls. Calls of the same process that wait in accept return. With the last
    /// descriptor, the connections that the process has accepted and not taken over are closed.
    pub(crate) fn flush(&self, table: usize, is_last: impl FnOnce() -> bool) {
        if !can_be_killed() {
            // An exiting task closes all of its descriptors here before the first of them is
            // released.
            *self.state.exits_since.lock() = Some(Instant::now());
        }
        let Ok((listener, _)) = self.listening() else {
            return;
        };
        listener.end_calls(table);
        self.flushes.fetch_add(1, Release);
        self.waiters.wake_all();
        // Calls this for listeners only: it searches the whole table.
        if is_last() {
            listener.close_accepted(Some(table));
        }
    }

    /// Makes this endpoint the owner of the connection that the calling process has accepted under
    /// this handle. After a mistake the connection stays. EINVAL: there is no such connection, or
    /// the endpoint is not fresh.
    pub(crate) fn take_over(&self, handle: u64) -> Result {
        self.adopt(|| self.take_accepted(handle))
    }

    /// Makes this endpoint the owner of an accepted connection. EINVAL: there is none, or the
    /// endpoint is not fresh. Calls `accepted` with the state locked, and only if the endpoint is
    /// fresh.
    fn adopt(&self, accepted: impl FnOnce() -> Option<Unclaimed>) -> Result {
        let mut state = self.state.lock();
        if !matches!(&*state, State::Unbound) {
            return Err(EINVAL);
        }
        let Accepted { connection, port } = accepted().ok_or(EINVAL)?.dismiss();
        connection.channel.attach(self.waiters.clone());
        self.state.connect(&mut state, connection, port);
        drop(state);
        self.waiters.wake_all();
        Ok(())
    }
}

/// Largest number of entries of one listener: accepted connections that no process has taken over,
/// and calls that wait in accept.
const MAX_ACCEPTED: usize = 1024;

/// An accepted connection, with the port that it shares with its listener.
pub(crate) struct Accepted {
    connection: Arc<Connection>,
    port: Arc<BoundPort>,
}

impl Accepted {
    fn close(self) {
        self.connection.close();
    }
}

/// An accepted connection that the drop closes, unless an endpoint has taken it over. The drop
/// sleeps.
pub(crate) type Unclaimed = ScopeGuard<Accepted, fn(Accepted)>;

/// A call that accepts, and afterwards the connection that it has accepted, until that is taken
/// over.
pub(super) struct Accepting {
    handle: u64,
    process: Process,
    /// Table of descriptors of that process. When the process closes its last descriptor of the
    /// listener, a connection that was not taken over is closed.
    table: usize,
    /// Whether another thread of the process has closed a descriptor of the listener while the call
    /// runs.
    is_ended: bool,
    /// None while the call runs.
    accepted: Option<Unclaimed>,
}

/// Takes out the first entry for which `wanted` is true.
fn take_if(
    entries: &mut KVec<Accepting>,
    wanted: impl Fn(&Accepting) -> bool,
) -> Option<Accepting> {
    let position = entries.iter().position(wanted)?;
    entries.remove(position).ok()
}

impl Listener {
    /// Begins to accept for the calling process. Returns a handle that is hard to guess, for
    /// [`Self::end_accept`]. Fails before a request is taken, so that no peer connects in vain.
    ///
    /// # Errors
    ///
    /// - EINVAL: the caller is no process, and could never take over.
    /// - EINTR: the listener is closed.
    /// - ENOMEM: there is no room for another connection.
    fn begin_accept(&self) -> Result<u64> {
        let process = Process::current().ok_or(EINVAL)?;
        let mut entries = self.accepted.lock();
        // The check is under the lock of the entries. So either it sees that the listener is
        // closed, or the caller that closes the listener finds the new entry.
        if self.is_closed() {
            return Err(EINTR);
        }
        if entries.len() >= MAX_ACCEPTED {
            return Err(ENOMEM);
        }
        let handle = random() & !u64::from(u16::MAX) | u64::from(self.port);
        let entry = Accepting {
            handle,
            process,
            table: descriptor_table(),
            is_ended: false,
            accepted: None,
        };
        entries.push(entry, GFP_KERNEL_ACCOUNT)?;
        Ok(handle)
    }

    /// Ends the calls that processes with this table of descriptors have begun.
    /// Context: may sleep.
    fn end_calls(&self, table: usize) {
        let mut entries = self.accepted.lock();
        let calls = entries.iter_mut().filter(|entry| entry.table == table);
        calls.for_each(|entry| entry.is_ended = true);
    }

    /// Returns whether the call that has begun under this handle has to return without a
    /// connection.
    /// Context: may sleep.
    fn is_ended(&self, handle: u64) -> bool {
        let entries = self.accepted.lock();
        let mut calls = entries.iter();
        !calls.any(|entry| entry.handle == handle && !entry.is_ended)
    }

    /// Keeps the connection that the call has accepted, if any, for the calling process. Returns
    /// the node and the port of the peer. EINTR: the last descriptor or the listener was closed
    /// meanwhile, and nothing is kept.
    /// Context: may sleep.
    fn end_accept(&self, handle: u64, accepted: Result<Unclaimed>) -> Result<PortId> {
        let mut entries = self.accepted.lock();
        let begun = take_if(&mut entries, |entry| {
            entry.handle == handle && entry.accepted.is_none()
        });
        let accepted = accepted?;
        let Some(begun) = begun else {
            // The drop closes the connection, which must not happen under the lock.
            drop(entries);
            drop(accepted);
            return Err(EINTR);
        };
        let peer = accepted.connection.peer();
        // There is room, as the entry has just been taken out.
        let _ = entries.push_within_capacity(Accepting {
            accepted: Some(accepted),
            ..begun
        });
        Ok(peer)
    }

    /// Closes the accepted connections that were not taken over: of processes with this table of
    /// descriptors, or of all. Running calls will keep nothing.
    /// Context: may sleep.
    pub(super) fn close_accepted(&self, table: Option<usize>) {
        let is_of = |entry: &Accepting| table.is_none_or(|table| table == entry.table);
        let next = || take_if(&mut self.accepted.lock(), is_of);
        // Each entry is dropped without the lock.
        while next().is_some() {}
    }
}
