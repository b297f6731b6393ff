// SPDX-License-Identifier: GPL-2.0

//! Connections that were accepted and have no endpoint yet.
//!
//! `ACCEPTREQ` gives out a handle, an opaque number that is hard to guess, and `ACCEPTREG` takes the
//! connection over; the handle is good once, and only for the process that accepted. What is not
//! taken over ends when that process closes its last descriptor of the listening endpoint, or ends.
//!
//! Dropping a connection closes it, which sleeps: nothing is dropped under the lock of [`Pending`].

use super::connection::Connection;
use super::ports::BoundPort;
use crate::{
    arguments::PortId,
    sys::current::{
        descriptor_table,
        Process, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Connections that one endpoint has accepted and nobody has taken over yet.
const MAX_ACCEPTED: usize = 1024;

/// Names a listening endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListenerId(pub(super) usize);

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
    /// The table of descriptors of that process, and the endpoint that accepted: the close of its
    /// last descriptor there ends what was not taken over.
    table: usize,
    listener: ListenerId,
    accepted: Accepted,
}

/// A call that accepts.
struct Accepting {
    ticket: u64,
    listener: ListenerId,
    table: usize,
    /// What it accepts has to go: the last descriptor was closed meanwhile.
    cancelled: bool,
}

/// All of them, by handle, and the calls that are about to add one.
pub(super) struct Pending {
    entries: KVec<Entry>,
    accepting: KVec<Accepting>,
    next_ticket: u64,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            entries: KVec::new(),
            accepting: KVec::new(),
            next_ticket: 0,
        }
    }

    /// A call begins to accept. EINVAL for who is no process, and could never take over; ENOMEM if
    /// there is no room for another connection that `listener` accepts: asked before it is accepted,
    /// so that nobody connects for nothing. What is returned is for [`Self::end`].
    pub(super) fn begin(&mut self, listener: ListenerId) -> Result<u64> {
        if Process::current().is_none() {
            return Err(EINVAL);
        }
        self.make_room(listener)?;
        self.next_ticket += 1;
        let accepting = Accepting {
            ticket: self.next_ticket,
            listener,
            table: descriptor_table(),
            cancelled: false,
        };
        // Here and below nobody pays: all processes need the lock.
        self.accepting.push(accepting, GFP_KERNEL)?;
        Ok(self.next_ticket)
    }

    /// The call has accepted something, or failed. EINTR if the last descriptor was closed meanwhile:
    /// then nothing may be added.
    pub(super) fn end(&mut self, ticket: u64) -> Result {
        let position = self
            .accepting
            .iter()
            .position(|accepting| accepting.ticket == ticket);
        let ended = position.and_then(|position| self.accepting.remove(position).ok());
        match ended {
            Some(accepting) if !accepting.cancelled => Ok(()),
            _ => Err(EINTR),
        }
    }

    fn make_room(&mut self, listener: ListenerId) -> Result {
        let accepted_before = self
            .entries
            .iter()
            .filter(|entry| entry.listener == listener)
            .count();
        if accepted_before >= MAX_ACCEPTED {
            return Err(ENOMEM);
        }
        Ok(self.entries.reserve(1, GFP_KERNEL)?)
    }

    /// Keeps a connection for the calling process.
    pub(super) fn add(
        &mut self,
        handle: u64,
        listener: ListenerId,
        accepted: Accepted,
    ) -> Result<(), (Error, Accepted)> {
        if let Err(error) = self.make_room(listener) {
            return Err((error, accepted));
        }
        let Some(process) = Process::current() else {
            return Err((EINVAL, accepted));
        };
        let entry = Entry {
            handle,
            process,
            table: descriptor_table(),
            listener,
            accepted,
        };
        let _ = self.entries.push_within_capacity(entry);
        Ok(())
    }

    /// Takes out what the calling process has accepted under this handle.
    pub(super) fn take(&mut self, handle: u64) -> Option<Accepted> {
        self.take_if(|entry| entry.handle == handle && entry.process.is_current())
    }

    /// Takes out one that `listener` has accepted: by a process with this table of descriptors, if
    /// there is one named. Calls that are about to add one will not.
    pub(super) fn take_of(
        &mut self,
        listener: ListenerId,
        table: Option<usize>,
    ) -> Option<Accepted> {
        for accepting in self.accepting.iter_mut() {
            accepting.cancelled |= accepting.listener == listener
                && table.is_none_or(|table| accepting.table == table);
        }
        self.take_if(|entry| {
            entry.listener == listener && table.is_none_or(|table| entry.table == table)
        })
    }

    fn take_if(&mut self, wanted: impl Fn(&Entry) -> bool) -> Option<Accepted> {
        let position = self.entries.iter().position(wanted)?;
        Some(self.entries.remove(position).ok()?.accepted)
    }
}
