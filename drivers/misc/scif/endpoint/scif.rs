// SPDX-License-Identifier: GPL-2.0

//! What all endpoints of this node share.

use super::{
    connection::{
        Counts,
        Options, //
    },
    contact::Contact,
    ports::Ports,
    standing::{
        Facts,
        Standing, //
    }, //
};
use crate::{
    logic::envelope::ChannelId,
    memory::{
        exports::WindowFacts,
        local::Reclaim,
        pinned::Users, //
    },
    names::Names,
    node::Nodes,
    peer::Peer,
    rma::{
        caches::Caches,
        mapping::Ones,
        marks::Progress, //
    },
    sync::list::List,
    sys::{
        current,
        shared_memory::Payer, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// See the head of this file.
#[pin_data]
pub(crate) struct Scif {
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) names: Arc<Names>,
    pub(crate) caches: Arc<Caches>,
    /// Who has memory that many register.
    pub(super) users: Arc<Users>,
    pub(super) ports: Arc<Ports>,
    /// All endpoints that there are, in the order in which they were opened.
    pub(super) endpoints: Arc<List<Standing>>,
    pub(super) contacts: Arc<List<Contact>>,
    pub(super) options: Options,
    /// What mappings for reading show instead of lost memory, once one may have to.
    ones: SetOnce<Arc<Ones>>,
}

impl Scif {
    /// No endpoint yet, and no peer. May sleep.
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        names: &Arc<Names>,
        caches: &Arc<Caches>,
        options: Options,
    ) -> Result<Arc<Self>> {
        let (ports, contacts) = (Ports::new()?, List::new()?);
        let (endpoints, users) = (List::new()?, Users::new()?);
        Arc::pin_init(
            pin_init!(Self {
                nodes: nodes.clone(),
                names: names.clone(),
                caches: caches.clone(),
                users,
                ports,
                endpoints,
                contacts,
                options,
                ones: SetOnce::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// What mappings for reading show instead of lost memory: one page for all, which is nobody's. May
    /// sleep.
    pub(super) fn ones(&self) -> Result<Arc<Ones>> {
        if self.ones.as_ref().is_none() {
            // One that another thread has made meanwhile stays.
            self.ones.populate(Ones::new(Payer::Nobody)?);
        }
        loop {
            match self.ones.as_ref() {
                Some(ones) => return Ok(ones.clone()),
                // It is just being put there.
                None => current::reschedule(),
            }
        }
    }

    /// Who gives pinned memory up for who needs it.
    pub(super) fn reclaim(&self) -> &dyn Reclaim {
        &*self.caches
    }

    /// What there is with a node that is online: ENODEV if it is not.
    pub(super) fn contact(&self, node: u16) -> Result<Arc<Contact>> {
        self.contact_with(&self.nodes.peer(node)?)
    }

    /// As [`Self::contact`], with a peer that a request came from: ENODEV if it is lost.
    pub(super) fn contact_with(&self, peer: &Arc<Peer>) -> Result<Arc<Contact>> {
        let found = self
            .contacts
            .find(|contact| Arc::ptr_eq(contact.peer(), peer));
        found.ok_or(ENODEV)
    }

    /// Calls `f` with each endpoint of this node, and with each connection that has none: it was
    /// accepted and not taken over, or is closed and waits for the peer's last word. May sleep.
    pub(crate) fn for_each_endpoint(&self, mut f: impl FnMut(&Facts)) {
        self.endpoints.for_each(|standing| f(&standing.facts()));
        self.contacts
            .for_each(|contact| contact.for_each_without_endpoint(&mut f));
    }

    /// Calls `f` with each window that a peer may be using, and that peer's node. May sleep.
    pub(crate) fn for_each_window(&self, mut f: impl FnMut(u16, &WindowFacts)) {
        self.contacts
            .for_each(|contact| contact.for_each_window(&mut f));
    }

    /// Calls `f` with each connection of which transfers, or something behind them, are in flight: the
    /// node at the other end, and the id of this end. May sleep.
    pub(crate) fn for_each_in_flight(&self, mut f: impl FnMut((u16, ChannelId), &Progress)) {
        self.contacts
            .for_each(|contact| contact.for_each_in_flight(&mut f));
    }

    /// How much there is with a node that is online. May sleep.
    pub(crate) fn counts_with(&self, node: u16) -> Counts {
        let mut counts = Counts::default();
        if let Ok(contact) = self.contact(node) {
            contact.add_to(&mut counts);
        }
        counts
    }

    /// How much there is. May sleep.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.contacts.for_each(|contact| {
            if contact.peer().is_over() {
                // What is kept of it is only memory that it might still write to.
                return;
            }
            contact.add_to(&mut counts);
        });
        counts
    }
}
