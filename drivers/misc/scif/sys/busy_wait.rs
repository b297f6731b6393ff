// SPDX-License-Identifier: GPL-2.0

//! Staying awake for a moment, for what may come sooner than a wake-up would.

use super::{
    bindings as own,
    tunables, //
};
use kernel::{
    current,
    processor::cpu_relax,
    time::{
        Delta,
        Instant,
        Monotonic, //
    },
};

/// The longest time for which a waiter polls, whatever an administrator says.
const LONGEST_US: u32 = 10_000;

/// Returns for how long a waiter polls before it sleeps: the parameter `busy_poll_us`. Any context.
pub(crate) fn busy_poll() -> Delta {
    Delta::from_micros(tunables::busy_poll_us().min(LONGEST_US).into())
}

/// The time, for measuring how long something takes.
pub(crate) fn now() -> Instant<Monotonic> {
    Instant::now()
}

/// Looks at `condition` again and again for at most this long, and says whether it has become true.
/// Ends early, with a no, when somebody else wants the processor or there is a signal. Process context,
/// no locks.
pub(crate) fn busy_wait(limit: Delta, condition: impl Fn() -> bool) -> bool {
    if limit.is_zero() {
        return false;
    }
    let start = now();
    loop {
        if condition() {
            return true;
        }
        // SAFETY: May be called anywhere.
        let is_wanted = unsafe { own::scif_helper_need_resched() };
        if is_wanted || current!().signal_pending() || start.elapsed() >= limit {
            return false;
        }
        cpu_relax();
    }
}
