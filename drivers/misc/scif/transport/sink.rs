// SPDX-License-Identifier: GPL-2.0

//! What a transport tells those above it.
//!
//! A transport knows its peers by these two traits only. The order of a session's life:
//!
//! 1. [`Sink::online`]: the peer was found, and both sides know it.
//! 2. [`Session::doorbells`] and [`Session::tick`], any number of times and in interrupts.
//! 3. [`Session::ended`] says that it is over, or the transport knows it.
//! 4. [`Session::going`]; the transport then keeps the peer out where the hardware can do that.
//! 5. [`Session::tear_down`]: afterwards nobody uses the path, or ever will, but for a doorbell that
//!    rings late.
//! 6. [`Session::unreachable`]: the peer can't touch this node's memory any more, or will not.
//! 7. [`Session::forget`]: it has shown that it is not even slow; all memory may go.
//!
//! A transport sees to it that `doorbells` and `tick` are called with the session held by somebody else,
//! so that the last reference is never dropped in an interrupt; that nobody calls them any more when
//! the session is forgotten; and that before its own end the work queues have run, in which there may still be
//! something of the session.

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

/// Who a transport has found, and how to talk to it.
pub(crate) struct Introduction<'a> {
    /// The transport's name of the way there, for people.
    pub(crate) link: &'a CStr,
    /// The peer's node id; none if it is this node itself.
    pub(crate) node: Option<u16>,
    /// Random, new each time the peer's module is loaded.
    pub(crate) generation: u64,
    /// Our nonce of this session, and the peer's.
    pub(crate) own_nonce: u32,
    pub(crate) peer_nonce: u32,
    /// Our control block, which the peer writes to: zeroed memory as large as its geometry wants it, made by the
    /// transport before it knows a peer.
    pub(crate) block: Arc<SharedMemory>,
    pub(crate) geometry: ControlGeometry,
    /// The peer's control block, as a bus address of the peer.
    pub(crate) peer_block: u64,
    pub(crate) peer_geometry: ControlGeometry,
}

/// Who is told of peers.
pub(crate) trait Sink: Send + Sync {
    /// The id of this node, which is `default` unless it was chosen before.
    fn own_node(&self, default: u16) -> u16;

    /// Random, new each time this module is loaded.
    fn generation(&self) -> u64;

    /// Whether a node with this id is there already, or is this one: [`Self::online`] would fail. May sleep.
    fn is_taken(&self, node: u16) -> bool;

    /// A peer is there. May sleep.
    ///
    /// EEXIST if another node has its id, which the peer is told; EFAULT if its control block can't be reached, and
    /// ENOMEM: then the peer misses signs of life.
    fn online(&self, path: Arc<dyn Path>, who: Introduction<'_>) -> Result<Arc<dyn Session>>;
}

/// One life of a peer.
pub(crate) trait Session: Send + Sync {
    /// These of our doorbells rang, as bits. Hard interrupt context, or any other.
    fn doorbells(self: ArcBorrow<'_, Self>, numbers: u64);

    /// Time has passed, in milliseconds: shows a sign of life and looks for one of the peer's. Any
    /// context.
    fn tick(self: ArcBorrow<'_, Self>, milliseconds: u32);

    /// Why it has ended by itself, once it has: the peer has left, or it has failed. Any context.
    fn ended(&self) -> Option<Reason>;

    /// It is about to end: nobody begins to use the path any more. Any context.
    fn going(&self);

    /// Tells all services of the loss, which wakes callers; waits until no caller is inside; says farewell to the peer.
    /// Called once. May sleep.
    fn tear_down(&self) -> Drained;

    /// Lets go of what the peer could use and can't any more. After [`Self::tear_down`]. May sleep.
    fn unreachable(&self);

    /// Lets go of all memory that the peer could write to. After [`Self::unreachable`]. May sleep.
    fn forget(&self);
}
