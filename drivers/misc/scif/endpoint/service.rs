// SPDX-License-Identifier: GPL-2.0

//! SCIF as a service of peers: what it has for each, and how it hears of what happens.
//!
//! Lock: `Contacts::list` is a leaf.

use super::{
    contact::Contact,
    dispatch,
    options::Options,
    ports::Ports, //
};
use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::Message, //
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
    rma::caches::Caches,
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The contacts with all peers.
#[pin_data]
pub(super) struct Contacts {
    #[pin]
    list: Mutex<KVec<Arc<Contact>>>,
}

impl Contacts {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new(), "Contacts::list"),
            }),
            GFP_KERNEL,
        )
    }

    /// The contact with a peer: ENODEV if it is lost.
    pub(super) fn with(&self, peer: &Arc<Peer>) -> Result<Arc<Contact>> {
        let list = self.list.lock();
        let found = list
            .iter()
            .find(|contact| Arc::ptr_eq(contact.peer(), peer));
        found.cloned().ok_or(ENODEV)
    }

    /// Calls `f` with each, without a lock.
    pub(super) fn for_each(&self, mut f: impl FnMut(&Contact)) {
        for index in 0.. {
            let contact = self.list.lock().get(index).cloned();
            let Some(contact) = contact else { return };
            f(&contact);
        }
    }

    fn add(&self, contact: &Arc<Contact>) -> Result {
        Ok(self.list.lock().push(contact.clone(), GFP_KERNEL)?)
    }

    fn remove(&self, contact: &Arc<Contact>) {
        let removed = {
            let mut list = self.list.lock();
            let position = list.iter().position(|other| Arc::ptr_eq(other, contact));
            position.and_then(|position| list.remove(position).ok())
        };
        drop(removed);
    }
}

/// See the head of this file.
pub(super) struct ScifService {
    pub(super) contacts: Arc<Contacts>,
    pub(super) ports: Arc<Ports>,
    pub(super) caches: Arc<Caches>,
    pub(super) options: Options,
}

impl Service for ScifService {
    fn id(&self) -> ServiceId {
        ServiceId::SCIF
    }

    fn attach(&self, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let contact = Contact::new(peer, &self.ports, &self.caches, self.options)?;
        let attached = Attached {
            contact: contact.clone(),
            contacts: self.contacts.clone(),
        };
        // From here on dropping it takes the contact off the list.
        let attached = Arc::new(attached, GFP_KERNEL)?;
        self.contacts.add(&contact)?;
        Ok(attached)
    }
}

/// A contact in the list, until this is dropped.
struct Attached {
    contact: Arc<Contact>,
    contacts: Arc<Contacts>,
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.contacts.remove(&self.contact);
    }
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
        dispatch::handle(&self.contact, Message::from_envelope(envelope)?, annex)
    }

    fn refused(&self) -> Result<(), Violation> {
        // Connections would wait for answers that never come.
        Err("it does not speak SCIF".into())
    }

    fn lost(&self) {
        self.contact.lost();
    }

    fn drained(&self) {
        self.contact.drained();
    }

    fn unreachable(&self) {
        self.contact.unreachable();
    }

    fn forget(&self) {
        self.contact.forget();
    }
}
