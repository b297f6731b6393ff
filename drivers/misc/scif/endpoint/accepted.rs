// SPDX-License-Identifier: GPL-2.0

//! Connections that a listener has accepted and that have no endpoint yet.
//!
//! `ACCEPTREQ` gives out a handle, an opaque number that is hard to guess, and `ACCEPTREG` takes the
//! connection over; the handle is good once, and only for the process that accepted. The handle ends in the listener's
//! port, so that the listener is found by it. What is not taken over ends when that process closes its last
//! descriptor of the listening endpoint, or ends.
//!
//! Dropping a connection closes it, which sleeps: nothing is dropped under the lock of [`Pending`].

use super::connection::Connection;
use super::ports::BoundPort;
use crate::{
    arguments::PortId,
    sys::{
        current::{
            descriptor_table,
            Process, //
        },
        random, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

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
