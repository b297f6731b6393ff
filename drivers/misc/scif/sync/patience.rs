// SPDX-License-Identifier: GPL-2.0

//! Time that a caller that closes something waits for a peer.
//!
//! A process that goes on waits until it is killed. From then on it waits for [`LIMIT`] in all,
//! whatever it still has to wait for. Users want the memory of a killed process back, however long
//! a peer would take. A task that has begun to exit has the same time, for all of its descriptors
//! together.
//!
//! Descriptors can outlive all processes, for example in a socket. Then a kernel worker or an
//! unrelated task drops them, and does not wait at all. Other tasks would wait behind it, and no
//! task waits for the memory.

use crate::sys::{
    current::can_be_killed,
    wait::WaitQueue, //
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// Time that a task waits that no signal can end (any more).
pub(crate) const LIMIT: Delta = Delta::from_secs(2);

/// Time that a process that goes on waits for an answer that a peer may never give.
const ANSWER_LIMIT: Delta = Delta::from_secs(120);

/// A time that is longer than any wait.
const FOREVER: Delta = Delta::from_millis(i32::MAX as i64);

/// The time that a caller waits for a peer.
pub(crate) enum Patience {
    /// No limit, as the peer may be using memory that is only lent.
    Endless,
    /// Until the caller is killed, and [`LIMIT`] from then on. Holds the time of the kill once it
    /// is known.
    Process(Cell<Option<Instant<Monotonic>>>),
    /// No time.
    Spent,
}

impl Patience {
    /// Returns the patience of a process, which may have begun to exit before this.
    pub(crate) fn of_process(exits_since: Option<Instant<Monotonic>>) -> Self {
        Self::Process(Cell::new(exits_since.filter(|_| !can_be_killed())))
    }

    /// Returns the patience of a task that drops the last reference to a descriptor. A task that
    /// exits may have closed the descriptor before.
    pub(crate) fn of_release(exits_since: Option<Instant<Monotonic>>) -> Self {
        if exits_since.is_none() && !can_be_killed() {
            return Self::Spent;
        }
        Self::of_process(exits_since)
    }

    /// Waits until `done`, which must have a time limit of its own for processes that go on.
    /// Returns false if the patience is exhausted.
    pub(crate) fn wait(&self, waiters: &WaitQueue, done: impl Fn() -> bool) -> bool {
        self.wait_within(FOREVER, waiters, done)
    }

    /// Waits as [`Self::wait`] does, for an event without another time limit than [`ANSWER_LIMIT`].
    pub(crate) fn wait_for_answer(&self, waiters: &WaitQueue, done: impl Fn() -> bool) -> bool {
        self.wait_within(ANSWER_LIMIT, waiters, done)
    }

    fn wait_within(&self, limit: Delta, waiters: &WaitQueue, done: impl Fn() -> bool) -> bool {
        let done = || done().then_some(());
        let since = match self {
            Self::Process(since) => since,
            Self::Endless => return waiters.wait_uninterruptible_timeout(limit, done).is_some(),
            Self::Spent => return done().is_some(),
        };
        if since.get().is_none() {
            if can_be_killed() {
                if let Ok(waited) = waiters.wait_killable_timeout(limit, done) {
                    return waited.is_some();
                }
            }
            since.set(Some(Instant::now()));
        }
        let left = since.get().map_or(LIMIT, |since| LIMIT - since.elapsed());
        let waited = waiters.wait_uninterruptible_timeout(left, done);
        waited.is_some()
    }
}

#[kunit_tests(scif_sync_patience)]
mod tests {
    use super::*;
    use crate::sys::wait::new_wait_queue;
    use kernel::sync::Arc;

    #[test]
    fn exiting_task_has_one_time_limit_for_all_descriptors() -> Result {
        let waiters = Arc::pin_init(new_wait_queue!("scif_test"), GFP_KERNEL)?;
        // The tests run in a kernel thread, which no signal ends.
        let before = Instant::<Monotonic>::now() - LIMIT;
        let started = Instant::<Monotonic>::now();
        let process = Patience::of_process(Some(before));
        let released = Patience::of_release(Some(before));
        // No exiting task has closed this descriptor.
        let unclosed = Patience::of_release(None);
        for patience in [process, released, unclosed] {
            for _ in 0..100 {
                assert!(!patience.wait(&waiters, || false));
                assert!(patience.wait(&waiters, || true));
            }
        }
        assert!(started.elapsed() < LIMIT);
        // A client of the kernel API.
        let patience = Patience::of_process(None);
        assert!(!patience.wait(&waiters, || false));
        assert!(started.elapsed() >= LIMIT);
        // The time is used up.
        let started = Instant::<Monotonic>::now();
        assert!(!patience.wait(&waiters, || false));
        assert!(started.elapsed() < LIMIT);
        assert!(Patience::Endless.wait(&waiters, || true));
        Ok(())
    }
}
