// SPDX-License-Identifier: GPL-2.0

//! One end of a connection, from the request to the last word about it.
//!
//! Each end owns the ring in which it receives, in its own memory:
//!
//! ```text
//!   0  produced  u32  bytes that the peer has written into this ring, ever
//!  64  consumed  u32  bytes that the peer has taken out of *its* ring, ever
//! 128  data           `Geometry::size` bytes
//! ```
//!
//! Both words are written by the peer and checked after each read. How bytes get in and out is in
//! `stream.rs`; windows, transfers and fences hang on the connection too, in files of their own.
//!
//! # Closing
//!
//! An end that closes first stops writing itself, then says `Close` and stays in the session's
//! table, so that its ring's memory lives, until the other end has said `CloseDone`: that it will
//! write into the ring no more, and that its transfers have ended. Both may close at once: each
//! answers the other's `Close`. An end whose peer has closed leaves without a word.
//!
//! An end that has registered windows waits for that before its close is done: transfers in flight,
//! its own and the peer's, are then complete, as the interface promises.
//!
//! Locks: `phase` and `waiters` are leaves and taken in any context.

use crate::{
    fence::Fences,
    listener::Request,
    logic::{
        ring::Geometry,
        wire::{
            ConnectionId,
            Message,
            Refusal,
            RingAddress, //
        },
    },
    node::BoundPort,
    registration_cache::RegistrationCache,
    remote_window::RemoteWindows,
    rma::Transfers,
    session::Session,
    sys::{
        current::can_be_killed,
        payer::Payer,
        shared_memory::SharedMemory,
        wait::WaitQueue, //
    },
    transport::BELLS,
    turn::Turn,
    users::Users,
    window::Windows,
};
use core::ops::Deref;
use kernel::{
    impl_has_work, new_spinlock_irq, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SetOnce,
        SpinLockIrq, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

pub(crate) const PRODUCED: usize = 0;
pub(crate) const CONSUMED: usize = 64;
pub(crate) const DATA: usize = 128;

/// Bytes of data in a receive ring.
pub(crate) const RING_SIZE: u32 = 64 * 1024;

/// How long a task that can't be killed (any more) waits for the peer to let go of its windows.
const PATIENCE: Delta = Delta::from_secs(2);

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Asked for; the peer has not answered.
    Requested,
    /// The peer did not want it.
    Refused(Refusal),
    /// Both ends are there.
    Established,
    /// The peer has closed its end; what it has sent can still be received.
    PeerClosed,
    /// The peer's node is gone; what it has sent can still be received.
    Lost,
    /// This end is closed, or has given up.
    Closed,
}

/// What is known of the other end.
pub(crate) struct PeerEnd {
    pub(crate) id: ConnectionId,
    /// Bus address of its ring.
    pub(crate) ring: u64,
    pub(crate) geometry: Geometry,
    pub(crate) bell: u32,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Connection {
    pub(crate) session: Arc<Session>,
    /// By which the peer names this end.
    pub(crate) id: ConnectionId,
    pub(crate) port: Arc<BoundPort>,
    pub(crate) peer_port: u16,
    bell: u32,
    pub(crate) inbound: SharedMemory,
    pub(crate) geometry: Geometry,
    #[pin]
    phase: SpinLockIrq<Phase>,
    peer: SetOnce<PeerEnd>,
    /// The wait queue of the endpoint that owns this end, once there is one.
    #[pin]
    waiters: SpinLockIrq<Option<Arc<WaitQueue>>>,
    /// Whoever writes into the peer's ring, and transfers.
    #[pin]
    writers: Users,
    /// Whether the peer waits for `CloseDone`.
    close_asked: Atomic<bool>,
    /// Whether the peer has said `CloseDone`.
    close_answered: Atomic<bool>,

    #[pin]
    pub(crate) send_turn: Turn,
    #[pin]
    pub(crate) receive_turn: Turn,
    /// Bytes written into the peer's ring, ever; written by who has the turn.
    pub(crate) produced: Atomic<u32>,
    /// Bytes taken out of our ring, ever; written by who has the turn.
    pub(crate) consumed: Atomic<u32>,
    /// We have asked the peer to tell us of room in its ring.
    pub(crate) space_requested: Atomic<bool>,
    /// The peer has asked us to tell it of room in our ring.
    pub(crate) space_wanted: Atomic<bool>,

    #[pin]
    pub(crate) windows: Windows,
    #[pin]
    pub(crate) remote_windows: RemoteWindows,
    /// Memory of this end that is kept for later transfers.
    pub(crate) registrations: Arc<RegistrationCache>,
    #[pin]
    pub(crate) transfers: Transfers,
    #[pin]
    pub(crate) fences: Fences,
    /// Runs what waits behind transfers.
    #[pin]
    deferred_work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Connection { self.deferred_work }
}

impl WorkItem for Connection {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_deferred();
    }
}

/// Somebody who writes to the peer, which has not closed, or waits until this is dropped. To be
/// dropped where one may sleep.
pub(crate) struct Writing<C: Deref<Target = Connection>>(C);

impl<C: Deref<Target = Connection>> Drop for Writing<C> {
    fn drop(&mut self) {
        if self.0.writers.leave() {
            // The peer has closed meanwhile and waits for the last write.
            self.0.answer_close();
        }
    }
}

impl Connection {
    fn new(
        session: &Arc<Session>,
        id: ConnectionId,
        port: Arc<BoundPort>,
        peer_port: u16,
        phase: Phase,
        inbound: SharedMemory,
    ) -> Result<Arc<Self>> {
        let geometry = Geometry::new(RING_SIZE).ok_or(EINVAL)?;
        let bell = session.bell_for(id);
        let registrations = RegistrationCache::new(session)?;
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                id,
                port,
                peer_port,
                bell,
                inbound,
                geometry,
                phase <- new_spinlock_irq!(phase, "Connection::phase"),
                peer: SetOnce::new(),
                waiters <- new_spinlock_irq!(None, "Connection::waiters"),
                writers <- Users::new(),
                close_asked: Atomic::new(false),
                close_answered: Atomic::new(false),
                send_turn <- Turn::new(),
                receive_turn <- Turn::new(),
                produced: Atomic::new(0),
                consumed: Atomic::new(0),
                space_requested: Atomic::new(false),
                space_wanted: Atomic::new(false),
                windows <- Windows::new(),
                remote_windows <- RemoteWindows::new(),
                registrations,
                transfers <- Transfers::new(),
                fences <- Fences::new(),
                deferred_work <- new_work!("Connection::deferred_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Memory for a ring that the peer can write to. The caller is inside the session.
    fn new_ring(session: &Session) -> Result<SharedMemory> {
        SharedMemory::new(
            DATA + RING_SIZE as usize,
            session.transport.export_device(),
            Payer::Caller,
        )
    }

    /// Asks `peer_port` of the session's node for a connection. The answer changes the phase and
    /// wakes `waiters`. May sleep.
    pub(crate) fn request(
        session: &Arc<Session>,
        port: Arc<BoundPort>,
        peer_port: u16,
        waiters: Arc<WaitQueue>,
    ) -> Result<Arc<Self>> {
        // A ring that finds no place must not outlive the session.
        let _session = session.enter().ok_or(ENODEV)?;
        let ring = Self::new_ring(session)?;
        let connection = session.insert_connection(|id| {
            Self::new(session, id, port, peer_port, Phase::Requested, ring)
        })?;
        connection.attach(waiters);
        let posted = session.post(&Message::Connect {
            source: connection.id,
            source_port: connection.port.number,
            port: peer_port,
            ring: connection.ring_address(),
        });
        if let Err(error) = posted {
            // The session is over: nobody will answer.
            connection.set_phase(Phase::Closed);
            session.remove_connection(connection.id);
            return Err(error);
        }
        Ok(connection)
    }

    /// Answers a request with a connection. May sleep.
    pub(crate) fn accept(request: &Request, port: Arc<BoundPort>) -> Result<Arc<Self>> {
        let session = &request.session;
        // A ring that finds no place must not outlive the session.
        let _session = session.enter().ok_or(ENODEV)?;
        let made = Self::new_ring(session).and_then(|ring| {
            session.insert_connection(|id| {
                let peer_port = request.source_port;
                Self::new(session, id, port, peer_port, Phase::Established, ring)
            })
        });
        let connection = match made {
            Ok(connection) => connection,
            Err(error) => {
                let _ = session.post(&Message::Refuse {
                    target: request.source,
                    reason: Refusal::NoMemory,
                });
                return Err(error);
            }
        };
        let answer = connection
            .set_peer(request.source, &request.ring)
            .and_then(|()| {
                session.post(&Message::Accept {
                    target: request.source,
                    source: connection.id,
                    ring: connection.ring_address(),
                })
            });
        if let Err(error) = answer {
            connection.set_phase(Phase::Closed);
            session.remove_connection(connection.id);
            return Err(error);
        }
        Ok(connection)
    }

    /// The number of the bell by which the peer announces data.
    pub(crate) fn bell(&self) -> u32 {
        self.bell
    }

    fn ring_address(&self) -> RingAddress {
        RingAddress {
            address: self.inbound.bus_address(),
            size: self.geometry.size(),
            bell: self.bell,
        }
    }

    /// Learns of the other end; what the peer says of it is checked here. Ends the session if it
    /// can't be.
    fn set_peer(&self, id: ConnectionId, ring: &RingAddress) -> Result {
        let reaches = self
            .session
            .transport
            .reaches(ring.address, DATA as u64 + u64::from(ring.size));
        let bell_exists =
            (ring.bell as usize) < BELLS && self.session.transport.bells() >> ring.bell & 1 == 1;
        let (true, true, Some(geometry), 0) = (
            reaches,
            bell_exists,
            Geometry::new(ring.size),
            ring.address % 8,
        ) else {
            self.session.fail("it offers a ring that can't be reached");
            return Err(ENODEV);
        };
        self.peer.populate(PeerEnd {
            id,
            ring: ring.address,
            geometry,
            bell: ring.bell,
        });
        Ok(())
    }

    /// The other end: ENOTCONN before it is known.
    pub(crate) fn peer(&self) -> Result<&PeerEnd> {
        self.peer.as_ref().ok_or(ENOTCONN)
    }

    // ----- phase and waiters -------------------------------------------------------------------

    /// Where the connection stands. Any context.
    pub(crate) fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    fn set_phase(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    /// Goes from one phase to the next, if it is in one of which that is true. Returns the old one.
    fn change_phase(&self, next: impl FnOnce(Phase) -> Option<Phase>) -> Phase {
        let mut phase = self.phase.lock();
        let old = *phase;
        if let Some(new) = next(old) {
            *phase = new;
        }
        old
    }

    /// Succeeds while both ends are there; otherwise the error for calls that need both.
    pub(crate) fn check_established(&self) -> Result {
        match self.phase() {
            Phase::Established if !self.session.is_over() => Ok(()),
            Phase::Established | Phase::Lost => Err(ENODEV),
            Phase::PeerClosed | Phase::Closed => Err(ECONNRESET),
            Phase::Requested | Phase::Refused(_) => Err(ENOTCONN),
        }
    }

    /// Wakes `waiters` from now on. Any context but those that hold `waiters`.
    pub(crate) fn attach(&self, waiters: Arc<WaitQueue>) {
        let old = self.waiters.lock().replace(waiters);
        drop(old);
    }

    /// The wait queue of the endpoint that owns this end.
    pub(crate) fn waiters(&self) -> Result<Arc<WaitQueue>> {
        self.waiters.lock().clone().ok_or(ENOTCONN)
    }

    /// Wakes everybody who waits for something of this connection. Any context.
    pub(crate) fn wake(&self) {
        if let Some(waiters) = &*self.waiters.lock() {
            waiters.wake_all();
        }
    }

    /// Begins to write to the peer: ECONNRESET once one of the ends is closed or lost.
    pub(crate) fn begin_writing(&self) -> Result<Writing<&Self>> {
        match self.writers.enter_unscoped() {
            true => Ok(Writing(self)),
            false => Err(ECONNRESET),
        }
    }

    /// As [`Self::begin_writing`], for longer than a borrow lasts.
    pub(crate) fn begin_writing_owned(self: &Arc<Self>) -> Result<Writing<Arc<Self>>> {
        match self.writers.enter_unscoped() {
            true => Ok(Writing(self.clone())),
            false => Err(ECONNRESET),
        }
    }

    // ----- what the peer says ------------------------------------------------------------------

    /// The peer has accepted. Returns whether this end still wants the connection.
    pub(crate) fn accepted(&self, source: ConnectionId, ring: &RingAddress) -> bool {
        if self.phase() == Phase::Requested && self.set_peer(source, ring).is_err() {
            return false;
        }
        let old =
            self.change_phase(|phase| (phase == Phase::Requested).then_some(Phase::Established));
        self.wake();
        old == Phase::Requested
    }

    /// The peer has refused. Returns whether the connection can leave the table.
    pub(crate) fn refused(&self, reason: Refusal) -> bool {
        let old = self
            .change_phase(|phase| (phase == Phase::Requested).then_some(Phase::Refused(reason)));
        self.wake();
        matches!(old, Phase::Requested | Phase::Closed)
    }

    /// The peer has closed its end. May sleep.
    pub(crate) fn peer_closed(&self) {
        self.change_phase(|phase| (phase == Phase::Established).then_some(Phase::PeerClosed));
        self.wake();
        // Before the answer: when that is there, the peer has its memory back, unless it is in use.
        self.forget_remote_windows();
        // Fully ordered with the look at who is inside; the last one leaves and then looks at this,
        // likewise.
        self.close_asked.xchg(true, Full);
        // Whoever is the last to leave answers, so that the answer comes after the last write.
        if self.writers.close() {
            self.answer_close();
        }
        // Nobody can reach them any more, but who has mapped them or copies already.
        self.windows.revoke_all();
        self.registrations.close_soon();
    }

    /// Says `CloseDone` once, after the last write into the peer's ring and the end of the last
    /// transfer. May sleep.
    fn answer_close(&self) {
        if self.close_asked.xchg(false, Full) {
            if let Ok(peer) = self.peer() {
                let _ = self.session.post(&Message::CloseDone { target: peer.id });
            }
        }
    }

    /// The peer will write no more into the ring of this closed end, and its transfers have ended:
    /// the end can go. May sleep.
    pub(crate) fn close_done(&self) {
        self.close_answered.store(true, Relaxed);
        self.wake();
        if self.phase() == Phase::Closed {
            self.session.remove_connection(self.id);
        }
    }

    /// The peer's node is gone. May sleep.
    pub(crate) fn lost(&self) {
        self.change_phase(|phase| (phase != Phase::Closed).then_some(Phase::Lost));
        self.writers.close();
        self.wake();
        self.forget_remote_windows();
        self.windows.revoke_all();
        self.registrations.close();
        self.fences.forget_deferred();
    }

    // ----- what the owner wants ----------------------------------------------------------------

    /// Closes this end. May sleep: transfers in flight are waited for. Not for calling from the
    /// control work, which hears the peer's answer.
    pub(crate) fn close(self: &Arc<Self>) {
        let old = self.change_phase(|_| Some(Phase::Closed));
        self.wake();
        self.drain_transfers();
        self.run_deferred();
        self.writers.close_and_drain();
        self.windows.revoke_all();
        self.registrations.close();
        self.forget_remote_windows();
        self.fences.forget_deferred();
        match (old, self.peer()) {
            (Phase::Established, Ok(peer)) => {
                let _ = self.session.post(&Message::Close {
                    target: peer.id,
                    source: self.id,
                });
                self.wait_for_peer_transfers();
            }
            (Phase::Requested, _) => {
                // Stays in the table until the request is refused or its acceptance has been
                // answered: the peer may already write.
                let _ = self.session.post(&Message::Cancel { source: self.id });
            }
            // A session that is over keeps what its peer might write to until it is buried.
            (Phase::Lost, _) => (),
            _ => self.session.remove_connection(self.id),
        }
        let old = self.waiters.lock().take();
        drop(old);
    }

    /// Waits until the peer, which has been told that this end is closed, has no transfer from or to
    /// its windows under way, and has let go of those that it has not mapped. Killable; a peer that
    /// goes has none.
    fn wait_for_peer_transfers(&self) {
        let Ok(waiters) = self.waiters() else { return };
        if !self.windows.has_any() {
            return;
        }
        let done = || (self.close_answered.load(Relaxed) || self.session.is_over()).then_some(());
        if can_be_killed() && waiters.wait_killable(done).is_ok() {
            return;
        }
        // Who waits for the end of a process wants its memory back then; but not for any time that
        // the peer might like.
        let _ = waiters.wait_uninterruptible_timeout(PATIENCE, done);
    }

    /// Takes the ring away from the device that the peer reached it through; the data stays.
    pub(crate) fn unmap(&self) {
        self.inbound.unmap();
    }
}
