// SPDX-License-Identifier: GPL-2.0

//! A session with one peer, from the handshake until the peer is lost or leaves.
//!
//! A node that returns gets a new [`Peer`]; everything that belonged to the old one stays dead. A
//! peer has the control channel, the doorbells and the heartbeats. It decides when the node
//! counts as lost, for everything that is built on it. The uses of a peer are *services*
//! (`peer/service.rs`), of which it knows nothing but their ids. The transport finds the peer and
//! reaches its memory.
//!
//! # Teardown
//!
//! A caller is *inside* a peer from [`Peer::enter`] until it drops the guard. Code that finds the
//! peer lost or misbehaving calls [`Peer::fail`], in any context. From then on the peer admits no
//! caller. The transport tears the session down from its own work item (`transport/sink.rs` has the
//! order):
//!
//! 1. All services mark their state as lost and wake every waiter ([`service::Attachment::lost`]).
//!    The peer wakes callers that wait for control messages.
//! 2. The teardown waits for the callers inside. Each copies at most one chunk, completes a DMA
//!    transfer or a page fault, or waits for something that the loss ends. An open channel is such
//!    a caller, too: it stays inside until the loss has closed it.
//! 3. Services empty mappings and unpin windows.
//!
//! A peer that is merely slow could still write to the control block and the rings. That memory
//! lives on until the peer has shown that it has released it.
//!
//! # Lock order
//!
//! See `scif_main.rs`.
//!
//! This file has more than 500 lines because both a session's life and its messages need its state.

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
    str::CString,
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
    PeerStatus,
    StatusHolder, //
};

/// A registry of peers that is notified of each loss.
pub(crate) trait Observer: Send + Sync {
    /// Forgets a lost peer. All services know of the loss, and no caller is inside the peer.
    /// Context: may sleep.
    fn torn_down(&self, peer: &Peer);
}

/// The parameters that all peers share.
pub(crate) struct Common {
    pub(crate) queues: Arc<WorkQueues>,
    pub(crate) observer: Arc<dyn Observer>,
    /// Milliseconds without a heartbeat after which a peer counts as lost.
    pub(crate) heartbeat_timeout: u32,
}

/// A session with one peer.
#[pin_data]
pub(crate) struct Peer {
    /// Work queues for the peer and for everything that is built on it.
    pub(crate) queues: Arc<WorkQueues>,
    observer: Arc<dyn Observer>,
    /// Id of the peer's node.
    node: Atomic<u32>,
    /// Whether the peer is this node itself.
    pub(crate) is_this: bool,
    /// The transport's name of the link.
    pub(crate) link: CString,
    /// A random number, new each time the peer's module is loaded.
    pub(crate) generation: u64,
    own_nonce: u32,
    peer_nonce: u32,
    path: Arc<dyn Path>,
    #[pin]
    control: ControlRings,
    /// The callers inside. Closed as soon as the peer counts as lost.
    #[pin]
    in_flight: InFlight,
    /// The status of the node, as processes see it.
    pub(crate) status: PeerStatus,
    /// Whether a message for a service that this node lacks was logged, so that it is logged only
    /// once.
    has_asked_in_vain: Atomic<bool>,
    pub(crate) liveness: Liveness,
    pub(crate) doorbells: Arc<Doorbells>,
    /// The services' state for this peer. Empty once the session is forgotten.
    #[pin]
    attachments: Mutex<KVec<(ServiceId, Arc<dyn Attachment>)>>,
    /// Number of times that the control work has begun or ended: odd while it handles messages.
    passes: Atomic<u64>,
    /// Woken when the control work has ended.
    #[pin]
    passed: WaitQueue,
    #[pin]
    control_work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Peer { self.control_work }
}

/// A use of a peer's path that owns its reference, for example by a DMA transfer.
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
    /// Creates a peer without services. `node` is its id, `status` the status of that node. EFAULT
    /// if the peer's control block is out of reach.
    /// Context: may sleep.
    pub(crate) fn new(
        common: &Common,
        path: Arc<dyn Path>,
        introduction: &Introduction<'_>,
        node: u16,
        status: StatusHolder,
    ) -> Result<Arc<Self>> {
        let control = ControlRings::new(
            introduction.block.clone(),
            introduction.geometry,
            introduction.peer_block,
            introduction.peer_geometry,
            &*path,
        )?;
        let own = Block {
            place: introduction.block.clone(),
            geometry: introduction.geometry,
        };
        let peers = Block {
            place: introduction.peer_block,
            geometry: introduction.peer_geometry,
        };
        let doorbells = Doorbells::new(path.doorbells(), own, peers, &common.queues)?;
        let link = CString::try_from(introduction.link)?;
        Arc::pin_init(
            pin_init!(Self {
                queues: common.queues.clone(),
                observer: common.observer.clone(),
                node: Atomic::new(node.into()),
                is_this: introduction.node.is_none(),
                link,
                generation: introduction.generation,
                own_nonce: introduction.own_nonce,
                peer_nonce: introduction.peer_nonce,
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

    /// Attaches a service. ENODEV if the peer is lost: nothing would detach the service again.
    /// Context: may sleep.
    pub(crate) fn attach(&self, service: ServiceId, attachment: Arc<dyn Attachment>) -> Result {
        let mut attachments = self.attachments.lock();
        // A task that closes the peer later takes this lock, and finds the service.
        if self.is_over() {
            return Err(ENODEV);
        }
        Ok(attachments.push((service, attachment), GFP_KERNEL)?)
    }

    /// Lets a service begin that was attached.
    /// Context: may sleep.
    pub(crate) fn begin(&self, service: ServiceId) {
        if let Some(attachment) = self.attachment(service) {
            attachment.begin();
        }
    }

    /// Detaches a service that has ended. If the session is over, the service's state stays until
    /// the session is forgotten.
    /// Context: may sleep.
    pub(crate) fn detach(&self, service: ServiceId) {
        let detached = {
            let mut attachments = self.attachments.lock();
            let place = attachments.iter().position(|(id, _)| *id == service);
            let place = place.filter(|_| !self.is_over());
            place.and_then(|place| attachments.remove(place).ok())
        };
        drop(detached);
    }

    /// Returns the id of the peer's node.
    pub(crate) fn node(&self) -> u16 {
        self.node.load(Relaxed) as u16
    }

    /// Sets the node's id, which this node may learn only after its own peer was made.
    pub(crate) fn set_node(&self, node: u16) {
        self.node.store(node.into(), Relaxed);
    }

    /// Returns the path to the peer. The caller is inside, unless a function of [`Path`] says
    /// otherwise.
    pub(crate) fn path(&self) -> &dyn Path {
        &*self.path
    }

    /// Returns a word for users that tells how the peer's memory is reached. The caller need not be
    /// inside.
    pub(crate) fn mode(&self) -> &'static str {
        self.path.mode()
    }

    /// Returns whether a line may be logged that the peer, or a process because of it, has caused.
    /// The caller need not be inside.
    pub(crate) fn may_log(&self) -> bool {
        self.path.may_log()
    }

    /// Enters the peer to use its path. Returns `None` once the peer is lost.
    /// Context: any.
    pub(crate) fn enter(&self) -> Option<InFlightGuard<'_>> {
        self.in_flight.enter()
    }

    /// Enters the peer as [`Self::enter`] does, for longer than a borrow lasts.
    pub(crate) fn enter_owned(self: &Arc<Self>) -> Option<PeerUse> {
        self.in_flight
            .enter_unscoped()
            .then(|| PeerUse(self.clone()))
    }

    /// Returns whether the peer is lost, or counts as lost.
    /// Context: any.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight.is_closed()
    }

    /// Ends the session because the peer is lost, has misbehaved or can't be served.
    /// Context: any.
    pub(crate) fn fail(&self, reason: &str) {
        if !self.close() {
            return;
        }
        if self.may_log() {
            pr_warn!(
                "node {} is lost: {}; ending the session\n",
                self.node(),
                reason
            );
        }
        trace::node_lost(|| trace::Link::new(c"", self.node(), self.generation, reason));
        self.path.as_arc_borrow().session_failed();
    }

    /// Admits no more callers. Returns whether the peer was open.
    /// Context: any.
    fn close(&self) -> bool {
        self.status.lost();
        self.in_flight.close()
    }

    fn attachment(&self, service: ServiceId) -> Option<Arc<dyn Attachment>> {
        let attachments = self.attachments.lock();
        let found = attachments.iter().find(|(id, _)| *id == service)?;
        Some(found.1.clone())
    }

    /// Calls `f` with each service's state for this peer, without a lock held.
    fn for_each_attachment(&self, f: impl Fn(&dyn Attachment)) {
        for index in 0.. {
            let attachment = match self.attachments.lock().get(index) {
                Some((_, attachment)) => attachment.clone(),
                None => return,
            };
            f(&*attachment);
        }
    }

    /// Drops the services' state for this peer, which in turn refers to the peer. Called last.
    /// Context: may sleep.
    pub(crate) fn detach_services(&self) {
        let attachments = core::mem::replace(&mut *self.attachments.lock(), KVec::new());
        drop(attachments);
    }

    // ----- control messages --------------------------------------------------------------------

    /// Posts a message, and waits until the peer's ring has room for it. If a signal interrupts the
    /// wait, nothing was sent. ENODEV if the peer is lost.
    /// Context: may sleep, interruptible, not in handlers of messages.
    pub(crate) fn post(&self, message: &impl Enveloped) -> Result {
        self.post_until(message, Annex::NONE, Until::Signal)
    }

    /// Posts a message with an annex, as [`Self::post`] does.
    /// Context: may sleep, killable, not in handlers of messages.
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
            // Rings without room, too: deferred messages may have been written before this one.
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

    /// Answers the request that is being handled. Only its handler calls this, at most twice. A
    /// failure ends the session, so the handler need not know of it.
    /// Context: control work, may sleep, does not wait for the peer.
    pub(crate) fn answer(&self, message: &impl Enveloped) {
        if let Some(_inside) = self.enter() {
            let answered = self.control.answer(self.path(), &message.envelope());
            let _ = answered.map_err(|error| self.control_failed(error));
        }
    }

    /// Queues a message, in the memory that was reserved for it, which the control work sends soon.
    /// Messages keep the order of the calls. A lost peer gets none.
    /// Context: any.
    pub(crate) fn send(self: &Arc<Self>, reservation: Reservation, message: &impl Enveloped) {
        if !self.is_over() {
            self.control.send(reservation, &message.envelope());
            self.schedule_control();
        }
    }

    /// Waits until all requests that have arrived by now were handled. A process that learns of an
    /// event in another way may be faster than the control work. ENODEV if the peer is lost.
    /// Context: may sleep, killable, not in handlers of messages.
    pub(crate) fn wait_for_handled(self: &Arc<Self>) -> Result {
        let in_time = self.wait_for_handled_within(questions::LIMIT)?;
        // Too late is the peer's fault: it may have taken back messages that had arrived.
        questions::in_time(self, in_time.then_some(Ok(())))
    }

    /// Waits as [`Self::wait_for_handled`] does, for at most `limit`. Returns whether they were
    /// handled.
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

    /// Rings the doorbell if messages were written since it was last rung.
    fn ring_for_messages(&self) {
        if self.control.take_ring() {
            self.path.ring(doorbell::CONTROL);
        }
    }

    /// Ends the session because the control rings can't be used any more.
    fn control_failed(&self, error: Error) -> Error {
        self.fail(control::reason(error));
        ENODEV
    }

    /// Returns whether every message was handled, where a node is its own peer, or the peer is
    /// lost.
    /// Context: may sleep.
    #[cfg(CONFIG_KUNIT = "y")]
    pub(crate) fn is_drained(&self) -> bool {
        self.is_over() || self.control.is_drained()
    }

    /// Schedules the control work, which reads the control rings.
    /// Context: any.
    fn schedule_control(self: &Arc<Self>) {
        // An error means that the work is already pending.
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
        // The write can't fail: the handshake has checked the address.
        let _ = self.control.beat(self.path(), beat);
        if self.ended().is_none()
            && self
                .liveness
                .is_silent(self.control.peer_beat(), milliseconds)
        {
            self.fail("no heartbeat within heartbeat_timeout_ms");
        }
        if self.control.is_short() {
            Arc::from(self).schedule_control();
        }
        if self.control.is_short_for_long(milliseconds) {
            self.fail(NOT_TAKEN);
        }
        if self.liveness.is_overdue(milliseconds) {
            self.fail("it has not made requested copies or emptied slots in time");
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
        // Marks everything first, so that no caller inside starts anew.
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
