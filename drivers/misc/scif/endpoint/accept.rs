// SPDX-License-Identifier: GPL-2.0

//! Accepting connections: from the request of a peer to an endpoint that is connected.
//!
//! A process accepts in two steps, between which its listener keeps what it has accepted; who can hold
//! an endpoint itself does it in one.
//!
//! `ACCEPTREQ` gives out a handle, an opaque number that is hard to guess, and `ACCEPTREG` takes the
//! connection over; the handle is good once, and only for the process that accepted. The handle ends in the listener's
//! port, so that the listener is found by it. What is not taken over ends when that process closes its last
//! descriptor of the listening endpoint, or ends.
//!
//! Dropping a connection closes it, which sleeps: nothing is dropped under the lock `Listener::accepted`.

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
    /// Takes the oldest request, makes a connection of it and keeps that for the calling process.
    /// Returns who is connected, and the handle for [`Self::take_over`]. EAGAIN if there is no request
    /// and `block` is not set; EINTR if the listener is closed meanwhile.
    pub(crate) fn accept(&self, block: bool) -> Result<(PortId, u64)> {
        let (listener, _) = self.listening()?;
        let handle = listener.begin_accept()?;
        let accepted = self.accept_request(&listener, block, || listener.is_ended(handle));
        Ok((listener.end_accept(handle, accepted)?, handle))
    }

    /// As [`Self::accept`], for who can hold an endpoint itself: makes a connected one.
    pub(crate) fn accept_endpoint(&self, block: bool) -> Result<(PortId, Arc<Endpoint>)> {
        // First, so that no peer connects and finds that there is no memory.
        let endpoint = Self::new(&self.scif)?;
        let (listener, _) = self.listening()?;
        // It has no descriptors.
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

    /// Takes out the connection that the calling process has accepted under this handle, at whichever port. Dropping
    /// the result closes the connection.
    pub(crate) fn take_accepted(&self, handle: u64) -> Option<Unclaimed> {
        let listener = self.scif.ports.listener(handle as u16)?;
        let taken = take_if(&mut listener.accepted.lock(), |entry| {
            entry.handle == handle && entry.process.is_current() && entry.accepted.is_some()
        });
        taken?.accepted
    }

    /// Makes a connection of the oldest request. `is_ended` says whether the call is to return, as another thread of the
    /// caller has closed a descriptor of the listener. May sleep.
    pub(super) fn accept_request(
        &self,
        listener: &Listener,
        block: bool,
        is_ended: impl Fn() -> bool,
    ) -> Result<Unclaimed> {
        loop {
            // Before the look at who was meant.
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
            // The request is refused if the listener was closed meanwhile.
            let (_, port) = self.listening().map_err(|_| EINTR)?;
            let made = self
                .scif
                .contact_with(&request.peer)
                .and_then(|contact| contact.accept(request, listener.port));
            match made {
                Ok(connection) => {
                    let accepted = Accepted { connection, port };
                    return Ok(ScopeGuard::new_with_data(accepted, Accepted::close));
                }
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
        if !can_be_killed() {
            // All descriptors of a task that exits come here before the first one of them is released.
            *self.state.exits_since.lock() = Some(Instant::now());
        }
        let Ok((listener, _)) = self.listening() else {
            return;
        };
        listener.end_calls(table);
        self.flushes.fetch_add(1, Release);
        self.waiters.wake_all();
        // Asked of listeners only: it takes a look at the whole table.
        if is_last() {
            listener.close_accepted(Some(table));
        }
    }

    /// Makes the connection that the calling process has accepted under this handle this endpoint's.
    /// EINVAL if there is none, or unless the endpoint is fresh; a mistake costs no connection.
    pub(crate) fn take_over(&self, handle: u64) -> Result {
        self.adopt(|| self.take_accepted(handle))
    }

    /// Makes what was accepted this endpoint's, if the endpoint is fresh: only then it is asked for, with the
    /// state locked. EINVAL otherwise.
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

/// Accepted connections that no process has taken over, and calls that wait in accept, at one listener at most.
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

/// An accepted connection that is closed if it never gets an endpoint. That sleeps.
pub(crate) type Unclaimed = ScopeGuard<Accepted, fn(Accepted)>;

/// A call that accepts, and then what it has accepted, until that is taken over.
pub(super) struct Accepting {
    handle: u64,
    process: Process,
    /// The table of descriptors of that process: the close of its last descriptor of the listener ends what was not
    /// taken over.
    table: usize,
    /// Another thread of the process has closed a descriptor of the listener while the call runs.
    is_ended: bool,
    /// None while the call runs.
    accepted: Option<Unclaimed>,
}

/// Takes the first entry out for which `wanted` is true.
fn take_if(
    entries: &mut KVec<Accepting>,
    wanted: impl Fn(&Accepting) -> bool,
) -> Option<Accepting> {
    let position = entries.iter().position(wanted)?;
    entries.remove(position).ok()
}

impl Listener {
    /// Begins to accept for the calling process. EINVAL for a caller that is no process, and could never
    /// take over; ENOMEM if there is no room for another connection: the caller learns that before it accepts, so that
    /// no peer connects in vain. Returns a handle that is hard to guess, for [`Self::end_accept`].
    fn begin_accept(&self) -> Result<u64> {
        let process = Process::current().ok_or(EINVAL)?;
        let mut entries = self.accepted.lock();
        // Under the lock, so that who closes the listener either finds the call or is seen.
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

    /// Notes that the calls return which processes with this table of descriptors have begun. May sleep.
    fn end_calls(&self, table: usize) {
        let mut entries = self.accepted.lock();
        let calls = entries.iter_mut().filter(|entry| entry.table == table);
        calls.for_each(|entry| entry.is_ended = true);
    }

    /// Whether the call that has begun under this handle returns without having accepted. May sleep.
    fn is_ended(&self, handle: u64) -> bool {
        let entries = self.accepted.lock();
        let mut calls = entries.iter();
        !calls.any(|entry| entry.handle == handle && !entry.is_ended)
    }

    /// Keeps what the call has accepted, if it has, for the calling process. Returns who is connected;
    /// EINTR if the last descriptor or the listener was closed meanwhile: then nothing is kept. May sleep.
    fn end_accept(&self, handle: u64, accepted: Result<Unclaimed>) -> Result<PortId> {
        let mut entries = self.accepted.lock();
        let begun = take_if(&mut entries, |entry| {
            entry.handle == handle && entry.accepted.is_none()
        });
        let accepted = accepted?;
        let Some(begun) = begun else {
            // Dropping the connection closes it, which must not happen under the lock.
            drop(entries);
            drop(accepted);
            return Err(EINTR);
        };
        let peer = accepted.connection.peer();
        // There is room: it has just been taken out.
        let _ = entries.push_within_capacity(Accepting {
            accepted: Some(accepted),
            ..begun
        });
        Ok(peer)
    }

    /// Closes what was accepted and not taken over: by a process with this table of descriptors, or by any. Calls that
    /// run will keep nothing. May sleep.
    pub(super) fn close_accepted(&self, table: Option<usize>) {
        let is_of = |entry: &Accepting| table.is_none_or(|table| table == entry.table);
        let next = || take_if(&mut self.accepted.lock(), is_of);
        // Each is dropped without the lock.
        while next().is_some() {}
    }
}
