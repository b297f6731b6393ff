// SPDX-License-Identifier: GPL-2.0

//! The slots at the peer that this node fills.
//!
//! Who has something to write waits for his turn and takes a slot for a part of it, then the next one: so
//! those who write at the same time go by turns, however much each has. A slot is filled by CPU in the call,
//! or by an engine that goes on by itself (`fill.rs`), and its number is free again when the peer has counted
//! it as emptied (`outbox/emptying.rs`).
//!
//! Lock: `state` is a leaf, taken in any context.

use super::{
    fill::{
        Contents,
        Fill,
        Slots, //
    },
    staged::Staged, //
};
use crate::{
    logic::staging::{
        Geometry,
        Header,
        Kind,
        HEADER,
        MOST_SLOTS, //
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
    rma::pieces::{
        Sides,
        Stretch, //
    },
    sys::{
        current,
        shared_memory::{
            Payer,
            SharedMemory, //
        },
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
    transport::{
        doorbell,
        engine::EngineRoute,
        outbound::flush_writes, //
    },
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        ArcBorrow,
        Mutex,
        SpinLockIrq, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

mod emptying;

/// Who waits longer for a slot gives up if it is in the way of a close.
const LONG: Delta = Delta::from_secs(5);

/// How to wait for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rma) enum Patience {
    /// Until one is free, the peer is lost, or the caller is killed.
    Killable,
    /// Likewise, but for the caller; and not for long while the channel is being closed.
    Uninterruptible,
}

struct State {
    /// Slots that were taken, of these how many are filled, and how many the peer has emptied.
    taken: u64,
    filled: u64,
    emptied: u64,
    /// What is in each.
    staged: [Option<Arc<Staged>>; MOST_SLOTS],
    /// Who waits, in this order.
    queue: RBTree<u64, ()>,
    next_ticket: u64,
    /// Slots of which the peer was not told.
    untold: u32,
    /// The peer is lost.
    closed: bool,
    /// Those that an engine is filling, as bits, and those that it could not fill, which are void.
    filling: u64,
    unfilled: u64,
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

/// A place in the queue, until this is dropped.
struct Ticket<'a> {
    outbox: &'a Outbox,
    number: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let node = self.outbox.state.lock().queue.remove_node(&self.number);
        drop(node);
        self.outbox.room.wake_all();
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
                        filled: 0,
                        emptied: 0,
                        staged: [const { None }; MOST_SLOTS],
                        queue: RBTree::new(),
                        next_ticket: 0,
                        untold: 0,
                        closed: false,
                        filling: 0,
                        unfilled: 0,
                    },
                    "Outbox::state"
                ),
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
        for (skip, len) in [(0, body), (body, tail)] {
            sides.for_each_stretch(skip, len, |stretch| {
                self.put_stretch(staged, &stretch, (route, patience))
            })?;
        }
        Ok(())
    }

    fn put_stretch(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        stretch: &Stretch<'_>,
        (route, patience): (Option<&EngineRoute>, Patience),
    ) -> Result {
        let mut done = 0;
        while done < stretch.len {
            let len = (stretch.len - done).min(self.geometry.size().into());
            let sequence = self.take_slot(staged, patience)?;
            let header = Header {
                sequence,
                window: stretch.remote.window.id.0,
                offset: stretch.remote_offset + done,
                kind: Kind::Data(len as u32),
            };
            let at = stretch.local_offset + done;
            let can_copy = |route: &&EngineRoute| route.engine.can_copy(0, at, len as usize);
            let result = match route.filter(can_copy) {
                Some(route) => {
                    let data = stretch.local.part(at, len);
                    self.fill_by_engine(staged, route, header, data)
                }
                None => self.fill_by_processor(&header, stretch.local, (at, len)),
            };
            if let Err(error) = result {
                self.void(sequence);
                return Err(error);
            }
            done += len;
            current::reschedule();
        }
        Ok(())
    }

    /// Has the peer store a value at a place of its memory, after all that was put into slots before. The
    /// caller is inside the peer. ENODEV if the peer is lost.
    pub(in crate::rma) fn put_value(
        &self,
        staged: &Arc<Staged>,
        place: &RemotePiece,
        value: u64,
    ) -> Result {
        let sequence = self.take_slot(staged, Patience::Uninterruptible)?;
        let header = Header {
            sequence,
            window: place.window.id.0,
            offset: place.offset,
            kind: Kind::Store(value),
        };
        self.tell(&header)
    }

    /// Takes the next slot, when it is the caller's turn and there is one.
    fn take_slot(&self, staged: &Arc<Staged>, patience: Patience) -> Result<u64> {
        let ticket = self.queue_up()?;
        let take = || self.try_take(ticket.number, staged);
        let taken = match take() {
            Some(taken) => taken,
            None => match patience {
                Patience::Killable => self.room.wait_killable(take)?,
                Patience::Uninterruptible => self.wait_for_slot(staged, take),
            },
        };
        self.expect_news();
        taken
    }

    fn wait_for_slot(
        &self,
        staged: &Staged,
        take: impl Fn() -> Option<Result<u64>>,
    ) -> Result<u64> {
        loop {
            if let Some(taken) = self.room.wait_uninterruptible_timeout(LONG, &take) {
                return taken;
            }
            // A peer that hardly goes on must not keep this end from being closed.
            if staged.is_in_the_way() {
                return Err(ECONNRESET);
            }
        }
    }

    fn queue_up(&self) -> Result<Ticket<'_>> {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut state = self.state.lock();
        let number = state.next_ticket;
        state.next_ticket = number.wrapping_add(1);
        // None was there.
        state.queue.insert(node.into_node(number, ()));
        drop(state);
        Ok(Ticket {
            outbox: self,
            number,
        })
    }

    fn try_take(&self, ticket: u64, staged: &Arc<Staged>) -> Option<Result<u64>> {
        let mut state = self.state.lock();
        if state.closed {
            return Some(Err(ENODEV));
        }
        let is_next = state.queue.keys().next() == Some(&ticket);
        if !is_next || state.taken - state.emptied >= self.geometry.slots().into() {
            return None;
        }
        let sequence = state.taken + 1;
        let Some(place) = state.staged.get_mut(self.geometry.index(sequence)) else {
            return Some(Err(EINVAL));
        };
        staged.add_slot();
        // It was emptied, or never used.
        *place = Some(staged.clone());
        state.taken = sequence;
        Some(Ok(sequence))
    }

    fn fill_by_engine(
        self: &Arc<Self>,
        staged: &Arc<Staged>,
        route: &EngineRoute,
        header: Header,
        data: LocalPiece,
    ) -> Result {
        let sequence = header.sequence;
        let contents = Contents {
            header,
            header_at: self.address + self.geometry.header(sequence) as u64,
            data,
            data_at: self.address + self.geometry.data(sequence) as u64,
            peer: self.peer.enter_owned().ok_or(ENODEV)?,
        };
        self.state.lock().filling |= self.bit(sequence);
        let started = Fill::start(self.clone(), staged, route, contents);
        started.inspect_err(|_| self.note_left_alone(sequence))
    }

    fn fill_by_processor(
        &self,
        header: &Header,
        from: &LocalPiece,
        (at, len): (u64, u64),
    ) -> Result {
        let address = self.address + self.geometry.data(header.sequence) as u64;
        let place = self.peer.path().reach(address, len)?;
        place.copy_from(&from.memory().pages, usize::try_from(at)?)?;
        // What the header speaks of comes before it.
        flush_writes();
        self.tell(header)
    }

    /// Puts a header there, and rings, now or soon.
    fn tell(&self, header: &Header) -> Result {
        let address = self.address + self.geometry.header(header.sequence) as u64;
        let place = self.peer.path().reach(address, HEADER as u64)?;
        place.write(0, &header.encode())?;
        flush_writes();
        self.note_filled();
        Ok(())
    }

    /// One more slot is filled: the peer is rung for several of them, or if it is the last one. Any context.
    fn note_filled(&self) {
        let half = (self.geometry.slots() / 2).max(1);
        {
            let mut state = self.state.lock();
            state.filled += 1;
            state.untold += 1;
        }
        self.ring_if(|state| state.untold >= half || state.filled == state.taken);
    }

    /// No engine reads for, or writes to, a slot any more. Any context.
    fn note_left_alone(self: &Arc<Self>, sequence: u64) {
        let is_over = {
            let mut state = self.state.lock();
            state.filling &= !self.bit(sequence);
            state.closed
        };
        // It may have been waited for.
        if is_over || self.has_news() {
            self.schedule();
        }
    }

    fn bit(&self, sequence: u64) -> u64 {
        1 << (self.geometry.index(sequence) % MOST_SLOTS)
    }

    fn ring_if(&self, wanted: impl FnOnce(&State) -> bool) {
        let rings = {
            let mut state = self.state.lock();
            let rings = wanted(&state);
            if rings {
                state.untold = 0;
            }
            rings
        };
        if rings {
            self.peer.path().ring(doorbell::DATA);
        }
    }

    /// A slot that was taken can't be filled: says so to the peer, and its transfer hears of it from who could
    /// not. Process context.
    fn void(&self, sequence: u64) {
        let header = Header {
            sequence,
            window: 0,
            offset: 0,
            kind: Kind::Void,
        };
        // Only a peer that is lost can't be told.
        let _ = self.tell(&header);
    }

    fn void_unfilled(&self) {
        let (unfilled, taken) = {
            let mut state = self.state.lock();
            (core::mem::take(&mut state.unfilled), state.taken)
        };
        if unfilled == 0 {
            return;
        }
        let slots = u64::from(self.geometry.slots());
        for sequence in taken.saturating_sub(slots) + 1..=taken {
            if unfilled & self.bit(sequence) != 0 {
                self.void(sequence);
            }
        }
    }
}

impl Slots for Outbox {
    fn filled(self: ArcBorrow<'_, Self>, sequence: u64) {
        let this: Arc<Self> = self.into();
        this.note_left_alone(sequence);
        this.note_filled();
    }

    fn unfilled(self: ArcBorrow<'_, Self>, sequence: u64) {
        {
            let mut state = self.state.lock();
            state.unfilled |= self.bit(sequence);
            // The peer may have said that it has emptied it, which does not matter any more.
            state.filling &= !self.bit(sequence);
        }
        let this: Arc<Self> = self.into();
        this.schedule();
    }
}
