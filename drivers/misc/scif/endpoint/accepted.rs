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

/// All of them, by handle.
pub(super) struct Pending {
    entries: KVec<Entry>,
}

impl Pending {
    pub(super) const fn new() -> Self {
        Self {
            entries: KVec::new(),
        }
    }

    /// ENOMEM if there is no room for another connection that `listener` accepts. Asked before it
    /// is accepted, so that nobody connects for nothing.
    pub(super) fn make_room(&mut self, listener: ListenerId) -> Result {
        let accepted_before = self
            .entries
            .iter()
            .filter(|entry| entry.listener == listener)
            .count();
        if accepted_before >= MAX_ACCEPTED {
            return Err(ENOMEM);
        }
        Ok(self.entries.reserve(1, GFP_KERNEL_ACCOUNT)?)
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
    /// there is one named.
    pub(super) fn take_of(
        &mut self,
        listener: ListenerId,
        table: Option<usize>,
    ) -> Option<Accepted> {
        self.take_if(|entry| {
            entry.listener == listener && table.is_none_or(|table| entry.table == table)
        })
    }

    fn take_if(&mut self, wanted: impl Fn(&Entry) -> bool) -> Option<Accepted> {
        let position = self.entries.iter().position(wanted)?;
        Some(self.entries.remove(position).ok()?.accepted)
    }
}
