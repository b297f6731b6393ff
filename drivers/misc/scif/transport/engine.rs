// SPDX-License-Identifier: GPL-2.0

//! The DMA engines of this node, shared by all paths.
//!
//! An engine is one channel. `engine/list.rs` keeps the engines of this node. Without an engine,
//! every transfer goes by CPU. A connection chooses its engine once (`engine/routes.rs`), so that
//! its transfers keep their order in the engine's ring.
//!
//! # An engine that stops
//!
//! An engine has *stopped* in one of two cases:
//!
//! - its driver is unbound;
//! - it has work, and completes no descriptor for [`STALL_LIMIT`] ticks: descriptors hang, or the
//!   engine refuses new ones.
//!
//! The number of queued descriptors makes no difference: a slow engine is not given up, and a hung
//! engine is given up although it accepts more descriptors.
//!
//! This node then gives the channel back. After that the hardware accesses no memory any more
//! (`sys/dmaengine.rs`). Jobs in flight fail, even if the driver forgets to report them, and no new
//! job begins. The log says so once. Later transfers of connections that have chosen the engine go
//! by CPU, because a connection keeps its choice.
//!
//! `engine/poller.rs` describes how the completion of a copy is noticed.
//!
//! Lock: `running` is a leaf, taken in soft interrupts.
//!
//! This file has more than 500 lines because an engine, its watchdog and its end share their
//! counts.

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

/// Time between two checks of an engine's progress.
const TICK: Delta = Delta::from_secs(1);

/// Number of ticks without a completion after which an engine with work has stopped. A descriptor
/// copies at most 1 MiB (`logic/plan.rs`), so an engine that copies 200 KB/s or more completes some
/// in that time.
const STALL_LIMIT: u32 = 5;

/// Longest sleep before a submitter tries a full ring again.
const RING_FULL_TIMEOUT: Delta = Delta::from_millis(10);

/// Number of descriptors in the ring from which on submitters that do not wait keep away. Most rings
/// have room for a thousand or more.
const MOST_WITHOUT_WAIT: u64 = 256;

/// Bytes of an empty copy; every engine can copy so few.
const BLANK: usize = 64;

/// Number of engines created so far; the next [`Engine::instance`].
static INSTANCES: Atomic<u64> = Atomic::new(0);

/// The limit of a submitter's wait for room in a full ring. Every wait is over when the engine has
/// stopped.
pub(crate) enum WaitLimit<'a> {
    /// Waits until there is room.
    Endless,
    /// Waits until there is room, or this function returns true because the copy is not needed any
    /// more.
    UntilOver(&'a dyn Fn() -> bool),
    /// Waits like `UntilOver`, or until the calling process is killed.
    Killable(&'a dyn Fn() -> bool),
    /// Does not wait. The submitter gets EAGAIN.
    Never,
}

impl WaitLimit<'_> {
    fn is_over(&self) -> bool {
        match self {
            Self::Endless | Self::Never => false,
            Self::UntilOver(is_over) | Self::Killable(is_over) => is_over(),
        }
    }
}

/// A DMA channel, its jobs, and the submitters that wait for room in its ring.
#[pin_data]
pub(crate) struct Engine {
    channel: Channel,
    /// A number that no other engine has had, not even an earlier one of the same device.
    pub(crate) instance: u64,
    /// The largest segment to submit at once, from [`plan::longest_segment`].
    longest_segment: u64,
    /// Number of [`ChosenEngine`]s that refer to this engine.
    users: Atomic<u32>,
    queues: Arc<WorkQueues>,
    shortage: Arc<Shortage>,
    /// Wait queue that is woken when a descriptor has completed, and when the engine has stopped.
    #[pin]
    pub(crate) room: WaitQueue,
    /// Bytes that the engine has copied.
    pub(crate) bytes: Atomic<u64>,
    /// Number of descriptors that failed.
    pub(crate) errors: Atomic<u64>,
    /// Number of descriptors that the channel has accepted.
    taken: Atomic<u64>,
    /// Number of descriptors that have completed or failed.
    ended: Atomic<u64>,
    /// Set if the channel has refused a descriptor since the last tick.
    refused: Atomic<bool>,
    /// Value of `ended` at the last tick.
    last_ended: Atomic<u64>,
    /// Number of ticks in a row in which the engine had work and no descriptor ended.
    still: Atomic<u32>,
    /// Set once the engine has stopped.
    stopped: Atomic<bool>,
    /// Key of the next job in `running`.
    next_number: Atomic<u64>,
    /// Jobs that were submitted completely and not released yet, in the order of submission.
    #[pin]
    running: SpinLockIrq<RBTree<u64, Arc<dyn Job>>>,
    /// Number of descriptors since the last one that asked for an interrupt.
    uninterrupted: Atomic<u32>,
    /// Set while an armed interrupt is outstanding; it queues the poller's work item.
    armed: Atomic<bool>,
    /// Number of ticks since the interrupt was armed.
    armed_ticks: Atomic<u32>,
    /// Number of armed interrupts in a row that did not come in time.
    late: Atomic<u32>,
    /// Set once this engine's interrupts are not relied upon any more.
    is_polled: Atomic<bool>,
    /// Microseconds until the next poll, if no interrupt is armed.
    pause: Atomic<u32>,
    /// Completion count of the empty copy that arms the interrupt.
    arming: CopyCount,
    /// Set while a poller reaps the ring.
    reaps: Atomic<bool>,
    /// Work item that polls the ring.
    #[pin]
    poll: Work<Self, 1>,
    /// Source and destination of an empty copy. Declared after `channel`, which is dropped first.
    blank: EngineMemory,
    /// Work item that gives the channel back.
    #[pin]
    work: Work<Self>,
}

/// A preallocated entry for a job in [`Engine::running`]. The job is inserted once it was submitted
/// completely.
pub(crate) struct JobReservation(RBTreeNodeReservation<u64, Arc<dyn Job>>);

impl JobReservation {
    /// Allocates an entry.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?))
    }

    /// Allocates an entry without waiting for memory.
    /// Context: any but hard interrupts.
    pub(crate) fn atomic() -> Result<Self> {
        let flags = GFP_ATOMIC | __GFP_NOWARN;
        Ok(Self(RBTreeNodeReservation::new(flags)?))
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
            "DMA engine {} is lost: its transfers fail, and later ones go by another engine or by CPU\n",
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
            // The driver is being unbound.
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
    /// Requests a DMA channel. Returns `None` if no channel is available, or this node's memory
    /// can't be mapped for it.
    /// Context: may sleep.
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

    /// Returns the kernel's name of the channel.
    pub(crate) fn name(&self) -> &CStr {
        self.channel.name()
    }

    /// Returns the device for which memory has to be mapped, so that this engine reaches it.
    pub(crate) fn device(&self) -> ARef<Device> {
        self.channel.device.clone()
    }

    /// Returns the largest segment to submit at once.
    /// Context: any.
    pub(crate) fn longest_segment(&self) -> u64 {
        self.longest_segment
    }

    /// Returns whether the engine works, and can copy between these addresses.
    /// Context: any.
    pub(crate) fn can_copy(&self, to: u64, from: u64, len: usize) -> bool {
        !self.has_stopped() && self.channel.is_aligned(to, from, len)
    }

    /// Submits a copy, in several pieces if the engine does not take as many bytes at once. Waits
    /// while the ring is full. `flags` apply to the last piece.
    ///
    /// # Errors
    ///
    /// After an error, the engine may have taken some of the pieces.
    ///
    /// - ENODEV: the wait has reached `limit`.
    /// - EINTR: the calling process is killed.
    /// - EIO: the engine has stopped.
    /// - EAGAIN: the ring is full, and `limit` is `Never`.
    ///
    /// Context: may sleep unless `limit` is `Never`; not in hard interrupts.
    pub(crate) fn submit_all<'t, T: Completion>(
        self: &Arc<Self>,
        copy: BusCopy<'t>,
        flags: CopyFlags,
        batch: &Batch<'t, T>,
        limit: &WaitLimit<'_>,
    ) -> Result {
        let (mut left, mut most) = (Some(copy), self.longest_segment);
        while let Some(copy) = left {
            if limit.is_over() {
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
            // Reads the count before the submission: a descriptor that ends after a refusal makes
            // room, and `wait_for_room` then returns at once.
            let ended = self.ended.load(Relaxed);
            let before = self.uninterrupted.fetch_add(1, Relaxed);
            flags.interrupt = before % INTERRUPT_EVERY == INTERRUPT_EVERY - 1;
            if self.channel.submit(piece, flags, batch)? {
                self.taken.add(1, Relaxed);
                left = rest;
                continue;
            }
            // Takes the descriptor out of the count: the next one then asks for the interrupt.
            self.uninterrupted.fetch_sub(1, Relaxed);
            if self.channel.is_stopped() {
                self.stop();
            } else if piece.segment().len > plan::UNDECLARED {
                // The channel may take no more than this at once, although its device does not
                // declare a limit.
                most = plan::UNDECLARED;
            } else {
                // The ring is full, or the engine hangs. The watchdog tells them apart.
                self.refused.store(true, Relaxed);
                if let WaitLimit::Never = limit {
                    return Err(EAGAIN);
                }
                self.wait_for_room(ended, limit)?;
                most = self.longest_segment;
            }
        }
        Ok(())
    }

    /// Waits until more than `ended` descriptors have ended, the engine has stopped, or
    /// [`RING_FULL_TIMEOUT`] has passed.
    ///
    /// Returns EINTR if the calling process is killed.
    /// Context: may sleep.
    fn wait_for_room(&self, ended: u64, limit: &WaitLimit<'_>) -> Result {
        // Starts the engine, and reaps descriptors that have completed without an interrupt.
        self.issue_pending();
        self.poll();
        let has_room = || (self.has_stopped() || self.ended.load(Relaxed) != ended).then_some(());
        if let WaitLimit::Killable(_) = limit {
            self.room
                .wait_killable_timeout(RING_FULL_TIMEOUT, has_room)?;
        } else {
            self.room
                .wait_uninterruptible_timeout(RING_FULL_TIMEOUT, has_room);
        }
        Ok(())
    }

    /// Makes the engine begin with the submitted descriptors.
    pub(crate) fn issue_pending(&self) {
        self.channel.issue_pending();
    }

    /// Keeps a submitted job until it has ended, even if the engine never reports its end.
    /// Context: process context.
    fn add_running(self: &Arc<Self>, reservation: JobReservation, job: Arc<dyn Job>) {
        self.insert_running(reservation, job);
        if self.has_stopped() {
            self.abandon_running();
        }
        // The job may have ended before it was in `running`, where the poller finds it.
        self.release_ended();
    }

    fn insert_running(&self, reservation: JobReservation, job: Arc<dyn Job>) {
        let number = self.next_number.fetch_add(1, Relaxed);
        let node = reservation.0.into_node(number, job);
        // The number is new, so that no job is replaced.
        let replaced = self.running.lock().insert(node);
        drop(replaced);
    }

    /// Keeps a job as [`Self::add_running`] does, but leaves all work that may sleep to the work item.
    /// Context: any but hard interrupts.
    fn add_running_now(self: &Arc<Self>, reservation: JobReservation, job: &Arc<dyn Job>) {
        self.insert_running(reservation, job.clone());
        // The job may have ended before it was in `running`, where the poller finds it.
        if self.has_stopped() || job.state().is_over.load(Relaxed) {
            self.schedule();
        }
    }

    /// Fails the jobs that the engine has not reported, if the channel was given back.
    /// Context: process context.
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

    /// Counts a descriptor that has completed or failed.
    /// Context: any, but hard interrupts.
    pub(crate) fn descriptor_ended(&self, result: &Result) {
        if result.is_err() {
            self.errors.add(1, Relaxed);
        }
        self.ended.add(1, Relaxed);
        if self.room.has_waiters() {
            self.room.wake_all();
        }
    }

    /// Returns whether so many descriptors are in the ring that a submitter that does not wait
    /// should not add any.
    /// Context: any.
    pub(crate) fn is_busy(&self) -> bool {
        let (ended, taken) = (self.ended.load(Relaxed), self.taken.load(Relaxed));
        taken.saturating_sub(ended) > MOST_WITHOUT_WAIT
    }

    /// Returns whether the engine was found to have stopped.
    /// Context: any.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Gives the channel back, and fails the jobs that are left.
    /// Context: may sleep, as [`Channel::stop`] does.
    fn give_back(self: &Arc<Self>) {
        self.stopped.store(true, Relaxed);
        // Waits for submitters and for the hardware.
        self.channel.stop();
        self.room.wake_all();
        self.abandon_running();
    }

    /// Marks the engine as stopped, and queues the work item that gives its channel back.
    /// Context: any.
    fn stop(self: &Arc<Self>) {
        if !self.stopped.xchg(true, Full) {
            // If the driver is gone, its engines may come back with it.
            if self.channel.is_stopped() {
                self.shortage.is_short.store(true, Relaxed);
            } else {
                self.shortage.has_hung.store(true, Relaxed);
            }
            // The `xchg` above lets one caller get here, so the work item is not queued yet.
            let _ = self.queues.work.enqueue::<_, 0>(self.clone());
        }
    }
}

/// An engine together with its view of a peer's memory.
///
/// When an engine reports a copy as completed, it has sent the bytes, but they may not have
/// arrived. A notice by a CPU or by another engine may overtake them. A read stays behind earlier
/// writes of the same engine, so the answer to a read says that they have arrived. A job that
/// writes by an engine therefore ends with a read ([`EngineRoute::arrival`]), and completes only
/// after it.
pub(crate) struct EngineRoute {
    // Declared before `engine`, so that the view is unmapped first.
    pub(crate) view: MappedView,
    pub(crate) engine: Arc<Engine>,
    /// The peer's address of memory that can be read as long as the route exists.
    readable: u64,
}

impl EngineRoute {
    /// Maps a view of the peer's memory for an engine. The mapped `parts` of an aperture begin at
    /// the peer's address `base`, and are cut at `seams`. `readable` is the peer's address of
    /// memory that can be read as long as the route exists.
    ///
    /// # Errors
    ///
    /// - EFAULT, EINVAL: the engine can't read at `readable`.
    ///
    /// Context: may sleep.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        parts: &[IoMapping],
        seams: Seams,
        base: u64,
        readable: u64,
    ) -> Result<Self> {
        let this = Self {
            view: MappedView::new(&engine.channel, parts, seams, base)?,
            engine: engine.clone(),
            readable,
        };
        let read = this.arrival()?.segment();
        if !engine.can_copy(read.destination, read.source, BLANK) {
            return Err(EINVAL);
        }
        Ok(this)
    }

    /// Returns the read whose completion shows that this engine's earlier writes have arrived. The
    /// bytes read are not used.
    /// Context: any.
    pub(crate) fn arrival(&self) -> Result<BusCopy<'_>> {
        let to = self.engine.blank.range(0, BLANK).ok_or(EFAULT)?;
        let from = self.view.range(self.readable, BLANK as u64).ok_or(EFAULT)?;
        BusCopy::new(to, from).ok_or(EFAULT)
    }
}
