// SPDX-License-Identifier: GPL-2.0

//! One life of a peer: from the handshake until it is lost or leaves.
//!
//! A node that comes back gets a new session; everything that belonged to the old one, connections,
//! windows, marks, stays dead. The session carries the control channel, the table of connections
//! and the windows that the peer may still be using, and it decides for all of them when the peer
//! counts as gone. It does not know how the peer was found (`link/`) nor what the messages mean
//! (`dispatch.rs`).
//!
//! # Going away
//!
//! Whatever finds the peer gone or misbehaving calls [`Session::fail`], in any context. The owner
//! of the session then calls [`Session::tear_down`] from its own work: all connections are marked
//! lost and every waiter is woken; new users are kept out; those inside (bounded: a copied chunk, a
//! DMA transfer, a page fault, a wait that the loss ends) are waited for; mappings are emptied,
//! windows are unpinned. Memory that a peer which is merely slow could still write to (control
//! block, rings) lives on until [`Session::bury`], which the owner calls once the peer has shown
//! that it has let go.
//!
//! # Lock order
//!
//! See `scif_main.rs`.

use crate::{
    connection::Connection,
    connection_table::ConnectionTable,
    control::ControlRing,
    dispatch,
    link::ntb::NtbLink,
    logic::wire::{
        ConnectionId,
        Message,
        WindowId, //
    },
    mapping::Mappings,
    node::Fabric,
    sys::ntb::NtbDevice,
    transport::{
        Transport,
        BELLS,
        BELL_CONTROL,
        BELL_DATA,
        BELL_HELLO, //
    },
    users::{
        User,
        Users, //
    },
    window::Window,
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Whom the peer is, as it said in the handshake.
#[derive(Clone, Copy)]
pub(crate) struct PeerIdentity {
    pub(crate) node: u16,
    pub(crate) generation: u64,
    /// Its nonce of this session.
    pub(crate) nonce: u32,
}

/// A window that the peer has been offered, and whose it is.
struct Export {
    window: Arc<Window>,
    owner: Arc<Connection>,
}

/// The connections that wait for one bell.
type Bucket = KVec<Arc<Connection>>;

/// See the head of this file.
#[pin_data]
pub(crate) struct Session {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) peer: PeerIdentity,
    /// Our nonce.
    nonce: u32,
    pub(crate) transport: Transport,
    /// The device whose bells reach the peer; none on loopback, and when it has been unbound.
    #[pin]
    device: SpinLockIrq<Option<Arc<NtbDevice>>>,
    /// Who tears the session down when it fails.
    link: Option<Arc<NtbLink>>,
    #[pin]
    pub(crate) control: ControlRing,
    /// Everybody who uses the transport.
    #[pin]
    users: Users,
    failed: Atomic<bool>,
    #[pin]
    connections: Mutex<ConnectionTable>,
    #[pin]
    buckets: SpinLockIrq<[Bucket; BELLS]>,
    #[pin]
    exports: Mutex<RBTree<u32, Export>>,
    next_window: Atomic<u32>,
    /// Windows of the peer that this node remembers, and their extents.
    pub(crate) remote_windows: Atomic<u64>,
    pub(crate) remote_extents: Atomic<u64>,
    /// Where processes see the peer's memory.
    #[pin]
    pub(crate) mappings: Mappings,
    #[pin]
    control_work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.control_work }
}

impl WorkItem for Session {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        dispatch::process_control(&this);
    }
}

/// Keeps a session's transport in use for longer than a borrow lasts: by a DMA transfer.
pub(crate) struct TransportUse(Arc<Session>);

impl Drop for TransportUse {
    fn drop(&mut self) {
        self.0.users.leave();
    }
}

impl Session {
    /// A session that begins now.
    pub(crate) fn new(
        fabric: &Arc<Fabric>,
        peer: PeerIdentity,
        nonce: u32,
        transport: Transport,
        device: Option<Arc<NtbDevice>>,
        link: Option<Arc<NtbLink>>,
        control: impl PinInit<ControlRing>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                fabric: fabric.clone(),
                peer,
                nonce,
                transport,
                device <- new_spinlock_irq!(device, "Session::device"),
                link,
                control <- control,
                users <- Users::new(),
                failed: Atomic::new(false),
                connections <- new_mutex!(ConnectionTable::new(), "Session::connections"),
                buckets <- new_spinlock_irq!(
                    [const { Bucket::new() }; BELLS],
                    "Session::buckets"
                ),
                exports <- new_mutex!(RBTree::new(), "Session::exports"),
                next_window: Atomic::new(1),
                remote_windows: Atomic::new(0),
                remote_extents: Atomic::new(0),
                mappings <- Mappings::new(),
                control_work <- new_work!("Session::control_work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The id of the peer's node.
    pub(crate) fn node(&self) -> u16 {
        match self.transport {
            // This node may have got its id after its loopback was made.
            Transport::Loopback(_) => self.fabric.own_id(),
            Transport::Ntb(_) => self.peer.node,
        }
    }

    /// Whether the peer is this node.
    pub(crate) fn is_loopback(&self) -> bool {
        matches!(self.transport, Transport::Loopback(_))
    }

    /// Goes in to use the transport; `None` once the session is over. Any context.
    pub(crate) fn enter(&self) -> Option<User<'_>> {
        self.users.enter()
    }

    /// As [`Self::enter`], for use beyond a borrow.
    pub(crate) fn enter_owned(self: &Arc<Self>) -> Option<TransportUse> {
        self.users
            .enter_unscoped()
            .then(|| TransportUse(self.clone()))
    }

    /// Whether the peer is gone, or as good as gone. Any context.
    pub(crate) fn is_over(&self) -> bool {
        self.failed.load(Relaxed) || self.users.is_closed()
    }

    /// The peer is gone, has misbehaved or can't be served: ends the session. Any context.
    pub(crate) fn fail(self: &Arc<Self>, reason: &str) {
        if self.failed.xchg(true, Full) || self.users.is_closed() {
            return;
        }
        pr_warn!("node {} is lost: {}\n", self.peer.node, reason);
        match &self.link {
            Some(link) => NtbLink::schedule(link),
            // Loopback has nobody else to end it.
            None => self.schedule_control(),
        }
    }

    /// Whether [`Self::fail`] was called.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    // ----- bells -------------------------------------------------------------------------------

    /// Rings a bell of the peer. Any context.
    ///
    /// Memory written before is visible to the peer before the bell.
    pub(crate) fn ring(self: &Arc<Self>, bell: u32) {
        self.transport.flush();
        match &self.transport {
            Transport::Loopback(_) => Session::bell_rang(self, bell),
            Transport::Ntb(_) => {
                let device = self.device.lock();
                if let Some(device) = &*device {
                    // The device refuses bits that it does not have; those on the wire were
                    // checked when they came.
                    let _ = device.peer_db_set(1u64.checked_shl(bell).unwrap_or(0));
                }
            }
        }
    }

    /// One of our bells rang. Hard interrupt context, or any other.
    pub(crate) fn bell_rang(this: &Arc<Self>, bell: u32) {
        if bell == BELL_CONTROL || bell == BELL_HELLO {
            this.schedule_control();
            return;
        }
        let buckets = this.buckets.lock();
        if let Some(bucket) = buckets.get(bell as usize) {
            for connection in bucket {
                connection.bell_rang();
            }
        }
    }

    /// Looks at the control ring soon. Any context.
    pub(crate) fn schedule_control(self: &Arc<Self>) {
        // An error says that the work is pending already.
        let _ = self.fabric.control_queue.enqueue(self.clone());
    }

    /// Chooses the bell for a new connection's data: they spread over all that there are.
    pub(crate) fn bell_for(&self, id: ConnectionId) -> u32 {
        let bells = self.transport.bells() >> BELL_DATA;
        let count = bells.trailing_ones().max(1);
        BELL_DATA + id.0 % count
    }

    // ----- control messages --------------------------------------------------------------------

    /// Sends a control message. May sleep, does not wait for the peer.
    ///
    /// A message that can't be sent ends the session: the two sides would no longer agree.
    pub(crate) fn post(self: &Arc<Self>, message: &Message) -> Result {
        let _user = self.enter().ok_or(ENODEV)?;
        if let Err(error) = self.control.post(&self.transport, message) {
            self.fail(if error == EPROTO {
                "it reports messages that were never sent"
            } else if error == ENOMEM {
                "no memory to queue a control message"
            } else {
                "it does not take its control messages"
            });
            return Err(ENODEV);
        }
        self.ring(BELL_CONTROL);
        Ok(())
    }

    /// As [`Self::post`], and waits first until few messages are queued. Killable.
    ///
    /// For what a process can make this node say any number of times.
    pub(crate) fn post_bulk(self: &Arc<Self>, message: &Message) -> Result {
        self.control
            .room
            .wait_killable(|| (self.is_over() || self.control.has_bulk_room()).then_some(()))?;
        self.post(message)
    }

    /// Waits until few messages are queued, the session is over or the caller is being killed.
    pub(crate) fn wait_for_bulk_room(&self) {
        let _ = self
            .control
            .room
            .wait_killable(|| (self.is_over() || self.control.has_bulk_room()).then_some(()));
    }

    // ----- heartbeat ---------------------------------------------------------------------------

    /// Sends a sign of life. Any context.
    pub(crate) fn beat(&self, beat: u64) {
        if let Some(_user) = self.enter() {
            // A write can only fail for an address that the handshake has checked.
            let _ = self.control.beat(&self.transport, beat);
        }
    }

    /// Whether the peer has said that it leaves. Any context.
    pub(crate) fn peer_left(&self) -> bool {
        self.control.peer_said_farewell(self.nonce)
    }

    // ----- connections -------------------------------------------------------------------------

    /// Puts a new connection into the table.
    pub(crate) fn insert_connection(
        self: &Arc<Self>,
        make: impl FnOnce(ConnectionId) -> Result<Arc<Connection>>,
    ) -> Result<Arc<Connection>> {
        let mut connections = self.connections.lock();
        // Under the lock, so that `tear_down` either sees it or has been seen.
        if self.is_over() {
            return Err(ENODEV);
        }
        let connection = connections.insert(make)?;
        let listening = {
            let mut buckets = self.buckets.lock();
            match buckets.get_mut(connection.bell() as usize) {
                Some(bucket) => bucket
                    .push(connection.clone(), GFP_ATOMIC)
                    .map_err(Error::from),
                None => Err(EINVAL),
            }
        };
        if let Err(error) = listening {
            let removed = connections.remove(connection.id);
            drop(connections);
            drop(removed);
            return Err(error);
        }
        Ok(connection)
    }

    /// Finds a connection by the id that the peer names.
    pub(crate) fn connection(&self, id: ConnectionId) -> Option<Arc<Connection>> {
        self.connections.lock().get(id).cloned()
    }

    /// Takes a connection out of the table: nothing of the peer's reaches it any more. May sleep.
    pub(crate) fn remove_connection(&self, id: ConnectionId) {
        let removed = self.connections.lock().remove(id);
        if let Some(connection) = removed {
            self.silence(&connection);
            // Somebody may hold on to it for long, but the peer writes no more.
            connection.unmap();
        }
    }

    fn silence(&self, connection: &Arc<Connection>) {
        let removed = {
            let mut buckets = self.buckets.lock();
            buckets
                .get_mut(connection.bell() as usize)
                .and_then(|bucket| {
                    let position = bucket.iter().position(|c| Arc::ptr_eq(c, connection))?;
                    bucket.remove(position).ok()
                })
        };
        drop(removed);
    }

    /// Calls `f` with each connection, one at a time, without a lock.
    pub(crate) fn for_each_connection(&self, mut f: impl FnMut(&Connection)) {
        let mut index = 0;
        loop {
            let next = self.connections.lock().at_or_after(index);
            let Some((found, connection)) = next else {
                break;
            };
            index = found + 1;
            f(&connection);
        }
    }

    /// How many connections there are, those in the middle of closing included.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections.lock().len()
    }

    // ----- windows that the peer uses ----------------------------------------------------------

    /// A new id for a window.
    pub(crate) fn new_window_id(&self) -> WindowId {
        WindowId(self.next_window.fetch_add(1, Relaxed))
    }

    /// Keeps a window until the peer has released it.
    pub(crate) fn export(&self, window: &Arc<Window>, owner: &Arc<Connection>) -> Result {
        let mut exports = self.exports.lock();
        if self.is_over() {
            return Err(ENODEV);
        }
        // After 2^32 windows the numbers begin again.
        if exports.get(&window.id.0).is_some() {
            return Err(EAGAIN);
        }
        let export = Export {
            window: window.clone(),
            owner: owner.clone(),
        };
        let replaced = exports.try_create_and_insert(window.id.0, export, GFP_KERNEL)?;
        drop(exports);
        drop(replaced);
        Ok(())
    }

    /// Finds a window that the peer was offered.
    pub(crate) fn exported(&self, window: WindowId) -> Option<Arc<Window>> {
        let exports = self.exports.lock();
        exports.get(&window.0).map(|export| export.window.clone())
    }

    /// The peer has released a window, or never had it.
    pub(crate) fn unexport(&self, window: WindowId) {
        let export = self.exports.lock().remove(&window.0);
        if let Some(export) = export {
            export.window.released_by_peer(&export.owner);
        }
    }

    /// How many windows the peer may be using.
    pub(crate) fn export_count(&self) -> usize {
        self.exports.lock().iter().count()
    }

    // ----- the end -----------------------------------------------------------------------------

    /// Ends the session; see the head of this file. Called once, by the owner. May sleep.
    pub(crate) fn tear_down(&self) {
        self.failed.store(true, Relaxed);
        // The connections are marked first, so that whoever is inside does not start anew.
        self.for_each_connection(Connection::lost);
        self.control.room.wake_all();
        self.users.close_and_drain();
        // Signals that were deferred since the connections were marked keep windows in use.
        self.for_each_connection(|connection| connection.fences.forget_deferred());
        // No fault puts pages back from here on.
        self.mappings.revoke_all();
        // Requests came from the control work, which is out now, too.
        self.fabric.forget_requests(self);
        // The very last write into the peer's memory.
        let _ = self.control.say_farewell(&self.transport, self.peer.nonce);
        let device = self.device.lock().take();
        if let Some(device) = device {
            let _ = device.peer_db_set(1 << BELL_HELLO);
        }
    }

    /// Lets go of the windows that the peer could use. Called after [`Self::tear_down`], when the
    /// peer can't reach them any more, or has said farewell. May sleep.
    pub(crate) fn release_windows(&self) {
        loop {
            let Some(id) = self.exports.lock().keys().next().copied() else {
                break;
            };
            self.unexport(WindowId(id));
        }
    }

    /// Gives up the memory that the peer could write to. Called after [`Self::tear_down`], when
    /// the peer has shown that it no longer writes, or can't. May sleep.
    pub(crate) fn bury(&self) {
        self.for_each_connection(|connection| self.remove_connection(connection.id));
        self.control.unmap();
    }
}
