// SPDX-License-Identifier: GPL-2.0

//! What all endpoints of this node share.

use super::{
    connection::Counts,
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
        pinned::Users,
        window::Window, //
    },
    names::Names,
    node::Nodes,
    peer::Peer,
    rma::{
        caches::Caches,
        mapping::Ones,
        marks::Progress, //
    },
    sync::{
        list::List,
        shared, //
    },
    sys::shared_memory::Payer, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        SetOnce, //
    },
};

/// See the head of this file.
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
    /// Bytes of a receive ring, at most: a power of two.
    pub(super) ring_size: u32,
    /// Whether the numbers of the MIC library are served, see `device_file/call.rs`.
    pub(crate) mic_compat: bool,
    /// What mappings for reading show instead of lost memory, once one may have to.
    ones: SetOnce<Arc<Ones>>,
}

impl Scif {
    /// No endpoint yet, and no peer. May sleep.
    pub(crate) fn new(
        nodes: &Arc<Nodes>,
        names: &Arc<Names>,
        caches: &Arc<Caches>,
        ring_size: u32,
        mic_compat: bool,
    ) -> Result<Arc<Self>> {
        let scif = Self {
            nodes: nodes.clone(),
            names: names.clone(),
            caches: caches.clone(),
            users: Users::new()?,
            ports: Ports::new()?,
            endpoints: List::new()?,
            contacts: List::new()?,
            ring_size,
            mic_compat,
            ones: SetOnce::new(),
        };
        Ok(Arc::new(scif, GFP_KERNEL)?)
    }

    /// What mappings for reading show instead of lost memory: one page for all, which is nobody's. May
    /// sleep.
    pub(super) fn ones(&self) -> Result<Arc<Ones>> {
        let ones = shared::get_or_make(&self.ones, || Ones::new(Payer::Nobody))?;
        Ok(ones.clone())
    }

    /// What there is with a node that is online: ENODEV if it is not.
    pub(super) fn contact(&self, node: u16) -> Result<Arc<Contact>> {
        self.contact_with(&self.nodes.peer(node)?)
    }

    /// As [`Self::contact`], with a peer that a request came from: ENODEV if it is lost.
    pub(super) fn contact_with(&self, peer: &Arc<Peer>) -> Result<Arc<Contact>> {
        let found = self
            .contacts
            .find(|contact| Arc::ptr_eq(&contact.peer, peer));
        found.ok_or(ENODEV)
    }

    /// What there is to see of each endpoint of this node, and of each connection that has none: it was
    /// accepted and not taken over, or is closed and waits for the peer's last word. May sleep.
    pub(crate) fn endpoint_facts(&self) -> impl Iterator<Item = Facts> + '_ {
        let endpoints = self.endpoints.iter().map(|standing| standing.facts());
        let contacts = self.contacts.iter();
        Iterator::chain(
            endpoints,
            contacts.flat_map(|contact| contact.without_endpoint()),
        )
    }

    /// Calls `f` with each window that a peer may be using, under a spinlock. Ends with the first error. May sleep.
    pub(crate) fn for_each_window<E>(
        &self,
        mut f: impl FnMut(&Window) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut contacts = self.contacts.iter();
        contacts.try_for_each(|contact| contact.exports.for_each(&mut f))
    }

    /// Calls `f` with each connection of which transfers, or something behind them, are in flight: the node
    /// at the other end, the id of this end, and how they go. Ends with the first error. May sleep.
    pub(crate) fn for_each_in_flight<E>(
        &self,
        mut f: impl FnMut(u16, ChannelId, &Progress) -> Result<(), E>,
    ) -> Result<(), E> {
        for contact in self.contacts.iter() {
            for connection in contact.connections() {
                let (channel, progress) = (&connection.channel, connection.progress());
                if !progress.is_idle() {
                    f(channel.node(), channel.id, &progress)?;
                }
            }
        }
        Ok(())
    }

    /// Counts what there is, with one node or with all. May sleep.
    pub(crate) fn counts(&self, node: Option<u16>) -> Counts {
        let mut counts = Counts::default();
        for contact in self.contacts.iter() {
            // Of one that is over only memory is kept that it might still write to.
            let is_wanted = node.is_none_or(|node| node == contact.peer.node());
            if is_wanted && !contact.peer.is_over() {
                contact.add_to(&mut counts);
            }
        }
        counts
    }
}
