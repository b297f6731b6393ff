// SPDX-License-Identifier: GPL-2.0

//! Delivery of a peer's control messages to the services.
//!
//! The control work takes messages out of the rings one by one. It opens the envelope of a private
//! copy and passes the copy to the service. Answers are handled before requests, so that nothing
//! delays them. An answer that the peer sent before a request is also handled before this request.
//! The doorbell rings once, at the end of the work, for all that the work has sent.
//!
//! A message that is malformed, or contradicts an earlier one, ends the session, with a reason in
//! the log. A request for a service that this node lacks gets an answer that says so.

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
        // Handles at most half a ring before other tasks get the CPU: a writer may wait for the
        // report.
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
    /// Waits until the current pass of the control work, and the message that it handles, is
    /// finished. A pass handles half a ring of messages at most. Takes no lock for the wait, as the
    /// control work would have to wait for that lock in turn.
    /// Context: may sleep, not in handlers of messages.
    pub(crate) fn wait_for_handler(&self) {
        let pass = self.passes.load(Acquire);
        if pass % 2 == 1 {
            let has_passed = || (self.passes.load(Acquire) != pass).then_some(());
            self.passed.wait_uninterruptible(has_passed);
        }
    }

    /// Sends deferred messages that have room now, then handles at most `most` messages of the
    /// peer. The work is scheduled again for the rest.
    fn exchange(self: &Arc<Self>, most: u32) -> Result<(), Violation> {
        self.flush()?;
        let mut has_more = true;
        for _ in 0..most {
            let Some(lane) = self.handle_next()? else {
                has_more = false;
                break;
            };
            // Reports only after the handling, as the peer may then overwrite the annex.
            self.report(lane, true)?;
        }
        for lane in [Lane::Answers, Lane::Requests] {
            self.report(lane, false)?;
        }
        if has_more {
            self.schedule_control();
        }
        // Sends the messages that handlers have deferred together with their answers.
        self.flush()
    }

    fn flush(&self) -> Result<(), Violation> {
        let flushed = self.control.flush(self.path());
        flushed.map_err(control::reason)
    }

    fn report(&self, lane: Lane, may_wait: bool) -> Result<(), Violation> {
        let reported = self.control.report(self.path(), lane, may_wait);
        reported.map_err(|_| "its control block can't be reached")
    }

    /// Handles one message and returns its ring. Returns `None` if there is no message, or none
    /// that can be handled now.
    fn handle_next(self: &Arc<Self>) -> Result<Option<Lane>, Violation> {
        let out_of_order = |_| "its control ring is out of order";
        // Checks for a request first: then every answer written before that request is already
        // there.
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
            // Not every node has a network device.
            let is_strange = service != ServiceId::NET;
            if is_strange && !peer.has_asked_in_vain.xchg(true, Relaxed) && peer.may_log() {
                pr_warn!(
                    "node {} asks for service {}, which this node does not have: not handling its messages for that service\n",
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
