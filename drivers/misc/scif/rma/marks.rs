// SPDX-License-Identifier: GPL-2.0

//! Numbers of one end's transfers, and the actions that wait behind them.
//!
//! Every transfer gets the next number. A fence waits for all transfers up to a number, and knows
//! nothing of engines. An action can be *deferred* behind a number: an answer to the peer, or a
//! signal. It runs when all transfers up to the number have completed, at once or in a work item.
//!
//! Signals are given in order (`deferred.rs`). The task that gives a signal also gives the signals
//! behind it, and other tasks leave those to it.
//!
//! Failures are remembered as long as a fence or a signal can ask for them (`logic/marks.rs`).
//!
//! Lock order: `deferred`, then `numbers`. `numbers` is also taken in soft interrupts, `deferred`
//! is not.
//!
//! This file has more than 500 lines because the numbers and the signals that wait for them share
//! their locks.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use super::{
    deferred::{
        Deferred,
        Due, //
    },
    operation::{
        CompletionListener,
        Operation, //
    },
    signal::Signal,
};
use crate::{
    arguments::Direction,
    logic::{
        marks::{
            Asker,
            Numbers,
            Sequence, //
        },
        messages::{
            Message,
            Status, //
        },
    },
    peer::{
        channel::{
            Channel,
            State, //
        },
        control::Reservation, //
    },
    sync::{
        flow::{
            Flow,
            Moved, //
        },
        in_flight::InFlight,
    },
    sys::trace,
};
use kernel::{
    impl_has_work, new_spinlock, new_spinlock_irq, new_work,
    prelude::*,
    rbtree::RBTreeNodeReservation,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
        Arc,
        ArcBorrow,
        SpinLock,
        SpinLockIrq, //
    },
    time::Delta,
    workqueue::{
        Work,
        WorkItem, //
    },
};

/// Number of deferred actions that one caller runs before a work item continues, as the actions may
/// have been requested by others.
const MOST_AT_ONCE: u32 = 64;

/// Time that the caller of a failed transfer waits for the news that the peer is gone.
const NOTICE: Delta = Delta::from_millis(200);

/// Progress of the transfers of one end, for people to read.
#[derive(Default)]
pub(crate) struct Progress {
    /// Amounts that were moved without an error.
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    /// Number of the last transfer that was started.
    pub(crate) issued: u64,
    /// Number up to which all transfers have completed.
    pub(crate) complete: u64,
    /// Number of transfers in flight.
    pub(crate) in_flight: u64,
    /// Number of answers and signals that wait behind transfers.
    pub(crate) deferred: usize,
    /// Number of questions that the peer has not answered.
    pub(crate) asked: usize,
}

impl Progress {
    /// Returns whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.deferred == 0 && self.asked == 0
    }
}

/// The fence state of one end: numbers of its transfers, and the actions deferred behind them.
#[pin_data]
pub(crate) struct FenceState {
    channel: Arc<Channel>,
    #[pin]
    numbers: SpinLockIrq<Numbers>,
    /// Number of transfers in flight whose completion depends on the peer. It changes only with
    /// `numbers` locked, so that the two agree.
    left_to_peer: Atomic<u64>,
    read: Flow,
    written: Flow,
    #[pin]
    deferred: SpinLock<Deferred>,
    /// Number of entries in `deferred`, so that a completion need not lock it.
    deferred_count: Atomic<usize>,
    /// Runners of deferred actions, counted so that the closer can wait for them.
    #[pin]
    running: InFlight,
    /// Work item that runs deferred actions.
    #[pin]
    work: Work<Self>,
    /// Work item that runs deferred actions that may have to wait for the peer.
    #[pin]
    patient: Work<Self, 1>,
}

impl_has_work! {
    impl HasWork<Self> for FenceState { self.work }
    impl HasWork<Self, 1> for FenceState { self.patient }
}

impl WorkItem for FenceState {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.as_arc_borrow().run_due(false);
    }
}

impl WorkItem<1> for FenceState {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.as_arc_borrow().run_due(true);
    }
}

/// Takes note that the transfer with the number of the operation has completed.
impl CompletionListener for FenceState {
    fn ended(self: ArcBorrow<'_, Self>, operation: &Operation, result: Result, is_reported: bool) {
        self.trace_end(
            operation.number,
            operation.direction,
            operation.bytes,
            &result,
        );
        let failed = result.is_err();
        let moved = {
            let mut numbers = self.numbers.lock();
            if operation.is_left_to_peer.load(Relaxed) {
                self.left_to_peer.fetch_sub(1, Relaxed);
            }
            numbers.end(Sequence(operation.number), failed, is_reported)
        };
        match result {
            Ok(()) => self.count(operation.direction, operation.bytes),
            Err(_) => self.channel.peer().status.access_failed(),
        }
        // Wakes even if the watermark stays: a caller that waits for this very transfer does not
        // wait for earlier ones.
        self.channel.wake();
        if moved {
            self.schedule_deferred();
        }
    }

    fn taken_over(&self, operation: &Operation) {
        let _numbers = self.numbers.lock();
        if operation.is_left_to_peer.xchg(false, Relaxed) {
            self.left_to_peer.fetch_sub(1, Relaxed);
        }
    }
}

impl FenceState {
    /// Creates the state of an end that has started no transfer.
    /// Context: may sleep.
    pub(crate) fn new(channel: &Arc<Channel>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                numbers <- new_spinlock_irq!(Numbers::new(), "FenceState::numbers"),
                left_to_peer: Atomic::new(0),
                read: Flow::new(),
                written: Flow::new(),
                deferred <- new_spinlock!(Deferred::default(), "FenceState::deferred"),
                deferred_count: Atomic::new(0),
                running <- InFlight::new(),
                work <- new_work!("FenceState::work"),
                patient <- new_work!("FenceState::patient"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- transfers ---------------------------------------------------------------------------

    /// Takes a number for a transfer, and waits while too many transfers are in flight.
    /// `is_left_to_peer` says that its completion depends on the peer. Returns ECONNRESET once this
    /// end is closed. The wait is killable.
    pub(super) fn begin(&self, is_left_to_peer: bool) -> Result<Sequence> {
        let begin = || {
            let mut numbers = self.numbers.lock();
            // Checks the state under the lock, because the closer of this end waits for the
            // transfers that have a number by then.
            if self.channel.state() == State::Closed {
                return Some(Err(ECONNRESET));
            }
            let begun = numbers.begin()?;
            if is_left_to_peer {
                self.left_to_peer.add(1, Relaxed);
            }
            Some(Ok(begun))
        };
        match begin() {
            Some(begun) => begun,
            None => self.channel.waiters()?.wait_killable(begin)?,
        }
    }

    /// Polls the engine of this channel, if it has one, for a moment until `done` is true.
    /// Context: may sleep.
    pub(super) fn poll_until(&self, done: impl Fn() -> bool) {
        if let Some(route) = self.channel.path().engine(self.channel.chosen_engine()) {
            route.engine.poll_until(done);
        }
    }

    /// Traces the completion of a transfer.
    /// Context: any.
    pub(super) fn trace_end(&self, number: u64, direction: Direction, len: u64, result: &Result) {
        trace::rma_complete(|| trace::TransferEnd {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number,
            write: direction == Direction::Write,
            len,
            result: trace::errno(result),
        });
    }

    /// Counts the bytes that a transfer has moved.
    /// Context: any.
    pub(super) fn count(&self, direction: Direction, bytes: u64) {
        match direction {
            Direction::Read => self.read.add(bytes),
            Direction::Write => self.written.add(bytes),
        }
    }

    /// Returns the progress of the transfers. The caller fills in `asked`.
    /// Context: any.
    pub(crate) fn progress(&self) -> Progress {
        let numbers = self.numbers.lock();
        Progress {
            read: self.read.moved(),
            written: self.written.moved(),
            issued: numbers.last_issued().0,
            complete: numbers.watermark().0,
            in_flight: numbers.in_flight(),
            deferred: self.deferred_count.load(Relaxed),
            asked: 0,
        }
    }

    /// Returns the number of the transfer that was started last.
    /// Context: any.
    pub(super) fn last_issued(&self) -> Sequence {
        self.numbers.lock().last_issued()
    }

    /// Returns whether the transfer with this number and all before it have completed.
    /// Context: any.
    pub(super) fn is_complete(&self, sequence: Sequence) -> bool {
        self.numbers.lock().is_complete(sequence)
    }

    /// Returns EIO if one of the transfers up to `sequence`, which have all completed, has failed.
    /// A fence that was requested after a caller of this end heard of the failure no longer reports
    /// it.
    pub(super) fn report_failure(&self, sequence: Sequence) -> Result {
        let failed = self.numbers.lock().report_failure(Asker::This, sequence);
        if failed {
            return Err(EIO);
        }
        Ok(())
    }

    /// Returns the error that the caller of a failed transfer is to see. An engine that can't reach
    /// the peer may notice the loss of the peer before the rest of the driver does. So this waits
    /// for a moment for the channel to become lost. The wait is killable.
    pub(super) fn transfer_error(&self, error: Error) -> Error {
        let Ok(waiters) = self.channel.waiters() else {
            return error;
        };
        match waiters.wait_killable_timeout(NOTICE, || self.channel.check_established().err()) {
            Ok(Some(gone)) => gone,
            _ => error,
        }
    }

    /// Waits until all transfers have completed that need only this node's engines. An engine that
    /// stops is given up, so the wait ends. The resources of the transfers are released soon after.
    /// Context: may sleep.
    pub(super) fn drain_own(&self) {
        let is_done = || {
            let numbers = self.numbers.lock();
            numbers.in_flight() <= self.left_to_peer.load(Relaxed)
        };
        self.poll_until(is_done);
        if let Ok(waiters) = self.channel.waiters() {
            waiters.wait_uninterruptible(|| is_done().then_some(()));
        }
    }

    /// Returns whether all transfers have completed and no deferred action is left.
    /// Context: any.
    pub(super) fn is_idle(&self) -> bool {
        self.is_complete(self.last_issued()) && self.deferred_count.load(Relaxed) == 0
    }

    /// Returns whether a transfer was ever started.
    pub(crate) fn have_resources(&self) -> bool {
        self.last_issued() != Sequence::default()
    }

    // ----- deferred actions --------------------------------------------------------------------

    /// Answers the peer's question `token` once all transfers up to `sequence` have completed.
    /// Returns EAGAIN if too many actions wait already.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn defer_answer(
        self: ArcBorrow<'_, Self>,
        sequence: Sequence,
        token: u32,
        reservation: Reservation,
    ) -> Result {
        let node = self.channel.reserve_for_peer(RBTreeNodeReservation::new)?;
        self.defer(move |deferred, place| {
            let node = node.into_node((sequence, place), (token, reservation));
            deferred.answers.insert(node);
        })
    }

    /// Gives a signal once all transfers that were started so far have completed and all signals
    /// that were requested before have been given. Returns EAGAIN if too many actions wait already.
    /// Context: may sleep, does not wait for the peer.
    pub(super) fn defer_signal(self: ArcBorrow<'_, Self>, signal: Signal, asker: Asker) -> Result {
        let node = match asker {
            Asker::This => RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT),
            Asker::Peer => self.channel.reserve_for_peer(RBTreeNodeReservation::new),
        }?;
        self.defer(move |deferred, place| {
            // Reads the number under the lock, so that a later signal never covers fewer transfers.
            let node = node.into_node((self.last_issued(), place), (signal, asker));
            deferred.signals.insert(node);
        })
    }

    fn defer(self: ArcBorrow<'_, Self>, insert: impl FnOnce(&mut Deferred, u64)) -> Result {
        {
            let mut deferred = self.deferred.lock();
            // On an error, `insert` is dropped after the lock is released.
            let place = deferred.come()?;
            insert(&mut deferred, place);
            self.deferred_count.store(deferred.count(), Relaxed);
        }
        // Stores the count before reading the watermark. A completion moves the watermark before it
        // reads the count.
        barrier::smp_mb(barrier::Full);
        self.run_due(false);
        Ok(())
    }

    /// Has a work item run the actions behind the watermark, which has moved.
    /// Context: soft interrupt.
    fn schedule_deferred(self: ArcBorrow<'_, Self>) {
        barrier::smp_mb(barrier::Full);
        if self.deferred_count.load(Relaxed) > 0 {
            // An error says that the work item is pending already.
            let this: Arc<Self> = self.into();
            let _ = self.channel.queues.work.enqueue::<_, 0>(this);
        }
    }

    /// Forgets all deferred actions for good, as no caller waits for them. When this returns, no
    /// action runs.
    /// Context: may sleep.
    pub(crate) fn finish_deferred(&self) {
        self.running.close_and_drain();
        self.forget_deferred();
    }

    /// Runs the actions whose transfers have completed. If the next signal may have to wait for the
    /// peer and the caller may not (`may_wait`), a work item continues.
    /// Context: may sleep.
    pub(crate) fn run_due(self: ArcBorrow<'_, Self>, may_wait: bool) {
        let Some(_running) = self.running.enter() else {
            return;
        };
        // If the peer is lost, the connection forgets the deferred actions. The resources of a
        // signal must be dropped inside the peer.
        let Some(_inside) = self.channel.enter() else {
            return;
        };
        let mut has_given = false;
        for _ in 0..MOST_AT_ONCE {
            let Some(due) = self.take_due(has_given, may_wait) else {
                return;
            };
            has_given = matches!(due, Due::Signal(..));
            match due {
                Due::Answer(sequence, token, reservation) => {
                    self.answer(sequence, token, reservation);
                }
                Due::Signal(sequence, signal, asker) => self.give(sequence, signal, asker),
            }
        }
        if has_given {
            let mut deferred = self.deferred.lock();
            deferred.given();
            self.note_count(&deferred);
        }
        self.schedule_deferred();
    }

    fn answer(&self, sequence: Sequence, token: u32, reservation: Reservation) {
        let failed = self.numbers.lock().report_failure(Asker::Peer, sequence);
        let status = match failed {
            true => Status::TransferFailed,
            false => Status::Done,
        };
        if let Ok(target) = self.channel.remote() {
            let done = Message::FenceAnswer {
                target,
                token,
                status,
                sequence: sequence.0,
            };
            self.channel.send(reservation, &done);
        }
    }

    /// Gives a signal unless one of its transfers has failed, because the signal would then
    /// announce data that has not arrived. The fence that the caller waits for reports the failure
    /// instead.
    fn give(&self, sequence: Sequence, signal: Signal, asker: Asker) {
        let failed = self.numbers.lock().has_failed(asker, sequence);
        if !failed {
            signal.give(&self.channel);
        }
        trace::fence_signal_done(|| trace::SignalEnd {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number: sequence.0,
            failed,
        });
    }

    /// Takes the next due action. The caller must give a signal before it takes the next action,
    /// and then passes `has_given`. While another task gives a signal, that task takes all signals
    /// that follow.
    fn take_due(self: ArcBorrow<'_, Self>, has_given: bool, may_wait: bool) -> Option<Due> {
        let mut deferred = self.deferred.lock();
        if has_given {
            deferred.given();
        }
        let is_complete = |sequence| self.is_complete(sequence);
        let due = deferred.take(is_complete, may_wait);
        self.note_count(&deferred);
        let waiting = deferred.due_signal(is_complete).filter(|_| due.is_none());
        let send_slots = waiting.and_then(|signal| signal.send_slots.clone());
        drop(deferred);
        if let Some(send_slots) = send_slots {
            send_slots.signals.enqueue::<Arc<Self>, 1>(self.into());
        }
        due
    }

    fn note_count(&self, deferred: &Deferred) {
        let count = deferred.count();
        self.deferred_count.store(count, Relaxed);
        if count == 0 {
            // Stores the count before reading the state. The closer of this end sets the state
            // before it reads the count.
            barrier::smp_mb(barrier::Full);
            if self.channel.state() == State::Closed {
                self.channel.wake();
            }
        }
    }

    /// Forgets all deferred actions, as no caller waits for them.
    /// Context: may sleep.
    pub(crate) fn forget_deferred(&self) {
        let mut deferred = self.deferred.lock();
        let forgotten = deferred.take_all();
        self.note_count(&deferred);
        drop(deferred);
        // Dropped after the lock is released.
        drop(forgotten);
    }
}
