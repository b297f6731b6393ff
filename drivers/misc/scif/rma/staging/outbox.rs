// SPDX-License-Identifier: GPL-2.0

//! The slots at the peer that this node fills.
//!
//! A writer waits for its turn and takes a few slots for a part of its data, then the next ones: so writers go by
//! turns, however much each has (`outbox/turns.rs`). The CPU fills slots in the call, or an engine goes on by itself
//! (`fill.rs`); the caller decides which (`ways.rs`). The peer is rung if it sleeps (`outbox/telling.rs`). Slots are
//! free again when the peer has counted them as emptied (`outbox/emptying.rs`).
//!
//! The end of a transfer is noticed in one of two ways. A caller that waits polls for a moment, then has the peer
//! ring when the last slot is empty. If no caller waits, the header of the last slot asks the peer to ring.
//!
//! Lock: `state` is a leaf, taken in any context.

use super::{
    fill::{
        Fill,
        SlotPlace,
        Slots, //
    },
    Staged, //
};
use crate::{
    logic::staging::{
        Geometry,
        Header,
        Kind,
        Part,
        Parts, //
        HEADER,
        MOST_SLOTS,
    },
    memory::{
        local::LocalPiece,
        remote_window::RemotePiece, //
    },
    peer::{
        doorbells::{
            Rung,
            Subscription, //
        },
        Peer, //
    },
    rma::operation::{
        Sides,
        Stretch, //
    },
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
        }, //
    },
    transport::{
        doorbell,
        engine::EngineRoute, //
    }, //
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

mod emptying;
mod telling;
mod turns;

pub(in crate::rma) use turns::Patience;

struct State {
    /// Slots that were taken, and of these how many the peer has emptied.
    taken: u64,
    emptied: u64,
    /// What is in each.
    staged: [Option<Arc<Staged>>; MOST_SLOTS],
    /// Who waits, in this order.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    /// For the next one who queues up.
    spare: Option<RBTreeNodeReservation<u64, ()>>,
    /// Those that have their headers, as bits.
    ready: u64,
    /// The peer was told to ring when it has emptied so many.
    wished: u64,
    /// The peer was rung since it has gone to sleep for this time.
    answered: u64,
    /// The peer is lost.
    closed: bool,
    /// Those that an engine is filling, as bits, and those that it could not fill, which are void.
    filling: u64,
    unfilled: u64,
}

impl State {
    /// Whether there is something in slots that the peer has to empty.
    fn has_taken(&self) -> bool {
        self.taken != self.emptied && !self.closed
    }

    /// Those with which an engine has to do, or could not do it, as bits.
    fn busy(&self) -> u64 {
        self.filling | self.unfilled
    }
}

/// See the head of this file.
#[pin_data]
pub(in crate::rma) struct Outbox {
    pub(super) peer: Arc<Peer>,
    /// Of the first slot, as a bus address of the peer.
    address: u64,
    geometry: Geometry,
    credits: SharedMemory,
    #[pin]
    state: SpinLockIrq<State>,
    /// For who looks again and again: copies of `emptied` in it, and of whether any is busy, changed with those.
    emptied: Atomic<u64>,
    has_busy: Atomic<bool>,
    #[pin]
    room: WaitQueue,
    #[pin]
    subscription: Mutex<Option<Subscription>>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Outbox { self.work }
}

/// The peer may have emptied slots, or an engine could not fill one.
impl WorkItem for Outbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(_inside) = this.peer.enter() {
            this.poll_engines();
            this.void_unfilled();
        }
        this.look();
    }
}

/// Has the outbox looked at when the peer rings.
struct Bell(Arc<Outbox>);

impl Rung for Bell {
    fn rung(&self) {
        if self.0.has_news() {
            self.0.schedule();
        }
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
        let this = Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                address,
                geometry,
                credits,
                state <- new_spinlock_irq!(
                    State {
                        taken: 0,
                        emptied: 0,
                        staged: [const { None }; MOST_SLOTS],
                        queue: RBTree::new(),
                        next_ticket: 0,
                        spare: None,
                        ready: 0,
                        wished: 0,
                        answered: 0,
                        closed: false,
                        filling: 0,
                        unfilled: 0,
                    },
                    "Outbox::state"
                ),
                emptied: Atomic::new(0),
                has_busy: Atomic::new(false),
                room <- new_wait_queue!("scif::Outbox::room"),
                subscription <- new_mutex!(None, "Outbox::subscription"),
                work <- new_work!("Outbox::work"),
            }),
            GFP_KERNEL,
        )?;
        let bell = Arc::new(Bell(this.clone()), GFP_KERNEL)?;
        let subscription = peer.subscribe(doorbell::DATA, bell)?;
        *this.subscription.lock() = Some(subscription);
        Ok(this)
    }

    /// Where the peer is to count, as a bus address of this node.
    pub(super) fn credits_address(&self) -> u64 {
        self.credits.bus_address()
    }

    /// Bytes of data in each slot.
    pub(super) fn slot_size(&self) -> u64 {
        self.geometry.size().into()
    }

    fn header_address(&self, sequence: u64) -> u64 {
        self.address + self.geometry.header(sequence) as u64
    }

    fn data_address(&self, sequence: u64) -> u64 {
        self.address + self.geometry.data(sequence) as u64
    }

    fn wish_address(&self) -> u64 {
        self.address + self.geometry.wish() as u64
    }

    fn bit(&self, sequence: u64) -> u64 {
        1 << (self.geometry.index(sequence) % MOST_SLOTS)
    }

    // ----- filling -----------------------------------------------------------------------------

    /// Puts all of a transfer into slots, the two parts one after the other: by `route`, or by CPU. Returns
    /// before they are emptied. The caller is inside the peer. ENODEV if the peer is lost, EINTR if the
    /// caller is killed.
    pub(in crate::rma) fn put(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        sides: &Sides,
        (body, tail): (u64, u64),
        (route, patience): (Option<&EngineRoute>, Patience),
    ) -> Result {
        let mut to_come = body + tail;
        for (skip, len) in [(0, body), (body, tail)] {
            sides
                .for_each_stretch(skip, len, |stretch| {
                    to_come -= stretch.len;
                    self.put_stretch(staged, &stretch, to_come == 0, (route, patience))
                })
                // What was begun ends: for its last slot the peer was not asked to ring.
                .inspect_err(|_| {
                    self.arm();
                    self.wish_for_all();
                })?;
        }
        Ok(())
    }

    fn put_stretch(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        stretch: &Stretch<'_>,
        is_last: bool,
        (route, patience): (Option<&EngineRoute>, Patience),
    ) -> Result {
        let size = u64::from(self.geometry.size());
        let mut done = 0;
        while done < stretch.len {
            let rest = stretch.len - done;
            let taken = self.take_slots(staged, rest.div_ceil(size), patience)?;
            let len = rest.min(taken.count.saturating_mul(size));
            let first = Header {
                sequence: taken.first,
                window: stretch.remote.window.id.0,
                offset: stretch.remote_offset + done,
                kind: Kind::Data(0),
                tell: is_last && len == rest && staged.tells,
            };
            let data = stretch.local.part(stretch.local_offset + done, len);
            let parts = Parts::new(first, len, self.geometry);
            self.fill(staged, route, parts, data)?;
            done += len;
            current::reschedule();
        }
        Ok(())
    }

    fn fill(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        route: Option<&EngineRoute>,
        parts: Parts,
        data: LocalPiece,
    ) -> Result {
        let can_copy = |route: &&EngineRoute| {
            let len = usize::try_from(data.len);
            len.is_ok_and(|len| route.engine.can_copy(0, data.offset, len))
        };
        match route.filter(can_copy) {
            Some(route) => self.fill_by_engine(staged, route, parts, data),
            None => self.fill_all_by_processor(parts, &data),
        }
    }

    fn fill_all_by_processor(&self, mut parts: Parts, from: &LocalPiece) -> Result {
        while let Some(part) = parts.next() {
            self.fill_by_processor(&part, from).inspect_err(|_| {
                self.void(part.header.sequence);
                self.void_all(parts);
            })?;
        }
        Ok(())
    }

    fn void_all(&self, parts: Parts) {
        for part in parts {
            self.void(part.header.sequence);
        }
    }

    /// Has the peer store a value at a place of its memory, after all that was put into slots before. The
    /// caller is inside the peer. ENODEV if the peer is lost.
    pub(in crate::rma) fn put_value(
        &self,
        staged: &Arc<Staged>,
        place: &RemotePiece,
        value: u64,
    ) -> Result {
        let taken = self.take_slots(staged, 1, Patience::Uninterruptible)?;
        let header = Header {
            sequence: taken.first,
            window: place.window.id.0,
            offset: place.offset,
            kind: Kind::Store(value),
            tell: true,
        };
        self.tell(&header)
    }

    fn fill_by_engine(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        route: &EngineRoute,
        parts: Parts,
        data: LocalPiece,
    ) -> Result {
        let peer = self.peer.enter_owned().ok_or(ENODEV)?;
        let bits = self.bits(parts);
        self.change_busy(&mut self.state.lock(), |state| state.filling |= bits);
        Fill::start(self.clone(), staged, route, parts, data, peer).inspect_err(|_| {
            self.void_all(parts);
            self.note_left_alone(parts);
        })
    }

    fn fill_by_processor(&self, part: &Part, from: &LocalPiece) -> Result {
        let address = self.data_address(part.header.sequence);
        let place = self.peer.path().reach(address, part.len)?;
        let at = usize::try_from(from.offset + part.at)?;
        place.copy_from(&from.memory().pages, at)?;
        // What the header speaks of comes before it.
        flush_writes();
        self.tell(&part.header)
    }

    /// No engine reads for, or writes to, these slots any more. Any context.
    fn note_left_alone(self: &Arc<Self>, parts: Parts) {
        let is_over = {
            let mut state = self.state.lock();
            self.change_busy(&mut state, |state| state.filling &= !self.bits(parts));
            state.closed
        };
        // The peer may have emptied them already.
        if is_over || self.has_news() {
            self.schedule();
        }
        self.room.wake_all();
    }

    fn change_busy(&self, state: &mut State, change: impl FnOnce(&mut State)) {
        change(state);
        self.has_busy.store(state.busy() != 0, Relaxed);
    }

    fn bits(&self, parts: Parts) -> u64 {
        parts.fold(0, |bits, part| bits | self.bit(part.header.sequence))
    }
}

impl Slots for Outbox {
    fn place(&self, sequence: u64) -> SlotPlace {
        SlotPlace {
            header: self.header_address(sequence),
            data: self.data_address(sequence),
        }
    }

    fn filled(self: ArcBorrow<'_, Self>, parts: Parts) {
        let this: Arc<Self> = self.into();
        this.note_left_alone(parts);
        this.note_ready(parts.map(|part| part.header.sequence));
    }

    fn unfilled(self: ArcBorrow<'_, Self>, parts: Parts) {
        {
            let mut state = self.state.lock();
            let bits = self.bits(parts);
            self.change_busy(&mut state, |state| {
                state.unfilled |= bits;
                // The peer may have said that it has emptied it, which does not matter any more.
                state.filling &= !bits;
            });
        }
        let this: Arc<Self> = self.into();
        this.schedule();
        // Who waits until they are filled has to say now for what he wants to be rung.
        this.room.wake_all();
    }
}
