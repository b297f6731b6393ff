// SPDX-License-Identifier: GPL-2.0

//! Names as a service of peers.
//!
//! A question is answered by the control work at once, out of the table, so that nothing is kept for it,
//! however many a peer asks.
//!
//! Lock: `Names::peers` is a leaf.

use super::{
    lookups::Lookups,
    table::{
        Name,
        NameTable, //
    },
};
use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::NameMessage, //
    },
    peer::{
        attachment::{
            Attachment,
            Violation, //
        },
        control::AnnexOf,
        service::Service,
        Peer, //
    },
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The names of this node, and the way to those of others.
#[pin_data]
pub(crate) struct Names {
    pub(crate) table: Arc<NameTable>,
    #[pin]
    peers: Mutex<KVec<Arc<Lookups>>>,
}

impl Names {
    /// No names yet, and no peers. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let table = NameTable::new()?;
        Arc::pin_init(
            pin_init!(Self {
                table,
                peers <- new_mutex!(KVec::new(), "Names::peers"),
            }),
            GFP_KERNEL,
        )
    }

    /// The service by which peers ask.
    pub(crate) fn service(self: &Arc<Self>) -> Result<Arc<dyn Service>> {
        Ok(Arc::new(NameService(self.clone()), GFP_KERNEL)?)
    }

    /// The port that has a name at a peer; see [`Lookups::ask`]. Interruptible.
    pub(crate) fn look_up(&self, peer: &Arc<Peer>, name: Name) -> Result<u16> {
        let lookups = {
            let peers = self.peers.lock();
            let mut all = peers.iter();
            all.find(|lookups| Arc::ptr_eq(lookups.peer(), peer))
                .cloned()
        };
        lookups.ok_or(ENODEV)?.ask(name)
    }

    fn remove(&self, lookups: &Arc<Lookups>) {
        let removed = {
            let mut peers = self.peers.lock();
            let position = peers.iter().position(|other| Arc::ptr_eq(other, lookups));
            position.and_then(|position| peers.remove(position).ok())
        };
        drop(removed);
    }
}

struct NameService(Arc<Names>);

impl Service for NameService {
    fn id(&self) -> ServiceId {
        ServiceId::NAMES
    }

    fn attach(&self, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let attached = Attached {
            lookups: Lookups::new(peer)?,
            names: self.0.clone(),
        };
        // From here on dropping it takes it off the list.
        let attached = Arc::new(attached, GFP_KERNEL)?;
        let mut peers = self.0.peers.lock();
        let added = peers.push(attached.lookups.clone(), GFP_KERNEL);
        drop(peers);
        added?;
        Ok(attached)
    }
}

/// In the list until this is dropped.
struct Attached {
    lookups: Arc<Lookups>,
    names: Arc<Names>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.names.remove(&self.lookups);
    }
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, _annex: &AnnexOf<'_>) -> Result<(), Violation> {
        match NameMessage::from_envelope(envelope)? {
            NameMessage::Lookup { token, class, name } => {
                let name = Name {
                    class,
                    number: name,
                };
                let answer = match self.names.table.port(name) {
                    Some(port) => NameMessage::Found { token, port },
                    None => NameMessage::NotFound { token },
                };
                // An answer that can't be sent is of no concern: the peer is lost then.
                let _ = self.lookups.peer().post(&answer);
            }
            NameMessage::Found { token, port } => self.lookups.answered(token, Some(port)),
            NameMessage::NotFound { token } => self.lookups.answered(token, None),
        }
        Ok(())
    }

    fn refused(&self) -> Result<(), Violation> {
        // It can be talked to without them. It says so for each question that was under way.
        self.lookups.close(EOPNOTSUPP);
        Ok(())
    }

    fn lost(&self) {
        self.lookups.close(ENODEV);
    }

    fn drained(&self) {}

    fn unreachable(&self) {}

    fn forget(&self) {}
}
