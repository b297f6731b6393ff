// SPDX-License-Identifier: GPL-2.0

//! The numbers of one end's transfers, and what waits behind them.
//!
//! Every transfer gets the next number; fences wait for all up to one, and know nothing of engines.
//! Something can be *deferred* behind a number: an answer that the peer waits for, or a signal. It
//! runs when all up to that number have ended, at once or by a work item.
//!
//! Failures are remembered as between which numbers they lie, once for our own fences and once for
//! the peer's, until one of those has reported them.
//!
//! Locks: `state` is a leaf, taken in soft interrupts; `deferred` is one that is not.

use super::{
    signal::Signal,
    staging::Staging,
    transfer::{
        Completion,
        Ended, //
    },
};
use crate::{
    arguments::Direction,
    logic::{
        marks::{
            MarkTracker,
            Sequence, //
        },
        messages::{
            Message,
            Status, //
        },
    },
    peer::channel::Channel,
    sync::{
        awake::Asleep,
        flow::{
            Flow,
            Moved, //
        },
    },
    sys::trace,
    transport::engine::EngineRoute,
};
use kernel::{
    impl_has_work, new_mutex, new_spinlock_irq, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        barrier,
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

/// Actions that may wait on one channel.
const MAX_DEFERRED: usize = 4096;

/// How long a failed transfer waits for the news that the peer is gone.
const NOTICE: Delta = Delta::from_millis(200);

/// The transfers that failed and were not reported yet: all there is to say of them is between
/// which numbers they lie.
#[derive(Clone, Copy, Default)]
struct Failures {
    range: Option<(Sequence, Sequence)>,
}

impl Failures {
    fn add(&mut self, sequence: Sequence) {
        let (first, last) = self.range.unwrap_or((sequence, sequence));
        self.range = Some((first.min(sequence), last.max(sequence)));
    }

    /// Whether one up to `sequence` has failed.
    fn contains(&self, sequence: Sequence) -> bool {
        matches!(self.range, Some((first, _)) if first <= sequence)
    }

    /// Says whether one up to `sequence` has failed, and forgets those.
    fn take(&mut self, sequence: Sequence) -> bool {
        match self.range {
            Some((first, last)) if first <= sequence => {
                self.range =
                    (last > sequence).then_some((Sequence(sequence.0.saturating_add(1)), last));
                true
            }
            _ => false,
        }
    }
}

struct State {
    tracker: MarkTracker,
    /// How many transfers have ended.
    ended: u64,
    /// What our fences have not reported.
    failed: Failures,
    /// What the peer's fences for our transfers have not reported.
    failed_for_peer: Failures,
}

/// Something to do once all transfers up to a number have ended.
pub(super) enum Action {
    /// Tell the peer, which has asked with this token.
    Answer(u32),
    Signal(Signal),
}

/// How the transfers of one end go.
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

impl Action {
    /// Whether it may have to wait for the peer.
    fn waits(&self) -> bool {
        matches!(self, Self::Signal(signal) if signal.waits())
    }
}

struct Deferred {
    sequence: Sequence,
    action: Action,
}

/// See the head of this file.
#[pin_data]
pub(crate) struct Marks {
    channel: Arc<Channel>,
    staging: Arc<Staging>,
    #[pin]
    state: SpinLockIrq<State>,
    read: Flow,
    written: Flow,
    #[pin]
    deferred: Mutex<KVec<Deferred>>,
    /// How many there are, so that a completion need not look.
    deferred_count: Atomic<usize>,
    /// Runs what is deferred.
    #[pin]
    work: Work<Self>,
}

impl_has_work! {
    impl HasWork<Self> for Marks { self.work }
}

impl WorkItem for Marks {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.run_deferred();
    }
}

impl Completion for Marks {
    fn transfer_ended(self: ArcBorrow<'_, Self>, ended: &Ended) {
        self.end(ended);
    }
}

impl Marks {
    /// No transfer was started yet. May sleep.
    pub(crate) fn new(channel: &Arc<Channel>, staging: &Arc<Staging>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                channel: channel.clone(),
                staging: staging.clone(),
                state <- new_spinlock_irq!(
                    State {
                        tracker: MarkTracker::new(),
                        ended: 0,
                        failed: Failures::default(),
                        failed_for_peer: Failures::default(),
                    },
                    "Marks::state"
                ),
                read: Flow::new(),
                written: Flow::new(),
                deferred <- new_mutex!(KVec::new(), "Marks::deferred"),
                deferred_count: Atomic::new(0),
                work <- new_work!("Marks::work"),
            }),
            GFP_KERNEL_ACCOUNT,
        )
    }

    // ----- transfers ---------------------------------------------------------------------------

    /// Takes a number for a transfer; waits while too many are under way. Killable.
    pub(super) fn begin(&self) -> Result<Sequence> {
        let begin = || self.state.lock().tracker.begin();
        match begin() {
            Some(sequence) => Ok(sequence),
            None => {
                let _asleep = self.hurry(|| false);
                self.channel.waiters()?.wait_killable(begin)
            }
        }
    }

    /// For who is about to sleep until `done`: has ends noticed. What it returns is to be dropped when he has slept.
    /// Process context, no locks.
    pub(super) fn hurry(&self, done: impl Fn() -> bool) -> Option<Asleep<'_>> {
        if let Some(route) = self.engine() {
            route.engine.hurry(|| {
                self.staging.look();
                done()
            });
        }
        self.staging.hurry(done)
    }

    /// The one that has copied for this channel, if one has.
    fn engine(&self) -> Option<&EngineRoute> {
        self.channel.path().engine(self.channel.chosen_engine())
    }

    /// A transfer has ended. Soft interrupt context, or any other but hard interrupts.
    pub(super) fn end(self: ArcBorrow<'_, Self>, ended: &Ended) {
        let sequence = Sequence(ended.number);
        trace::rma_complete(|| trace::TransferEnd {
            node: self.channel.node(),
            channel: self.channel.id.0,
            number: ended.number,
            write: ended.direction == Direction::Write,
            len: ended.bytes,
            result: trace::errno(&ended.result),
        });
        let moved = {
            let mut state = self.state.lock();
            if ended.result.is_err() && !ended.is_reported {
                state.failed.add(sequence);
                state.failed_for_peer.add(sequence);
            }
            state.ended += 1;
            state.tracker.complete(sequence)
        };
        match ended.result {
            Ok(()) => self.flow(ended.direction).add(ended.bytes),
            Err(_) => self.channel.peer().status.access_failed(),
        }
        // Always: one that waits for this very transfer does not wait for those before.
        self.channel.wake();
        if moved {
            self.schedule_deferred();
        }
    }

    /// Has the end of transfers reported that nobody waits for.
    fn announce(&self) {
        if let Some(route) = self.engine() {
            route.engine.announce();
        }
        self.staging.ask();
    }

    /// So many bytes more have been moved, by what has no number. Any context.
    pub(super) fn count(&self, direction: Direction, bytes: u64) {
        self.flow(direction).add(bytes);
    }

    /// What has been moved in a direction.
    fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.written,
        }
    }

    /// How it goes, for people. Any context.
    pub(super) fn progress(&self) -> Progress {
        let state = self.state.lock();
        let issued = state.tracker.last_issued().0;
        Progress {
            read: self.read.moved(),
            written: self.written.moved(),
            issued,
            complete: state.tracker.watermark().0,
            in_flight: issued.saturating_sub(state.ended),
            deferred: self.deferred_count.load(Relaxed),
            asked: 0,
        }
    }

    /// The transfer that was started last. Any context.
    pub(super) fn last_issued(&self) -> Sequence {
        self.state.lock().tracker.last_issued()
    }

    /// Whether this transfer and all before it have ended. Any context.
    pub(super) fn is_complete(&self, sequence: Sequence) -> bool {
        self.state.lock().tracker.is_complete(sequence)
    }

    /// EIO, once, if a transfer up to this one has failed.
    pub(super) fn take_failure(&self, sequence: Sequence) -> Result {
        match self.state.lock().failed.take(sequence) {
            true => Err(EIO),
            false => Ok(()),
        }
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

    /// Waits until all transfers are over, which is bounded by the engine. What they used is let go soon
    /// after. May sleep.
    pub(crate) fn drain(&self) {
        let last = self.last_issued();
        let _asleep = self.hurry(|| self.is_complete(last));
        if let Ok(waiters) = self.channel.waiters() {
            waiters.wait_uninterruptible(|| self.is_complete(last).then_some(()));
        }
    }

    /// Whether there ever was a transfer.
    pub(crate) fn were_used(&self) -> bool {
        self.last_issued() != Sequence::default()
    }

    // ----- what is deferred --------------------------------------------------------------------

    /// Does something once all transfers up to `sequence` have ended. ENOMEM if too much waits
    /// already. May sleep, does not wait for the peer.
    pub(super) fn defer(self: ArcBorrow<'_, Self>, sequence: Sequence, action: Action) -> Result {
        let waits = action.waits();
        let new = Deferred { sequence, action };
        let refused = {
            let mut deferred = self.deferred.lock();
            let room = deferred.len() < MAX_DEFERRED && deferred.reserve(1, GFP_KERNEL).is_ok();
            let refused = match room {
                true => deferred
                    .push_within_capacity(new)
                    .err()
                    .map(|error| error.0),
                false => Some(new),
            };
            self.deferred_count.store(deferred.len(), Relaxed);
            refused
        };
        // Dropped without the lock.
        if refused.is_some() {
            return Err(ENOMEM);
        }
        // Counted first, then looked at, as a completion does it the other way round.
        barrier::smp_mb(barrier::Full);
        self.run_due(false);
        if waits && self.is_complete(sequence) {
            self.schedule_deferred();
        }
        if self.deferred_count.load(Relaxed) > 0 {
            self.announce();
        }
        Ok(())
    }

    /// The watermark has moved: runs what waits behind it, soon. Soft interrupt context.
    fn schedule_deferred(self: ArcBorrow<'_, Self>) {
        barrier::smp_mb(barrier::Full);
        if self.deferred_count.load(Relaxed) > 0 {
            // An error says that it is about to run anyway.
            let this: Arc<Self> = self.into();
            let _ = self.channel.queues().completion.enqueue(this);
        }
    }

    /// Runs what waits behind transfers that have ended. May sleep.
    pub(crate) fn run_deferred(&self) {
        self.run_due(true);
    }

    /// As [`Self::run_deferred`]; not what may have to wait for the peer, unless this `may_wait`, too.
    fn run_due(&self, may_wait: bool) {
        // With a peer that is lost, it is forgotten. What signals hold goes inside the peer.
        let Some(_inside) = self.channel.enter() else {
            return;
        };
        while let Some(due) = self.take_due(may_wait) {
            match due.action {
                Action::Answer(token) => {
                    let failed = self.state.lock().failed_for_peer.take(due.sequence);
                    self.answer(
                        token,
                        match failed {
                            false => Status::Done,
                            true => Status::TransferFailed,
                        },
                    );
                }
                // One whose transfers have failed is not given: it would say that data is there
                // that is not. The fence that the caller waits for says so instead.
                Action::Signal(signal) => {
                    let failed = self.state.lock().failed.contains(due.sequence);
                    if !failed {
                        signal.give(&self.channel);
                    }
                    trace::fence_signal_done(|| trace::SignalEnd {
                        node: self.channel.node(),
                        channel: self.channel.id.0,
                        number: due.sequence.0,
                        failed,
                    });
                }
            }
        }
    }

    fn take_due(&self, may_wait: bool) -> Option<Deferred> {
        let mut deferred = self.deferred.lock();
        let position = deferred.iter().position(|deferred| {
            self.is_complete(deferred.sequence) && (may_wait || !deferred.action.waits())
        });
        let due = position.and_then(|position| deferred.remove(position).ok());
        self.deferred_count.store(deferred.len(), Relaxed);
        due
    }

    /// Answers what the peer has asked with this token.
    pub(super) fn answer(&self, token: u32, status: Status) {
        if let Ok(target) = self.channel.remote() {
            let _ = self.channel.post(&Message::FenceDone {
                target,
                token,
                status,
            });
        }
    }

    /// Forgets what is deferred: nobody waits for it any more. May sleep.
    pub(crate) fn forget_deferred(&self) {
        let deferred = core::mem::replace(&mut *self.deferred.lock(), KVec::new());
        self.deferred_count.store(0, Relaxed);
        drop(deferred);
    }
}

#[kunit_tests(scif_rma_marks)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_said_once_by_who_waits_for_it() {
        let mut failures = Failures::default();
        assert!(!failures.take(Sequence(9)));
        failures.add(Sequence(5));
        failures.add(Sequence(3));
        // A fence that stands before it says nothing of it.
        assert!(!failures.contains(Sequence(2)) && !failures.take(Sequence(2)));
        assert!(failures.contains(Sequence(3)));
        assert!(failures.take(Sequence(4)));
        // What lies behind is for the next one.
        assert!(!failures.take(Sequence(4)));
        assert!(failures.take(Sequence(5)));
        assert!(!failures.take(Sequence(u64::MAX)));
    }
}
