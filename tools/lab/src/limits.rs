// SPDX-License-Identifier: GPL-2.0
//! How long something may take before it is taken for hung.
//!
//! Whoever waits says how many seconds are plenty on a machine that has nothing else to do
//! ([`hang_limit`], and `Lab::hang_limit` for what a guest does); how much more it gets on a
//! machine that has, is said here and nowhere else. Such a limit proves nothing: it only
//! ends what would never end, so it costs nothing to be generous. What proves a promise is
//! judged by the speed measured next to it, see [`crate::speed`].

use std::time::Duration;

/// How much slower than expected a machine may be without anything being taken for hung:
/// ten times is what the suite has to stand.
const GENEROSITY: u64 = 10;

/// The limit for something on the host that takes less than `seconds` when nothing else
/// runs there.
pub const fn hang_limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds * GENEROSITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_ten_times_slower_is_not_taken_for_hung() {
        assert!(hang_limit(20) >= Duration::from_secs(200));
    }
}
