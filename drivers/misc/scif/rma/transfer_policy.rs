// SPDX-License-Identifier: GPL-2.0

//! Chooses how a copy from or to a peer is made.
//!
//! The choice depends on the direction, size, flags and alignment of the copy. It also depends on
//! which node reaches whose memory, and on whether the peer has refused lately. If the peer is not
//! asked in the end, or refuses, `transfers.rs` and `peer_reads.rs` fall back to this end.
//!
//! The CPU (`cpu_copy.rs`) or an engine of this node (`transfer.rs`) makes the copy. For a read,
//! this end may ask the peer to write the data instead (`peer_reads.rs`, served by
//! `peer_write_requests.rs`). If this node does not reach the peer's memory, a write goes through
//! slots (`staging.rs`), which the CPU or an engine fills. A read from such memory is left to the
//! peer.
//!
//! If an engine has stopped, or does not reach the local memory, the copy is made as if there were
//! no engine.
//!
//! The thresholds are constants, each with its reason in the hardware. An administrator can replace
//! them at any time (`dma_threshold`, `push_threshold`). A caller can do so for one copy
//! (`SCIF_RMA_USECPU`).

use super::{
    cpu_copy,
    operation::{
        are_reached,
        Caller,
        Operation, //
    },
    peer_reads::{
        self,
        PeerRead, //
    },
    peer_write_requests,
    staging::Staging,
    transfer,
    transfers::Request, //
};
use crate::{
    arguments::Direction,
    logic::stores::Stores,
    peer::{
        channel::Channel,
        control::Reservation,
        questions::Questions,
        Peer, //
    },
    sync::work_queues::PeerQueue,
    sys::{
        tunables,
        workqueue::Queue, //
    },
    transport::engine::EngineRoute, //
};
use kernel::{
    new_spinlock,
    new_spinlock_irq,
    prelude::*,
    sync::{
        Arc,
        SpinLock,
        SpinLockIrq, //
    },
    time::{
        Instant,
        Monotonic, //
    }, //
};

/// Largest number of bytes that the CPU writes if the caller waits for completion.
///
/// Stores across the bus are posted and combined, so a CPU sends them about as fast as the link
/// takes them. An engine costs a descriptor, a store to a register and the detection of completion.
/// That takes some microseconds, in which a link of 8 GB/s carries this many bytes.
const WRITE_AND_WAIT: u64 = 32 << 10;

/// Largest number of bytes that the CPU writes if the caller does not wait.
///
/// Such a caller has other work for its CPU. So the CPU copies only what takes no longer than
/// submitting the copy to an engine.
pub(crate) const WRITE: u64 = 4 << 10;

/// Largest number of bytes that the CPU reads.
///
/// Each load across the bus brings at most one cache line and waits for a round trip of about a
/// microsecond. So a few loads take as long as an engine does from start to completion.
const READ: u64 = 256;

/// Largest number of bytes that this node's engine reads.
///
/// A read waits for its answer, and an engine has few reads in flight. So an engine reads at about
/// half the rate at which it writes. Asking the peer for a write takes two messages with a doorbell
/// each. That takes some ten microseconds, in which an engine reads this many bytes.
const READ_BY_ENGINE: u64 = 64 << 10;

/// Returns the administrator's `dma_threshold`, or `None` if the constants apply.
/// Context: any.
pub(crate) fn configured_threshold() -> Option<u64> {
    u64::try_from(tunables::dma_threshold()).ok()
}

/// The method by which a copy is made.
pub(super) struct CopyMethod<'a> {
    /// Engine that copies or fills slots. If `None`, the CPU does.
    pub(super) route: Option<&'a EngineRoute>,
    /// Whether this node reaches the peer's memory. If not, writes go through slots.
    pub(super) is_reached: bool,
    /// Whether to ask the peer to write what the caller reads. If the peer refuses, this node makes
    /// the copy, provided that it reaches the memory.
    pub(super) asks_peer: bool,
}

impl<'a> CopyMethod<'a> {
    /// Returns the method for a copy of `len` bytes that this node makes, with the engine of
    /// `route` if that is worthwhile.
    fn by_this_end(
        route: Option<&'a EngineRoute>,
        is_reached: bool,
        staging: &Staging,
        len: u64,
    ) -> Self {
        // An engine gets at most half of the slots to fill at once. So the size of a slot counts,
        // not that of the transfer. If the administrator has set a threshold, `route` has already
        // applied it.
        let processor_fills = !is_reached
            && configured_threshold().is_none()
            && staging.bytes_per_slot(len) <= WRITE_AND_WAIT;
        Self {
            route: route.filter(|_| !processor_fills),
            is_reached,
            asks_peer: false,
        }
    }

    /// Starts a copy that this node makes. If the operation is synchronous, polls for its
    /// completion for a moment.
    ///
    /// If this returns `Ok`, the operation completes on its own. On an error the operation has
    /// failed and completes on its own as well. The `caller` hears of the error. The local side is
    /// mapped for the engine.
    /// Context: may sleep.
    pub(super) fn start(
        &self,
        staging: &Staging,
        operation: &Arc<Operation>,
        caller: Caller,
    ) -> Result {
        match self.route {
            route if !self.is_reached => staging.write(operation, route, caller),
            Some(route) => transfer::start(route, operation, caller),
            None => cpu_copy::copy(operation, caller),
        }
    }
}

/// The transfer policy for one peer: its slots, the open requests, and when the peer last refused.
#[pin_data]
pub(crate) struct TransferPolicy {
    pub(super) peer: Arc<Peer>,
    /// The path's record of CPU stores that no engine may overtake.
    pub(super) stores: Option<Arc<Stores>>,
    pub(crate) staging: Arc<Staging>,
    /// Reads that the peer was asked for and has not answered.
    #[pin]
    pub(super) peer_reads: Questions<PeerRead>,
    /// Time at which the peer last said that it has no engine.
    #[pin]
    pub(super) refused: SpinLock<Option<Instant<Monotonic>>>,
    /// Reservations for the answers to peer write requests in flight. The capacity suffices for all
    /// of them.
    #[pin]
    pub(super) reservations: SpinLockIrq<KVec<Reservation>>,
    /// Work items that start copies that the peer has asked for, and reads that the peer has
    /// refused.
    #[pin]
    later: PeerQueue,
}

impl TransferPolicy {
    /// Creates the policy for copies from and to this peer.
    /// Context: may sleep.
    pub(crate) fn new(peer: &Arc<Peer>, staging: Arc<Staging>) -> Result<Arc<Self>> {
        let reservations = KVec::with_capacity(peer_write_requests::MOST, GFP_KERNEL)?;
        let later = Queue::background(c"scif_copies")?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                stores: peer.path().stores().cloned(),
                staging,
                peer_reads <- Questions::new(peer_reads::MOST, peer_reads::MOST_BYTES),
                refused <- new_spinlock!(None, "TransferPolicy::refused"),
                reservations <- new_spinlock_irq!(reservations, "TransferPolicy::reservations"),
                later <- PeerQueue::new(later),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a work item start a copy, because the start may wait for room in an engine's ring or for
    /// slots. If `engine` names one of the path's engines, that engine copies or fills slots.
    ///
    /// The memory is charged to the user of this end. The listener is told of the completion in any
    /// case.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn start_later(&self, engine: Option<usize>, operation: Arc<Operation>) -> Result {
        let staging = self.staging.clone();
        self.later.spawn(move || {
            let route = operation.surroundings.peer.path().engine(engine);
            let is_reached = are_reached(&operation.sides.remote);
            let mut method = CopyMethod::by_this_end(route, is_reached, &staging, operation.bytes);
            operation.surroundings.channel.group().pays_for(|| {
                // Mapped in the work item, as mapping much memory takes long.
                method.route = method
                    .route
                    .filter(|route| operation.sides.map_for(route).is_ok());
                // The operation reports an error to its listener.
                let _ = method.start(&staging, &operation, Caller::WorkItem);
            });
        })
    }

    /// Ends the work items and the staging, once no task is inside the peer any more.
    /// Context: may sleep.
    pub(crate) fn drained(&self) {
        self.later.end();
        self.staging.drained();
    }

    /// Returns the route of the channel's engine if the engine is to make the copy. Returns `None`
    /// if the CPU is to, or if no engine can.
    /// Context: any.
    pub(super) fn route<'a>(
        &self,
        channel: &'a Channel,
        request: &Request<'_>,
    ) -> Option<&'a EngineRoute> {
        let (direction, options) = (request.direction, request.options);
        let limit = configured_threshold().unwrap_or(match direction {
            Direction::Read => READ,
            Direction::Write if options.synchronous => WRITE_AND_WAIT,
            Direction::Write => WRITE,
        });
        let (start, len) = (request.remote.start(), request.remote.len());
        if options.use_cpu || len <= limit {
            return None;
        }
        let route = channel.path().engine(channel.engine());
        // Extents begin and end at page boundaries, so only the ends of the copy can be misaligned.
        route.filter(|route| {
            let engine = &route.engine;
            engine.can_copy(start, request.local_start(), len as usize)
        })
    }

    /// Chooses the method for a copy. `is_reached` says whether this node reaches the peer's
    /// memory. `route` is the result of [`Self::route`] for this request.
    /// Context: any but interrupts.
    pub(super) fn choose<'a>(
        &self,
        request: &Request<'_>,
        route: Option<&'a EngineRoute>,
        is_reached: bool,
    ) -> CopyMethod<'a> {
        let reads = request.direction == Direction::Read;
        if reads && !is_reached {
            return CopyMethod {
                route: None,
                is_reached,
                asks_peer: true,
            };
        }
        let len = request.remote.len();
        let mut method = CopyMethod::by_this_end(route, is_reached, &self.staging, len);
        // The peer could keep lent memory after the call has returned, so it is not asked to write
        // there.
        let is_kept = !request.local.is_lent();
        let by_engine = u64::try_from(tunables::push_threshold()).unwrap_or(READ_BY_ENGINE);
        method.asks_peer =
            reads && route.is_some() && is_kept && len > by_engine && self.can_ask_peer();
        method
    }
}
