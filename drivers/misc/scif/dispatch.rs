// SPDX-License-Identifier: GPL-2.0

//! What each control message of a peer does.
//!
//! The control work takes messages out of the ring one by one, decodes them from private copies
//! and passes them on. A message that is malformed or contradicts what was said before ends the
//! session, with a reason in the log. One about a connection that is not there (any more) is
//! normal, and ignored: the two ends close independently.

use crate::{
    logic::wire::Message,
    session::Session,
    transport::BELL_CONTROL, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Messages handled before others get the queue's thread.
const BATCH: usize = 512;

/// Handles what has come. The control work; may sleep but never waits for the peer.
pub(crate) fn process_control(session: &Arc<Session>) {
    if session.has_failed() && session.is_loopback() {
        session.tear_down();
        session.release_windows();
        return;
    }
    let Some(_user) = session.enter() else { return };
    match session.control.flush(&session.transport) {
        Ok(true) => session.ring(BELL_CONTROL),
        Ok(false) => (),
        Err(_) => {
            session.fail("it reports messages that were never sent");
            return;
        }
    }
    for _ in 0..BATCH {
        let body = match session.control.take() {
            Ok(Some(body)) => body,
            Ok(None) => return,
            Err(_) => {
                session.fail("its control ring is out of order");
                return;
            }
        };
        match session.control.acknowledge(&session.transport) {
            Ok(true) => session.ring(BELL_CONTROL),
            Ok(false) => (),
            Err(_) => return,
        }
        let message = match Message::decode(&body) {
            Ok(message) => message,
            Err(malformed) => {
                session.fail(malformed.reason());
                return;
            }
        };
        if let Err(violation) = handle(session, message) {
            session.fail(violation);
            return;
        }
    }
    session.schedule_control();
}

fn handle(session: &Arc<Session>, message: Message) -> Result<(), &'static str> {
    // Answers that can't be sent are of no concern: the session is over then.
    match message {
        Message::Connect {
            source,
            source_port,
            port,
            ring,
        } => {
            let _ = session
                .fabric
                .connection_requested(session, source, source_port, port, ring);
        }
        Message::Cancel { source } => {
            let _ = session.fabric.connection_cancelled(session, source);
        }
        Message::Accept {
            target,
            source,
            ring,
        } => {
            let taken = session
                .connection(target)
                .is_some_and(|connection| connection.accepted(source, &ring));
            if !taken {
                // The connector has given up: so it is closed as soon as it exists.
                let _ = session.post(&Message::Close {
                    target: source,
                    source: target,
                });
            }
        }
        Message::Close { target, source } => match session.connection(target) {
            Some(connection) if connection.peer().is_ok() => connection.peer_closed(),
            // Both ends closed at once, and this one was done first, or had given up before it was
            // accepted: nothing writes there any more, or ever did.
            _ => {
                let _ = session.post(&Message::CloseDone { target: source });
            }
        },
        Message::WindowReleased { window } => session.unexport(window),
        _ => {
            let target = message.target();
            let Some(connection) = session.connection(target) else {
                if let Message::WindowOffer { window, .. } = message {
                    // Its owner waits for that, or the memory stays pinned.
                    let _ = session.post(&Message::WindowReleased { window });
                }
                return Ok(());
            };
            match message {
                Message::Refuse { reason, .. } => {
                    if connection.refused(reason) {
                        session.remove_connection(target);
                    }
                }
                Message::CloseDone { .. } => connection.close_done(),
                Message::SpaceWanted { .. } => connection.space_wanted(),
                Message::SpaceAvailable { .. } => connection.space_available(),
                Message::WindowOffer {
                    window,
                    protection,
                    offset,
                    len,
                    extents,
                    ..
                } => connection.window_offered(window, protection, offset, len, extents)?,
                Message::WindowExtents {
                    window,
                    count,
                    extents,
                    ..
                } => connection.window_extents(window, count, &extents)?,
                Message::WindowAnswer { window, status, .. } => {
                    connection.window_answered(window, status)
                }
                Message::WindowRevoke { window, offset, .. } => {
                    connection.window_revoked(window, offset)
                }
                Message::WindowRevokeDone { window, .. } => connection.window_revoke_done(window),
                Message::MarkRequest { token, .. } => connection.mark_requested(token),
                Message::MarkAnswer {
                    token, sequence, ..
                } => connection.mark_answered(token, sequence),
                Message::FenceWait {
                    token, sequence, ..
                } => connection.fence_wait_requested(token, sequence),
                Message::Signal {
                    token,
                    senders,
                    receivers,
                    ..
                } => connection.signal_requested(token, senders, receivers),
                Message::FenceDone { token, status, .. } => connection.fence_done(token, status),
                Message::Connect { .. }
                | Message::Accept { .. }
                | Message::Cancel { .. }
                | Message::Close { .. }
                | Message::WindowReleased { .. } => (),
            }
        }
    }
    Ok(())
}
