// SPDX-License-Identifier: GPL-2.0

//! Slots of this node that the peer fills.
//!
//! When the peer rings, a work item empties the filled slots in order, and copies their data to the
//! windows that it is for. The peer names a window by its id. It reaches only windows that it was
//! offered, with the protection of each, so slots give the peer no more access than a bridge would.
//!
//! The peer is told how many slots were emptied when none is filled any more, or when half of the
//! slots are empty. It is rung if it asked for that. Then the work item polls for a moment, and
//! tells the peer that it sleeps.
//!
//! Everything that the peer writes is read once, then checked. Invalid data is not delivered, so a
//! peer that writes invalid data harms only its own transfers.
//!
//! Lock: `emptied` is held by the task that empties slots. The locks of windows, pages and posted
//! messages are taken under it.

use crate::{
    arguments::PROTECTION_WRITE,
    logic::{
        address_space::Range,
        messages::WindowId,
        staging::{
            Geometry,
            Header,
            Kind,
            HEADER,
            SLEEPS, //
        },
    },
    memory::{
        exports::Exports,
        window::Window, //
    },
    peer::Peer,
    sys::{
        current,
        reached::flush_writes,
        shared_memory::{
            Payer,
            SharedMemory, //
        },
        wait::{
            busy_poll,
            busy_wait, //
        },
    },
    transport::doorbell, //
};
use kernel::{
    impl_has_work, new_mutex, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        Arc,
        Mutex,
        SetOnce, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Number of times that the work item polls the slots before other work items have their turn.
const ROUNDS: u32 = 256;

/// Number of emptied slots, and how many of them the peer knows of.
#[derive(Default)]
pub(super) struct Emptied {
    slots: u64,
    reported: u64,
    /// Whether the peer asked to be rung for one of the slots.
    wants_doorbell: bool,
    /// The last wake-up request of the peer for which this node has rung the peer.
    answered: u64,
    sleeps: u64,
}

/// The slots of this node that one peer fills.
#[pin_data]
pub(super) struct ReceiveSlots {
    peer: Arc<Peer>,
    exports: Arc<Exports>,
    pub(super) memory: SharedMemory,
    pub(super) geometry: Geometry,
    /// Bus address in the peer's memory at which the peer wants emptied slots to be counted.
    credits: SetOnce<u64>,
    #[pin]
    pub(super) emptied: Mutex<Emptied>,
    /// Number of the next slot to be emptied. Written with `emptied` locked.
    next: Atomic<u64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for ReceiveSlots { self.work }
}

impl WorkItem for ReceiveSlots {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(_inside) = this.peer.enter() else {
            return;
        };
        if this.empty_all().is_err() {
            this.peer
                .fail("its count of emptied slots can't be reached");
        }
    }
}

impl ReceiveSlots {
    /// Allocates slots for about `len` bytes, of which the peer has not heard. The peer's data goes
    /// to windows of `exports`. The caller is inside the peer. Returns ENOMEM if there is no room
    /// for the slots.
    /// Context: may sleep.
    pub(super) fn new(peer: &Arc<Peer>, exports: &Arc<Exports>, len: usize) -> Result<Arc<Self>> {
        let geometry = Geometry::for_len(len).ok_or(EINVAL)?;
        let memory = peer.path().share(geometry.total(), Payer::None)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports: exports.clone(),
                memory,
                geometry,
                credits: SetOnce::new(),
                emptied <- new_mutex!(Emptied::default(), "ReceiveSlots::emptied"),
                next: Atomic::new(1),
                work <- new_work!("ReceiveSlots::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Sets the address at which the peer wants emptied slots to be counted.
    ///
    /// # Errors
    ///
    /// - EFAULT: this node can't reach the address.
    /// - EBUSY: the peer has set an address before.
    pub(super) fn set_credits(self: &Arc<Self>, address: u64) -> Result {
        let len = self.geometry.credits() as u64;
        self.peer.path().reach(address, len)?;
        if address % 8 != 0 {
            return Err(EFAULT);
        }
        if !self.credits.populate(address) {
            return Err(EBUSY);
        }
        // The peer may have filled some slots already.
        self.schedule();
        Ok(())
    }

    /// Has the work item empty slots.
    /// Context: any.
    fn schedule(self: &Arc<Self>) {
        // An error says that the work item is pending already.
        let _ = self.peer.queues.work.enqueue(self.clone());
    }

    /// Has the work item empty slots if the next slot seems to be filled. The peer has rung.
    /// Context: any.
    pub(super) fn on_doorbell(self: &Arc<Self>) {
        let next = self.next.load(Relaxed);
        // The sequence number is no proof, but the slot is most likely filled then.
        if self.memory.read_u64(self.geometry.header(next)) == Ok(next) {
            self.schedule();
        }
    }

    /// Empties slots until none is filled and the peer knows that this end sleeps. After [`ROUNDS`]
    /// rounds the work item is queued again, so that other items in the queue do not wait for the
    /// peer.
    /// Context: may sleep.
    fn empty_all(self: &Arc<Self>) -> Result {
        let Some(credits) = self.credits.copy() else {
            return Ok(());
        };
        for _ in 0..ROUNDS {
            self.empty(credits)?;
            if self.peer.is_over() {
                return Ok(());
            }
            let goes_on = || self.has_header() || self.peer.is_over();
            if !busy_wait(busy_poll(), goes_on) && self.fall_asleep(credits)? {
                return Ok(());
            }
            current::reschedule();
        }
        self.schedule();
        Ok(())
    }

    /// Returns whether the next slot is filled. A slot without a complete header is not: its writer
    /// rings when the header is complete.
    fn has_header(&self) -> bool {
        let header = self.read_header(self.next.load(Relaxed));
        header.is_ok_and(|header| header.is_some())
    }

    /// Tells the peer to ring for the next slot. Returns false if that slot is filled already. The
    /// check sees all that the peer had filled before it could see the request.
    fn fall_asleep(&self, credits: u64) -> Result<bool> {
        // The request is loaded back from the peer, which must not cross a link that is known to be
        // down.
        if self.peer.is_over() {
            return Err(ENODEV);
        }
        let mut emptied = self.emptied.lock();
        emptied.sleeps += 1;
        let place = self.peer.path().reach(credits + SLEEPS as u64, 8)?;
        place.write_u64(0, emptied.sleeps)?;
        // Loads the request back before the slot is checked: see `logic/staging.rs`.
        place.read_back(0)?;
        Ok(!self.has_header())
    }

    /// Empties the filled slots, each at most once.
    /// Context: may sleep.
    fn empty(&self, credits: u64) -> Result {
        let mut emptied = self.emptied.lock();
        for _ in 0..self.geometry.slots() {
            let Some(header) = self.read_header(emptied.slots + 1)? else {
                break;
            };
            if self.deliver(&header).is_err() {
                let at = self.geometry.verdict(header.sequence) as u64;
                let verdict = self.peer.path().reach(credits + at, 8)?;
                verdict.write_u64(0, 1)?;
            }
            // Data of this slot becomes visible before data of later slots.
            barrier::smp_mb(barrier::Write);
            emptied.slots = header.sequence;
            emptied.wants_doorbell |= header.wants_doorbell;
            self.next.store(header.sequence + 1, Relaxed);
            if emptied.slots - emptied.reported >= u64::from(self.geometry.slots() / 2) {
                self.report(&mut emptied, credits)?;
            }
            if self.peer.is_over() {
                return Ok(());
            }
            current::reschedule();
        }
        self.report(&mut emptied, credits)
    }

    /// Tells the peer how many slots were emptied, and rings if the peer asked for that.
    fn report(&self, emptied: &mut Emptied, credits: u64) -> Result {
        if emptied.slots == emptied.reported {
            // The peer may have requested a ring for a count that it was told already.
            return self.answer(emptied);
        }
        emptied.reported = emptied.slots;
        // The data may answer a large peer read. Progress restarts the time limit for that read.
        self.peer.liveness.peer_reads.restart();
        // The loads from the slots, and the stores to the destinations, come before the store that
        // gives the slots away.
        barrier::mb(barrier::Full);
        flush_writes();
        let place = self.peer.path().reach(credits, 8)?;
        place.write_u64(0, emptied.slots)?;
        flush_writes();
        self.answer(emptied)
    }

    /// Rings if the peer asked to be rung for a number of slots that it was told of.
    fn answer(&self, emptied: &mut Emptied) -> Result {
        // Stores the count before loading the wake-up request: see `logic/staging.rs`.
        barrier::mb(barrier::Full);
        let request = self.memory.read_u64(self.geometry.wake_request())?;
        let is_due = request > emptied.answered && request <= emptied.reported;
        if is_due {
            emptied.answered = request;
        }
        if is_due | core::mem::take(&mut emptied.wants_doorbell) {
            self.peer.path().ring(doorbell::DATA);
        }
        Ok(())
    }

    /// Returns a private copy of the header of the slot with this number, or `None` if the slot is
    /// not filled.
    fn read_header(&self, sequence: u64) -> Result<Option<Header>> {
        let at = self.geometry.header(sequence);
        if self.memory.load_acquire_u64(at)? != sequence {
            return Ok(None);
        }
        let mut bytes = [0; HEADER];
        self.memory.read(at, &mut bytes)?;
        // The peer wrote the data before the header, so loads of the data come after this.
        barrier::mb(barrier::Read);
        Ok(Header::decode(&bytes).filter(|header| header.sequence == sequence))
    }

    /// Copies the data of a slot to its destination.
    /// Context: may sleep.
    fn deliver(&self, header: &Header) -> Result {
        match header.kind {
            // The writer has reported the error itself.
            Kind::Void => Ok(()),
            Kind::Store(value) => {
                let window = self.window(header, size_of::<u64>() as u64)?;
                let offset = usize::try_from(header.offset)?;
                window.memory.pages.store_u64(offset, value)
            }
            Kind::Data(len) if len > self.geometry.size() => Err(EINVAL),
            Kind::Data(len) => {
                let data = self.geometry.data(header.sequence);
                let from = self.memory.reach(data, len as usize)?;
                let window = self.window(header, len.into())?;
                from.copy_to(&window.memory.pages, usize::try_from(header.offset)?)
            }
        }
    }

    /// Returns the window that the header names, if the peer may write to this range of it.
    fn window(&self, header: &Header, len: u64) -> Result<Arc<Window>> {
        let found = self.exports.get(WindowId(header.window));
        let window = found.ok_or(ENXIO)?;
        let range = Range::from_parts(header.offset, len).map_err(|_| ENXIO)?;
        if window.protection & PROTECTION_WRITE == 0 {
            return Err(EACCES);
        }
        if !window.delivered_to.contains(&range) {
            return Err(ENXIO);
        }
        Ok(window)
    }

    /// Takes the slots away from the peer.
    /// Context: may sleep.
    pub(super) fn unmap(&self) {
        self.memory.retire();
    }
}
