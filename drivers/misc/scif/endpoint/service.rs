// SPDX-License-Identifier: GPL-2.0

//! SCIF as a service of peers: what it has for each, and how it hears of what happens.
//!
//! Lock: `Contacts::list` is a leaf.
//!
//! What each message of a peer to SCIF does.
//!
//! Called by the control work. A message that contradicts what was said before ends the relation to
//! the peer, with a reason in the log. One about a connection that is not there (any more) is normal,
//! and ignored: the two ends close independently. Answers that can't be sent are of no concern: the
//! peer is lost then.

use super::{
    connection::{
        Connection,
        Options, //
    },
    contact::Contact,
    ports::{
        Ports,
        Request, //
    }, //
};
use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::{
            Message,
            Refusal,
            Status,
            WindowId, //
            PUSH_ORDERED,
            PUSH_SURELY,
        }, //
    },
    memory::remote_window::Offer,
    peer::{
        control::AnnexOf,
        service::{
            Attachment,
            Service,
            Violation, //
        },
        Peer, //
    },
    rma::{
        caches::Caches,
        pushes::Asked, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
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
        handle(&self.contact, Message::from_envelope(envelope)?, annex)
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

const NO_ANNEX: &str = "it sends a message without its annex";

/// Does what a message asks for. May sleep but never waits for the peer.
pub(super) fn handle(
    contact: &Arc<Contact>,
    message: Message,
    annex: &AnnexOf<'_>,
) -> Result<(), Violation> {
    let peer = contact.peer();
    match message {
        Message::Connect {
            source,
            source_port,
            port,
            ring,
        } => match Request::new(peer, source, source_port, ring) {
            Ok(request) => contact.ports.requested(port, request),
            Err(_) => peer.answer(&Message::Refuse {
                target: source,
                reason: Refusal::NoMemory,
            }),
        },
        Message::Cancel { source } => contact.ports.cancelled(peer, source),
        Message::Accept {
            target,
            source,
            ring,
        } => {
            const NOT_REQUESTED: &str = "it accepts what was not requested";

            // A connector that has given up stays in the table until it is answered.
            let connection = contact.connection(target).ok_or(NOT_REQUESTED)?;
            let channel = &connection.channel;
            if channel.remote().is_ok() {
                return Err(NOT_REQUESTED.into());
            }
            if !connection.accepted(source, &ring) {
                // The connector has given up: so the connection is closed as soon as it exists.
                channel.send_last(&Message::Close {
                    target: source,
                    source: target,
                });
            }
        }
        Message::Close { target, source } => match contact.connection(target) {
            Some(connection) if connection.channel.remote().is_ok() => connection.peer_closed(),
            // Both ends closed at once, and this one was done first, or had given up before it was
            // accepted: nothing writes there any more, or ever did.
            _ => peer.answer(&Message::CloseDone { target: source }),
        },
        Message::WindowReleased { window } => contact.window_released(window),
        Message::PushDone { token, status } => contact.push_done(token, status),
        Message::StagingOffer { .. } | Message::StagingTaken { .. } => {
            handle_staging(contact, message)?;
        }
        _ => match contact.connection(message.target()) {
            Some(connection) => handle_for(&connection, message, annex)?,
            None => answer_for_nobody(peer, message),
        },
    }
    Ok(())
}

fn handle_staging(contact: &Contact, message: Message) -> Result<(), Violation> {
    match message {
        Message::StagingOffer {
            address,
            slots,
            size,
        } => contact.staging().offered(address, slots, size),
        Message::StagingTaken { address } => contact.staging().taken(address),
        _ => Ok(()),
    }
}

/// Answers what is for a connection that is not there, where somebody waits for that.
fn answer_for_nobody(peer: &Peer, message: Message) {
    let answer = match message {
        // Else the memory stays pinned.
        Message::WindowOffer { window, .. } => Message::WindowReleased { window },
        Message::PushWanted { token, .. } => Message::PushDone {
            token,
            status: Status::Unknown,
        },
        _ => return,
    };
    peer.answer(&answer);
}

fn handle_for(
    connection: &Connection,
    message: Message,
    annex: &AnnexOf<'_>,
) -> Result<(), Violation> {
    let fences = &connection.fences;
    match message {
        Message::Refuse { reason, .. } => connection.refused(reason),
        Message::CloseDone { .. } => connection.close_done(),
        Message::RingWanted { .. } => connection.stream.rings.grow(),
        Message::RingOffer { address, size, .. } => connection.stream.offered(address, size)?,
        Message::MarkRequest { token, .. } => fences.mark_requested(token),
        Message::MarkAnswer {
            token, sequence, ..
        } => fences.mark_answered(token, sequence),
        Message::FenceWait {
            token, sequence, ..
        } => fences.wait_requested(token, sequence),
        Message::Signal {
            token,
            senders,
            receivers,
            ..
        } => fences.signal_requested(token, senders, receivers),
        Message::FenceDone { token, status, .. } => fences.wait_answered(token, status),
        Message::PushWanted {
            token,
            how,
            source,
            destination,
            len,
            window,
            ..
        } => connection.transfers.push_wanted(&Asked {
            token,
            ordered: how & PUSH_ORDERED != 0,
            must: how & PUSH_SURELY != 0,
            source,
            destination,
            len,
            window: (window != 0).then_some(WindowId(window)),
        }),
        _ => handle_window(connection, message, annex)?,
    }
    Ok(())
}

/// All others are not about a connection, or were handled before.
fn handle_window(
    connection: &Connection,
    message: Message,
    annex: &AnnexOf<'_>,
) -> Result<(), Violation> {
    let (windows, remote_windows) = (&connection.windows, &connection.remote_windows);
    match message {
        Message::WindowOffer {
            window,
            protection,
            offset,
            len,
            extents,
            wants_answer,
            first,
            ..
        } => {
            let offer = Offer {
                window,
                protection,
                offset,
                len,
                extents,
                first,
                wants_answer: wants_answer != 0,
            };
            let annex = annex.words(offer.in_annex()).ok_or(NO_ANNEX)?;
            remote_windows.offered(&offer, &annex)?;
        }
        Message::WindowExtents { window, count, .. } => {
            let annex = annex.words(count as usize).ok_or(NO_ANNEX)?;
            remote_windows.extents_came(window, &annex)?;
        }
        Message::WindowAnswer {
            window,
            status,
            grant,
            ..
        } => windows.answered(window, status, grant),
        Message::WindowRevoke { window, offset, .. } => remote_windows.revoked(window, offset),
        Message::WindowRevokeDone {
            window, released, ..
        } => windows.revoke_done(window, released != 0),
        _ => (),
    }
    Ok(())
}
