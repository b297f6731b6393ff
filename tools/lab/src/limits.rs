// SPDX-License-Identifier: GPL-2.0
//! The time after which an operation counts as hung.
//!
//! The caller gives the seconds that are plenty on an idle machine ([`hang_limit`], and
//! `Lab::hang_limit` for operations of a guest). Only this module decides how much more time there
//! is on a busy machine. Such a limit proves nothing: it only ends operations that would never end,
//! so a generous limit costs nothing. A promise is judged by the speed measured next to it, see
//! [`crate::speed`].

use std::time::Duration;

/// Factor by which a machine may be slower than expected before an operation counts as hung.
const GENEROSITY: u64 = 10;

/// Returns the limit for an operation on the host that takes less than `seconds` on an idle
/// machine.
pub const fn hang_limit(seconds: u64) -> Duration {
    Duration::from_secs(seconds * GENEROSITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hang_limit_allows_a_ten_times_slower_machine() {
        assert!(hang_limit(20) >= Duration::from_secs(200));
    }
}
