// SPDX-License-Identifier: GPL-2.0

//! What all endpoints of this node share.

use super::{
    accepted::Pending,
    contact::Contact,
    ports::Ports,
    service::{
        Contacts,
        ScifService, //
    },
};
use crate::{
    node::Nodes,
    peer::service::Service,
    rma::caches::Caches, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// See the head of this file.
#[pin_data]
pub(crate) struct Scif {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) caches: Arc<Caches>,
    pub(super) ports: Arc<Ports>,
    contacts: Arc<Contacts>,
    ring_size: u32,
    /// What was accepted and not yet taken over.
    #[pin]
    pub(super) pending: Mutex<Pending>,
}

/// How much there is with the nodes that are online, for people.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    /// Those that are closed here, and wait for the peer's last word.
    pub(crate) closing_connections: usize,
    /// Windows that peers may be using.
    pub(crate) exported_windows: usize,
    /// Of peers' memory, in processes.
    pub(crate) mappings: usize,
}

impl Scif {
    /// No endpoint yet, and no peer. `ring_size` are the bytes of a receive ring, a power of two.
    /// May sleep.
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        caches: &Arc<Caches>,
        ring_size: u32,
    ) -> Result<Arc<Self>> {
        let (ports, contacts) = (Ports::new()?, Contacts::new()?);
        Arc::pin_init(
            pin_init!(Self {
                nodes: nodes.clone(),
                caches: caches.clone(),
                ports,
                contacts,
                ring_size,
                pending <- new_mutex!(Pending::new(), "Scif::pending"),
            }),
            GFP_KERNEL,
        )
    }

    /// The service by which peers reach it.
    pub(crate) fn service(&self) -> Result<Arc<dyn Service>> {
        let service = ScifService {
            contacts: self.contacts.clone(),
            ports: self.ports.clone(),
            caches: self.caches.clone(),
            ring_size: self.ring_size,
        };
        Ok(Arc::new(service, GFP_KERNEL)?)
    }

    /// What there is with a node that is online: ENODEV if it is not.
    pub(super) fn contact(&self, node: u16) -> Result<Arc<Contact>> {
        self.contacts.with(&self.nodes.peer(node)?)
    }

    /// As [`Self::contact`], with a peer that a request came from.
    pub(super) fn contacts(&self) -> &Contacts {
        &self.contacts
    }

    /// How much there is. May sleep.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.contacts.for_each(|contact| {
            if contact.peer().is_over() {
                // What is kept of it is only memory that it might still write to.
                return;
            }
            let (open, closing) = contact.connection_counts();
            counts.connections += open;
            counts.closing_connections += closing;
            counts.exported_windows += contact.shared.exports.count();
            counts.mappings += contact.shared.mappings.count();
        });
        counts
    }
}
