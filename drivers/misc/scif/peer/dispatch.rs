// SPDX-License-Identifier: GPL-2.0

//! The control messages of a peer, on their way to the services.
//!
//! The control work takes messages out of the rings one by one, opens the envelope of a private copy and hands
//! it to the service it is for. Answers come before requests, so that nothing keeps them; and what the peer
//! has answered before it sent a request is handled before that request. The doorbell for all that the work has
//! sent rings once, at its end.
//!
//! A message that is malformed or contradicts what was said before ends the relation, with a reason in the log.
//! One for a service that this node does not have is answered so.

use super::{
    control::{
        self,
        AnnexOf, //
    },
    service::Violation,
    Peer, //
};
use crate::{
    logic::{
        control_block::Lane,
        envelope::{
            Envelope,
            PeerMessage,
            ServiceId, //
        },
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Full,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::WorkItem, //
};

impl WorkItem for Peer {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(_inside) = this.enter() else { return };
        this.passes.fetch_add(1, Full);
        // Half a ring, before others get the CPU: a writer may wait to be told.
        match this.exchange(this.control.slots() / 2) {
            Ok(()) => this.ring_for_messages(),
            Err(reason) => this.fail(reason),
        }
        this.passes.fetch_add(1, Full);
        if this.passed.has_waiters() {
            this.passed.wake_all();
        }
    }
}

impl Peer {
    /// Returns when the pass of the control work is over that is under way now, and with it the message that is being
    /// handled: half a ring of messages at most. Holds no lock for that, for which the control work would have to wait in
    /// its turn. Not for the handler. May sleep.
    pub(crate) fn wait_for_handler(&self) {
        let pass = self.passes.load(Acquire);
        if pass % 2 == 1 {
            let has_passed = || (self.passes.load(Acquire) != pass).then_some(());
            self.passed.wait_uninterruptible(has_passed);
        }
    }

    /// Sends what waits for room, then handles messages of the peer, so many at most; the others are handled
    /// soon.
    fn exchange(self: &Arc<Self>, most: u32) -> Result<(), Violation> {
        self.flush()?;
        let mut has_more = true;
        for _ in 0..most {
            let Some(lane) = self.handle_next()? else {
                has_more = false;
                break;
            };
            // Only now: the peer may then write another annex there.
            self.report(lane, true)?;
        }
        for lane in [Lane::Answers, Lane::Requests] {
            self.report(lane, false)?;
        }
        if has_more {
            self.schedule_control();
        }
        // What handlers have sent late goes with their answers.
        self.flush()
    }

    fn flush(&self) -> Result<(), Violation> {
        let flushed = self.control.flush(self.path());
        flushed.map_err(control::reason)
    }

    fn report(&self, lane: Lane, may_wait: bool) -> Result<(), Violation> {
        let reported = self.control.report(self.path(), lane, may_wait);
        reported.map_err(|_| "it does not take reports")
    }

    /// Handles one message. Returns the ring from which it came; none if there is none, or none that can be handled
    /// now.
    fn handle_next(self: &Arc<Self>) -> Result<Option<Lane>, Violation> {
        let out_of_order = |_| "its control ring is out of order";
        // Looked at before the answers, all of those that were written before it are there.
        let has_request = self
            .control
            .has_next(Lane::Requests)
            .map_err(out_of_order)?;
        let may_handle = || self.control.may_handle(self.path());
        let answer = self.control.take(Lane::Answers).map_err(out_of_order)?;
        let (lane, (body, annex)) = if let Some(answer) = answer {
            (Lane::Answers, answer)
        } else if has_request && may_handle().map_err(control::reason)? {
            let request = self.control.take(Lane::Requests).map_err(out_of_order)?;
            (Lane::Requests, request.ok_or("its control ring changes")?)
        } else {
            return Ok(None);
        };
        let envelope = Envelope::decode(&body)?;
        if envelope.lane() != lane {
            return Err("it sends a message by the wrong ring");
        }
        handle(self, &envelope, &annex)?;
        Ok(Some(lane))
    }
}

fn handle(peer: &Arc<Peer>, envelope: &Envelope, annex: &AnnexOf<'_>) -> Result<(), Violation> {
    if envelope.service == ServiceId::PEER {
        let PeerMessage::NoService { service } = PeerMessage::from_envelope(envelope)?;
        let Some(attachment) = peer.attachment(service) else {
            return Err("it refuses a service that was never asked for");
        };
        return attachment.refused();
    }
    match peer.attachment(envelope.service) {
        Some(attachment) => attachment.message(envelope, annex),
        None => {
            let service = envelope.service;
            if !peer.has_asked_in_vain.xchg(true, Relaxed) && peer.may_log() {
                pr_warn!(
                    "node {} asks for service {}, which this node does not have\n",
                    peer.node(),
                    service.0
                );
            }
            if envelope.lane() == Lane::Requests {
                peer.answer(&PeerMessage::NoService { service });
            }
            Ok(())
        }
    }
}
