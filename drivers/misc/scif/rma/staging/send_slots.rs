// SPDX-License-Identifier: GPL-2.0

//! Slots at the peer that this node fills.
//!
//! A writer waits for its turn, takes a few slots for a part of its data, then queues for the next
//! ones. So writers alternate, however much data each has (`send_slots/turns.rs`). The CPU fills
//! slots during the call, or an engine fills them on its own (`fill.rs`). The caller decides which
//! (`transfer_policy.rs`). If the peer sleeps, this node rings the peer. A slot is free again when
//! the peer has counted it as emptied (`send_slots/emptying.rs`).
//!
//! This node notices the completion of a transfer in one of two ways. A caller that waits polls for
//! a moment, then has the peer ring when the last slot is empty. If no caller waits, the header of
//! the last slot asks the peer to ring.
//!
//! Signals wait for slots in work items of a queue of their own, one at a time. So a peer that
//! empties no slot delays only the tasks that wait for that peer.
//!
//! Lock: `state` is a leaf, taken in any context.

use super::fill::Fill;
use crate::{
    logic::staging::{
        Geometry,
        Header,
        Kind,
        Part,
        Parts,
        HEADER,
        MOST_SLOTS,
        SLEEPS, //
    },
    memory::local::LocalPiece,
    peer::Peer,
    rma::operation::{
        Caller,
        Operation,
        Stretch, //
    },
    sync::work_queues::PeerQueue,
    sys::{
        current,
        reached::flush_writes,
        shared_memory::{
            Payer,
            SharedMemory, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
        workqueue::Queue, //
    },
    transport::{
        doorbell,
        engine::EngineRoute, //
    }, //
};
use kernel::{
    impl_has_work,
    new_spinlock_irq,
    new_work,
    prelude::*,
    rbtree::RBTree,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier,
        Arc,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

mod emptying;
mod turns;

struct State {
    /// Number of slots that were taken so far.
    taken: u64,
    /// The operation whose data each slot holds, if the slot is taken.
    operations: [Option<Arc<Operation>>; MOST_SLOTS],
    /// Tickets of the writers that wait, in their order.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    /// Number of emptied slots for which the peer was last asked to ring.
    requested: u64,
    /// Whether the peer is lost.
    closed: bool,
}

/// The slots at one peer, and the writers that wait for them.
#[pin_data]
pub(in crate::rma) struct SendSlots {
    pub(super) peer: Arc<Peer>,
    /// Bus address of the first slot in the peer's memory.
    address: u64,
    pub(super) geometry: Geometry,
    /// Memory in which the peer counts the slots that it has emptied.
    pub(super) credits: SharedMemory,
    #[pin]
    state: SpinLockIrq<State>,
    /// Number of taken slots that the peer has emptied. Changes under the lock of `state`.
    emptied: Atomic<u64>,
    /// The peer's sleep count for which this node has last rung.
    answered: Atomic<u64>,
    #[pin]
    pub(super) room: WaitQueue,
    #[pin]
    work: Work<Self>,
    /// Work items that give signals.
    #[pin]
    pub(in crate::rma) signals: PeerQueue,
}

impl_has_work! {
    impl HasWork<Self> for SendSlots { self.work }
}

/// Takes note of slots that the peer has emptied.
impl WorkItem for SendSlots {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look();
    }
}

impl SendSlots {
    /// Creates the send slots from the peer's slots, which are empty. Returns EFAULT if this node
    /// can't reach them.
    /// Context: may sleep.
    pub(super) fn new(peer: &Arc<Peer>, address: u64, geometry: Geometry) -> Result<Arc<Self>> {
        let path = peer.path();
        path.reach(address, geometry.total() as u64)?;
        if address % HEADER as u64 != 0 {
            return Err(EFAULT);
        }
        let credits = path.share(geometry.credits(), Payer::None)?;
        let signals = Queue::ordered(c"scif_signals")?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                address,
                geometry,
                credits,
                state <- new_spinlock_irq!(
                    State {
                        taken: 0,
                        operations: [const { None }; MOST_SLOTS],
                        queue: RBTree::new(),
                        next_ticket: 0,
                        requested: 0,
                        closed: false,
                    },
                    "SendSlots::state"
                ),
                emptied: Atomic::new(0),
                answered: Atomic::new(0),
                room <- new_wait_queue!("scif::SendSlots::room"),
                work <- new_work!("SendSlots::work"),
                signals <- PeerQueue::new(signals),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a work item take note of emptied slots, if the peer's count has changed. The peer has
    /// rung.
    /// Context: any.
    pub(super) fn on_doorbell(self: &Arc<Self>) {
        if self.has_news() {
            // An error says that the work item is pending already.
            let _ = self.peer.queues.work.enqueue(self.clone());
        }
    }

    pub(super) fn header_address(&self, sequence: u64) -> u64 {
        self.address + self.geometry.header(sequence) as u64
    }

    pub(super) fn data_address(&self, sequence: u64) -> u64 {
        self.address + self.geometry.data(sequence) as u64
    }

    // ----- filling -----------------------------------------------------------------------------

    /// Puts all data of an operation into slots, one part after the other, by the engine of `route`
    /// or by the CPU. Returns before the slots are emptied. The caller is inside the peer.
    ///
    /// # Errors
    ///
    /// - ENODEV: the peer is lost.
    /// - EINTR: the caller is being killed.
    pub(super) fn put(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        route: Option<&EngineRoute>,
        caller: Caller,
    ) -> Result {
        let mut to_come = operation.bytes;
        let put = operation.parts().into_iter().try_for_each(|(skip, len)| {
            operation.sides.for_each_stretch(skip, len, |stretch| {
                to_come -= stretch.len;
                self.put_stretch(operation, route, caller, &stretch, to_come == 0)
            })
        });
        put.inspect_err(|_| {
            // Parts that were started must complete, but the peer was not asked to ring for the
            // last of their slots.
            if let Some(route) = route {
                route.engine.arm();
            }
            self.request_wakeup_for_all();
        })
    }

    fn put_stretch(
        self: &Arc<Self>,
        operation: &Arc<Operation>,
        route: Option<&EngineRoute>,
        caller: Caller,
        stretch: &Stretch<'_>,
        is_last: bool,
    ) -> Result {
        let size = u64::from(self.geometry.size());
        let mut done = 0;
        while done < stretch.len {
            let rest = stretch.len - done;
            let taken = self.take_slots(operation, rest.div_ceil(size), route, caller)?;
            let len = rest.min((taken.end - taken.start).saturating_mul(size));
            let first = Header {
                sequence: taken.start,
                window: stretch.remote.window.id.0,
                offset: stretch.remote_offset + done,
                kind: Kind::Data(0),
                // A caller that waits asks for the ring later.
                wants_doorbell: is_last && len == rest && !operation.synchronous,
            };
            let data = stretch.local.part(stretch.local_offset + done, len);
            let parts = Parts::new(first, len, self.geometry);
            let can_copy = |route: &&EngineRoute| {
                let len = usize::try_from(len);
                len.is_ok_and(|len| route.engine.can_copy(0, data.offset, len))
            };
            match route.filter(can_copy) {
                Some(route) => {
                    let started = Fill::start(self, operation, route, parts, data);
                    started.inspect_err(|_| self.void_all(parts))?;
                }
                None => self.fill_by_processor(parts, &data)?,
            }
            done += len;
            current::reschedule();
        }
        Ok(())
    }

    fn fill_by_processor(&self, parts: Parts, from: &LocalPiece) -> Result {
        let mut left = parts;
        for part in parts {
            let filled = self.fill_one(&part, from);
            filled.inspect_err(|_| self.void_all(left))?;
            left.next();
        }
        Ok(())
    }

    fn fill_one(&self, part: &Part, from: &LocalPiece) -> Result {
        let address = self.data_address(part.header.sequence);
        let place = self.peer.path().reach(address, part.len)?;
        let at = usize::try_from(from.offset + part.at)?;
        place.copy_from(&from.memory().pages, at)?;
        // The data must be written before its header.
        flush_writes();
        self.send_header(&part.header)
    }

    /// Makes slots valid that the engine has filled, or void if it failed. The engine no longer
    /// writes to these slots. The caller is inside the peer.
    /// Context: any but hard interrupts.
    pub(super) fn engine_has_ended(&self, parts: Parts, result: Result) {
        if result.is_ok() {
            self.ring_for(parts.map(|part| part.header.sequence));
        } else {
            self.void_all(parts);
        }
    }

    /// Has the peer store a value at the one remote piece of an operation, after everything that
    /// was put into slots before. The caller is inside the peer. Returns ENODEV if the peer is
    /// lost.
    pub(in crate::rma) fn put_value(&self, operation: &Arc<Operation>, value: u64) -> Result {
        let place = operation.sides.remote.iter().next().ok_or(EINVAL)?;
        let taken = self.take_slots(operation, 1, None, Caller::WorkItem)?;
        self.send_header(&Header {
            sequence: taken.start,
            window: place.window.id.0,
            offset: place.offset,
            kind: Kind::Store(value),
            wants_doorbell: true,
        })
    }

    // ----- headers, and a ring for a peer that sleeps ------------------------------------------

    /// Writes a header to its slot, and rings if the peer sleeps until it is there.
    /// Context: any.
    fn send_header(&self, header: &Header) -> Result {
        self.store(header)?;
        self.ring_for(core::iter::once(header.sequence));
        Ok(())
    }

    fn store(&self, header: &Header) -> Result {
        let address = self.header_address(header.sequence);
        let place = self.peer.path().reach(address, HEADER as u64)?;
        place.write(0, &header.encode())?;
        flush_writes();
        Ok(())
    }

    /// Tells the peer that slots were taken and can't be filled. The caller reports the error to
    /// the operation of the slots.
    ///
    /// An engine that has failed may have filled some of the slots, and the peer may have emptied
    /// these. Emptied slots are left alone, as other writers may have taken them since.
    /// Context: any.
    fn void_all(&self, parts: impl Iterator<Item = Part>) {
        for part in parts {
            let sequence = part.header.sequence;
            // Holds the lock so that no slot becomes free and is taken by another writer.
            let state = self.state.lock();
            if sequence > self.emptied.load(Relaxed) {
                // The store fails only if the peer is lost.
                let _ = self.store(&Header {
                    kind: Kind::Void,
                    wants_doorbell: true,
                    ..part.header
                });
            }
            drop(state);
            self.ring_for(core::iter::once(sequence));
        }
    }

    /// Rings if the peer sleeps until one of these slots has its header. The headers are written.
    /// Context: any.
    fn ring_for(&self, mut sequences: impl Iterator<Item = u64>) {
        // Stores the headers before loading the sleep count: see `logic/staging.rs`.
        barrier::mb(barrier::Full);
        let sleeps = self.credits.load_acquire_u64(SLEEPS);
        // The count is at least that of the moment when the peer went to sleep.
        let emptied = self.credits.load_acquire_u64(0);
        let (Ok(sleeps), Ok(emptied)) = (sleeps, emptied) else {
            return;
        };
        // A ring is useless to a peer that waits for another slot. The writer that fills that slot
        // rings.
        let is_awaited = sequences.any(|sequence| sequence == emptied.wrapping_add(1));
        if is_awaited && self.answered.xchg(sleeps, Full) != sleeps {
            self.peer.path().ring(doorbell::DATA);
        }
    }
}
