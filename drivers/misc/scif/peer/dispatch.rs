// SPDX-License-Identifier: GPL-2.0

//! The control messages of a peer, on their way to the services.
//!
//! The control work, or whoever wants to know what the peer has said by now ([`Peer::catch_up`]), takes
//! messages out of the ring one by one, opens the envelope of a private copy and hands it to the
//! service it is for. There is one at a time who does. What it answers is rung for at the end. A message that is malformed or contradicts what was said
//! before ends the relation, with a reason in the log. One for a service that this node does not have
//! is answered so.
//!
//! Many control messages of which the peer is told once.

use super::{
    control::AnnexOf,
    service::Violation,
    Peer, //
};
use crate::{
    logic::envelope::{
        Envelope,
        PeerMessage,
        ServiceId, //
    },
    transport::doorbell, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};

impl WorkItem for Peer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Before others get the processor: half a ring, after which a writer is rung anyway.
        process_control(&this, this.control.slots() / 2);
    }
}

impl Peer {
    /// Handles what has come by now, as its doorbell need not have rung. May sleep, but does not wait
    /// for the peer; not for who handles messages.
    pub(crate) fn catch_up(self: &Arc<Self>) {
        // No more than this can be there.
        process_control(self, self.control.slots());
    }

    /// Returns when the message has been handled that is being handled now. Not for the handler. May sleep.
    pub(crate) fn wait_for_handler(&self) {
        drop(self.handling.lock());
    }

    /// Has what was taken out reported; says whether that is possible.
    fn report(&self, may_wait: bool) -> bool {
        match self.control.report(self.path(), may_wait) {
            Ok(true) => self.path().ring(doorbell::CONTROL),
            Ok(false) => (),
            Err(_) => return false,
        }
        true
    }
}

/// Handles what has come, so many messages at most, and the others soon. May sleep but never waits for the
/// peer.
fn process_control(peer: &Arc<Peer>, most: u32) {
    let Some(_inside) = peer.enter() else { return };
    let _handling = peer.handling.lock();
    let _bell = peer.hold_bell();
    match peer.control.flush(peer.path()) {
        Ok(true) => peer.path().ring(doorbell::CONTROL),
        Ok(false) => (),
        Err(_) => {
            peer.fail("it reports messages that were never sent");
            return;
        }
    }
    for _ in 0..most {
        let (body, annex) = match peer.control.take() {
            Ok(Some(taken)) => taken,
            Ok(None) => {
                peer.report(false);
                return;
            }
            Err(_) => {
                peer.fail("its control ring is out of order");
                return;
            }
        };
        let handled = Envelope::decode(&body)
            .map_err(Violation::from)
            .and_then(|envelope| handle(peer, &envelope, &annex));
        if let Err(Violation(reason)) = handled {
            peer.fail(reason);
            return;
        }
        // Only now: the peer may then write another annex there.
        if !peer.report(true) {
            return;
        }
    }
    peer.report(false);
    peer.schedule_control();
}

/// The peer does not have a service, which it says as often as it was asked before that was known here:
/// the log says it once. Under `Peer::handling`.
fn note_refusal(peer: &Peer, service: ServiceId) {
    let bit = 1_u64.checked_shl(service.0.into()).unwrap_or(0);
    let before = peer.lacks.load(Relaxed);
    if before & bit != bit {
        peer.lacks.store(before | bit, Relaxed);
        pr_warn!("node {} does not have service {}\n", peer.node(), service.0);
    }
}

fn handle(peer: &Arc<Peer>, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
    if envelope.service == ServiceId::PEER {
        let PeerMessage::NoService { service } = PeerMessage::from_envelope(envelope)?;
        let Some(attachment) = peer.attachment(service) else {
            return Err("it refuses a service that was never asked for".into());
        };
        note_refusal(peer, service);
        return attachment.refused();
    }
    match peer.attachment(envelope.service) {
        Some(attachment) => attachment.message(envelope, annex),
        None => {
            let service = envelope.service;
            if !peer.has_asked_in_vain.xchg(true, Relaxed) {
                pr_warn!(
                    "node {} asks for service {}, which this node does not have\n",
                    peer.node(),
                    service.0
                );
            }
            // An answer that can't be sent is of no concern: the peer is lost then.
            let _ = peer.post(&PeerMessage::NoService { service });
            Ok(())
        }
    }
}

/// Messages of which the peer is told when this is dropped.
pub(crate) struct HeldBell<'a>(&'a Peer);

impl Peer {
    /// Until this is dropped the peer is not rung for what is posted, unless half its ring is full. Not
    /// for waiting meanwhile.
    pub(crate) fn hold_bell(&self) -> HeldBell<'_> {
        self.bell.hold();
        HeldBell(self)
    }
}

impl Drop for HeldBell<'_> {
    fn drop(&mut self) {
        if self.0.bell.let_go() {
            self.0.path.ring(doorbell::CONTROL);
        }
    }
}
