// SPDX-License-Identifier: GPL-2.0

//! The relation to one peer: from the handshake until it is lost or leaves.
//!
//! A node that comes back is a new [`Peer`]; everything that belonged to the old one stays dead. A
//! peer carries the control channel, the doorbells and the signs of life, and decides for all that
//! hangs on it when the peer counts as gone. What it is used for is up to *services*
//! (`peer/service.rs`), of which it knows nothing but their ids. How it was found and how its memory
//! is reached is up to the transport.
//!
//! # Going away
//!
//! Whatever finds the peer gone or misbehaving calls [`Peer::fail`], in any context: from then on no caller gets
//! inside. The transport then tears the session down from its own work (`transport/sink.rs` has the order). All
//! services mark what they have as lost and wake every waiter ([`service::Attachment::lost`]); callers that wait for
//! control messages are woken here. Callers that are inside are waited for: each copies one chunk at most, ends a DMA
//! transfer or a page fault, or waits for something that the loss ends. A channel, too, counts as inside until the
//! loss has closed it. Then services empty mappings and unpin windows. Memory that a peer which is merely slow could
//! still write to (control block, rings) lives on until the peer has shown that it has let go.
//!
//! # Lock order
//!
//! See `scif_main.rs`.

pub(crate) mod channel;
pub(crate) mod channel_table;
pub(crate) mod control;
mod dispatch;
pub(crate) mod doorbells;
mod liveness;
pub(crate) mod questions;
pub(crate) mod service;
pub(crate) mod status;
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) mod tests;

use crate::{
    logic::{
        control_block::Annex,
        envelope::{
            Enveloped,
            ServiceId, //
        },
        gate::Drained,
        handshake::Reason,
    },
    sync::{
        in_flight::{
            InFlight,
            InFlightGuard, //
        },
        work_queues::WorkQueues, //
    },
    sys::{
        trace,
        wait::{
            new_wait_queue,
            WaitQueue, //
        }, //
    },
    transport::{
        doorbell,
        path::Path,
        sink::{
            Introduction,
            Session, //
        },
    },
};
use control::{
    ControlRings,
    Reservation,
    NOT_TAKEN, //
};
use core::ops::Deref;
use doorbells::{
    Block,
    Doorbells, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex, //
    },
    time::Delta,
    workqueue::Work,
};
use liveness::Liveness;
use questions::Until;
use service::Attachment;
use status::{
    Held,
    PeerStatus, //
};

/// Who keeps the books about peers: told when one is lost.
pub(crate) trait Observer: Send + Sync {
    /// Everything that uses the lost peer has been told, and no caller is inside it. May sleep.
    fn torn_down(&self, peer: &Peer);
}

/// What all peers have in common.
pub(crate) struct Common {
    pub(crate) queues: Arc<WorkQueues>,
    pub(crate) observer: Arc<dyn Observer>,
    /// After how many milliseconds without a sign of life a peer counts as lost.
    pub(crate) heartbeat_timeout: u32,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Peer {
    /// Also for what hangs on the peer.
    pub(crate) queues: Arc<WorkQueues>,
    observer: Arc<dyn Observer>,
    /// The id of its node.
    node: Atomic<u32>,
    /// It is this node itself.
    pub(crate) is_this: bool,
    /// Random, new each time its module is loaded.
    pub(crate) generation: u64,
    own_nonce: u32,
    peer_nonce: u32,
    path: Arc<dyn Path>,
    #[pin]
    control: ControlRings,
    /// Everybody who uses the path; closed as soon as the peer is as good as gone.
    #[pin]
    in_flight: InFlight,
    /// By which processes see how its node stands.
    pub(crate) status: PeerStatus,
    /// It has sent something for a service that this node does not have: said once.
    has_asked_in_vain: Atomic<bool>,
    pub(crate) liveness: Liveness,
    pub(crate) doorbells: Arc<Doorbells>,
    /// What services have for this peer; none once it is forgotten.
    #[pin]
    attachments: Mutex<KVec<(ServiceId, Arc<dyn Attachment>)>>,
    /// Odd while the control work handles messages.
    passes: Atomic<u64>,
    /// Woken when it has.
    #[pin]
    passed: WaitQueue,
    #[pin]
    control_work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Peer { self.control_work }
}

/// Keeps a peer's path in use for longer than a borrow lasts: by a DMA transfer.
pub(crate) struct PeerUse(Arc<Peer>);

impl Deref for PeerUse {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.0
    }
}

impl Drop for PeerUse {
    fn drop(&mut self) {
        self.0.in_flight.leave();
    }
}

impl Peer {
    /// A peer that is there from now on, with no service yet. `node` is its id, `status` how that stands. EFAULT if its control
    /// block can't be reached. May sleep.
    pub(crate) fn new(
        common: &Common,
        path: Arc<dyn Path>,
        who: &Introduction<'_>,
        node: u16,
        status: Held,
    ) -> Result<Arc<Self>> {
        let control = ControlRings::new(
            who.block.clone(),
            who.geometry,
            who.peer_block,
            who.peer_geometry,
            &*path,
        )?;
        let own = Block {
            place: who.block.clone(),
            geometry: who.geometry,
        };
        let peers = Block {
            place: who.peer_block,
            geometry: who.peer_geometry,
        };
        let doorbells = Doorbells::new(path.doorbells(), own, peers, &common.queues)?;
        Arc::pin_init(
            pin_init!(Self {
                queues: common.queues.clone(),
                observer: common.observer.clone(),
                node: Atomic::new(node.into()),
                is_this: who.node.is_none(),
                generation: who.generation,
                own_nonce: who.own_nonce,
                peer_nonce: who.peer_nonce,
                path,
                control <- control,
                in_flight <- InFlight::new(),
                status: PeerStatus::new(status),
                has_asked_in_vain: Atomic::new(false),
                liveness: Liveness::new(common.heartbeat_timeout),
                doorbells,
                attachments <- new_mutex!(KVec::new(), "Peer::attachments"),
                passes: Atomic::new(0),
                passed <- new_wait_queue!("scif::Peer::passed"),
                control_work <- new_work!("Peer::control_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Attaches a service, before the transport knows of the session. May sleep.
    pub(crate) fn attach(&self, service: ServiceId, attachment: Arc<dyn Attachment>) -> Result {
        let mut attachments = self.attachments.lock();
        Ok(attachments.push((service, attachment), GFP_KERNEL)?)
    }

    /// The id of its node.
    pub(crate) fn node(&self) -> u16 {
        self.node.load(Relaxed) as u16
    }

    /// The node has got its id after the peer was made, which happens to this node itself.
    pub(crate) fn set_node(&self, node: u16) {
        self.node.store(node.into(), Relaxed);
    }

    /// The way there; the caller is inside, unless a function of it says otherwise.
    pub(crate) fn path(&self) -> &dyn Path {
        &*self.path
    }

    /// How its memory is reached, in a word for users. Any time.
    pub(crate) fn mode(&self) -> &'static str {
        self.path.mode()
    }

    /// Whether something may be said in the log that the peer, or a process because of it, has caused. Any time.
    pub(crate) fn may_log(&self) -> bool {
        self.path.may_log()
    }

    /// Goes in to use the path; `None` once the peer is lost. Any context.
    pub(crate) fn enter(&self) -> Option<InFlightGuard<'_>> {
        self.in_flight.enter()
    }

    /// As [`Self::enter`], for use beyond a borrow.
    pub(crate) fn enter_owned(self: &Arc<Self>) -> Option<PeerUse> {
        self.in_flight
            .enter_unscoped()
            .then(|| PeerUse(self.clone()))
    }

    /// Whether the peer is gone, or as good as gone. Any context.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight.is_closed()
    }

    /// The peer is gone, has misbehaved or can't be served: ends the relation. Any context.
    pub(crate) fn fail(&self, reason: &str) {
        if !self.close() {
            return;
        }
        if self.may_log() {
            pr_warn!("node {} is lost: {}\n", self.node(), reason);
        }
        trace::node_lost(|| trace::Link::new(c"", self.node(), self.generation, reason));
        self.path.as_arc_borrow().session_failed();
    }

    /// Lets nobody in any more. Returns whether it was open. Any context.
    fn close(&self) -> bool {
        self.status.lost();
        self.in_flight.close()
    }

    fn attachment(&self, service: ServiceId) -> Option<Arc<dyn Attachment>> {
        let attachments = self.attachments.lock();
        let found = attachments.iter().find(|(id, _)| *id == service)?;
        Some(found.1.clone())
    }

    /// Calls `f` with what each service has for this peer, without a lock.
    fn for_each_attachment(&self, f: impl Fn(&dyn Attachment)) {
        for index in 0.. {
            let attachment = match self.attachments.lock().get(index) {
                Some((_, attachment)) => attachment.clone(),
                None => return,
            };
            f(&*attachment);
        }
    }

    /// Lets go of what services have for this peer, which know the peer themselves. Called at the
    /// end. May sleep.
    pub(crate) fn detach_services(&self) {
        let attachments = core::mem::replace(&mut *self.attachments.lock(), KVec::new());
        drop(attachments);
    }

    // ----- control messages --------------------------------------------------------------------

    /// Sends a message, and waits until the peer's ring has room for it. Interruptible: then nothing was sent. ENODEV if
    /// the peer is lost. Not for handlers of messages.
    pub(crate) fn post(&self, message: &impl Enveloped) -> Result {
        self.post_until(message, Annex::NONE, Until::Signal)
    }

    /// As [`Self::post`], with an annex. Killable.
    pub(crate) fn post_with(&self, message: &impl Enveloped, annex: &Annex) -> Result {
        self.post_until(message, annex, Until::Killed)
    }

    fn post_until(&self, message: &impl Enveloped, annex: &Annex, until: Until) -> Result {
        let _inside = self.enter().ok_or(ENODEV)?;
        loop {
            let progress = self.control.progress.load(Acquire);
            let posted = self
                .control
                .post(self.path(), &message.envelope(), annex)
                .map_err(|error| self.control_failed(error))?;
            // Also for what was written before it found no room.
            self.ring_for_messages();
            if posted {
                return Ok(());
            }
            until.wait(&self.control.waiters, || {
                (self.is_over() || self.control.progress.load(Acquire) != progress).then_some(())
            })?;
            if self.is_over() {
                return Err(ENODEV);
            }
        }
    }

    /// Answers the request that is being handled. Only for its handler, and for no more than two answers. May sleep,
    /// does not wait for the peer. If it fails, the peer is lost, which is told elsewhere.
    pub(crate) fn answer(&self, message: &impl Enveloped) {
        if let Some(_inside) = self.enter() {
            let answered = self.control.answer(self.path(), &message.envelope());
            let _ = answered.map_err(|error| self.control_failed(error));
        }
    }

    /// Sends a message soon, with the memory that was reserved for it: behind all for which the caller has done
    /// so before. A lost peer gets none. Any context.
    pub(crate) fn send(self: &Arc<Self>, reservation: Reservation, message: &impl Enveloped) {
        if !self.is_over() {
            self.control.send(reservation, &message.envelope());
            self.schedule_control();
        }
    }

    /// Waits until all requests of the peer that have come by now were handled. A process that has heard of
    /// something in another way may be faster than the control work. Killable; ENODEV if the peer is lost. Not
    /// for handlers of messages.
    pub(crate) fn wait_for_handled(self: &Arc<Self>) -> Result {
        let in_time = self.wait_for_handled_within(questions::LIMIT)?;
        // It may have taken back what had come.
        questions::in_time(self, in_time.then_some(Ok(())))
    }

    /// As [`Self::wait_for_handled`], but no longer than this. Returns whether they were.
    pub(crate) fn wait_for_handled_within(self: &Arc<Self>, limit: Delta) -> Result<bool> {
        let _inside = self.enter().ok_or(ENODEV)?;
        let arrived = self.control.arrived()?;
        let is_handled = || self.is_over() || self.control.handled() >= arrived;
        if !is_handled() {
            self.schedule_control();
            let handled = || is_handled().then_some(());
            let waiters = &self.control.waiters;
            if waiters.wait_killable_timeout(limit, handled)?.is_none() {
                return Ok(false);
            }
        }
        if self.is_over() {
            return Err(ENODEV);
        }
        Ok(true)
    }

    /// Rings for the messages that were written and not rung for.
    fn ring_for_messages(&self) {
        if self.control.take_ring() {
            self.path.ring(doorbell::CONTROL);
        }
    }

    /// The control rings can't be used any more: ends the relation.
    fn control_failed(&self, error: Error) -> Error {
        self.fail(control::reason(error));
        ENODEV
    }

    /// Whether nothing that was posted waits to be handled, where a node is its own peer; or it is lost. May
    /// sleep.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_drained(&self) -> bool {
        self.is_over() || self.control.is_drained()
    }

    /// Looks at the control ring soon. Any context.
    fn schedule_control(self: &Arc<Self>) {
        // An error says that the work is pending already.
        let _ = self.queues.control.enqueue(self.clone());
    }
}

impl Session for Peer {
    fn doorbells(self: ArcBorrow<'_, Self>, numbers: u64) {
        self.doorbells.rang(numbers);
        if numbers & doorbell::bit(doorbell::CONTROL) != 0 {
            Arc::from(self).schedule_control();
        }
    }

    fn tick(self: ArcBorrow<'_, Self>, milliseconds: u32) {
        let Some(_inside) = self.enter() else { return };
        if self.doorbells.look_again() & doorbell::bit(doorbell::CONTROL) != 0 {
            Arc::from(self).schedule_control();
        }
        self.path.ring_again();
        let beat = self.liveness.beat();
        // A write can only fail for an address that the handshake has checked.
        let _ = self.control.beat(self.path(), beat);
        if self.ended().is_none()
            && self
                .liveness
                .is_silent(self.control.peer_beat(), milliseconds)
        {
            self.fail("no sign of life");
        }
        if self.control.is_short() {
            Arc::from(self).schedule_control();
        }
        if self.control.is_short_for_long(milliseconds) {
            self.fail(NOT_TAKEN);
        }
        if self.liveness.is_overdue(milliseconds) {
            self.fail("it does not do what it was asked for");
        }
    }

    fn ended(&self) -> Option<Reason> {
        if self.control.peer_said_farewell(self.own_nonce) {
            Some(Reason::Left)
        } else {
            self.is_over().then_some(Reason::Failed)
        }
    }

    fn going(&self) {
        self.close();
    }

    fn tear_down(&self) -> Drained {
        // All is marked first, so that whoever is inside does not start anew.
        self.close();
        self.for_each_attachment(|attachment| attachment.lost());
        self.control.waiters.wake_all();
        let drained = self.in_flight.close_and_drain();
        self.for_each_attachment(|attachment| attachment.drained());
        self.observer.torn_down(self);
        if !self.path.is_down() {
            // The very last write into the peer's memory.
            let _ = self.control.say_farewell(self.path(), self.peer_nonce);
            self.path.ring(doorbell::HELLO);
        }
        drained
    }

    fn unreachable(&self) {
        self.for_each_attachment(|attachment| attachment.unreachable());
    }

    fn forget(&self) {
        self.for_each_attachment(|attachment| attachment.forget());
        self.doorbells.retire();
        self.control.unmap();
        self.detach_services();
    }
}
