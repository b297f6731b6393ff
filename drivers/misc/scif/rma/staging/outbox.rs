// SPDX-License-Identifier: GPL-2.0

//! The slots at the peer that this node fills.
//!
//! A writer waits for its turn and takes a few slots for a part of its data, then the next ones: so writers go by
//! turns, however much each has (`outbox/turns.rs`). The CPU fills slots in the call, or an engine goes on by itself
//! (`fill.rs`); the caller decides which (`ways.rs`). The peer is rung if it sleeps. Slots are
//! free again when the peer has counted them as emptied (`outbox/emptying.rs`).
//!
//! The end of a transfer is noticed in one of two ways. A caller that waits polls for a moment, then has the peer
//! ring when the last slot is empty. If no caller waits, the header of the last slot asks the peer to ring.
//!
//! Signals wait for slots in items of a queue of their own, one at a time: a peer that empties none delays nobody but
//! those who wait for it.
//!
//! Lock: `state` is a leaf, taken in any context.

use super::fill::Fill;
use crate::{
    logic::staging::{
        Geometry,
        Header,
        Kind,
        Part,
        Parts, //
        HEADER,
        MOST_SLOTS,
        SLEEPS,
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
    /// Slots that were taken.
    taken: u64,
    /// What is in each.
    operations: [Option<Arc<Operation>>; MOST_SLOTS],
    /// Who waits, in this order.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    /// The peer was told to ring when it has emptied so many.
    wished: u64,
    /// The peer is lost.
    closed: bool,
}

/// See the head of this file.
#[pin_data]
pub(in crate::rma) struct Outbox {
    pub(super) peer: Arc<Peer>,
    /// Of the first slot, as a bus address of the peer.
    address: u64,
    pub(super) geometry: Geometry,
    /// Where the peer counts.
    pub(super) credits: SharedMemory,
    #[pin]
    state: SpinLockIrq<State>,
    /// How many of those that were taken the peer has emptied; changed under the lock of `state`.
    emptied: Atomic<u64>,
    /// The peer was rung since it has gone to sleep for this time.
    answered: Atomic<u64>,
    #[pin]
    pub(super) room: WaitQueue,
    #[pin]
    work: Work<Self>,
    /// Gives signals.
    #[pin]
    pub(in crate::rma) signals: PeerQueue,
}

impl_has_work! {
    impl HasWork<Self> for Outbox { self.work }
}

/// The peer may have emptied slots.
impl WorkItem for Outbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.look();
    }
}

impl Outbox {
    /// With the peer's slots, which are empty. EFAULT if they can't be reached. May sleep.
    pub(super) fn new(peer: &Arc<Peer>, address: u64, geometry: Geometry) -> Result<Arc<Self>> {
        let path = peer.path();
        path.reach(address, geometry.total() as u64)?;
        if address % HEADER as u64 != 0 {
            return Err(EFAULT);
        }
        let credits = path.share(geometry.credits(), Payer::Nobody)?;
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
                        wished: 0,
                        closed: false,
                    },
                    "Outbox::state"
                ),
                emptied: Atomic::new(0),
                answered: Atomic::new(0),
                room <- new_wait_queue!("scif::Outbox::room"),
                work <- new_work!("Outbox::work"),
                signals <- PeerQueue::new(signals),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer has rung. Any context.
    pub(super) fn rung(self: &Arc<Self>) {
        if self.has_news() {
            // An error says that it is about to run anyway.
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

    /// Puts all of an operation into slots, one part after the other: by `route`, or by CPU. Returns
    /// before they are emptied. The caller is inside the peer. ENODEV if the peer is lost, EINTR if the
    /// caller is killed.
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
            // What was begun ends: for its last slot the peer was not asked to ring.
            if let Some(route) = route {
                route.engine.arm();
            }
            self.wish_for_all();
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
                // A caller that waits says later for which slot the peer is to ring.
                tell: is_last && len == rest && !operation.synchronous,
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
        // What the header speaks of comes before it.
        flush_writes();
        self.tell(&part.header)
    }

    /// No engine writes to these slots any more: it has filled them, or will not. Called inside the peer, in any context but
    /// hard interrupts.
    pub(super) fn engine_has_ended(&self, parts: Parts, result: Result) {
        if result.is_ok() {
            self.ring_for(parts.map(|part| part.header.sequence));
        } else {
            self.void_all(parts);
        }
    }

    /// Has the peer store a value at the one place of an operation, after all that was put into slots before. The
    /// caller is inside the peer. ENODEV if the peer is lost.
    pub(in crate::rma) fn put_value(&self, operation: &Arc<Operation>, value: u64) -> Result {
        let place = operation.sides.remote.iter().next().ok_or(EINVAL)?;
        let taken = self.take_slots(operation, 1, None, Caller::WorkItem)?;
        self.tell(&Header {
            sequence: taken.start,
            window: place.window.id.0,
            offset: place.offset,
            kind: Kind::Store(value),
            tell: true,
        })
    }

    // ----- headers, and a ring for a peer that sleeps ------------------------------------------

    /// Puts a header there, and rings if that is needed. Any context.
    fn tell(&self, header: &Header) -> Result {
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

    /// These slots were taken and can't be filled: says so to the peer. Who could not fill them says so to their
    /// operation. Any context.
    ///
    /// An engine that has failed may have filled some of them, and the peer may have emptied those: they are left
    /// alone, as others may have taken them since.
    fn void_all(&self, parts: impl Iterator<Item = Part>) {
        for part in parts {
            let sequence = part.header.sequence;
            // Under the lock no slot becomes free, so none is taken by another writer.
            let state = self.state.lock();
            if sequence > self.emptied.load(Relaxed) {
                // Only a peer that is lost can't be told.
                let _ = self.store(&Header {
                    kind: Kind::Void,
                    tell: true,
                    ..part.header
                });
            }
            drop(state);
            self.ring_for(core::iter::once(sequence));
        }
    }

    /// These slots have their headers: rings if the peer sleeps until one of them has. Any context.
    fn ring_for(&self, mut sequences: impl Iterator<Item = u64>) {
        // What was stored comes before what is loaded: see `logic/staging.rs`.
        barrier::mb(barrier::Full);
        let sleeps = self.credits.load_acquire_u64(SLEEPS);
        // At least what it had emptied when it went to sleep.
        let emptied = self.credits.load_acquire_u64(0);
        let (Ok(sleeps), Ok(emptied)) = (sleeps, emptied) else {
            return;
        };
        // To a peer that waits for another slot a ring says nothing: whoever fills that one rings.
        let is_awaited = sequences.any(|sequence| sequence == emptied.wrapping_add(1));
        if is_awaited && self.answered.xchg(sleeps, Full) != sleeps {
            self.peer.path().ring(doorbell::DATA);
        }
    }
}
