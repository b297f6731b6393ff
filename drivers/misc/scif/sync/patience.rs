// SPDX-License-Identifier: GPL-2.0

//! How long a caller that closes something waits for a peer.
//!
//! A process that goes on waits until it is killed. From then on it has [`LIMIT`], for all that it still has to wait for:
//! whoever waits for the end of a process wants its memory back then, but not for any time that a peer might like. A task
//! that has begun to exit has as much, for all of its descriptors together.
//!
//! Descriptors can outlive all processes: in a socket, for example. Then whoever drops them, a worker of the kernel or
//! a task that has nothing to do with them, does not wait at all: others would wait behind it, and nobody waits for that
//! memory.

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

/// How long a task that no signal can end (any more) waits.
pub(crate) const LIMIT: Delta = Delta::from_secs(2);

/// How long a process that goes on waits for what a peer may never do.
const ANSWER_LIMIT: Delta = Delta::from_secs(120);

/// Longer than anybody waits.
const FOREVER: Delta = Delta::from_millis(i32::MAX as i64);

/// How long a caller waits for a peer.
pub(crate) enum Patience {
    /// As long as it takes: the memory that the peer may use is only lent.
    Endless,
    /// Until the caller is killed, and [`LIMIT`] from then on, which is known once it has come to that.
    Process(Cell<Option<Instant<Monotonic>>>),
    /// Not at all.
    Spent,
}

impl Patience {
    /// That of a process, which may have begun to exit before this.
    pub(crate) fn of_process(exits_since: Option<Instant<Monotonic>>) -> Self {
        Self::Process(Cell::new(exits_since.filter(|_| !can_be_killed())))
    }

    /// That of a task that drops the last reference to a descriptor, which a task that exits may have closed before this.
    pub(crate) fn of_release(exits_since: Option<Instant<Monotonic>>) -> Self {
        if exits_since.is_none() && !can_be_killed() {
            return Self::Spent;
        }
        Self::of_process(exits_since)
    }

    /// Waits until `done`, which has a limit of its own for those who go on. Returns false if that was too long.
    pub(crate) fn wait(&self, waiters: &WaitQueue, done: impl Fn() -> bool) -> bool {
        self.wait_within(FOREVER, waiters, done)
    }

    /// As [`Self::wait`], for what has no other limit than [`ANSWER_LIMIT`].
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
    fn a_task_that_exits_waits_for_all_its_descriptors_together() -> Result {
        let waiters = Arc::pin_init(new_wait_queue!("scif_test"), GFP_KERNEL)?;
        // The tests run in a kernel thread, which no signal ends.
        let before = Instant::<Monotonic>::now() - LIMIT;
        let started = Instant::<Monotonic>::now();
        let process = Patience::of_process(Some(before));
        let released = Patience::of_release(Some(before));
        // No task that exits has closed this one.
        let nobodys = Patience::of_release(None);
        for patience in [process, released, nobodys] {
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
        // That was all.
        let started = Instant::<Monotonic>::now();
        assert!(!patience.wait(&waiters, || false));
        assert!(started.elapsed() < LIMIT);
        assert!(Patience::Endless.wait(&waiters, || true));
        Ok(())
    }
}
