// SPDX-License-Identifier: GPL-2.0

//! The numbers of one end's transfers, and what waits behind them.
//!
//! Every transfer gets the next number; fences wait for all up to one, and know nothing of engines.
//! Something can be *deferred* behind a number: an answer that the peer waits for, or a signal. It
//! runs when all up to that number have ended, at once or by a work item.
//! Signals are given in order (`deferred.rs`): whoever gives one goes on with those behind it, and all others leave them
//! to that one.
//!
//! Failures are remembered as long as a fence or a signal can ask for them (`logic/marks.rs`).
//!
//! Locks: `numbers` is a leaf, taken in soft interrupts; `deferred` is a spinlock that is not, and above it.

#[cfg(CONFIG_KUNIT = "y")]
mod tests;

use super::{
    deferred::{
        Deferred,
        Due, //
    },
    operation::{
        Completion,
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

/// How much one caller does of what is deferred, which others may have asked for, before a work item goes on.
const MOST_AT_ONCE: u32 = 64;

/// How long a failed transfer waits for the news that the peer is gone.
const NOTICE: Delta = Delta::from_millis(200);

/// How the transfers of one end go.
#[derive(Default)]
pub(crate) struct Progress {
    /// What was moved without an error.
    pub(crate) read: Moved,
    pub(crate) written: Moved,
    /// The number of the last one that was started.
    pub(crate) issued: u64,
    /// The number up to which all have ended.
    pub(crate) complete: u64,
    /// How many run.
    pub(crate) in_flight: u64,
    /// Answers and signals that wait behind transfers.
    pub(crate) deferred: usize,
    /// Questions to the peer that it has not answered.
    pub(crate) asked: usize,
}

impl Progress {
    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.deferred == 0 && self.asked == 0
    }
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Marks {
    channel: Arc<Channel>,
    #[pin]
    numbers: SpinLockIrq<Numbers>,
    /// Transfers under way whose end is up to the peer. Changed with `numbers` locked, so that both say the same.
    left_to_peer: Atomic<u64>,
    read: Flow,
    written: Flow,
    #[pin]
    deferred: SpinLock<Deferred>,
    /// How many there are, so that a completion need not look.
    deferred_count: Atomic<usize>,
    /// Actions that run now.
    #[pin]
    running: InFlight,
    /// Runs what is deferred.
    #[pin]
    work: Work<Self>,
    /// Runs what is deferred and may have to wait for the peer.
    #[pin]
    patient: Work<Self, 1>,
}

impl_has_work! {
    impl HasWork<Self> for Marks { self.work }
    impl HasWork<Self, 1> for Marks { self.patient }
}

impl WorkItem for Marks {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.as_arc_borrow().run_due(false);
    }
}

impl WorkItem<1> for Marks {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.as_arc_borrow().run_due(true);
    }
}

/// The transfer of that number has ended.
impl Completion for Marks {
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
        // Always: one that waits for this very transfer does not wait for those before.
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

impl Marks {
    /// No transfer was started yet. May sleep.
    pub(crate) fn new(channel: &Arc<Channel>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                numbers <- new_spinlock_irq!(Numbers::new(), "Marks::numbers"),
                left_to_peer: Atomic::new(0),
                read: Flow::new(),
                written: Flow::new(),
                deferred <- new_spinlock!(Deferred::default(), "Marks::deferred"),
                deferred_count: Atomic::new(0),
                running <- InFlight::new(),
                work <- new_work!("Marks::work"),
                patient <- new_work!("Marks::patient"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- transfers ---------------------------------------------------------------------------

    /// Takes a number for a transfer, whose end may be up to the peer; waits while too many are under way. ECONNRESET once
    /// this end is closed. Killable.
    pub(super) fn begin(&self, is_left_to_peer: bool) -> Result<Sequence> {
        let begin = || {
            let mut numbers = self.numbers.lock();
            // Looked at under the lock: whoever closes this end waits for those that have begun by then.
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

    /// Polls the engine of this channel, if it has one, for a moment until `done`. May sleep.
    pub(super) fn poll_until(&self, done: impl Fn() -> bool) {
        if let Some(route) = self.channel.path().engine(self.channel.chosen_engine()) {
            route.engine.poll_until(done);
        }
    }

    /// Tells who traces of the end of a transfer. Any context.
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

    /// So many bytes more have been moved, by a transfer. Any context.
    pub(super) fn count(&self, direction: Direction, bytes: u64) {
        match direction {
            Direction::Read => self.read.add(bytes),
            Direction::Write => self.written.add(bytes),
        }
    }

    /// How it goes, for people. Any context.
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

    /// The transfer that was started last. Any context.
    pub(super) fn last_issued(&self) -> Sequence {
        self.numbers.lock().last_issued()
    }

    /// Whether this transfer and all before it have ended. Any context.
    pub(super) fn is_complete(&self, sequence: Sequence) -> bool {
        self.numbers.lock().is_complete(sequence)
    }

    /// EIO if a transfer up to this one, which have all ended, has failed, and nothing was asked for since a
    /// caller of this end has heard of that.
    pub(super) fn report_failure(&self, sequence: Sequence) -> Result {
        let failed = self.numbers.lock().report_failure(Asker::This, sequence);
        if failed {
            return Err(EIO);
        }
        Ok(())
    }

    /// What a failed transfer means: an engine that can't reach the peer may notice that it is gone
    /// before anybody else does. Waits a moment for others to notice; killable.
    pub(super) fn transfer_error(&self, error: Error) -> Error {
        let Ok(waiters) = self.channel.waiters() else {
            return error;
        };
        match waiters.wait_killable_timeout(NOTICE, || self.channel.check_established().err()) {
            Ok(Some(gone)) => gone,
            _ => error,
        }
    }

    /// Waits until all transfers are over that need nobody but this node's engines: one that stops is given up. What they
    /// used is released soon after. May sleep.
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

    /// Whether all transfers have ended, and all that waits behind them was done. Any context.
    pub(super) fn is_idle(&self) -> bool {
        self.is_complete(self.last_issued()) && self.deferred_count.load(Relaxed) == 0
    }

    /// Whether there ever was a transfer.
    pub(crate) fn were_used(&self) -> bool {
        self.last_issued() != Sequence::default()
    }

    // ----- what is deferred --------------------------------------------------------------------

    /// Answers the peer, which has asked with this token, once all transfers up to `sequence` have ended. EAGAIN if too
    /// much waits already. May sleep, does not wait for the peer.
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

    /// Gives a signal once all transfers that were started so far have ended, and all signals that were asked for before
    /// have been given. EAGAIN if too much waits already. May sleep, does not wait for the peer.
    pub(super) fn defer_signal(self: ArcBorrow<'_, Self>, signal: Signal, asker: Asker) -> Result {
        let node = match asker {
            Asker::This => RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT),
            Asker::Peer => self.channel.reserve_for_peer(RBTreeNodeReservation::new),
        }?;
        self.defer(move |deferred, place| {
            // Looked at under the lock, so that a later one never stands for less.
            let node = node.into_node((self.last_issued(), place), (signal, asker));
            deferred.signals.insert(node);
        })
    }

    fn defer(self: ArcBorrow<'_, Self>, insert: impl FnOnce(&mut Deferred, u64)) -> Result {
        {
            let mut deferred = self.deferred.lock();
            // What was to be inserted is dropped without the lock.
            let place = deferred.come()?;
            insert(&mut deferred, place);
            self.deferred_count.store(deferred.count(), Relaxed);
        }
        // Counted first, then looked at, as a completion does it the other way round.
        barrier::smp_mb(barrier::Full);
        self.run_due(false);
        Ok(())
    }

    /// The watermark has moved: runs what waits behind it, soon. Soft interrupt context.
    fn schedule_deferred(self: ArcBorrow<'_, Self>) {
        barrier::smp_mb(barrier::Full);
        if self.deferred_count.load(Relaxed) > 0 {
            // An error says that it is about to run anyway.
            let this: Arc<Self> = self.into();
            let _ = self.channel.queues.work.enqueue::<_, 0>(this);
        }
    }

    /// Forgets what is deferred for good: no caller waits for it any more. When this returns, no action runs. May
    /// sleep.
    pub(crate) fn finish_deferred(&self) {
        self.running.close_and_drain();
        self.forget_deferred();
    }

    /// Runs what waits behind transfers that have ended. If a signal may have to wait for the peer, and the caller may not
    /// (`may_wait`), a work item goes on. May sleep.
    pub(crate) fn run_due(self: ArcBorrow<'_, Self>, may_wait: bool) {
        let Some(_running) = self.running.enter() else {
            return;
        };
        // With a peer that is lost, it is forgotten. What signals hold goes inside the peer.
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

    /// Gives a signal, unless its transfers have failed: it would say that data is there that is not. The fence that the
    /// caller waits for says so instead.
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

    /// Takes what is due next. The caller has to give a signal before it takes the next thing, and says that it `has_given`
    /// one. What another one has to give before is left to that one.
    fn take_due(self: ArcBorrow<'_, Self>, has_given: bool, may_wait: bool) -> Option<Due> {
        let mut deferred = self.deferred.lock();
        if has_given {
            deferred.given();
        }
        let is_complete = |sequence| self.is_complete(sequence);
        let due = deferred.take(is_complete, may_wait);
        self.note_count(&deferred);
        let waiting = deferred.due_signal(is_complete).filter(|_| due.is_none());
        let outbox = waiting.and_then(|signal| signal.outbox.clone());
        drop(deferred);
        if let Some(outbox) = outbox {
            outbox.signals.enqueue::<Arc<Self>, 1>(self.into());
        }
        due
    }

    fn note_count(&self, deferred: &Deferred) {
        let count = deferred.count();
        self.deferred_count.store(count, Relaxed);
        if count == 0 {
            // Stored first, then looked at; whoever closes this end does it the other way round.
            barrier::smp_mb(barrier::Full);
            if self.channel.state() == State::Closed {
                self.channel.wake();
            }
        }
    }

    /// Forgets what is deferred: nobody waits for it any more. May sleep.
    pub(crate) fn forget_deferred(&self) {
        let mut deferred = self.deferred.lock();
        let forgotten = deferred.take_all();
        self.note_count(&deferred);
        drop(deferred);
        // Without the lock.
        drop(forgotten);
    }
}
