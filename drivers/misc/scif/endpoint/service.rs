// SPDX-License-Identifier: GPL-2.0

//! SCIF as a service of peers: what it has for each, and how it hears of what happens.
//!
//! # Messages
//!
//! The control work hands over each message of a peer to SCIF. A message that contradicts what was said before ends the relation to
//! the peer, with a reason in the log. One about a connection that is not there (any more) is normal,
//! and ignored: the two ends close independently. Answers that can't be sent are of no concern: the
//! peer is lost then.

use super::{
    connection::Connection,
    contact::Contact,
    ports::Request,
    scif::Scif, //
};
use crate::{
    logic::{
        envelope::{
            Envelope,
            ServiceId, //
        },
        messages::{
            Message,
            Offer,
            Status, //
        }, //
    },
    memory::remote_window::in_annex,
    peer::{
        control::AnnexOf,
        service::{
            Attachment,
            Service,
            Violation, //
        },
        Peer, //
    },
    sync::list::Listed, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

impl Service for Scif {
    fn id(&self) -> ServiceId {
        ServiceId::SCIF
    }

    fn attach(self: ArcBorrow<'_, Self>, peer: &Arc<Peer>) -> Result<Arc<dyn Attachment>> {
        let contact = Contact::new(peer, &self)?;
        let attached = Attached {
            _listed: self.contacts.add(&contact)?,
            contact,
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }
}

/// A contact in the list, until this is dropped.
struct Attached {
    contact: Arc<Contact>,
    _listed: Listed<Contact>,
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
        handle(&self.contact, Message::from_envelope(envelope)?, annex)
    }

    fn refused(&self) -> Result<(), Violation> {
        // Connections would wait for answers that never come.
        Err("it does not speak SCIF")
    }

    fn lost(&self) {
        let contact = &self.contact;
        contact
            .connections()
            .for_each(|connection| connection.lost());
        contact.ways.end_pulls();
        contact.ways.staging.lost();
    }

    fn drained(&self) {
        let contact = &self.contact;
        // Signals that were deferred since the connections were marked keep windows in use.
        contact
            .connections()
            .for_each(|connection| connection.transfers.marks.forget_deferred());
        // No fault puts pages back from here on.
        contact.mappings.revoke_all();
        contact.ways.drained();
        // Requests came from the control work, which is out now, too.
        contact.ports.forget_requests(&contact.peer);
    }

    fn unreachable(&self) {
        self.contact.exports.release_all();
    }

    fn forget(&self) {
        let contact = &self.contact;
        contact
            .connections()
            .for_each(|connection| connection.channel.remove());
        contact.ways.staging.forget();
    }
}

const NO_ANNEX: &str = "it sends a message without its annex";

/// Does what a message asks for. May sleep but never waits for the peer.
fn handle(contact: &Contact, message: Message, annex: &AnnexOf<'_>) -> Result<(), Violation> {
    let peer = &contact.peer;
    match message {
        Message::Connect {
            source,
            source_port,
            to,
            ring,
        } => match Request::new(peer, source, source_port, ring) {
            Ok(request) => contact.requested(to, request),
            Err(_) => peer.answer(&Message::Refuse {
                target: source,
                reason: Status::NoMemory,
            }),
        },
        Message::Cancel { source, to } => contact.cancelled(source, to),
        Message::Accept {
            target,
            source,
            port,
            ring,
        } => {
            const NOT_REQUESTED: &str = "it accepts what was not requested";

            // A connector that has given up stays in the table until it is answered.
            let connection = contact.connection(target).ok_or(NOT_REQUESTED)?;
            let channel = &connection.channel;
            if channel.remote().is_ok() {
                return Err(NOT_REQUESTED);
            }
            if !connection.accepted(source, port, &ring) {
                // The connector has given up: so the connection is closed as soon as it exists.
                channel.send_once(&Message::Close {
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
        Message::WindowReleased { window } => contact.exports.release(window),
        Message::PushDone { token, status } => contact.ways.pull_answered(token, status),
        Message::StagingOffer {
            address,
            slots,
            size,
        } => contact.ways.staging.offered(address, slots, size)?,
        Message::StagingTaken { address } => contact.ways.staging.taken(address)?,
        _ => match contact.connection(message.target()) {
            Some(connection) => handle_for(&connection, message, annex)?,
            None => answer_for_nobody(peer, message),
        },
    }
    Ok(())
}

/// Answers what is for a connection that is not there, where somebody waits for that.
fn answer_for_nobody(peer: &Peer, message: Message) {
    let answer = match message {
        // Else the memory stays pinned.
        Message::WindowOffer {
            offer: Offer { window, .. },
            ..
        }
        | Message::WindowExtents { window, .. } => Message::WindowReleased { window },
        Message::PushWanted { request, .. } => Message::PushDone {
            token: request.token,
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
    let transfers = &connection.transfers;
    let (windows, remote_windows) = (&connection.windows, &connection.remote_windows);
    match message {
        Message::Refuse { reason, .. } => connection.refused(reason),
        Message::CloseDone { .. } => connection.close_done(),
        Message::RingWanted { .. } => connection.stream.grow(),
        Message::RingOffer { address, size, .. } => connection.stream.offered(address, size)?,
        Message::MarkRequest { token, .. } => transfers.mark_requested(token),
        Message::FenceWait {
            token, sequence, ..
        } => transfers.wait_requested(token, sequence),
        Message::Signal {
            token,
            senders,
            receivers,
            ..
        } => transfers.signal_requested(token, senders, receivers),
        Message::FenceAnswer {
            token,
            status,
            sequence,
            ..
        } => transfers.fence_answered(token, status, sequence),
        Message::PushWanted { request, .. } => transfers.push_wanted(&request),
        Message::WindowOffer { offer, first, .. } => {
            let annex = annex.words(in_annex(&offer)).ok_or(NO_ANNEX)?;
            remote_windows.offered(offer, first, &annex)?;
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
        } => windows.revoke_done(window, released),
        // All others are not about a connection, or were handled before.
        _ => (),
    }
    Ok(())
}
