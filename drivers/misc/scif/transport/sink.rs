// SPDX-License-Identifier: GPL-2.0

//! The upcalls of a transport to the layers above.
//!
//! A transport calls the layers above only through these two traits. A session's life has this
//! order:
//!
//! 1. [`Sink::online`]: the transport has found the peer, and both sides know it.
//! 2. [`Session::doorbells`] and [`Session::tick`], any number of times and in interrupts.
//! 3. [`Session::ended`] says that the session is over, or the transport knows it itself.
//! 4. [`Session::going`]; afterwards the transport keeps the peer out if the hardware can.
//! 5. [`Session::tear_down`]; afterwards no caller uses the path, except to ring a doorbell late.
//! 6. [`Session::unreachable`]: the peer can't access this node's memory any more, or will not.
//! 7. [`Session::forget`]: the peer has shown that it is not merely slow, so all memory may be
//!    freed.
//!
//! When a link goes for good, the transport calls [`Sink::link_gone`] after the `forget` of its last
//! session.
//!
//! Duties of a transport:
//!
//! - While `doorbells` or `tick` runs, another reference to the session exists. So the last
//!   reference is never dropped in an interrupt.
//! - After `forget`, neither is called any more.
//! - Before the transport ends, it flushes the work queues, which may still hold references to the
//!   session.

use super::path::Path;
use crate::{
    logic::{
        control_block::ControlGeometry,
        gate::Drained,
        handshake::Reason, //
    },
    sys::shared_memory::SharedMemory, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};

/// The peer that a transport has found, and the parameters of the session.
pub(crate) struct Introduction<'a> {
    /// The transport's name of the link, shown to users.
    pub(crate) link: &'a CStr,
    /// The peer's node id. `None` if the peer is this node itself.
    pub(crate) node: Option<u16>,
    /// A random number that changes each time the peer's module is loaded.
    pub(crate) generation: u64,
    /// This node's nonce of the session.
    pub(crate) own_nonce: u32,
    /// The peer's nonce of the session.
    pub(crate) peer_nonce: u32,
    /// This node's control block, which the peer writes to: zeroed memory of the size that its
    /// geometry requires. The transport allocates it before it knows a peer.
    pub(crate) block: Arc<SharedMemory>,
    pub(crate) geometry: ControlGeometry,
    /// Bus address of the peer's control block, as the peer names it.
    pub(crate) peer_block: u64,
    pub(crate) peer_geometry: ControlGeometry,
}

/// The receiver of new peers.
pub(crate) trait Sink: Send + Sync {
    /// Returns the id of this node: the one chosen before, or else `default`.
    fn own_node(&self, default: u16) -> u16;

    /// Returns a random number that changes each time this module is loaded.
    fn generation(&self) -> u64;

    /// Returns whether this id belongs to this node or to a known one, so that [`Self::online`]
    /// would fail.
    /// Context: may sleep.
    fn is_taken(&self, node: u16) -> bool;

    /// Creates a session with a peer that was found.
    ///
    /// # Errors
    ///
    /// - EEXIST: another node has the peer's id. The transport tells the peer.
    /// - EFAULT: the peer's control block can't be reached. The peer gives up when it gets no
    ///   heartbeats.
    /// - ENOMEM: there is no memory. The peer gives up as after EFAULT.
    ///
    /// Context: may sleep.
    fn online(
        &self,
        path: Arc<dyn Path>,
        introduction: Introduction<'_>,
    ) -> Result<Arc<dyn Session>>;

    /// Takes note that there will be no more sessions of a link, as its device goes.
    /// Context: may sleep.
    fn link_gone(&self, link: &CStr);
}

/// A session with a peer.
pub(crate) trait Session: Send + Sync {
    /// Handles doorbells of this side that rang, given as bits.
    /// Context: any, also hard interrupts.
    fn doorbells(self: ArcBorrow<'_, Self>, numbers: u64);

    /// Handles the passing of time: sends a heartbeat, and checks for one of the peer.
    /// Context: any.
    fn tick(self: ArcBorrow<'_, Self>, milliseconds: u32);

    /// Returns the reason if the session has ended by itself: the peer has left or failed.
    /// Context: any.
    fn ended(&self) -> Option<Reason>;

    /// Announces the end of the session: from now on no caller begins to use the path.
    /// Context: any.
    fn going(&self);

    /// Tells all services of the loss, which wakes callers. Waits until no caller is inside, and
    /// says farewell to the peer. Called once.
    /// Context: may sleep.
    fn tear_down(&self) -> Drained;

    /// Releases the memory that the peer could use and can't any more. Called after
    /// [`Self::tear_down`].
    /// Context: may sleep.
    fn unreachable(&self);

    /// Releases all memory that the peer could write to. Called after [`Self::unreachable`].
    /// Context: may sleep.
    fn forget(&self);
}
