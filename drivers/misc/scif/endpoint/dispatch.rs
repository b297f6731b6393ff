// SPDX-License-Identifier: GPL-2.0

//! What each message of a peer to SCIF does.
//!
//! Called by the control work. A message that contradicts what was said before ends the relation to
//! the peer, with a reason in the log. One about a connection that is not there (any more) is normal,
//! and ignored: the two ends close independently. Answers that can't be sent are of no concern: the
//! peer is lost then.

use super::{
    connection::Connection,
    contact::Contact,
    listener::Request, //
};
use crate::{
    logic::{
        extents,
        messages::{
            Message,
            Status,
            WindowId, //
        }, //
    },
    memory::remote_windows::Offer,
    peer::attachment::Violation,
    rma::transfers::pushed::Asked, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Does what a message asks for. May sleep but never waits for the peer.
pub(super) fn handle(contact: &Arc<Contact>, message: Message) -> Result<(), Violation> {
    let peer = contact.peer();
    match message {
        Message::Connect {
            source,
            source_port,
            port,
            ring,
        } => contact.ports.requested(
            port,
            Request {
                peer: peer.clone(),
                source,
                source_port,
                ring,
            },
        ),
        Message::Cancel { source } => contact.ports.cancelled(peer, source),
        Message::Accept {
            target,
            source,
            ring,
        } => {
            let taken = contact
                .connection(target)
                .is_some_and(|connection| connection.accepted(source, &ring));
            if !taken {
                // The connector has given up: so it is closed as soon as it exists.
                let _ = peer.post(&Message::Close {
                    target: source,
                    source: target,
                });
            }
        }
        Message::Close { target, source } => match contact.connection(target) {
            Some(connection) if connection.channel.remote().is_ok() => connection.peer_closed(),
            // Both ends closed at once, and this one was done first, or had given up before it was
            // accepted: nothing writes there any more, or ever did.
            _ => {
                let _ = peer.post(&Message::CloseDone { target: source });
            }
        },
        Message::WindowReleased { window } => contact.window_released(window),
        Message::PushDone { token, status } => contact.push_done(token, status),
        _ => match contact.connection(message.target()) {
            Some(connection) => handle_for(&connection, message)?,
            None => {
                if let Message::WindowOffer { window, .. } = message {
                    // Its owner waits for that, or the memory stays pinned.
                    let _ = peer.post(&Message::WindowReleased { window });
                } else if let Message::PushWanted { token, .. } = message {
                    let status = Status::Unknown;
                    let _ = peer.post(&Message::PushDone { token, status });
                }
            }
        },
    }
    Ok(())
}

fn handle_for(connection: &Connection, message: Message) -> Result<(), Violation> {
    let fences = &connection.fences;
    match message {
        Message::Refuse { reason, .. } => connection.refused(reason),
        Message::CloseDone { .. } => connection.close_done(),
        Message::RingWanted { bytes, .. } => connection.stream.grow(bytes),
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
            ordered,
            source,
            destination,
            len,
            window,
            ..
        } => connection.transfers.push_wanted(&Asked {
            token,
            ordered: ordered != 0,
            source,
            destination,
            len,
            window: (window != 0).then_some(WindowId(window)),
        }),
        Message::WindowOffer { .. }
        | Message::WindowExtents { .. }
        | Message::WindowPages { .. }
        | Message::WindowAnswer { .. }
        | Message::WindowRevoke { .. }
        | Message::WindowRevokeDone { .. } => handle_window(connection, message)?,
        // Not about a connection, or handled before.
        Message::Connect { .. }
        | Message::Accept { .. }
        | Message::Cancel { .. }
        | Message::Close { .. }
        | Message::WindowReleased { .. }
        | Message::PushDone { .. } => (),
    }
    Ok(())
}

fn handle_window(connection: &Connection, message: Message) -> Result<(), Violation> {
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
        } => remote_windows.offered(&Offer {
            window,
            protection,
            offset,
            len,
            extents,
            first,
            wants_answer: wants_answer != 0,
        })?,
        Message::WindowExtents {
            window,
            count,
            extents,
            ..
        } => remote_windows.extents_came(window, count, &extents)?,
        Message::WindowPages {
            window,
            count,
            pages,
            ..
        } => remote_windows.extents_came(window, count, &pages.map(extents::pack_page))?,
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
