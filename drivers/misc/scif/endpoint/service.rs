// SPDX-License-Identifier: GPL-2.0

//! SCIF as a service of peers: the state that it attaches to each peer, and its handling of events.
//!
//! # Messages
//!
//! The control work hands over each message of a peer to SCIF. A message that contradicts an
//! earlier one ends the relation to the peer, with a reason in the log. A message about a
//! connection that is not there, or not any more, is normal and ignored: the two ends close
//! independently. A failure to send an answer is ignored, because the peer is lost then.

use super::{
    connection::Connection,
    peer_connections::PeerConnections,
    ports::Request,
    scif::Scif, //
};
use crate::{
    logic::{
        envelope::{
            ChannelId,
            Envelope,
            ServiceId, //
        },
        messages::{
            Message,
            Offer,
            RingAddress,
            Status, //
        },
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
        let peer_connections = PeerConnections::new(peer, &self)?;
        let attached = Attached {
            _listed: self.all_connections.add(&peer_connections)?,
            peer_connections,
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }
}

/// The connections with one peer, in the list of all connections. The drop removes them from the
/// list.
struct Attached {
    peer_connections: Arc<PeerConnections>,
    _listed: Listed<PeerConnections>,
}

impl Attachment for Attached {
    fn message(&self, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
        handle(
            &self.peer_connections,
            Message::from_envelope(envelope)?,
            annex,
        )
    }

    fn refused(&self) -> Result<(), Violation> {
        // The session ends, because connections to this peer would wait for answers that it never
        // sends.
        Err("it does not speak SCIF")
    }

    fn lost(&self) {
        let peer_connections = &self.peer_connections;
        peer_connections
            .connections()
            .for_each(|connection| connection.lost());
        peer_connections.policy.end_peer_reads();
        peer_connections.policy.staging.lost();
    }

    fn drained(&self) {
        let peer_connections = &self.peer_connections;
        // Signals that were deferred after [`Self::lost`] has walked over the connections keep
        // windows in use.
        peer_connections
            .connections()
            .for_each(|connection| connection.transfers.marks.forget_deferred());
        // From here on no page fault maps the pages again.
        peer_connections.mappings.revoke_all();
        peer_connections.policy.drained();
        // The control work, which brought the requests, does not run for this peer any more.
        peer_connections
            .ports
            .forget_requests(&peer_connections.peer);
    }

    fn unreachable(&self) {
        self.peer_connections.exports.release_all();
    }

    fn forget(&self) {
        let peer_connections = &self.peer_connections;
        peer_connections
            .connections()
            .for_each(|connection| connection.channel.remove());
        peer_connections.policy.staging.forget();
    }
}

const NO_ANNEX: &str = "it sends a message without its annex";

/// Handles a message.
/// Context: control work, may sleep, never waits for the peer.
fn handle(
    peer_connections: &PeerConnections,
    message: Message,
    annex: &AnnexOf<'_>,
) -> Result<(), Violation> {
    let peer = &peer_connections.peer;
    match message {
        Message::Connect {
            source,
            source_port,
            to,
            ring,
        } => match Request::new(peer, source, source_port, ring) {
            Ok(request) => peer_connections.requested(to, request),
            Err(_) => peer.answer(&Message::Refuse {
                target: source,
                reason: Status::NoMemory,
            }),
        },
        Message::Cancel { source, to } => peer_connections.cancelled(source, to),
        Message::Accept {
            target,
            source,
            port,
            ring,
        } => handle_accept(peer_connections, target, (source, port), &ring)?,
        Message::Close { target, source } => match peer_connections.connection(target) {
            Some(connection) if connection.channel.remote().is_ok() => connection.peer_closed(),
            // Either both ends closed at once, and this end was done first. Or this end had given
            // up before the peer accepted. The peer's end is not written to any more, or never was.
            _ => peer.answer(&Message::CloseDone { target: source }),
        },
        Message::WindowReleased { window } => peer_connections.exports.release(window),
        Message::PushDone { token, status } => {
            peer_connections.policy.peer_read_answered(token, status)
        }
        Message::StagingOffer {
            address,
            slots,
            size,
        } => peer_connections
            .policy
            .staging
            .offered(address, slots, size)?,
        Message::StagingTaken { address } => peer_connections.policy.staging.taken(address)?,
        _ => match peer_connections.connection(message.target()) {
            Some(connection) => handle_for(&connection, message, annex)?,
            None => answer_for_missing_connection(peer, message),
        },
    }
    Ok(())
}

/// Handles the peer's answer that it has accepted a connection as the `end` with this id and port.
/// Context: control work, may sleep.
fn handle_accept(
    peer_connections: &PeerConnections,
    target: ChannelId,
    end: (ChannelId, u16),
    ring: &RingAddress,
) -> Result<(), Violation> {
    const NOT_REQUESTED: &str = "it accepts a connection that was not requested";

    // A connector that has given up stays in the table until the peer has answered its request.
    let connection = peer_connections.connection(target).ok_or(NOT_REQUESTED)?;
    let channel = &connection.channel;
    if channel.remote().is_ok() {
        return Err(NOT_REQUESTED);
    }
    let (source, port) = end;
    if !connection.accepted(source, port, ring) {
        // The connector has given up, so this end closes the connection as soon as it exists.
        channel.send_once(&Message::Close {
            target: source,
            source: target,
        });
    }
    Ok(())
}

/// Answers a message for a connection that is not there, if the peer waits for the answer.
fn answer_for_missing_connection(peer: &Peer, message: Message) {
    let answer = match message {
        // Without the answer, the memory stays pinned.
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
        Message::PushWanted { request, .. } => transfers.peer_write_requested(&request),
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
        // All other messages are not about a connection, or were handled before.
        _ => (),
    }
    Ok(())
}
