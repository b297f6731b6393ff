// SPDX-License-Identifier: GPL-2.0

//! The DMA engines of this node, shared by all paths.
//!
//! An engine is one channel; which there are is in `engine/list.rs`. Without one every transfer goes by
//! CPU. Which one a connection uses is chosen once (`engine/routes.rs`), so that its transfers keep their order in the
//! ring.
//!
//! # An engine that stops
//!
//! Its driver may be unbound, or the hardware may hang: then descriptors do not end any more, or no
//! new ones are taken. An engine for which there is work, and which ends none for [`STALL_LIMIT`] ticks,
//! or whose driver goes, has *stopped*. How much is queued makes no difference: one that is slow is not
//! lost. Nor does it help a hung one that it takes more. Its channel is then given back, after
//! which the hardware touches no memory any more (`sys/dmaengine.rs`); what was under way ends with an
//! error, also where the driver forgets to say so, and nothing new begins. The log says so once. Later
//! transfers go by another engine, or by CPU.
//!
//! How the end of a copy is noticed is in `engine/poller.rs`.
//!
//! Lock: `running` is a leaf, taken in soft interrupts.
//!
//! This file has more than 500 lines because an engine, its watchdog and its end share their counts.

use crate::{
    logic::{
        plan,
        window_set::Seams, //
    },
    sync::{
        work_queues::WorkQueues, //
    },
    sys::{
        bus_range::{
            BusCopy,
            EngineMemory,
            MappedView, //
        },
        dmaengine::{
            Batch,
            Channel,
            Completion,
            CopyCount,
            CopyFlags, //
        },
        reached::IoMapping,
        timer::Tick,
        wait::{
            new_wait_queue,
            WaitQueue, //
        },
    },
};
use kernel::{
    device::Device,
    impl_has_work, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        ArcBorrow,
        SpinLockIrq, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

pub(crate) mod job;
mod list;
mod poller;
mod routes;

use job::Job;
pub(crate) use list::Engines;
use list::Shortage;
use poller::INTERRUPT_EVERY;
pub(crate) use routes::ChosenEngine;
pub(crate) use routes::Routes;

/// Between two looks at whether an engine moves.
const TICK: Delta = Delta::from_secs(1);

/// An engine that has work and moves none for so many ticks has stopped. A descriptor is of 1 MiB at most
/// (`logic/plan.rs`): one that copies 200 KB/s or more ends some in that time.
const STALL_LIMIT: u32 = 5;

/// How long to sleep at most before looking at a full ring again.
const RING_FULL_TIMEOUT: Delta = Delta::from_millis(10);

/// Bytes of an empty copy: what any engine can.
const BLANK: usize = 64;

/// Engines until now.
static INSTANCES: Atomic<u64> = Atomic::new(0);

/// How long a submitter waits while the ring is full; never longer than until the engine is given up.
pub(crate) enum Patience<'a> {
    /// Until there is room.
    Endless,
    /// Until this says that nobody wants the copy any more.
    UntilOver(&'a dyn Fn() -> bool),
    /// Likewise, or until the caller is killed.
    Killable(&'a dyn Fn() -> bool),
}

impl Patience<'_> {
    fn is_over(&self) -> bool {
        match self {
            Self::Endless => false,
            Self::UntilOver(is_over) | Self::Killable(is_over) => is_over(),
        }
    }
}

/// One channel, and those who wait for room in it.
#[pin_data]
pub(crate) struct Engine {
    channel: Channel,
    /// That of no other engine, also if that has the same device.
    pub(crate) instance: u64,
    /// See [`plan::longest_segment`].
    longest_segment: u64,
    /// How many channels have chosen it.
    users: Atomic<u32>,
    queues: Arc<WorkQueues>,
    shortage: Arc<Shortage>,
    /// Woken when descriptors have been completed, and when the engine has stopped.
    #[pin]
    pub(crate) room: WaitQueue,
    /// Bytes that the engine has copied.
    pub(crate) bytes: Atomic<u64>,
    /// Descriptors that failed.
    pub(crate) errors: Atomic<u64>,
    /// Descriptors that it has taken, and that have ended in whichever way.
    taken: Atomic<u64>,
    ended: Atomic<u64>,
    /// It did not take one since the last tick.
    refused: Atomic<bool>,
    /// `ended` at the last tick; and for how many ticks none has ended although there was work.
    last_ended: Atomic<u64>,
    still: Atomic<u32>,
    stopped: Atomic<bool>,
    next_number: Atomic<u64>,
    /// What was submitted in whole and was not let go.
    #[pin]
    running: SpinLockIrq<RBTree<u64, Arc<dyn Job>>>,
    /// Descriptors since one has asked for an interrupt.
    uninterrupted: Atomic<u32>,
    /// An interrupt is outstanding that runs the poller's work item; and the ticks since it was armed.
    armed: Atomic<bool>,
    armed_ticks: Atomic<u32>,
    /// How many armed interrupts in a row have not come.
    late: Atomic<u32>,
    /// Its interrupts are not relied upon.
    is_polled: Atomic<bool>,
    /// Microseconds until the next poll, where no interrupt is armed.
    pause: Atomic<u32>,
    /// The empty copy that arms it.
    arming: CopyCount,
    /// A poller reaps now, and releases afterwards.
    reaps: Atomic<bool>,
    #[pin]
    poll: Work<Self, 1>,
    /// The source and destination of an empty copy. The channel goes before.
    blank: EngineMemory,
    /// Gives the channel back.
    #[pin]
    work: Work<Self>,
}

/// A place among what an engine does, which is taken when all of it was submitted.
pub(crate) struct Place(RBTreeNodeReservation<u64, Arc<dyn Job>>);

impl Place {
    /// May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }
}

impl_has_work! {
    impl HasWork<Self> for Engine { self.work }
    impl HasWork<Self, 1> for Engine { self.poll }
}

impl WorkItem for Engine {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        pr_err!(
            "DMA engine {} is lost: transfers go by another one or by CPU from now on\n",
            this.channel.name()
        );
        this.give_back();
    }
}

impl Tick for Engine {
    const PERIOD: Delta = TICK;

    fn tick(this: ArcBorrow<'_, Self>) {
        let engine: Arc<Self> = this.into();
        if this.channel.is_stopped() {
            // Its driver goes.
            engine.stop();
            return;
        }
        let (ended, taken) = (this.ended.load(Relaxed), this.taken.load(Relaxed));
        let was_refused = this.refused.xchg(false, Relaxed);
        let wanted = taken > ended || was_refused;
        if this.armed.load(Relaxed) {
            this.armed_ticks.add(1, Relaxed);
        }
        if this.is_overdue() {
            engine.schedule();
        }
        if !wanted || this.last_ended.xchg(ended, Relaxed) != ended {
            this.still.store(0, Relaxed);
            return;
        }
        let still = this.still.fetch_add(1, Relaxed).saturating_add(1);
        if still == STALL_LIMIT {
            engine.stop();
        }
    }
}

impl Engine {
    /// Takes a channel, if the system has one to give. May sleep.
    fn request(queues: &Arc<WorkQueues>, shortage: &Arc<Shortage>) -> Option<Arc<Self>> {
        let channel = Channel::request()?;
        let blank = EngineMemory::new(2 * BLANK, &channel.device);
        let blank = blank.inspect_err(|error| shortage.note_useless(channel.name(), error));
        let blank = blank.ok()?;
        Arc::pin_init(
            pin_init!(Self {
                longest_segment: plan::longest_segment(channel.max_segment as u64),
                users: Atomic::new(0),
                channel,
                instance: INSTANCES.fetch_add(1, Relaxed),
                uninterrupted: Atomic::new(0),
                armed: Atomic::new(false),
                armed_ticks: Atomic::new(0),
                late: Atomic::new(0),
                is_polled: Atomic::new(false),
                pause: Atomic::new(0),
                arming: CopyCount::new(),
                reaps: Atomic::new(false),
                poll <- new_work!("Engine::poll"),
                blank,
                queues: queues.clone(),
                shortage: shortage.clone(),
                room <- new_wait_queue!("scif::Engine::room"),
                bytes: Atomic::new(0),
                errors: Atomic::new(0),
                taken: Atomic::new(0),
                ended: Atomic::new(0),
                refused: Atomic::new(false),
                last_ended: Atomic::new(0),
                still: Atomic::new(0),
                stopped: Atomic::new(false),
                next_number: Atomic::new(0),
                running <- new_spinlock_irq!(RBTree::new(), "Engine::running"),
                work <- new_work!("Engine::work"),
            }),
            GFP_KERNEL,
        )
        .ok()
    }

    /// As the kernel calls the channel.
    pub(crate) fn name(&self) -> &CStr {
        self.channel.name()
    }

    /// The device for which memory is mapped that it reaches.
    pub(crate) fn device(&self) -> ARef<Device> {
        self.channel.device.clone()
    }

    /// How many bytes it should be given at once. Any context.
    pub(crate) fn longest_segment(&self) -> u64 {
        self.longest_segment
    }

    /// Whether it can copy between these addresses; not if it has stopped. Any context.
    pub(crate) fn can_copy(&self, to: u64, from: u64, len: usize) -> bool {
        !self.has_stopped() && self.channel.is_aligned(to, from, len)
    }

    /// Submits all of a copy, in pieces if the engine does not take as many bytes at once: `flags` are those of the
    /// last piece. Waits while the ring is full. ENODEV if nobody wants it any more, EINTR if the caller is killed, EIO
    /// if the engine has stopped: then a part of it may have been submitted. May sleep.
    pub(crate) fn submit_all<'t, T: Completion>(
        self: &Arc<Self>,
        copy: BusCopy<'t>,
        flags: CopyFlags,
        batch: &Batch<'t, T>,
        patience: &Patience<'_>,
    ) -> Result {
        let (mut left, mut most) = (Some(copy), self.longest_segment);
        while let Some(copy) = left {
            if patience.is_over() {
                return Err(ENODEV);
            }
            if self.has_stopped() {
                return Err(EIO);
            }
            let (piece, rest) = copy.split(most);
            let mut flags = match rest {
                Some(_) => CopyFlags::NONE,
                None => flags,
            };
            // Looked at before: what is refused because the ring is full can have ended afterwards.
            let ended = self.ended.load(Relaxed);
            let before = self.uninterrupted.fetch_add(1, Relaxed);
            flags.interrupt = before % INTERRUPT_EVERY == INTERRUPT_EVERY - 1;
            if self.channel.submit(piece, flags, batch)? {
                self.taken.add(1, Relaxed);
                left = rest;
                continue;
            }
            // An interrupt that it would have made is due with the next one.
            self.uninterrupted.fetch_sub(1, Relaxed);
            if self.channel.is_stopped() {
                self.stop();
            } else if piece.segment().len > plan::UNDECLARED {
                // It may take no more than this, though it does not say so.
                most = plan::UNDECLARED;
            } else {
                // Whether it is full or will never take anything again, only time tells.
                self.refused.store(true, Relaxed);
                self.wait_for_room(ended, patience)?;
                most = self.longest_segment;
            }
        }
        Ok(())
    }

    /// Waits for a moment, or until more descriptors have ended than these. EINTR if the caller is killed. May sleep.
    fn wait_for_room(&self, ended: u64, patience: &Patience<'_>) -> Result {
        // Has it begin, and takes out those descriptors that have ended without an interrupt.
        self.issue_pending();
        self.poll();
        let has_room = || (self.has_stopped() || self.ended.load(Relaxed) != ended).then_some(());
        if let Patience::Killable(_) = patience {
            self.room
                .wait_killable_timeout(RING_FULL_TIMEOUT, has_room)?;
        } else {
            self.room
                .wait_uninterruptible_timeout(RING_FULL_TIMEOUT, has_room);
        }
        Ok(())
    }

    /// Makes the engine begin with what has been submitted.
    pub(crate) fn issue_pending(&self) {
        self.channel.issue_pending();
    }

    /// Keeps a job that was submitted until it has ended, also if the engine does not report that. Process context.
    fn add_running(self: &Arc<Self>, place: Place, job: Arc<dyn Job>) {
        let number = self.next_number.fetch_add(1, Relaxed);
        let replaced = self.running.lock().insert(place.0.into_node(number, job));
        drop(replaced);
        if self.has_stopped() {
            self.abandon_running();
        }
        // It may have ended before it was here to be released.
        self.release_ended();
    }

    /// Ends what the engine has left without saying so, once it was given back. Process context.
    pub(crate) fn abandon_running(self: &Arc<Self>) {
        if !self.channel.is_stopped() {
            return;
        }
        loop {
            let node = {
                let mut running = self.running.lock();
                let first = running.keys().next().copied();
                first.and_then(|number| running.remove_node(&number))
            };
            let Some(node) = node else { break };
            let (_, job) = node.to_key_value();
            self.channel.abandon(&job);
        }
        self.abandon_arming();
    }

    /// Takes note that a descriptor has ended. Soft interrupt context.
    pub(crate) fn descriptor_ended(&self, result: &Result) {
        if result.is_err() {
            self.errors.add(1, Relaxed);
        }
        self.ended.add(1, Relaxed);
        if self.room.has_waiters() {
            self.room.wake_all();
        }
    }

    /// Whether it was found to have stopped. Any context.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Gives its channel back, and ends what it has left. May sleep, as [`Channel::stop`].
    fn give_back(self: &Arc<Self>) {
        self.stopped.store(true, Relaxed);
        // Waits for those who submit, and for the hardware.
        self.channel.stop();
        self.room.wake_all();
        self.abandon_running();
    }

    /// Gives it up, soon. Any context.
    fn stop(self: &Arc<Self>) {
        if !self.stopped.xchg(true, Full) {
            // A driver that is gone may come back with engines.
            if self.channel.is_stopped() {
                self.shortage.is_short.store(true, Relaxed);
            } else {
                self.shortage.has_hung.store(true, Relaxed);
            }
            // It is enqueued once, so this can't fail.
            let _ = self.queues.work.enqueue::<_, 0>(self.clone());
        }
    }
}

/// An engine together with its view of a peer's memory.
///
/// That an engine has ended a copy says that it has sent the bytes, not that they have arrived: what a processor, or
/// another engine, says of them may overtake them. A read stays behind what the same engine has written before, and
/// its answer says that all of that is there. So whoever writes by an engine has it read, too
/// ([`EngineRoute::arrival`]), and has not ended before.
pub(crate) struct EngineRoute {
    // Before the engine, so that it is unmapped first.
    pub(crate) view: MappedView,
    pub(crate) engine: Arc<Engine>,
    /// The peer's address of something that can always be read.
    readable: u64,
}

impl EngineRoute {
    /// The view that the parts of an aperture give of the peer's memory from `base` on, cut at `seams`, in which
    /// `readable` is the peer's address of something that can be read as long as there is the route. May sleep.
    /// EFAULT, EINVAL if the engine can't read there.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        parts: &[IoMapping],
        seams: Seams,
        base: u64,
        readable: u64,
    ) -> Result<Self> {
        let this = Self {
            view: MappedView::new(&engine.channel.device, parts, seams, base)?,
            engine: engine.clone(),
            readable,
        };
        let read = this.arrival()?.segment();
        if !engine.can_copy(read.destination, read.source, BLANK) {
            return Err(EINVAL);
        }
        Ok(this)
    }

    /// The read that ends when what this engine has written before has arrived; what is read is of no use to
    /// anybody. Any context.
    pub(crate) fn arrival(&self) -> Result<BusCopy<'_>> {
        let to = self.engine.blank.range(0, BLANK).ok_or(EFAULT)?;
        let from = self.view.range(self.readable, BLANK as u64).ok_or(EFAULT)?;
        BusCopy::new(to, from).ok_or(EFAULT)
    }
}
