// SPDX-License-Identifier: GPL-2.0

//! Trying again what has failed for want of memory, for work that nobody else would start again.
//!
//! Not for what a caller waits for: that one is told of the error and tries again if it likes.

use kernel::{
    prelude::*,
    time::{
        delay::fsleep,
        Delta, //
    },
};

/// Between two tries.
const PAUSE: Delta = Delta::from_millis(100);

/// How often it is tried: for ten seconds, by which the kernel has freed memory or killed somebody.
const TRIES: usize = 100;

/// Tries until it works, fails for another reason, is not `wanted` any more, or it is time to give up.
/// Returns the last result. May sleep.
pub(crate) fn patiently(mut attempt: impl FnMut() -> Result, wanted: impl Fn() -> bool) -> Result {
    for _ in 1..TRIES {
        match attempt() {
            Err(ENOMEM) if wanted() => fsleep(PAUSE),
            result => return result,
        }
    }
    attempt()
}

#[kunit_tests(scif_sync_patience)]
mod tests {
    use super::*;

    /// How often it is tried if that is how the tries end, and what comes of it.
    fn tries(results: &[Result], wanted: bool) -> (usize, Result) {
        let mut count = 0;
        let result = patiently(
            || {
                count += 1;
                results.get(count - 1).copied().unwrap_or(Ok(()))
            },
            || wanted,
        );
        (count, result)
    }

    #[test]
    fn only_the_want_of_memory_passes() {
        assert_eq!(tries(&[], true), (1, Ok(())));
        assert_eq!(tries(&[Err(ENOMEM), Err(ENOMEM)], true), (3, Ok(())));
        assert_eq!(tries(&[Err(ENOMEM), Err(EEXIST)], true), (2, Err(EEXIST)));
    }

    #[test]
    fn who_goes_does_not_try_again() {
        assert_eq!(tries(&[Err(ENOMEM)], false), (1, Err(ENOMEM)));
    }
}
