// SPDX-License-Identifier: GPL-2.0

//! The slots of this node that the peer fills.
//!
//! A work item looks at them in order when the peer rings, and copies what is there to the window that it is
//! for. The peer names a window by its id; it reaches what it was offered, with the protection it has, and
//! nothing else, so this gives it no more than a bridge would. It is told of what was emptied when there
//! is nothing left, or when half of the slots are empty; and rung if it wants to be. Then the work item polls for a
//! moment, and tells the peer that it sleeps.
//!
//! Everything that the peer writes is read once, then checked. What makes no sense is not delivered, and a
//! peer that writes such things loses its own data only.
//!
//! Lock: `emptied` is held by who empties slots; windows and pages are used under it, and what is posted.

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

/// How often the slots are looked at before others have their turn.
const ROUNDS: u32 = 256;

/// How many slots were emptied, and of how many the peer knows that.
#[derive(Default)]
pub(super) struct Emptied {
    slots: u64,
    reported: u64,
    /// Whether the peer wants to be rung for one of them.
    tell: bool,
    /// The last wish of the peer for which it was rung.
    answered: u64,
    sleeps: u64,
}

/// See the head of this file.
#[pin_data]
pub(super) struct Inbox {
    peer: Arc<Peer>,
    exports: Arc<Exports>,
    pub(super) memory: SharedMemory,
    pub(super) geometry: Geometry,
    /// Where the peer wants them to be counted, as a bus address of its own.
    credits: SetOnce<u64>,
    #[pin]
    pub(super) emptied: Mutex<Emptied>,
    /// The number of the slot that comes next; written under the lock.
    next: Atomic<u64>,
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Inbox { self.work }
}

impl WorkItem for Inbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Some(_inside) = this.peer.enter() else {
            return;
        };
        if this.empty_all().is_err() {
            this.peer.fail("it can't be told which slots are empty");
        }
    }
}

impl Inbox {
    /// Slots for about `len` bytes, of which the peer has not heard; what it writes is for windows of
    /// `exports`. The caller is inside the peer. ENOMEM if there is no room for them. May sleep.
    pub(super) fn new(peer: &Arc<Peer>, exports: &Arc<Exports>, len: usize) -> Result<Arc<Self>> {
        let geometry = Geometry::for_len(len).ok_or(EINVAL)?;
        let memory = peer.path().share(geometry.total(), Payer::Nobody)?;
        Arc::pin_init(
            pin_init!(Self {
                peer: peer.clone(),
                exports: exports.clone(),
                memory,
                geometry,
                credits: SetOnce::new(),
                emptied <- new_mutex!(Emptied::default(), "Inbox::emptied"),
                next: Atomic::new(1),
                work <- new_work!("Inbox::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer has said where it wants slots to be counted. EFAULT if that can't be reached, EBUSY if it
    /// has said it before.
    pub(super) fn set_credits(self: &Arc<Self>, address: u64) -> Result {
        let len = self.geometry.credits() as u64;
        self.peer.path().reach(address, len)?;
        if address % 8 != 0 {
            return Err(EFAULT);
        }
        if !self.credits.populate(address) {
            return Err(EBUSY);
        }
        // It may have filled some already.
        self.schedule();
        Ok(())
    }

    /// Any context.
    fn schedule(self: &Arc<Self>) {
        // An error says that it is about to run anyway.
        let _ = self.peer.queues.work.enqueue(self.clone());
    }

    /// The peer has rung. Any context.
    pub(super) fn rung(self: &Arc<Self>) {
        let next = self.next.load(Relaxed);
        // Most likely it is filled then.
        if self.memory.read_u64(self.geometry.header(next)) == Ok(next) {
            self.schedule();
        }
    }

    /// Empties slots as long as some are filled, and until it sleeps; or for a while, and goes on soon: who waits for
    /// what is queued does not wait for the peer. May sleep.
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

    /// Whether the next slot is filled. One that seems to be, and has no header, is not: its writer rings when it has.
    fn has_header(&self) -> bool {
        let header = self.read_header(self.next.load(Relaxed));
        header.is_ok_and(|header| header.is_some())
    }

    /// Says to the peer that it has to ring. Whether that is so: what it has filled before it could see that is
    /// there by then.
    fn fall_asleep(&self, credits: u64) -> Result<bool> {
        // It is loaded from the peer: not across a link that is known to be down.
        if self.peer.is_over() {
            return Err(ENODEV);
        }
        let mut emptied = self.emptied.lock();
        emptied.sleeps += 1;
        let place = self.peer.path().reach(credits + SLEEPS as u64, 8)?;
        place.write_u64(0, emptied.sleeps)?;
        // As described in `logic/staging.rs`.
        place.read_back(0)?;
        Ok(!self.has_header())
    }

    /// Empties slots that are filled, each at most once. May sleep.
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
            // Nothing of what comes later is seen before.
            barrier::smp_mb(barrier::Write);
            emptied.slots = header.sequence;
            emptied.tell |= header.tell;
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

    /// Tells the peer how many were emptied, and rings if it wants that.
    fn report(&self, emptied: &mut Emptied, credits: u64) -> Result {
        if emptied.slots == emptied.reported {
            // It may have wished for what it was told of already.
            return self.answer(emptied);
        }
        emptied.reported = emptied.slots;
        // Who asks for much gets it in time, though not all at once.
        self.peer.liveness.pushes.restart();
        // The loads from the slots come before the store that gives them away, and so do the stores to
        // where their bytes were to go.
        barrier::mb(barrier::Full);
        flush_writes();
        let place = self.peer.path().reach(credits, 8)?;
        place.write_u64(0, emptied.slots)?;
        flush_writes();
        self.answer(emptied)
    }

    /// Rings if the peer sleeps until it hears of what it was told.
    fn answer(&self, emptied: &mut Emptied) -> Result {
        // What was stored comes before what is loaded: see `logic/staging.rs`.
        barrier::mb(barrier::Full);
        let wish = self.memory.read_u64(self.geometry.wish())?;
        let is_wished = wish > emptied.answered && wish <= emptied.reported;
        if is_wished {
            emptied.answered = wish;
        }
        if is_wished | core::mem::take(&mut emptied.tell) {
            self.peer.path().ring(doorbell::DATA);
        }
        Ok(())
    }

    /// A private copy of what is said of the next slot; none if it is not filled.
    fn read_header(&self, sequence: u64) -> Result<Option<Header>> {
        let at = self.geometry.header(sequence);
        if self.memory.load_acquire_u64(at)? != sequence {
            return Ok(None);
        }
        let mut bytes = [0; HEADER];
        self.memory.read(at, &mut bytes)?;
        // The data was written before.
        barrier::mb(barrier::Read);
        Ok(Header::decode(&bytes).filter(|header| header.sequence == sequence))
    }

    /// Copies on what is in a slot. May sleep.
    fn deliver(&self, header: &Header) -> Result {
        match header.kind {
            // Its writer knows.
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

    /// The window that it is for, if the peer may write there.
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

    /// Takes the slots away from the peer. May sleep.
    pub(super) fn unmap(&self) {
        self.memory.retire();
    }
}
