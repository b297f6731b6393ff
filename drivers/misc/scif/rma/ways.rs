// SPDX-License-Identifier: GPL-2.0

//! Chooses how a copy from or to a peer goes, by its direction, size, flags and alignment, by who reaches whose memory,
//! and by whether the peer has refused lately. If the peer is not asked in the end, or refuses, `transfers.rs` and
//! `pulls.rs` fall back to this end.
//!
//! It goes by the processor (`cpu_copy.rs`) or by an engine of this node (`transfer.rs`). If it is a read, the peer may
//! be asked to write what is to be read (`pulls.rs`; its requests are in `pushes.rs`). A write to memory of the peer
//! that this node does not reach goes through slots (`staging.rs`), which the processor or an engine fills; a read
//! from there is left to the peer.
//!
//! If an engine has stopped, or does not reach the local memory, the copy goes as if there were none.
//!
//! The sizes are constants, each with its reason from hardware. An administrator replaces them at any time
//! (`dma_threshold`, `push_threshold`), a caller for one copy (`SCIF_RMA_USECPU`).

use super::{
    cpu_copy,
    operation::{
        are_reached,
        Caller,
        Operation, //
    },
    pulls::{
        self,
        Pull, //
    },
    pushes,
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

/// Bytes up to which the processor writes if the caller waits for the end.
///
/// Stores across the bus are posted and combined, so a processor sends them about as fast as the link takes them. An
/// engine costs a descriptor, a store to a register and the detection of its end, some microseconds: a link of
/// 8 GB/s carries this much meanwhile.
const WRITE_AND_WAIT: u64 = 32 << 10;

/// Bytes up to which the processor writes if the caller does not wait.
///
/// Such a caller has other work for its processor, so only what takes no longer than to submit it to an engine.
const WRITE: u64 = 4 << 10;

/// Bytes up to which the processor reads.
///
/// Each load across the bus brings a cache line at most and waits for a round trip of about a microsecond, so a few
/// of them take as long as an engine does from start to end.
const READ: u64 = 256;

/// Bytes up to which this node's engine reads.
///
/// A read waits for its answer, and an engine has few reads under way: it reads at about half the rate at which it
/// writes. To ask the peer for a write takes two messages with a doorbell each, some ten microseconds, in
/// which an engine reads this much.
const READ_BY_ENGINE: u64 = 64 << 10;

/// Returns the administrator's `dma_threshold`; none if the constants apply.
fn said() -> Option<u64> {
    u64::try_from(tunables::dma_threshold()).ok()
}

/// How a copy goes.
pub(super) struct Way<'a> {
    /// The engine that copies, or fills slots. Without one the processor does that.
    pub(super) route: Option<&'a EngineRoute>,
    /// This node reaches the peer's memory by itself. Else what is written goes through slots.
    pub(super) is_reached: bool,
    /// The peer is asked to write what is to be read. If it does not want to, this node reads what it reaches.
    pub(super) asks_peer: bool,
}

impl<'a> Way<'a> {
    /// Of a copy of so many bytes that this node makes, with the engine of `route` if it is worth it.
    fn by_this_end(
        route: Option<&'a EngineRoute>,
        is_reached: bool,
        staging: &Staging,
        len: u64,
    ) -> Self {
        // An engine has no more than half of the slots to fill at once, so the size of a slot counts as that of a
        // transfer. What an administrator says of transfers has decided before.
        let processor_fills =
            !is_reached && said().is_none() && staging.bytes_per_slot(len) <= WRITE_AND_WAIT;
        Self {
            route: route.filter(|_| !processor_fills),
            is_reached,
            asks_peer: false,
        }
    }

    /// Begins a copy that this node makes, and polls for the end for a moment if it is synchronous. When this returns
    /// `Ok`, it ends by itself. On an error it has failed, and ends by itself, too; the `caller` hears of the error.
    /// The local side is mapped for the engine. May sleep.
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

/// What the choice needs to know of one peer: its slots, what it was asked for, and when it refused.
#[pin_data]
pub(crate) struct Ways {
    pub(super) peer: Arc<Peer>,
    /// Those of the path.
    pub(super) stores: Option<Arc<Stores>>,
    pub(crate) staging: Arc<Staging>,
    /// What the peer was asked for.
    #[pin]
    pub(super) pulls: Questions<Pull>,
    /// When the peer has said last that it has no engine.
    #[pin]
    pub(super) refused: SpinLock<Option<Instant<Monotonic>>>,
    /// For the answer to each push that was not answered; has room for all there can be.
    #[pin]
    pub(super) reservations: SpinLockIrq<KVec<Reservation>>,
    /// Begins copies that the peer has asked for, and those that it did not want to make.
    #[pin]
    later: PeerQueue,
}

impl Ways {
    /// Of copies from and to this peer. May sleep.
    pub(crate) fn new(peer: &Arc<Peer>, staging: Arc<Staging>) -> Result<Arc<Self>> {
        let reservations = KVec::with_capacity(pushes::MOST, GFP_KERNEL)?;
        let later = Queue::background(c"scif_copies")?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                stores: peer.path().stores().cloned(),
                staging,
                pulls <- Questions::new(pulls::MOST, pulls::MOST_BYTES),
                refused <- new_spinlock!(None, "Ways::refused"),
                reservations <- new_spinlock_irq!(reservations, "Ways::reservations"),
                later <- PeerQueue::new(later),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a work item begin a copy, as it may have to wait for room in an engine's ring or for slots; one of the path's
    /// engines copies, or fills slots, if there is an `engine`. The user of this end pays. The end is told in any
    /// case. May sleep, does not wait for the peer.
    pub(super) fn start_later(&self, engine: Option<usize>, operation: Arc<Operation>) -> Result {
        let staging = self.staging.clone();
        self.later.spawn(move || {
            let route = operation.surroundings.peer.path().engine(engine);
            let is_reached = are_reached(&operation.sides.remote);
            let mut way = Way::by_this_end(route, is_reached, &staging, operation.bytes);
            operation.surroundings.channel.group().pays_for(|| {
                // Much memory takes long to map.
                way.route = way
                    .route
                    .filter(|route| operation.sides.map_for(route).is_ok());
                // Its end is told in any case.
                let _ = way.start(&staging, &operation, Caller::WorkItem);
            });
        })
    }

    /// Nobody is inside the peer any more. May sleep.
    pub(crate) fn drained(&self) {
        self.later.end();
        self.staging.drained();
    }

    /// Returns the route of the channel's engine, if that is to copy. None if the processor is to, or if there is no
    /// engine that can. Any context.
    pub(super) fn route<'a>(
        &self,
        channel: &'a Channel,
        request: &Request<'_>,
    ) -> Option<&'a EngineRoute> {
        let (direction, options) = (request.direction, request.options);
        let limit = said().unwrap_or(match direction {
            Direction::Read => READ,
            Direction::Write if options.synchronous => WRITE_AND_WAIT,
            Direction::Write => WRITE,
        });
        let (start, len) = (request.remote.start(), request.remote.len());
        if options.use_cpu || len <= limit {
            return None;
        }
        let route = channel.path().engine(channel.engine());
        // Where extents begin and end, pages do: only the ends of the copy can be misaligned.
        route.filter(|route| {
            let engine = &route.engine;
            engine.can_copy(start, request.local_start(), len as usize)
        })
    }

    /// Chooses the way of a copy from or to memory of the peer that this node reaches, or does not. `route` is what
    /// [`Self::route`] has returned for it. Any context but interrupts.
    pub(super) fn choose<'a>(
        &self,
        request: &Request<'_>,
        route: Option<&'a EngineRoute>,
        is_reached: bool,
    ) -> Way<'a> {
        let reads = request.direction == Direction::Read;
        if reads && !is_reached {
            return Way {
                route: None,
                is_reached,
                asks_peer: true,
            };
        }
        let len = request.remote.len();
        let mut way = Way::by_this_end(route, is_reached, &self.staging, len);
        // The peer could keep lent memory after the call has returned, so it is not asked to write there.
        let is_kept = !request.local.is_lent();
        let by_engine = u64::try_from(tunables::push_threshold()).unwrap_or(READ_BY_ENGINE);
        way.asks_peer = reads && route.is_some() && is_kept && len > by_engine && self.can_pull();
        way
    }
}
